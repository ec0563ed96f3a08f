"""What a ledger's rounds came to: drafts kept, rows held, and how far the logits are off."""

from __future__ import annotations

import math

from specdec_core.lab.ledger import Moment
from specdec_core.widgets.picture import (
    BLUE,
    INK,
    LINE,
    MUTED,
    PALE_BLUE,
    PALE_GREY,
    PAPER,
    VERMILION,
    clickable,
    svg_text,
)

# A logit difference below this is rounding, in float64 and in float32.
ROUNDING = 1e-3
LEFT, MARGIN, RIGHT, HEIGHT = 176, 12, 748, 200
LINE_STEP, PANEL = 17, 112  # from a line of numbers to the next; where the differences begin
SIDES = {"target": (-4, BLUE), "draft": (4, "#7a5200")}  # how far aside, which colour
LABELS = (
    "round", "drafts kept", "target rows held", "· wrong or lost", "draft rows held",
    "· wrong or lost",
)  # fmt: skip


def draw_history(at: Moment, top: float) -> str:
    """One column a round below `top`, filled for the rounds that are over; each is clickable."""
    rounds = len(at.ledger.rounds)
    width = min(80.0, (RIGHT - LEFT) / rounds)
    parts = [f'<path d="M{MARGIN} {top - 12:g}H{RIGHT}" stroke="{LINE}"/>']
    parts += [svg_text(MARGIN, top + 8 + LINE_STEP * i, w, 11) for i, w in enumerate(LABELS)]
    parts.append(_axis(top + PANEL, round(LEFT + width * rounds, 1)))
    for number in range(rounds):
        x = round(LEFT + width * (number + 0.5), 1)
        head = _head(x, top, width, str(number + 1), number == at.number)
        label = f"show the end of round {number + 1}"
        parts.append(clickable(head, label, step=3 * number + 3))
        if number < at.done:
            parts.append(_column(Moment(at.ledger, number, 2), x, top))
    return "".join(parts)


def _head(x: float, top: float, width: float, number: str, now: bool) -> str:
    return (
        f'<rect x="{x - width / 2 + 1:g}" y="{top - 6:g}" width="{width - 2:g}" height="19" '
        f'rx="4" fill="{PALE_BLUE if now else PAPER}" stroke="{BLUE if now else LINE}"/>'
        + svg_text(
            x, top + 8, number, 11, text_anchor="middle", font_weight="bold" if now else "normal"
        )
    )


def _column(end: Moment, x: float, top: float) -> str:
    played = end.entry.round
    values = [f"{played.verdicts.count('accepted')}/{played.gamma}"]
    parts = []
    for side in SIDES:
        values += [str(len(end.rows(side))), f"!{n}" if (n := end.wrong(side)) else "·"]
        parts.append(_error(side, getattr(end.entry, side).error, x, top + PANEL))
    for i, words in enumerate(values, start=1):
        bad = words.startswith("!")
        parts.append(
            svg_text(
                x,
                top + 8 + LINE_STEP * i,
                words,
                11,
                VERMILION if bad else INK,
                text_anchor="middle",
                font_weight="bold" if bad else "normal",
            )
        )
    return "".join(parts)


def error_height(error: float) -> float:
    """Where a difference of logits lies in its panel: log scale from 100 down to 0.01."""
    if error < ROUNDING:
        return 70.0
    return round(10 + 10 * (2 - math.log10(min(max(error, 0.01), 100.0))), 1)


def _error(side: str, error: float | None, x: float, panel: float) -> str:
    if error is None:
        return ""
    aside, colour = SIDES[side]
    y = panel + error_height(error)
    number = ""
    if error >= ROUNDING:
        halo = {"stroke": PAPER, "stroke_width": 3, "paint_order": "stroke"}
        number = svg_text(x, y - 7, f"{error:.1f}", 11, text_anchor="middle", **halo)
    return _mark(side, x + aside, y, colour) + number


def _mark(side: str, x: float, y: float, colour: str) -> str:
    """A full square for the target, an open circle for the draft."""
    if side == "target":
        return f'<rect x="{x - 3.5:g}" y="{y - 3.5:g}" width="7" height="7" fill="{colour}"/>'
    return (
        f'<circle cx="{x:g}" cy="{y:g}" r="3.5" fill="{PAPER}" stroke="{colour}" stroke-width="2"/>'
    )


def _axis(panel: float, right: float) -> str:
    parts = [
        svg_text(MARGIN, panel + 12, "largest |logit −", 11),
        svg_text(MARGIN, panel + 26, "logit without cache|", 11),
        f'<rect x="{LEFT}" y="{panel + 60:g}" width="{right - LEFT:g}" height="20" '
        f'fill="{PALE_GREY}"/>',
        svg_text(LEFT - 6, panel + 74, "rounding only", 11, MUTED, text_anchor="end"),
    ]
    for x, (side, (_, colour)) in zip((MARGIN, MARGIN + 58), SIDES.items(), strict=True):
        parts.append(_mark(side, x + 4, panel + 42, colour))
        parts.append(svg_text(x + 12, panel + 46, side, 11))
    for value in (100, 1, 0.01):
        y = panel + error_height(value)
        parts.append(f'<path d="M{LEFT} {y:g}H{right:g}" stroke="{LINE}"/>')
        parts.append(svg_text(LEFT - 6, y + 4, str(value), 11, MUTED, text_anchor="end"))
    return "".join(parts)
