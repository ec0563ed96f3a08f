"""The warping desk: temperature, top-k and top-p of either side, and which q the ratio uses.

Three bars a token: how often it is drafted (q′), how often it should come out (p′), how often it
does. The law is that of the real code, run for every outcome; a wrong q is the museum's M12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from specdec_core.exact import total_variation
from specdec_core.lab.law_check import rows_of
from specdec_core.pairs import Pair
from specdec_core.sampling import Sampling
from specdec_core.widgets.picture import (
    BLUE,
    GREEN,
    INK,
    LINE,
    MONOSPACE,
    MUTED,
    PALE_VERMILION,
    PAPER,
    VERMILION,
    Picture,
    clickable,
    html_table,
    shorten,
    svg_frame,
    svg_text,
    visible,
)
from specdec_core.widgets.rows import floats, read_pair
from specdec_core.widgets.stage import Stage, select, slider, stepper, text
from specdec_core.widgets.warping_desk_law import RATIOS, Drafted, Row, warped_draft

MOST = 6  # tokens in view
ALL = 1.0  # a top-p that cuts nothing
TOLERANCE = 1e-9  # far above rounding, far below any mistake
CONTEXTS = ("Recipe: soup with", "def add(", "Once upon a time, there was a")
WIDTH, HEIGHT = 760, 424
LEFT, RIGHT_EDGE, BASE, TALL = 44, 536, 288, 212
BAR, GAP = 20, 3
PANEL, GAUGE = 562, 140
HATCH = 5
SCALES = (0.2, 0.4, 0.8, 1.0)  # each has round quarters
MINE = "mine"


@dataclass(frozen=True)
class Place:
    """Where in a text: the models' rows at temperature 1, through a keyhole.

    words: one a token in view. p, q: scaled to add up to one over these. note: what is left out.
    """

    words: tuple[str, ...]
    p: Row
    q: Row
    note: str


def warping_desk(
    pair: Pair | None = None, contexts: Sequence[str] = CONTEXTS, ratio: str = "drawn"
) -> Stage:
    """The desk, with controls; with a `pair` of models also on its rows after each of `contexts`.

    contexts: texts the pair can read; p and q are seen through their six likeliest tokens.
    ratio: which q enters the ratio at first: "drawn", "uncut" or "raw".
    """
    places = {} if pair is None else {str(i): _place(pair, t) for i, t in enumerate(contexts)}
    where = {MINE: "my p and q"} | {key: f"after “{contexts[int(key)]}”" for key in places}
    controls = [select("place", "p and q are", where)]
    for side in ("target", "draft"):
        controls += [
            slider(f"{side}_temperature", f"{side} temperature", 0, 2, 0.05),
            stepper(f"{side}_top_k", f"{side} top-k", 1, MOST),
            slider(f"{side}_top_p", f"{side} top-p", 0.05, ALL, 0.05),
        ]
    controls += [
        select("ratio", "the ratio uses q", {key: words for key, (_, words, _) in RATIOS.items()}),
        text("p", "my p", 24),
        text("q", "my q", 24),
    ]
    return Stage(
        partial(draw_warping_desk, places), "Warping desk", controls, place=MINE,
        target_temperature=1.0, target_top_k=2, target_top_p=ALL, draft_temperature=0.5,
        draft_top_k=MOST, draft_top_p=ALL, ratio=ratio, p=".5 .3 .2", q=".4 .35 .25",
    )  # fmt: skip


def _place(pair: Pair, context: str) -> Place:
    """The two models after `context`, through their likeliest tokens; caches stay as they are."""
    ids = pair.encode(context)
    p, q = (
        torch.as_tensor(rows_of(model.fresh(), ids)(()))
        for model in (pair.target, pair.drafter.model)
    )
    seen = (p + q).argsort(descending=True, stable=True)[:MOST]
    left_p, left_q = (max(0.0, 1 - row[seen].sum().item()) for row in (p, q))
    words = tuple(pair.decode([token]) for token in seen.tolist())
    scaled = [tuple((row[seen] / row[seen].sum()).tolist()) for row in (p, q)]
    note = (
        f"{len(words)} likeliest of {len(p)} words after “{context}”, scaled to 1; the others are "
        f"left out ({left_p:.3f} of p, {left_q:.3f} of q)."
    )
    return Place(words, *scaled, note)


def draw_warping_desk(
    places: dict[str, Place], place: str, target_temperature: float, target_top_k: int,
    target_top_p: float, draft_temperature: float, draft_top_k: int, draft_top_p: float,
    ratio: str, p: str, q: str,
) -> Picture:  # fmt: skip
    """One drafted token on the desk.

    places: real positions by their key. place: one of these keys, or "mine" for the numbers in `p`
        and `q`. ratio: "drawn", "uncut" or "raw".

    Raises ValueError, in one sentence, for numbers or settings that cannot be sampled from.
    """
    if ratio not in RATIOS:
        raise ValueError(f"The ratio can use q as one of {', '.join(RATIOS)}, not {ratio!r}.")
    here = _mine(p, q) if place == MINE else places.get(place)
    if here is None:
        raise ValueError(f"There is no place {place!r} on this desk.")
    target = _sampling(target_temperature, target_top_k, target_top_p)
    draft = _sampling(draft_temperature, draft_top_k, draft_top_p)
    seen = warped_draft(here.p, here.q, target, draft, ratio)
    honest = warped_draft(here.p, here.q, target, draft, "drawn")
    names = [visible(word) for word in here.words]
    off = total_variation(_law(seen.out), _law(seen.wanted))
    kept, fair = math.fsum(seen.kept), math.fsum(honest.kept)
    body = _heading(target, draft) + _bars(here, names, seen, target, draft)
    body += _choice(ratio) + _verdict(off, kept, fair, ratio) + _legend()
    body += svg_text(12, HEIGHT - 10, here.note, 11, MUTED)
    sentence = _sentence(names, seen, off, kept, fair, target, draft, ratio)
    return Picture(svg_frame(WIDTH, HEIGHT, body), sentence, _table(here, names, seen))


def _mine(p: str, q: str) -> Place:
    target, offered = map(floats, read_pair(p, q, MOST))
    words = tuple("ABCDEF"[: len(target)])
    return Place(words, target, offered, "p and q as you typed them, at temperature 1.")


def _sampling(temperature: float, top_k: int, top_p: float) -> Sampling:
    """Sampling of one side; the ends of the controls cut nothing."""
    return Sampling(temperature, None if top_k == MOST else top_k, None if top_p == ALL else top_p)


def _law(row: Row) -> dict[tuple[int, ...], float]:
    return {(i,): value for i, value in enumerate(row)}


def _settings(sampling: Sampling) -> str:
    words = [f"temperature {sampling.temperature:g}"]
    if sampling.top_k is not None:
        words.append(f"top-k {sampling.top_k}")
    if sampling.top_p is not None:
        words.append(f"top-p {sampling.top_p:g}")
    return ", ".join(words)


def _heading(target: Sampling, draft: Sampling) -> str:
    bold = {"font_weight": "bold"}
    return (
        svg_text(12, 24, "target p → p′", 12, BLUE, **bold)
        + svg_text(116, 24, _settings(target), 12)
        + svg_text(12, 44, "draft q → q′", 12, VERMILION, **bold)
        + svg_text(116, 44, _settings(draft), 12)
    )


def _bars(here: Place, names: list[str], seen: Drafted, target: Sampling, draft: Sampling) -> str:
    """The axis, and a column of bars and numbers for each token."""
    rows = (here.p, here.q, seen.wanted, seen.offered, seen.recorded, seen.out)
    top = next(s for s in SCALES if s == 1 or max(map(max, rows)) <= s)
    parts = []
    for quarter in range(5):
        y = BASE - TALL * quarter / 4
        parts.append(f'<path d="M{LEFT} {y:g}H{RIGHT_EDGE}" stroke="{LINE if y < BASE else INK}"/>')
        parts.append(
            svg_text(LEFT - 6, y + 4, f"{top * quarter / 4:.4g}", 11, MUTED, text_anchor="end")
        )
    cell = (RIGHT_EDGE - LEFT) / len(names)
    for i, name in enumerate(names):
        middle = LEFT + cell * (i + 0.5)
        parts.append(_column(middle, TALL / top, i, here, seen))
        parts.append(_numbers(middle, cell, i, name, here, seen, target, draft))
    return "".join(parts)


def _column(middle: float, unit: float, i: int, here: Place, seen: Drafted) -> str:
    """Three bars, the outlines of what was there before, and the q of the ratio as a line."""
    x = [round(middle + (j - 1) * (BAR + GAP) - BAR / 2, 1) for j in range(3)]
    shapes = [
        _bar(x[0], seen.offered[i] * unit, PALE_VERMILION, VERMILION),
        _hatching(x[0], seen.offered[i] * unit),
        _bar(x[1], seen.wanted[i] * unit, BLUE, BLUE),
        _bar(x[2], seen.out[i] * unit, GREEN, GREEN),
        *(
            _bar(at, row[i] * unit, "none", *line)
            for at, row in ((x[0], here.q), (x[1], here.p))
            for line in ((PAPER, ' stroke-width="2"'), (INK, ' stroke-dasharray="3 3"'))
        ),
    ]
    y = round(BASE - seen.recorded[i] * unit, 1)
    line = f"M{x[0] - 5:g} {y:g}H{x[0] + BAR + 1:g}"
    shapes.append(f'<path data-part="ratio{i}" d="{line}" stroke="{INK}" stroke-width="3"/>')
    return "".join(shapes)


def _bar(x: float, tall: float, fill: str, stroke: str, more: str = "") -> str:
    tall = round(tall, 1)
    return (
        f'<rect x="{x:g}" y="{BASE - tall:g}" width="{BAR}" height="{tall:g}" '
        f'fill="{fill}" stroke="{stroke}"{more}/>'
    )


def _hatching(x: float, tall: float) -> str:
    """Level lines over a bar: the draft's is told from the others without its colour."""
    lines = [f"M{x:g} {BASE - y}h{BAR}" for y in range(HATCH, int(tall), HATCH)]
    return f'<path d="{"".join(lines)}" stroke="{VERMILION}"/>' if lines else ""


