"""How acceptance along a text looks: a quiet line at the top, and a shock at each difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec_core.lab.acceptance import AcceptanceRecord, Top
from specdec_core.widgets.picture import (
    BLUE,
    HALO,
    INK,
    LINE,
    MONOSPACE,
    MUTED,
    PALE_GREY,
    PALE_VERMILION,
    PAPER,
    VERMILION,
    Picture,
    clickable,
    html_table,
    shorten,
    svg_frame,
    svg_text,
    text_width,
    visible,
)

WIDTH, MARGIN = 760, 16
LEFT, RIGHT = 46, 556  # of the plots
SIDE, EDGE = 586, 744  # of the means beside them
PAGE = 120  # most positions on one page
TARGET = 24  # width of what is clicked
TALL, FIRST_TOP, NEXT_TOP = 92, 80, 134
WORD = 96  # room for a token in the lists


@dataclass(frozen=True)
class Strip:
    """A record with the texts of its tokens. Positions count from 1, at the first judged token."""

    name: str
    record: AcceptanceRecord
    texts: Mapping[int, str]
    rolling: Sequence[float]
    window: int

    @property
    def length(self) -> int:
        return len(self.record.beta)

    def page(self, position: int) -> range:
        """The positions on the page that holds this one; pages are of one length."""
        size = math.ceil(self.length / math.ceil(self.length / PAGE))
        first = (position - 1) // size * size + 1
        return range(first, min(first + size, self.length + 1))

    def beta(self, position: int) -> float:
        return self.record.beta[position - 1]

    def word(self, position: int) -> str:
        """The token at a position as text; positions of 0 and less lie before the first judged."""
        return visible(self.texts[self.record.tokens[self.record.start + position - 1]])

    def lowest(self, positions: Sequence[int]) -> int:
        return min(positions, key=self.beta)


def draw_strips(
    one: Strip, second: Strip | None, everything: Sequence[Strip], position: int
) -> Picture:
    """One strip, or two on the same page, and what was expected at `position`."""
    page = one.page(position)
    panels = [one, second] if second else [one]
    slot = min(20.0, (RIGHT - LEFT) / len(one.page(1)))
    ends = FIRST_TOP + NEXT_TOP * (len(panels) - 1) + TALL
    body = _head(one.window)
    for i, strip in enumerate(panels):
        body += _panel(strip, FIRST_TOP + i * NEXT_TOP, slot, page, position)
    body += _positions(page, ends, slot) + _means(everything, panels)
    top = max(ends + 44, FIRST_TOP + _step(everything) * len(everything) + 8)
    body += _text(one, position, top)
    floor = top + 66
    columns = _columns(one, second, position)
    if columns:
        body += "".join(_list(*column, i, floor) for i, column in enumerate(columns))
        floor += 114
    svg = svg_frame(WIDTH, floor + 4, body)
    return Picture(svg, _sentence(one, second, position), _table(one, second, page))


def _head(window: int) -> str:
    """The title, and what the strokes mean."""
    words = "How likely a draft is kept, at each position of a text"
    return (
        svg_text(MARGIN, 20, words, 13, font_weight="bold")
        + f'<path d="M{LEFT} 32V46" stroke="{BLUE}" stroke-width="3"/>'
        + svg_text(LEFT + 8, 43, "a shock: draft and target differ", 11)
        + f'<path d="M{LEFT + 222} 39h26" stroke="{INK}" stroke-width="2"/>'
        + svg_text(LEFT + 254, 43, f"mean of the last {window}", 11)
    )


def _y(top: float, value: float) -> float:
    return round(top + TALL * (1 - value), 1)


def _x(first: int, position: int, slot: float) -> float:
    """The middle of a position's place."""
    return round(LEFT + (position - first + 0.5) * slot, 2)


def _panel(strip: Strip, top: float, slot: float, page: range, position: int) -> str:
    """A seismogram of the positions on a page that the strip has: shocks down from a line at 1."""
    first, page = page.start, range(page.start, min(page.stop, strip.length + 1))
    parts = [svg_text(LEFT, top - 8, shorten(strip.name, 300, 12), 12, font_weight="bold")]
    mean = f"mean {strip.record.mean:.2f}"
    parts.append(svg_text(RIGHT, top - 8, mean, 12, text_anchor="end"))
    for value in (0, 0.5, 1):
        y = _y(top, value)
        parts.append(f'<path d="M{LEFT} {y:g}H{RIGHT}" stroke="{LINE}"/>')
        parts.append(svg_text(LEFT - 6, y + 4, f"{value:g}", 11, MUTED, text_anchor="end"))
    if position in page:
        x = _x(first, position, slot)
        parts.append(f'<rect x="{x - max(slot, 7) / 2:g}" y="{top - 4:g}" '
                     f'width="{max(slot, 7):g}" height="{TALL + 8}" fill="#f6dd9c"/>')  # fmt: skip
    shocks = "".join(f"M{_x(first, k, slot):g} {top:g}V{_y(top, strip.beta(k)):g}" for k in page)
    wide = round(0.7 * slot, 2)
    parts.append(f'<path d="M{LEFT} {top:g}H{LEFT + slot * len(page):.1f}" stroke="{BLUE}"/>')
    parts.append(f'<path d="{shocks}" stroke="{BLUE}" stroke-width="{wide:g}"/>')
    line = "L".join(f"{_x(first, k, slot):g} {_y(top, strip.rolling[k - 1]):g}" for k in page)
    if len(page):
        for ink, width in ((PAPER, 4), (INK, 2)):
            parts.append(f'<path d="M{line}" fill="none" stroke="{ink}" stroke-width="{width}"/>')
    else:
        words = f"ends at position {strip.length}"
        parts.append(svg_text((LEFT + RIGHT) / 2, top + 50, words, 12, MUTED, text_anchor="middle"))
    if position in page:
        parts.append(_needle(strip, top, slot, first, position))
    return "".join(parts) + _groups(strip, top, slot, page)


