"""A picture in a notebook: an image that says the same in words, and its numbers in a table."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from unicodedata import combining, east_asian_width
from urllib.parse import urlencode

# Foreground and background are set together, so a picture reads the same on any theme.
INK, PAPER, MUTED, LINE = "#1a1a1a", "#ffffff", "#4d4d4d", "#c8c8c8"
# Okabe-Ito, darkened where text is set in them, and pale fills to go behind them.
BLUE, VERMILION, GREEN = "#0072b2", "#b34700", "#00694d"
PALE_BLUE, PALE_VERMILION, PALE_GREEN = "#e5f1f8", "#fdeee2", "#e2f4ee"
PALE_GREY = "#f0f0f0"
MONOSPACE = "DejaVu Sans Mono, Menlo, Consolas, monospace"
SANS = "DejaVu Sans, Helvetica, Arial, sans-serif"
EM = 0.61  # width of a monospace character at 1 px, rounded up

# Under a word, so that no line behind it strikes it through.
HALO = {"stroke": PAPER, "stroke_width": 3, "paint_order": "stroke"}

# Breaks as marks, other control characters as their pictures, and what no XML may hold as the mark
# of a character that cannot be shown.
UNPRINTABLE = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
UNPRINTABLE |= {ord("\n"): "⏎", ord("\t"): "⇥"}
UNPRINTABLE |= dict.fromkeys([*range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
MARKS = UNPRINTABLE | {ord(" "): "␣"}


def visible(text: str) -> str:
    """`text` with its spaces, line breaks and control characters drawn as marks."""
    return text.translate(MARKS)


def text_width(text: str, size: int = 11) -> float:
    """Width of `text` in the monospace face; East Asian characters and emoji are two wide."""
    return EM * size * sum(map(_columns, text))


def shorten(text: str, width: float, size: int = 11) -> str:
    """`text`, or as much of it as fits `width` in the monospace face with … after it.

    One character is always kept.
    """
    ends = list(accumulate(map(_columns, text), initial=0))
    most = int(width / text_width("0", size) + 1e-9)
    return text if ends[-1] <= most else text[: max(bisect_right(ends, most - 1) - 1, 1)] + "…"


def _columns(character: str) -> int:
    """How many columns of a monospace face a character takes; an accent takes none."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def svg_text(x: float, y: float, text: str, size: int = 12, fill: str = INK, **attributes) -> str:
    """One SVG text element; keyword `text_anchor` becomes `text-anchor`.

    `text` is escaped, and its control characters are drawn as marks.
    """
    words = escape(text.translate(UNPRINTABLE))
    extra = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in attributes.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{extra}>{words}</text>'


def svg_frame(width: float, height: float, body: str) -> str:
    """A whole SVG document on paper of its own."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="{SANS}">'
        f'<rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>{body}</svg>'
    )


def clickable(body: str, label: str, **state: object) -> str:
    """A group of shapes that sets `state` when it is clicked, or chosen with the Enter key.

    label: what it is called for somebody who does not see it.
    """
    return (
        f'<g data-set="{escape(urlencode(state), quote=True)}" '
        f'aria-label="{escape(label, quote=True)}">{body}</g>'
    )


def draggable(
    body: str, label: str, name: str, now: float, heights: tuple[float, float],
    values: tuple[float, float] = (0, 1), **attributes: str,
) -> str:  # fmt: skip
    """A group of shapes that sets the number `name` when it is dragged, or by the arrow keys.

    label: what it is called for somebody who does not see it.
    now: the number it stands for.
    heights, values: y in the picture at the lowest and at the highest number; those numbers.
    """
    extra = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in attributes.items())
    return (
        f'<g{extra} data-drag="{name}" data-now="{now:g}" data-y="{heights[0]:g},{heights[1]:g}" '
        f'data-value="{values[0]:g},{values[1]:.12g}" '
        f'aria-label="{escape(label, quote=True)}">{body}</g>'
    )


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain HTML table; every cell is escaped."""
    head = "".join(f"<th>{escape(str(cell))}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Picture:
    """An SVG, the sentence that says what it shows, and a table of its numbers.

    Where the table is the picture, `svg` is empty.

    In a notebook it appears as an image with the sentence as its alternative text, which survives
    a notebook without a kernel, an export to HTML, and a code host's preview.
    """

    svg: str
    sentence: str
    table: str = ""

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        if not self.svg:
            return f"{self.table}<p>{escape(self.sentence)}</p>"
        data = base64.b64encode(self.svg.encode()).decode()
        image = (
            f'<img alt="{escape(self.sentence, quote=True)}" '
            f'src="data:image/svg+xml;base64,{data}">'
        )
        details = f"<details><summary>As a table</summary>{self.table}</details>"
        return f"{image}<p>{escape(self.sentence)}</p>{details if self.table else ''}"