def _numbers(
    x: float, cell: float, i: int, name: str, here: Place, seen: Drafted, target: Sampling,
    draft: Sampling,
) -> str:  # fmt: skip
    """The word under its bars, and its numbers."""
    middle = {"text_anchor": "middle"}
    offered = _cut(seen.offered[i], here.q[i], draft)
    wanted = _cut(seen.wanted[i], here.p[i], target)
    mark, ink = _mark(seen.out[i] - seen.wanted[i])
    return (
        svg_text(x, BASE + 20, shorten(name, cell - 4, 12), 12, font_family=MONOSPACE,
                 font_weight="bold", **middle)
        + svg_text(x, BASE + 38, f"q′ {offered}", 12, VERMILION, **middle)
        + svg_text(x, BASE + 54, f"p′ {wanted}", 12, BLUE, **middle)
        + svg_text(x, BASE + 70, f"out {_number(seen.out[i])}", 12, GREEN, **middle)
        + svg_text(x, BASE + 86, mark, 12, ink, font_weight="bold", **middle)
    )  # fmt: skip


def _number(value: float) -> str:
    return f"{value:.3f}"


def _cut(value: float, before: float, sampling: Sampling) -> str:
    """A probability, or that top-k or top-p took it away."""
    return "cut" if value == 0 < before and sampling.temperature > 0 else _number(value)