def _needle(strip: Strip, top: float, slot: float, first: int, position: int) -> str:
    """The value at the chosen position."""
    x, value = _x(first, position, slot), strip.beta(position)
    y = _y(top, value)
    side, anchor = (-9, "end") if x > RIGHT - 60 else (9, "start")
    return (
        f'<circle cx="{x:g}" cy="{y:g}" r="4.5" fill="{PAPER}" stroke="{INK}" stroke-width="2"/>'
        + svg_text(x + side, min(y + 4, top + TALL - 2), f"{value:.2f}", 12, text_anchor=anchor,
                   font_weight="bold", **HALO)
    )  # fmt: skip


def _groups(strip: Strip, top: float, slot: float, page: range) -> str:
    """Places to click, each wide enough to hit: the deepest shock in it is chosen."""
    count = max(1, math.ceil(TARGET / slot))
    parts = []
    for first in page[::count]:
        group = range(first, min(first + count, page.stop))
        deepest = strip.lowest(group)
        x = LEFT + (first - page.start) * slot
        body = (
            f'<rect x="{x:.1f}" y="{top:g}" width="{slot * len(group):.1f}" height="{TALL}" '
            f'fill="{PAPER}" fill-opacity="0"/>'
        )
        name = f"{strip.name}, position {deepest}, acceptance {strip.beta(deepest):.2f}"
        parts.append(clickable(body, name, position=deepest))
    return "".join(parts)


def _positions(page: range, y: float, slot: float) -> str:
    """The axis of positions, below the last panel."""
    every = next(n for n in (1, 5, 10, 20) if n * slot >= 40 or n == 20)
    first = page.start
    marks = [k for k in page if k % every == 0 or k == first]
    if len(marks) > 1 and (marks[1] - marks[0]) * slot < 30:
        del marks[1]
    parts = []
    for k in marks:
        x = _x(first, k, slot)
        parts.append(f'<path d="M{x:g} {y:g}v4" stroke="{MUTED}"/>')
        parts.append(svg_text(x, y + 17, str(k), 11, MUTED, text_anchor="middle"))
    return "".join(parts) + svg_text(RIGHT + 18, y + 17, "position", 11, MUTED)


def _step(everything: Sequence[Strip]) -> float:
    """From one mean to the next: closer from seven on, so that they end above the axis."""
    return min(34, round(230 / len(everything), 1))


def _means(everything: Sequence[Strip], panels: Sequence[Strip]) -> str:
    """The one number of each record, which hides all this."""
    parts = [svg_text(SIDE, FIRST_TOP - 8, "mean acceptance", 12, font_weight="bold")]
    step = _step(everything)
    for i, strip in enumerate(everything):
        y, mean = FIRST_TOP + step * i, strip.record.mean
        bold = {"font_weight": "bold"} if strip in panels else {}
        body = (
            f'<rect x="{SIDE}" y="{y:g}" width="{EDGE - SIDE}" height="30" fill="{PAPER}"/>'
            + svg_text(SIDE, y + 13, shorten(strip.name, EDGE - SIDE - 36), 11, **bold)
            + svg_text(EDGE, y + 13, f"{mean:.2f}", 11, text_anchor="end", **bold)
            + f'<rect x="{SIDE}" y="{y + 18:g}" width="{EDGE - SIDE}" height="7" '
            f'fill="{PALE_GREY}"/>'
            f'<rect x="{SIDE}" y="{y + 18:g}" width="{mean * (EDGE - SIDE):.1f}" height="7" '
            f'fill="{BLUE}"/>'
        )
        parts.append(clickable(body, f"show {strip.name}, mean {mean:.2f}", shown=strip.name))
    return "".join(parts)


