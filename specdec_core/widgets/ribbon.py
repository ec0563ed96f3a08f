"""The origin ribbon: a text whose tokens say where they came from and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec_core.trace import Round, Trace
from specdec_core.widgets.picture import (
    BLUE,
    GREEN,
    INK,
    LINE,
    MONOSPACE,
    MUTED,
    PALE_BLUE,
    PALE_GREEN,
    PALE_GREY,
    PALE_VERMILION,
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

WIDTH, MARGIN = 760, 16
CHIP_HEIGHT, CHIP_GAP, ROUND_GAP, ROW_STEP = 26, 3, 14, 58
MARK = 2 * text_width("0", 12)  # room for a chip's mark
LONGEST = 640  # width of a token

# A mark and a word first, a colour (Okabe-Ito) last.
ORIGINS = {
    "draft": ("✓", "drafted and accepted", BLUE, PALE_BLUE),
    "corrected": ("↻", "corrected by the target", VERMILION, PALE_VERMILION),
    "bonus": ("+", "bonus from the target", GREEN, PALE_GREEN),
    "plain": ("·", "plain, one forward each", MUTED, PALE_GREY),
}


@dataclass(frozen=True)
class Chip:
    """One emitted token with its place in the picture."""

    text: str
    origin: str
    x: float
    y: float
    width: float


def origin_ribbon(trace: Trace, decode: Callable[[Sequence[int]], str]) -> Picture:
    """The text of a run as chips, one group a target forward, above the forwards it took.

    decode: token ids -> text, used for one token at a time.
    """
    groups, height = _lay_out(trace.rounds, decode)
    used = [name for name in ORIGINS if any(c.origin == name for g in groups for c in g)]
    body = _legend(used)
    body += "".join(_group(i, group) for i, group in enumerate(groups, start=1))
    body += _axis(height, len(trace.rounds), len(trace.tokens))
    rows = [
        (number, visible(chip.text), chip.origin)
        for number, group in enumerate(groups, start=1)
        for chip in group
    ]
    table = html_table(("target forward", "token", "origin"), rows)
    lines = 92 if len(trace.rounds) < len(trace.tokens) else 58
    return Picture(svg_frame(WIDTH, height + lines, body), _sentence(trace, used), table)


def _lay_out(
    rounds: Sequence[Round], decode: Callable[[Sequence[int]], str]
) -> tuple[list[list[Chip]], float]:
    """Chips of each round, wrapped like a text; and where the last row ends."""
    x, y, groups = MARGIN, 48.0, []
    for played in rounds:
        group = []
        for token, origin in zip(played.emitted, played.origins, strict=True):
            text = decode([token])
            width = round(text_width(_shown(text), 12) + MARK + 10, 1)
            if x + width > WIDTH - MARGIN:
                x, y = MARGIN, y + ROW_STEP
            group.append(Chip(text, origin, x, y, width))
            x += width + CHIP_GAP
        x += ROUND_GAP
        groups.append(group)
    return groups, y + ROW_STEP


def _legend(used: Sequence[str]) -> str:
    x, parts = float(MARGIN), []
    for name in used:
        mark, words, ink, fill = ORIGINS[name]
        parts.append(
            f'<rect x="{x:g}" y="11" width="20" height="18" rx="4" fill="{fill}" stroke="{ink}"/>'
        )
        parts.append(svg_text(x + 10, 25, mark, fill=ink, text_anchor="middle", font_weight="bold"))
        parts.append(svg_text(x + 27, 25, words))
        x += 40 + 6.6 * len(words)  # all four origins fit side by side
    return "".join(parts)


def _group(number: int, chips: Sequence[Chip]) -> str:
    """The chips of one round with a bracket below; a round may wrap over several rows."""
    parts = [_chip(chip) for chip in chips]
    for i, y in enumerate(sorted({chip.y for chip in chips})):
        row = [chip for chip in chips if chip.y == y]
        left, right = row[0].x + 1, row[-1].x + row[-1].width - 1
        floor = y + CHIP_HEIGHT + 8
        parts.append(
            f'<path d="M{left:g} {floor - 4:g}V{floor:g}H{right:g}V{floor - 4:g}" '
            f'fill="none" stroke="{MUTED}"/>'
        )
        middle = (left + right) / 2
        label = f"… {number}" if i else str(number)  # a round goes on in the next line
        parts.append(svg_text(middle, floor + 12, label, 11, MUTED, text_anchor="middle"))
    return "".join(parts)


def _chip(chip: Chip) -> str:
    mark, _, ink, fill = ORIGINS[chip.origin]
    dash = "" if chip.origin == "draft" else ' stroke-width="2"'
    return (
        f'<rect x="{chip.x:g}" y="{chip.y:g}" width="{chip.width:g}" height="{CHIP_HEIGHT}" '
        f'rx="5" fill="{fill}" stroke="{ink}"{dash}/>'
        + svg_text(chip.x + 6, chip.y + 17, mark, fill=ink, font_weight="bold")
        + svg_text(
            round(chip.x + 6 + MARK, 1), chip.y + 17, _shown(chip.text), font_family=MONOSPACE
        )
    )


def _shown(text: str) -> str:
    return shorten(visible(text), LONGEST, 12)


def _axis(top: float, forwards: int, tokens: int) -> str:
    """Two bars on one axis: target forwards taken, and what one token a forward would take."""
    scale = (WIDTH - 2 * MARGIN - 330) / max(tokens, 1)
    parts = [f'<path d="M{MARGIN} {top - 4:g}H{WIDTH - MARGIN}" stroke="{LINE}"/>']
    bars = [("this run", forwards, BLUE)]
    if forwards < tokens:
        bars.append(("one token a forward", tokens, "#8a8a8a"))
    for i, (label, count, colour) in enumerate(bars):
        y = top + 12 + 34 * i
        parts.append(svg_text(MARGIN, y + 14, label))
        left = MARGIN + 150
        for k in range(count):
            parts.append(
                f'<rect x="{left + k * scale:g}" y="{y:g}" width="{scale:g}" height="20" '
                f'fill="{colour}" stroke="{PAPER}"/>'
            )
        words = f"{count} target forwards"
        parts.append(svg_text(left + count * scale + 8, y + 14, words, fill=INK))
    return "".join(parts)


def _sentence(trace: Trace, used: Sequence[str]) -> str:
    origins = [origin for round in trace.rounds for origin in round.origins]
    counts = ", ".join(f"{origins.count(name)} {ORIGINS[name][1]}" for name in used)
    return f"{len(origins)} tokens from {len(trace.rounds)} target forwards: {counts}."