def _mark(difference: float) -> tuple[str, str]:
    """What comes out beside what p′ wants: words and their colour."""
    if abs(difference) <= TOLERANCE:
        return "✓ = p′", INK
    return f"{'▲ +' if difference > 0 else '▼ −'}{_distance(abs(difference))}", VERMILION


def _distance(value: float) -> str:
    return "under 0.001" if TOLERANCE < value < 0.0005 else _number(value)


def _choice(ratio: str) -> str:
    """Which q enters the ratio; each line can be clicked."""
    parts = [svg_text(PANEL, 24, "the ratio p′/q uses q", 12, font_weight="bold")]
    for i, (key, (_, words, _)) in enumerate(RATIOS.items()):
        y = 46 + 22 * i
        dot = f'<circle cx="{PANEL + 6}" cy="{y - 4}" r="5" fill="{PAPER}" stroke="{INK}"/>'
        if key == ratio:
            dot += f'<circle cx="{PANEL + 6}" cy="{y - 4}" r="2.5" fill="{INK}"/>'
        area = f'<rect x="{PANEL - 4}" y="{y - 15}" width="196" height="20" fill="{PAPER}"/>'
        shapes = area + dot + svg_text(PANEL + 16, y, words, 11)
        parts.append(clickable(shapes, f"the ratio uses q {words}", ratio=key))
    return "".join(parts)


