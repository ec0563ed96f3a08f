"""How a race looks: two timelines on one axis, and the curve of the speed-up below them."""

from __future__ import annotations

from specdec_core.widgets.figure import nice_step
from specdec_core.widgets.picture import (
    GREEN,
    HALO,
    INK,
    MONOSPACE,
    MUTED,
    PALE_GREY,
    PAPER,
    VERMILION,
    Picture,
    html_table,
    shorten,
    svg_frame,
    svg_text,
    text_width,
    visible,
)
from specdec_core.widgets.race_track_curve import TALL, Leg, Race, curve, hatch, summed
from specdec_core.widgets.ribbon import ORIGINS

WIDTH, LEFT, TRACK = 760, 16, 728
RIGHT = LEFT + TRACK
BLOCK = 26  # height of a block of time
PLAIN_TOP, FAST_TOP, CHIPS_TOP = 80, 146, 178
CHIP, CHIP_STEP = 19, 22
DRAFT_INK, DRAFT_FILL = "#7a5200", "#fdf0d0"
TIMES = (
    ("target forward", MUTED, PALE_GREY),
    ("draft step", DRAFT_INK, DRAFT_FILL),
    ("rest", MUTED, PAPER),
)
VERDICTS = {"accepted": "✓", "rejected": "✗", "unjudged": "·", "unused": "·"}


def draw_race(race: Race) -> Picture:
    scale = TRACK / max(race.plain, race.fast)
    chips, floor = _chips(race, scale)
    top = floor + 76
    body = svg_text(LEFT, 20, race.title[:1].upper() + race.title[1:], 13, font_weight="bold")
    body += _axis(race, scale, floor) + _legend()
    body += _plain(race, scale) + _fast(race, scale) + chips
    body += curve(race, top) + summed(race, top)
    return Picture(svg_frame(WIDTH, top + TALL + 58, body), _sentence(race), _tables(race))


def _block(x: float, y: float, width: float, ink: str, fill: str, height: float = BLOCK) -> str:
    return (
        f'<rect x="{round(x, 1):g}" y="{y:g}" width="{round(max(width, 0.4), 1):g}" '
        f'height="{height:g}" fill="{fill}" stroke="{ink}"/>'
    )


def _legend() -> str:
    """Kinds of time on the left, kinds of token on the right."""
    parts, x = [], float(LEFT)
    for name, ink, fill in TIMES:
        parts.append(_block(x, 31, 14, ink, fill, 14))
        if name == "rest":
            parts.append(hatch(x, x + 14, 31, 45, 5, MUTED))
        parts.append(svg_text(x + 20, 42, name, 11))
        x += 34 + 6.4 * len(name)
    x = 420.0
    for name, word in (("draft", "accepted"), ("corrected", "corrected"), ("bonus", "bonus")):
        mark, _, ink, fill = ORIGINS[name]
        parts.append(f'<rect x="{x:g}" y="30" width="18" height="16" rx="4" fill="{fill}" '
                     f'stroke="{ink}"/>')  # fmt: skip
        parts.append(svg_text(x + 9, 42, mark, 11, ink, text_anchor="middle", font_weight="bold"))
        parts.append(svg_text(x + 24, 42, word, 11))
        x += 40 + 6.8 * len(word)
    return "".join(parts)


def _plain(race: Race, scale: float) -> str:
    """One target forward a token."""
    words = f"Plain: {race.plain} forwards, one token each: {race.time(race.plain)}"
    parts = [svg_text(LEFT, PLAIN_TOP - 8, words, 12, font_weight="bold")]
    texts = [word for leg in race.legs for word in leg.words]
    for i, word in enumerate(texts):
        x = LEFT + i * scale
        parts.append(_block(x, PLAIN_TOP, scale, MUTED, PALE_GREY))
        if scale >= 2 * text_width("0") + 4:
            shown = shorten(visible(word), scale - 4)
            parts.append(
                svg_text(round(x + scale / 2, 1), PLAIN_TOP + 17, shown, 11,
                         text_anchor="middle", font_family=MONOSPACE)
            )  # fmt: skip
    gap = race.fast - race.plain
    return "".join(parts) + _free(race, race.plain, gap, "behind", scale, PLAIN_TOP)


def _fast(race: Race, scale: float) -> str:
    """The rounds: draft steps, the verification, the rest."""
    rounds = "round" if len(race.legs) == 1 else "rounds"
    words = f"Speculative, gamma {race.gamma}: {len(race.legs)} {rounds}: {race.time(race.fast)}"
    parts = [svg_text(LEFT, FAST_TOP - 8, words, 12, font_weight="bold", **HALO)]
    at = 0.0
    for leg, steps in zip(race.legs, race.steps, strict=True):
        parts.append(_round(race, leg, LEFT + at * scale, steps, scale))
        at += steps
    gap = race.plain - race.fast
    return "".join(parts) + _free(race, race.fast, gap, "saved", scale, FAST_TOP)


