"""The mass mover: where the draft offers too much, where it offers too little, and what moves.

Each token has two bars: what the draft offers (q), and what comes out. What lies above p on the
left is rejected, rises into a pipe, and is drawn again; p is a line that the bars on the right
should reach, no more and no less. The grips of p and q can be dragged: `mass_mover.js` moves the
same parts at once, and Python's picture, drawn from the exact law of the real code, replaces it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from html import escape

import torch
from torch import Tensor

from specdec_core.exact import total_variation
from specdec_core.widgets.one_draft import DRAWS, Row, one_draft_law
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
    draggable,
    html_table,
    shorten,
    svg_frame,
    svg_text,
    visible,
)
from specdec_core.widgets.rows import floats, read_pair
from specdec_core.widgets.stage import HERE, Stage, select, shell_with, text

KEPT, SURPLUS, SURPLUS_FILL, DRAWN = BLUE, VERMILION, PALE_VERMILION, GREEN
# What mass_mover.js must know of the layout, in the picture's units.
LAYOUT = {
    "left": 10, "span": 520, "widest": 150, "bar": 44, "grip": 20, "gap": 6,
    "base": 306, "height": 190, "pipe": 74, "scale": 556, "unit": 150,
}  # fmt: skip
MOST = 6  # tokens
WIDTH, HEIGHT, BAR = 760, 400, 16
SCALES = (66, 116, 166)  # where each of the three bars of alpha begins
TOLERANCE = 1e-9  # far above rounding, far below any mistake

Words = Sequence[str] | Callable[[Sequence[int]], str]


class MassMover(Stage):
    """The shell with the arithmetic of a drag in JavaScript."""

    _esm = shell_with(
        f"const G = {json.dumps({**LAYOUT, 'said': {k: v[2] for k, v in DRAWS.items()}})};\n"
        + (HERE / "mass_mover.js").read_text()
    )


def mass_mover(
    target_probs: Sequence[float] | Tensor,
    draft_probs: Sequence[float] | Tensor,
    words: Words | None = None,
    draw: str = "residual",
) -> MassMover:
    """p and q of one position as bars to drag, and the law that comes out.

    target_probs, draft_probs: p and q over the same V tokens, [V]; tokens that neither model gives
        anything are left out. They are rounded to four decimals.
    words: one text for each of the V tokens, or token ids -> text, used for one token at a time.
    draw: where the token after a rejection comes from: "residual", "M1", "M3" or "M4".

    Raises ValueError where fewer than two or more than six tokens are left.
    """
    p, q = torch.as_tensor(target_probs).double(), torch.as_tensor(draft_probs).double()
    if p.shape != q.shape or p.dim() != 1:
        raise ValueError(f"p {list(p.shape)} and q {list(q.shape)} must be rows of one length.")
    ids = ((p > 0) | (q > 0)).nonzero().flatten().tolist()
    if words is None:
        names = None
    elif callable(words):
        names = tuple(words([i]) for i in ids)
    else:
        names = tuple(words[i] for i in ids)
    if not 2 <= len(ids) <= MOST:
        raise ValueError(
            f"{len(ids)} tokens have some probability, and this picture holds 2 to {MOST}: "
            "sample both models with a top_k of 2 or 3."
        )
    controls = [
        select("draw", "after a rejection, draw from", {k: v[1] for k, v in DRAWS.items()}),
        text("p", "target p", 30),
        text("q", "draft q", 30),
    ]
    view = partial(draw_mass_mover, words=names)
    state = {"draw": draw, "p": _spell(p[ids]), "q": _spell(q[ids])}
    return MassMover(view, "Mass mover", controls, **state)


def _spell(row: Tensor) -> str:
    """Probabilities as text with four decimals that add up to exactly one."""
    edges = (row.cumsum(0) / row.sum() * 10_000).round().long().tolist()
    units = [high - low for low, high in zip([0, *edges], edges, strict=False)]
    return " ".join(f"{unit / 10_000:g}" for unit in units)


def draw_mass_mover(
    p: str, q: str, draw: str = "residual", words: Sequence[str] | None = None
) -> Picture:
    """The picture of one state.

    p, q: probabilities as text, such as ".6 .4". draw: a key of `DRAWS`. words: one a token.

    Raises ValueError, in one sentence, for numbers that are no two distributions.
    """
    target, offered = map(floats, read_pair(p, q, MOST))
    if words is not None and len(words) != len(target):
        raise ValueError(f"Give p and q {len(words)} numbers each, one for each word.")
    if draw not in DRAWS:
        raise ValueError(f"draw must be one of {', '.join(DRAWS)}, not {draw!r}.")
    names = _names(words, len(target))
    kept, drawn = one_draft_law(target, offered, draw)
    out = [a + b for a, b in zip(kept, drawn, strict=True)]
    off = total_variation(_law(out), _law(target))
    alphas = (
        math.fsum(min(a, b) for a, b in zip(target, offered, strict=True)),
        1 - total_variation(_law(target), _law(offered)),
        math.fsum(kept),
    )
    lost = math.fsum(drawn)
    body = _heading(lost)
    for i, name in enumerate(names):
        body += _column(i, len(names), name, target[i], offered[i], kept[i], drawn[i])
    body += _alpha(target, offered, kept, alphas) + _verdict(off) + _legend()
    sentence = _sentence(names, out, alphas[2], lost, draw, off)
    return Picture(
        svg_frame(WIDTH, HEIGHT, body), sentence, _table(names, target, offered, kept, drawn)
    )


def _names(words: Sequence[str] | None, count: int) -> list[str]:
    return [f"token {i}" for i in range(count)] if words is None else [visible(w) for w in words]


def _law(row: Sequence[float]) -> dict[tuple[int, ...], float]:
    return {(i,): value for i, value in enumerate(row)}


# The rounding of mass_mover.js: halves go up, whatever the last bits of two machines say.
def _at(value: float) -> str:
    """A place in the picture."""
    return f"{math.floor(value * 10 + 0.5 + 1e-6) / 10:g}"


def _number(value: float) -> str:
    """A probability."""
    return f"{math.floor(value * 1000 + 0.5 + 1e-6) / 1000:.3f}"


def _distance(value: float) -> str:
    return "under 0.001" if TOLERANCE < value < 0.0005 else _number(value)


def _part(tag: str, name: str, moving: dict[str, str], **fixed: object) -> str:
    """A shape that a drag moves; its `moving` attributes are those mass_mover.js sets."""
    attributes = {"data-part": name, **moving}
    attributes |= {key.replace("_", "-"): value for key, value in fixed.items()}
    return f"<{tag} " + " ".join(f'{k}="{v}"' for k, v in attributes.items()) + "/>"


def _level(value: float) -> float:
    """Height in the picture of a probability."""
    return LAYOUT["base"] - LAYOUT["height"] * value


def _block(low: float, high: float) -> dict[str, str]:
    """Where a block of a bar stands that runs from probability `low` to `high`."""
    high = max(low, high)
    return {"y": _at(_level(high)), "height": _at(LAYOUT["height"] * (high - low))}


def _hatch(x: float, width: float, low: float, high: float) -> str:
    """Slanted lines over a block, as the path of one shape."""
    top, tall = _level(high), LAYOUT["height"] * (high - low)
    lines, shift = [], 6
    while tall > 0.05 and shift < width + tall:
        x0, y0 = x + min(shift, width), top + max(0, shift - width)
        x1, y1 = x + max(0, shift - tall), top + min(shift, tall)
        lines.append(f"M{_at(x0)} {_at(y0)}L{_at(x1)} {_at(y1)}")
        shift += 6
    return "".join(lines)


def _arrow(x: float, mass: float, start: float, end: float) -> str:
    """An upright arrow as wide as its mass; none where nothing moves."""
    if mass < 0.0005:
        return ""
    half = LAYOUT["bar"] * mass / 2
    neck, head = end + (8 if start > end else -8), half + 5
    outline = [(-half, start), (-half, neck), (-head, neck), (0, end), (head, neck), (half, neck)]
    points = [f"{_at(x + dx)} {_at(y)}" for dx, y in [*outline, (half, start)]]
    return "M" + "L".join(points) + "Z"


def _heading(lost: float) -> str:
    left, span, pipe = LAYOUT["left"], LAYOUT["span"], LAYOUT["pipe"]
    label = f"rejected: {_number(lost)} of all drafts, drawn again below"
    return (
        svg_text(left, 24, "Left bar: what the draft offers. Right bar: what comes out.", 12)
        + svg_text(left, pipe - 20, label, 12, SURPLUS, data_part="lost", font_weight="bold")
        + f'<rect x="{left}" y="{pipe - 12}" width="{span}" height="12" rx="6" '
        f'fill="{SURPLUS_FILL}" stroke="{SURPLUS}"/>'
    )


def _column(
    i: int, count: int, name: str, p: float, q: float, kept: float, drawn: float
) -> str:  # fmt: skip
    """One token: two bars, the line of p, the arrows, the grips and the numbers."""
    cell = min(LAYOUT["widest"], LAYOUT["span"] / count)
    bar = min(LAYOUT["bar"], (cell - 2 * LAYOUT["grip"] - LAYOUT["gap"] - 8) / 2)
    middle = LAYOUT["left"] + (LAYOUT["span"] - cell * count) / 2 + cell * (i + 0.5)
    left, right = middle - LAYOUT["gap"] / 2 - bar, middle + LAYOUT["gap"] / 2
    wide = {"width": _at(bar)}
    pipe, base = LAYOUT["pipe"], LAYOUT["base"]
    shapes = [
        _part("rect", f"kept{i}", _block(0, kept), x=_at(left), **wide, fill=KEPT),
        _part(
            "rect", f"surplus{i}", _block(kept, q), x=_at(left), **wide,
            fill=SURPLUS_FILL, stroke=SURPLUS,
        ),
        _part("path", f"hatch{i}", {"d": _hatch(left, bar, kept, max(q, kept))}, stroke=SURPLUS),
        _part(
            "rect", f"room{i}", _block(kept, p), x=_at(left), **wide,
            fill="none", stroke=MUTED, stroke_dasharray="4 3",
        ),
        _part("rect", f"same{i}", _block(0, kept), x=_at(right), **wide, fill=KEPT),
        _part("rect", f"drawn{i}", _block(kept, kept + drawn), x=_at(right), **wide, fill=DRAWN),
        _part(
            "path", f"up{i}", {"d": _arrow(left + bar / 2, q - kept, _level(q), pipe)},
            fill=SURPLUS,
        ),
        _part(
            "path", f"down{i}",
            {"d": _arrow(right + bar / 2, drawn, pipe, _level(kept + drawn))}, fill=DRAWN,
        ),
        _part(
            "path", f"line{i}", {"d": f"M{_at(left - 3)} {_at(_level(p))}H{_at(right + bar + 3)}"},
            stroke=INK, stroke_width=2.5,
        ),
        f'<path d="M{_at(middle - cell / 2)} {base}H{_at(middle + cell / 2)}" stroke="{INK}"/>',
        _grip("q", i, left - LAYOUT["grip"] - 2, name, q),
        _grip("p", i, right + bar + 3, name, p),
    ]  # fmt: skip
    return "".join(shapes) + _numbers(i, middle, cell, name, p, q, kept + drawn)


def _grip(side: str, i: int, x: float, name: str, value: float) -> str:
    """The handle that sets p or q of one token."""
    ink = SURPLUS if side == "q" else INK
    body = (
        f'<rect x="{_at(x)}" y="-10" width="18" height="20" rx="5" fill="{PAPER}" '
        f'stroke="{ink}" stroke-width="1.5"/>'
        + svg_text(x + 9, 4, side, 12, ink, text_anchor="middle", font_weight="bold")
    )
    return draggable(
        body, f"{side} of {name}", f"{side}{i}", float(_number(value)),
        (LAYOUT["base"], _level(1)), data_part=f"grip-{side}{i}",
        transform=f"translate(0,{_at(_level(value))})",
    )  # fmt: skip


def _numbers(i: int, x: float, cell: float, name: str, p: float, q: float, out: float) -> str:
    """The word under its bars, and its numbers."""
    y = LAYOUT["base"]
    middle = {"text_anchor": "middle"}
    word = {"font_family": MONOSPACE, "font_weight": "bold", "data_word": escape(name, quote=True)}
    mark, ink = _mark(out - p)
    return (
        svg_text(x, y + 20, shorten(name, cell - 4, 12), 12, **middle, **word)
        + svg_text(x, y + 38, f"q {_number(q)}", 12, SURPLUS, **middle, data_part=f"say-q{i}")
        + svg_text(x, y + 54, f"p {_number(p)}", 12, **middle, data_part=f"say-p{i}")
        + svg_text(x, y + 70, f"out {_number(out)}", 12, **middle, data_part=f"say-out{i}")
        + svg_text(
            x, y + 86, mark, 12, ink, **middle, font_weight="bold", data_part=f"mark{i}"
        )
    )  # fmt: skip


def _mark(difference: float) -> tuple[str, str]:
    """What comes out beside what p wants: words and their colour."""
    if abs(difference) <= TOLERANCE:
        return "✓ = p", DRAWN
    sign = "▲ +" if difference > 0 else "▼ −"
    return sign + _number(abs(difference)), SURPLUS


def _alpha(p: Row, q: Row, kept: Row, alphas: tuple[float, float, float]) -> str:
    """alpha three times: an overlap, a distance, and a chance."""
    x, unit = LAYOUT["scale"], LAYOUT["unit"]
    labels = ("overlap: Σ min(p, q)", "distance: 1 − TV(p, q)", "chance that a draft is kept")
    parts = [svg_text(x, 24, "α, seen three ways", 12, font_weight="bold")]
    for i, (label, alpha, y) in enumerate(zip(labels, alphas, SCALES, strict=True)):
        parts.append(svg_text(x, y - 6, label))
        parts.append(f'<rect x="{x}" y="{y}" width="{unit}" height="{BAR}" fill="{SURPLUS_FILL}"/>')
        value = {"font_weight": "bold", "data_part": f"alpha{i}"}
        parts.append(svg_text(x + unit + 6, y + 13, _number(alpha), 12, **value))
    done = begun = 0.0
    for i, (a, b, stays) in enumerate(zip(p, q, kept, strict=True)):
        least = min(a, b)
        parts.append(_segment(f"overlap{i}", SCALES[0], done, least))
        parts.append(_segment(f"chance{i}", SCALES[2], begun, stays))
        done, begun = done + least, begun + b
    parts.append(_segment("distance", SCALES[1], 0.0, alphas[1]))
    for y in SCALES:
        parts.append(
            f'<rect x="{x}" y="{y}" width="{unit}" height="{BAR}" fill="none" stroke="{MUTED}"/>'
        )
    return "".join(parts)


def _segment(name: str, y: float, start: float, length: float) -> str:
    moving = {
        "x": _at(LAYOUT["scale"] + LAYOUT["unit"] * start),
        "width": _at(LAYOUT["unit"] * length),
    }
    return _part("rect", name, moving, y=y, height=BAR, fill=KEPT, stroke=PAPER)


def _verdict(off: float) -> str:
    x, y = LAYOUT["scale"], 212
    good = off <= TOLERANCE
    words, ink = (
        ("✓ what comes out is p", DRAWN) if good else ("✗ what comes out is not p", SURPLUS)
    )
    distance = f"TV(out, p) = {_distance(off)}"
    return svg_text(
        x, y, words, 13, ink, font_weight="bold", data_part="verdict"
    ) + svg_text(x, y + 18, distance, 12, data_part="off")  # fmt: skip


def _legend() -> str:
    x, y, parts = LAYOUT["scale"], 258, []
    swatch = 'width="22" height="14"'
    entries = (
        ("kept: min(p, q)", f'fill="{KEPT}"'),
        ("surplus: q above p, rejected", f'fill="{SURPLUS_FILL}" stroke="{SURPLUS}"'),
        ("deficit: p above q", f'fill="none" stroke="{MUTED}" stroke-dasharray="4 3"'),
        ("drawn after a rejection", f'fill="{DRAWN}"'),
    )
    parts.append(f'<path d="M{x} {y - 16}H{WIDTH - 10}" stroke="{LINE}"/>')
    for i, (words, look) in enumerate(entries):
        top = y + 22 * i
        parts.append(f'<rect x="{x}" y="{top - 11}" {swatch} {look}/>')
        parts.append(svg_text(x + 30, top, words, 11))
    hatch = "".join(f"M{x + s} {y + 11}L{x + s - 14} {y + 25}" for s in (14, 18, 22))
    parts.append(f'<path d="{hatch}" stroke="{SURPLUS}"/>')
    top = y + 88
    parts.append(f'<path d="M{x} {top - 4}H{x + 22}" stroke="{INK}" stroke-width="2.5"/>')
    parts.append(svg_text(x + 30, top, "p, what the target wants", 11))
    parts.append(svg_text(x, top + 24, "Drag a grip, or type p and q.", 11, MUTED))
    return "".join(parts)


def _sentence(
    names: Sequence[str], out: Sequence[float], alpha: float, lost: float, draw: str, off: float
) -> str:
    law = ", ".join(f"{name} {_number(value)}" for name, value in zip(names, out, strict=True))
    end = "exactly p" if off <= TOLERANCE else f"not p, total variation {_distance(off)}"
    return (
        f"Of all drafts {_number(alpha)} are kept and {_number(lost)} rejected, then drawn again "
        f"from {DRAWS[draw][2]}. Out comes {law}: {end}."
    )


def _table(names: Sequence[str], p: Row, q: Row, kept: Row, drawn: Row) -> str:
    header = ("token", "p", "q", "kept", "rejected", "drawn again", "out")
    rows = [
        (name, *(_number(value) for value in (a, b, k, b - k, d, k + d)))
        for name, a, b, k, d in zip(names, p, q, kept, drawn, strict=True)
    ]
    return html_table(header, rows)