def _text(strip: Strip, position: int, top: float) -> str:
    """The tokens around the chosen one, each above its acceptance."""
    before, after = _around(strip, position)
    parts, x = [], float(MARGIN)
    for k in range(before, after + 1):
        word = shorten(strip.word(k), 200, 12)
        wide = _wide(word)
        here, judged = k == position, k >= 1
        shapes = (
            f'<rect x="{x:.1f}" y="{top:g}" width="{wide - 4:.1f}" height="25" rx="4" '
            f'fill="{"#f6dd9c" if here else PALE_GREY if judged else PAPER}" '
            f'stroke="{INK if here else LINE}" stroke-width="{2 if here else 1}"/>'
        )
        middle = round(x + (wide - 4) / 2, 1)
        shapes += svg_text(middle, top + 17, word, 12, INK if judged else MUTED,
                           text_anchor="middle", font_family=MONOSPACE)  # fmt: skip
        if judged:
            bold = {"font_weight": "bold"} if here else {}
            shapes += svg_text(middle, top + 40, f"{strip.beta(k):.2f}", 11, INK if here else MUTED,
                               text_anchor="middle", **bold)  # fmt: skip
            name = f"position {k}, {word}, acceptance {strip.beta(k):.2f}"
            shapes = clickable(shapes, name, position=k)
        parts.append(shapes)
        x += wide
    return "".join(parts)


def _wide(word: str) -> float:
    return max(text_width(word, 12) + 14, 36)


def _around(strip: Strip, position: int) -> tuple[int, int]:
    """The first and the last position of the tokens around one that fit a line."""
    ends = 1 - strip.record.start, strip.length
    room = WIDTH - 2 * MARGIN - _wide(shorten(strip.word(position), 200, 12))
    first = last = position
    while True:
        grown = False
        for step in (-1, 1):
            k = first - 1 if step < 0 else last + 1
            if not ends[0] <= k <= ends[1]:
                continue
            wide = _wide(shorten(strip.word(k), 200, 12))
            if wide <= room:
                room -= wide
                first, last, grown = min(first, k), max(last, k), True
        if not grown:
            return first, last


def _columns(one: Strip, second: Strip | None, position: int) -> list[tuple]:
    """What each side expected at the position: (title, likeliest tokens, texts, colour)."""
    record = one.record
    if not record.target_top:
        return []
    i = position - 1
    columns = [("target p", record.target_top[i], one.texts, None), _drafted(one, position)]
    same = second is not None and second.record.tokens == record.tokens
    if same and second.record.start == record.start and second.record.draft_top:
        columns.append(_drafted(second, position))
    return columns


def _drafted(strip: Strip, position: int) -> tuple:
    title = f"draft q, {shorten(strip.name, 150)}"
    return title, strip.record.draft_top[position - 1], strip.texts, strip.beta(position)


def _list(
    title: str, top: Top, texts: Mapping[int, str], shared: float | None, column: int, y: float
) -> str:
    """The likeliest tokens of one side, with bars; shared: what a draft has in common with p."""
    x, full = MARGIN + 248 * column, 80
    ink, fill = (BLUE, BLUE) if shared is None else (VERMILION, PALE_VERMILION)
    parts = [svg_text(x, y + 4, title, 12, ink, font_weight="bold")]
    for i, (token, value) in enumerate(top):
        row = y + 14 + 24 * i
        word = shorten(visible(texts[token]), WORD)
        parts.append(svg_text(x, row + 14, word, 11, font_family=MONOSPACE))
        parts.append(
            f'<rect x="{x + WORD + 6}" y="{row + 3:g}" width="{max(full * value, 1):.1f}" '
            f'height="14" fill="{fill}" stroke="{ink}"/>'
        )
        at = round(x + WORD + 12 + full * value, 1)
        parts.append(svg_text(at, row + 14, f"{value:.2f}", 11))
    if not top:
        parts.append(svg_text(x, y + 28, "proposes nothing here", 11, MUTED))
    if shared is not None:
        words = f"sum of min(p, q) over all tokens: {shared:.2f}"
        parts.append(svg_text(x, y + 102, words, 11))
    return "".join(parts)


def _sentence(one: Strip, second: Strip | None, position: int) -> str:
    record, i = one.record, position - 1
    places = "1 position" if one.length == 1 else f"{one.length} positions"
    words = (
        f"{one.name}: mean acceptance {record.mean:.2f} over {places}, from "
        f"{min(record.beta):.2f} to {max(record.beta):.2f}. At position {position}, "
        f"“{one.word(position)}”, it is {record.beta[i]:.2f}"
    )
    if record.target_top:
        sides = ("the target", record.target_top[i]), ("the draft", record.draft_top[i])
        told = [
            f"{side} expects “{visible(one.texts[top[0][0]])}” ({top[0][1]:.2f})" if top
            else f"{side} proposes nothing"
            for side, top in sides
        ]  # fmt: skip
        words += f": {told[0]}, {told[1]}"
    if second is None:
        return f"{words}."
    here = ""
    if position <= second.length:
        here = f", and {second.beta(position):.2f} at its position {position}"
    return f"{words}. Below, {second.name}: mean {second.record.mean:.2f}{here}."


def _table(one: Strip, second: Strip | None, page: range) -> str:
    header = ["position", "token", "acceptance", f"mean of the last {one.window}"]
    rows = [[k, one.word(k), f"{one.beta(k):.3f}", f"{one.rolling[k - 1]:.3f}"] for k in page]
    if second:
        header += [f"{second.name}: token", f"{second.name}: acceptance"]
        for row, k in zip(rows, page, strict=True):
            there = k <= second.length
            row += [second.word(k), f"{second.beta(k):.3f}"] if there else ["", ""]
    return html_table(header, rows)