def _round(race: Race, leg: Leg, x: float, steps: float, scale: float) -> str:
    width, end, parts = race.c * scale, x + steps * scale, []
    drafts = leg.drafted * width
    if drafts and width >= 2.5:
        for k, verdict in enumerate(leg.verdicts):
            parts.append(_block(x + k * width, FAST_TOP, width, DRAFT_INK, DRAFT_FILL))
            if width >= 12:
                middle = round(x + (k + 0.5) * width, 1)
                parts.append(
                    svg_text(
                        middle,
                        FAST_TOP + 17,
                        VERDICTS[verdict],
                        11,
                        DRAFT_INK,
                        text_anchor="middle",
                    )
                )
    elif drafts:
        parts.append(_block(x, FAST_TOP, drafts, DRAFT_INK, DRAFT_FILL))
    rest = race.o * scale if leg.drafted else 0.0
    verify = end - rest - x - drafts
    parts.append(_block(x + drafts, FAST_TOP, verify, MUTED, PALE_GREY))
    word = "verify" if leg.drafted else "forward"
    if verify >= text_width(word) - 3:  # its face is narrower than the monospace one
        middle = round(x + drafts + verify / 2, 1)
        parts.append(svg_text(middle, FAST_TOP + 17, word, 11, text_anchor="middle"))
    if rest:
        parts.append(_block(end - rest, FAST_TOP, rest, MUTED, PAPER))
        parts.append(hatch(end - rest, end, FAST_TOP, FAST_TOP + BLOCK, 5, MUTED))
    return "".join(parts)


def _free(race: Race, end: float, gap: float, word: str, scale: float, y: float) -> str:
    """Words in the space that the quicker of the two leaves."""
    words = f"{word} {race.time(gap)}"
    if gap * scale < text_width(words) + 16:
        return ""
    mark, ink = ("◀", GREEN) if word == "saved" else ("◀ speculative", VERMILION)
    words = f"{mark} {words}"
    x = LEFT + end * scale + 8
    if x + text_width(words) > RIGHT:
        return ""
    return svg_text(round(x, 1), y + 17, words, 11, ink, font_weight="bold")


def _chips(race: Race, scale: float) -> tuple[str, float]:
    """The tokens each round brought, below it; and where the lowest ends."""
    parts, lowest, at = [], 3, 0.0
    for leg, steps in zip(race.legs, race.steps, strict=True):
        left, room = LEFT + at * scale + 2, steps * scale - 4
        at += steps
        x, row = left, 0
        for word, origin in zip(leg.words, leg.origins, strict=True):
            mark, _, ink, fill = ORIGINS[origin]
            shown = shorten(visible(word), room - 20)
            wide = min(max(room, 14), text_width(shown) + 22)
            if x > left and x + wide > left + room:
                x, row = left, row + 1
            y = CHIPS_TOP + row * CHIP_STEP
            parts.append(f'<rect x="{x:.1f}" y="{y:g}" width="{wide:.1f}" height="{CHIP}" rx="4" '
                         f'fill="{fill}" stroke="{ink}"/>')  # fmt: skip
            parts.append(svg_text(round(x + 4, 1), y + 14, mark, 11, ink, font_weight="bold"))
            if room >= 34:
                parts.append(svg_text(round(x + 17, 1), y + 14, shown, 11, font_family=MONOSPACE))
            x += wide + 3
        lowest = max(lowest, row + 1)
    return "".join(parts), CHIPS_TOP + lowest * CHIP_STEP + 4


def _axis(race: Race, scale: float, y: float) -> str:
    """Steps, or milliseconds, from 0 on; and a line down from each end."""
    unit = 1.0 if race.step is None else 1e3 * race.step
    end = unit * TRACK / scale
    every = nice_step(end / 12)
    parts = [f'<path d="M{LEFT} {y:g}H{RIGHT}" stroke="{MUTED}"/>']
    for i in range(int(end / every + 1e-9) + 1):
        x = round(LEFT + i * every * scale / unit, 1)
        name, anchor = f"{i * every:.4g}", "middle"
        if not i:
            name, anchor = ("0 ms" if race.step else "0 steps"), "start"
        elif x > RIGHT - 10:
            anchor = "end"
        parts.append(f'<path d="M{x:g} {y:g}v5" stroke="{MUTED}"/>')
        parts.append(svg_text(x, y + 18, name, 11, MUTED, text_anchor=anchor))
    for at, top in ((race.plain, PLAIN_TOP), (race.fast, FAST_TOP)):
        x = round(LEFT + at * scale, 1)
        parts.append(f'<path d="M{x:g} {top}V{y:g}" stroke="{INK}" stroke-dasharray="2 3"/>')
    return "".join(parts)


def _sentence(race: Race) -> str:
    mean, (best, most) = race.points[race.gamma].speedup, race.best
    won = "as fast" if race.ratio >= 1 else "as fast, so slower"
    rounds = "round" if len(race.legs) == 1 else "rounds"
    words = (
        f"{race.plain} tokens at gamma {race.gamma}: plain takes {race.time(race.plain)}, "
        f"speculative {race.time(race.fast)} in {len(race.legs)} {rounds}: {race.ratio:.2f} times "
        f"{won}. On average {mean:.2f} times"
    )
    if best:
        return f"{words}; the best gamma here is {best}, {most:.2f} times."
    return f"{words}; no gamma is faster than plain here, so the best is 0."


def _tables(race: Race) -> str:
    rows = [
        (p.gamma, f"{p.tokens:.3f}", f"{p.v:.3f}", p.source, f"{p.speedup:.3f}",
         "slower" if p.speedup < 1 else "faster" if p.speedup > 1 else "the same")
        for p in race.points
    ]  # fmt: skip
    header = ("gamma", "tokens a round N", "v", "v from", "speed-up S", "against plain")
    rounds = [
        (i, leg.drafted, " ".join(map(visible, leg.words)), ", ".join(leg.origins), f"{steps:.3f}")
        for i, (leg, steps) in enumerate(zip(race.legs, race.steps, strict=True), 1)
    ]
    head = ("round", "drafted", "tokens", "origins", "plain steps")
    return html_table(header, rows) + html_table(head, rounds)
