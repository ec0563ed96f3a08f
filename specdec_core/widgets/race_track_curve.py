"""What a race consists of, and the curve of the speed-up with the zone below 1 hatched."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec_core.widgets.figure import nice_step
from specdec_core.widgets.picture import (
    BLUE,
    GREEN,
    HALO,
    INK,
    MUTED,
    PAPER,
    VERMILION,
    clickable,
    svg_text,
)

LEFT, RIGHT = 52, 486  # of gamma 0 and of the last
TALL = 170
MARGIN = 16


@dataclass(frozen=True)
class Leg:
    """One round of a race: the verdict on each draft, and the tokens with their origins."""

    verdicts: tuple[str, ...]
    words: tuple[str, ...]
    origins: tuple[str, ...]

    @property
    def drafted(self) -> int:
        return len(self.verdicts)


@dataclass(frozen=True)
class Point:
    """The speed model at one gamma: tokens a round, v and where it comes from, the speed-up."""

    gamma: int
    tokens: float
    v: float
    source: str
    speedup: float


@dataclass(frozen=True)
class Race:
    """All that is drawn. steps: what each leg takes, in plain steps. best: gamma and speed-up."""

    legs: tuple[Leg, ...]
    steps: tuple[float, ...]
    gamma: int
    c: float
    o: float
    step: float | None
    title: str
    points: tuple[Point, ...]
    best: tuple[int, float]

    @property
    def plain(self) -> int:
        """Plain steps for the same tokens: one each."""
        return sum(len(leg.words) for leg in self.legs)

    @property
    def fast(self) -> float:
        return math.fsum(self.steps)

    @property
    def ratio(self) -> float:
        return self.plain / self.fast

    def time(self, steps: float) -> str:
        if self.step is None:
            return f"{steps:.1f} steps"
        return f"{1e3 * steps * self.step:.3g} ms"


def hatch(x0: float, x1: float, y0: float, y1: float, gap: float, ink: str) -> str:
    """Strokes that rise to the right, inside a rectangle."""
    tall, parts, at = y1 - y0, [], x0 - (y1 - y0) + gap
    while at < x1:
        left, right = max(at, x0), min(at + tall, x1)
        parts.append(f"M{left:.1f} {y1 - (left - at):.1f}L{right:.1f} {y1 - (right - at):.1f}")
        at += gap
    return f'<path d="{"".join(parts)}" stroke="{ink}" fill="none"/>'


def _every(race: Race) -> int:
    """From one mark on the axis of the speed-up to the next."""
    return int(max(1, nice_step(max(p.speedup for p in race.points) / 5)))


def _top_of(race: Race) -> int:
    """Where the axis of the speed-up ends, with room for words above the best point."""
    most, every = max(p.speedup for p in race.points), _every(race)
    return max(2, every * math.ceil(1.18 * most / every))


def _place(race: Race, top: float, gamma: float, speedup: float) -> tuple[float, float]:
    x = LEFT + (RIGHT - LEFT) * gamma / race.points[-1].gamma
    return round(x, 1), round(top + TALL * (1 - speedup / _top_of(race)), 1)


def curve(race: Race, top: float) -> str:
    """S(gamma), the hatched zone below 1, the best gamma and the chosen one."""
    left, right = LEFT - 14, RIGHT + 14
    one, zero = _place(race, top, 0, 1)[1], top + TALL
    words, y = "slower than plain", zero - 8
    if zero - one < 24:  # no room between the line and the axis
        words, y = f"▼ {words}", one - 7
    elif race.points[-3].speedup < 0.5:  # the points lie where the words would stand
        y = one + 16
    parts = [
        svg_text(MARGIN, top - 14, "Speed-up over plain, on average, at each gamma", 12,
                 font_weight="bold"),
        hatch(left, right, one, zero, 9, "#dcc0ae"),
        f'<path d="M{left} {top}V{zero}H{right}" fill="none" stroke="{MUTED}"/>',
        f'<path d="M{left} {one:g}H{right}" stroke="{VERMILION}" stroke-dasharray="6 3"/>',
        svg_text(right - 6, y, words, 12, VERMILION, text_anchor="end", font_weight="bold",
                 **HALO),
    ]  # fmt: skip
    for value in range(0, _top_of(race) + 1, _every(race)):
        y = _place(race, top, 0, value)[1]
        parts.append(svg_text(left - 6, y + 4, f"{value}x", 11, MUTED, text_anchor="end"))
    x, y = _place(race, top, race.gamma, race.points[race.gamma].speedup)
    parts.append(f'<path d="M{x:g} {top}V{zero}" stroke="{INK}" stroke-dasharray="2 3"/>')
    line = "L".join("{:g} {:g}".format(*_place(race, top, p.gamma, p.speedup)) for p in race.points)
    parts.append(f'<path d="M{line}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>')
    parts += [_dot(race, top, point) for point in race.points]
    return "".join(parts) + _marks(race, top)


def _dot(race: Race, top: float, point: Point) -> str:
    """A point of the curve with its whole column to click on; hollow where v is not measured."""
    x, y = _place(race, top, point.gamma, point.speedup)
    half = (RIGHT - LEFT) / race.points[-1].gamma / 2
    measured = any(p.source == "measured" for p in race.points)
    fill = PAPER if measured and point.source == "rule" and point.gamma else BLUE
    body = (
        f'<rect x="{x - half:.1f}" y="{top:g}" width="{2 * half:.1f}" height="{TALL + 22}" '
        f'fill="{PAPER}" fill-opacity="0"/>'
        f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{fill}" stroke="{BLUE}" stroke-width="1.5"/>'
    )
    bold = {"font_weight": "bold"} if point.gamma == race.gamma else {}
    ink = INK if bold else MUTED
    body += svg_text(x, top + TALL + 17, str(point.gamma), 11, ink, text_anchor="middle", **bold)
    name = f"gamma {point.gamma}, speed-up {point.speedup:.2f}"
    return clickable(body, name, gamma=point.gamma)


def _marks(race: Race, top: float) -> str:
    """The best gamma by a diamond, the chosen by a ring, the race itself by a square."""
    parts, (best, most) = [], race.best
    x, y = _place(race, top, best, most)
    parts.append(f'<path d="M{x:g} {y - 8:g}L{x + 8:g} {y:g}L{x:g} {y + 8:g}L{x - 8:g} {y:g}Z" '
                 f'fill="{GREEN}" stroke="{PAPER}"/>')  # fmt: skip
    measured = any(p.source == "measured" for p in race.points)
    words = f"◆ best{' measured' if measured else ''}: gamma {best}, {most:.2f}x"
    words = words if best else "◆ best: gamma 0, which is plain"
    anchor = "start" if best <= 2 else "end" if best >= 11 else "middle"
    parts.append(svg_text(x, y - 13, words, 12, GREEN, text_anchor=anchor, font_weight="bold",
                          **HALO))  # fmt: skip
    x, y = _place(race, top, race.gamma, race.points[race.gamma].speedup)
    parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="none" stroke="{INK}" '
                 f'stroke-width="2"/>')  # fmt: skip
    x, y = _place(race, top, race.gamma, min(race.ratio, _top_of(race)))
    if race.ratio > _top_of(race):
        side, anchor = (-10, "end") if race.gamma > 9 else (10, "start")
        words = f"↑ {race.ratio:.2f}x"
        parts.append(svg_text(x + side, y + 9, words, 11, text_anchor=anchor, **HALO))
    parts.append(f'<rect x="{x - 4:g}" y="{y - 4:g}" width="8" height="8" fill="{PAPER}" '
                 f'stroke="{INK}" stroke-width="1.5"/>')  # fmt: skip
    words = [("gamma", 11), ("○ chosen", 70), ("□ this race", 150)]
    if measured:
        words += [("● v measured", 240), ("○ v by the rule", 340)]
    floor = top + TALL + 38
    parts += [svg_text(LEFT - 14 + x, floor, word, 11, MUTED) for word, x in words]
    return "".join(parts)


def summed(race: Race, top: float) -> str:
    """The formula with the numbers of the chosen gamma in it."""
    x, point = RIGHT + 36, race.points[race.gamma]
    cost = point.tokens / point.speedup
    how = "measured" if point.source == "measured" else "by the rule"
    lines = [f"N = {point.tokens:.2f} tokens a round", "gamma 0 is plain decoding:", "S = 1"]
    if race.gamma:
        lines = [
            f"N = {point.tokens:.2f} tokens a round",
            f"gamma c = {race.gamma} × {race.c:g} = {race.gamma * race.c:.2f}",
            f"v = {point.v:.2f} {how}",
            f"o = {race.o:.2f}",
            f"S = {point.tokens:.2f} / {cost:.2f} = {point.speedup:.2f}",
        ]
    parts = [svg_text(x, top + 6, "S = N / (gamma c + v + o)", 12, font_weight="bold")]
    parts += [svg_text(x, top + 32 + 22 * i, line, 12) for i, line in enumerate(lines)]
    won = "faster" if race.ratio > 1 else "slower" if race.ratio < 1 else "the same"
    parts.append(svg_text(x, top + TALL - 8, f"this race: {race.ratio:.2f}x, {won}", 12))
    return "".join(parts)