def _verdict(off: float, kept: float, fair: float, ratio: str) -> str:
    """Is the law p′, and what acceptance says about it."""
    right = off <= TOLERANCE
    words = "✓ the law is p′" if right else "✗ the law is not p′"
    ink = INK if right else VERMILION
    parts = [
        f'<path d="M{PANEL} 106H{WIDTH - 12}" stroke="{LINE}"/>',
        svg_text(PANEL, 128, words, 14, ink, font_weight="bold"),
        svg_text(PANEL, 146, f"total variation {_distance(off) if not right else '0'}", 12, ink),
        svg_text(PANEL, 174, "drafts kept", 12, font_weight="bold"),
        _gauge(182, kept),
    ]
    if ratio != "drawn":
        parts += [svg_text(PANEL, 222, "with the q drawn from", 12), _gauge(230, fair)]
        if kept > fair + TOLERANCE and not right:
            parts.append(svg_text(PANEL, 266, "more kept, and wrong", 12, VERMILION))
    else:
        parts.append(svg_text(PANEL, 214, "= α, 1 − TV(p′, q′)", 12))
    return "".join(parts)


def _gauge(y: float, value: float) -> str:
    """A bar from 0 to 1, and its number."""
    wide = round(GAUGE * value, 1)
    return (
        f'<rect x="{PANEL}" y="{y}" width="{wide:g}" height="14" fill="{LINE}"/>'
        f'<rect x="{PANEL}" y="{y}" width="{GAUGE}" height="14" fill="none" stroke="{MUTED}"/>'
        + svg_text(PANEL + GAUGE + 8, y + 12, _number(value), 12, font_weight="bold")
    )


def _legend() -> str:
    """What the shapes mean."""
    swatches = (
        (_swatch(PALE_VERMILION, VERMILION) + f'<path d="M0 4h14M0 8h14" stroke="{VERMILION}"/>',
         "q′: drafted this often"),
        (_swatch(BLUE, BLUE), "p′: wanted this often"),
        (_swatch(GREEN, GREEN), "out: comes out this often"),
        (_swatch("none", INK, ' stroke-dasharray="3 3"'), "before: temperature 1, no cut"),
        (f'<path d="M0 6h16" stroke="{INK}" stroke-width="3"/>', "q in the ratio"),
    )  # fmt: skip
    return "".join(
        f'<g transform="translate({PANEL},{300 + 19 * i})">{shape}</g>'
        + svg_text(PANEL + 22, 310 + 19 * i, words, 11)
        for i, (shape, words) in enumerate(swatches)
    )


def _swatch(fill: str, stroke: str, more: str = "") -> str:
    return f'<rect width="14" height="12" fill="{fill}" stroke="{stroke}"{more}/>'


def _sentence(
    names: list[str], seen: Drafted, off: float, kept: float, fair: float, target: Sampling,
    draft: Sampling, ratio: str,
) -> str:  # fmt: skip
    law = ", ".join(f"{n} {_number(value)}" for n, value in zip(names, seen.out, strict=True))
    said = f"Target: {_settings(target)}. Draft: {_settings(draft)}. The ratio uses "
    said += f"{RATIOS[ratio][2]}. Out come {law}: "
    if off <= TOLERANCE:
        said += f"exactly p′. Of all drafts {_number(kept)} are kept"
    else:
        said += f"not p′, total variation {_distance(off)}. Of all drafts {_number(kept)} are kept"
    return said + ("." if ratio == "drawn" else f"; with the q really drawn from, {_number(fair)}.")


def _table(here: Place, names: list[str], seen: Drafted) -> str:
    columns = (here.p, here.q, seen.wanted, seen.offered, seen.recorded, seen.out)
    header = ("token", "p", "q", "p′", "q′ drawn from", "q in the ratio", "comes out")
    rows = [
        (name, *map(_number, row))
        for name, row in zip(names, zip(*columns, strict=True), strict=True)
    ]
    return html_table(header, rows)
