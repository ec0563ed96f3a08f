"""The picture of a proof tree: branches from left to right, leaves, and the boxes they sum in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from specdec_core.widgets.picture import (
    BLUE,
    INK,
    LINE,
    MONOSPACE,
    MUTED,
    PALE_BLUE,
    PALE_VERMILION,
    PAPER,
    VERMILION,
    clickable,
    svg_frame,
    svg_text,
    text_width,
)
from specdec_core.widgets.proof_paths import TOKEN, Group, Leaf, Rows, Step

WIDTH, MARGIN, TOP = 760, 14, 104
LEAF_STEP, GAP, LINK = 32, 8, 40
GROUP_WIDTH, LOW, HIGH = 168, 38, 53  # a box is high where its two fractions need a line each
GROUP_LEFT = WIDTH - MARGIN - GROUP_WIDTH

# A mark and a word first, a colour last.
VERDICTS = {"keep": "✓ keep", "reject": "✗ reject"}
LONG = 106  # a fraction wider than this leaves no room for the word "target"
MARKS = {"draft": "", "residual": "↻ ", "bonus": "+ ", "plain": "· "}


@dataclass(frozen=True)
class Layout:
    """Where things stand: columns of steps, one row a leaf, one box a group.

    places: left edge of each column, each `width` wide. end: where the leaves begin, `room` wide.
    rows, slots: where each leaf is, and each group's box by its key. box: how high a box is.
    """

    places: dict[int, float]
    width: float
    end: float
    room: float
    rows: dict[Leaf, float]
    slots: dict[str, float]
    bottom: float
    box: int

    @property
    def wide(self) -> bool:
        return self.width > 75

    @property
    def roomy(self) -> bool:
        return self.width > 58

    @property
    def bend(self) -> int:
        """How far a line bends before the words of a column begin."""
        return 14 if self.roomy else 7


@dataclass(frozen=True)
class Branch:
    """A step of the tree, where it comes from, and the leaves behind it."""

    step: Step
    origin: tuple[float, float]
    y: float
    share: Fraction
    leaves: frozenset[Leaf]


def _lay_out(ways: Sequence[Leaf], groups: Sequence[Group], names: Sequence[str]) -> Layout:
    columns = sorted({step.column for leaf in ways for step in leaf.steps})
    letters = max(text_width(spelled(leaf.tokens, names)) for leaf in ways)
    digits = max(text_width(str(leaf.probability)) for leaf in ways)
    room = letters + digits + 18
    end = GROUP_LEFT - LINK - room
    width = (end - MARGIN) / len(columns)
    longest = max(len(str(group.total)) + len(str(group.target)) for group in groups)
    box = LOW if longest <= 12 else HIGH
    tall = max(len(ways) * LEAF_STEP, len(groups) * (box + GAP))
    return Layout(
        {column: MARGIN + i * width for i, column in enumerate(columns)}, width, end, room,
        {leaf: TOP + (i + 0.5) * tall / len(ways) for i, leaf in enumerate(ways)},
        {group.key: TOP + (i + 0.5) * tall / len(groups) for i, group in enumerate(groups)},
        TOP + tall, box,
    )  # fmt: skip


def draw_tree(
    ways: Sequence[Leaf],
    groups: Sequence[Group],
    chosen: Group,
    names: Sequence[str],
    title: str,
    lines: Sequence[str],
) -> str:
    """The SVG: tree, leaves and groups, with `lines` below; the leaves of `chosen` stand out.

    title: SVG for the top of the picture, see `draw_title`.
    """
    layout = _lay_out(ways, groups, names)
    middle = (layout.rows[ways[0]] + layout.rows[ways[-1]]) / 2
    branches = _branches(ways, 0, (MARGIN, middle), layout)
    # What is chosen comes last, so that it lies on top.
    strong = set(chosen.leaves)
    branches.sort(key=lambda branch: not strong.isdisjoint(branch.leaves))
    body = title + _headings(layout, len(chosen.tokens))
    body += f'<circle cx="{MARGIN:g}" cy="{middle:.4g}" r="3.5" fill="{BLUE}"/>'
    body += "".join(_branch(b, layout, not strong.isdisjoint(b.leaves), names) for b in branches)
    for group in sorted(groups, key=lambda group: group is chosen):
        shapes = "".join(
            _leaf(leaf, group, group is chosen, layout, names) for leaf in group.leaves
        )
        shapes += _box(group, group is chosen, layout, names)
        label = f"text {spelled(group.tokens, names)}: sum {group.total}, target {group.target}"
        body += clickable(shapes, label, group=group.key)
    for i, line in enumerate(lines):
        body += svg_text(MARGIN, layout.bottom + 26 + 17 * i, line, 12, INK, font_weight="bold")
    return svg_frame(WIDTH, layout.bottom + 22 + 17 * len(lines), body)


def _branches(
    ways: Sequence[Leaf], depth: int, origin: tuple[float, float], layout: Layout
) -> list[Branch]:
    """All branches below one point of the tree, depth first."""
    found: list[Branch] = []
    whole = sum(leaf.probability for leaf in ways)
    for step in dict.fromkeys(leaf.steps[depth] for leaf in ways if len(leaf.steps) > depth):
        behind = [leaf for leaf in ways if leaf.steps[depth : depth + 1] == (step,)]
        y = (layout.rows[behind[0]] + layout.rows[behind[-1]]) / 2
        share = sum(leaf.probability for leaf in behind) / whole
        found.append(Branch(step, origin, y, share, frozenset(behind)))
        here = layout.places[step.column] + layout.width, y
        found += _branches(behind, depth + 1, here, layout)
    return found


def _branch(branch: Branch, layout: Layout, strong: bool, names: Sequence[str]) -> str:
    """A line from the parent, the choice above it and its probability below."""
    (x0, y0), y = branch.origin, branch.y
    left = layout.places[branch.step.column]
    words = VERDICTS.get(branch.step.kind) or MARKS[branch.step.kind] + names[branch.step.token]
    ink, colour, thick = (INK, BLUE, 2) if strong else (MUTED, LINE, 1)
    weight = "bold" if strong else "normal"
    bend = x0 + layout.bend
    line = (
        f'<path d="M{x0:.4g} {y0:.4g}C{bend - 4:.4g} {y0:.4g} {x0 + 4:.4g} {y:.4g} {bend:.4g} '
        f'{y:.4g}H{left + layout.width:.4g}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'
    )
    return (
        line
        + _text(left + layout.bend + 2, y - 4, words, ink, font_weight=weight)
        + _text(left + layout.bend + 2, y + 12, str(branch.share), ink)
    )


def _leaf(leaf: Leaf, group: Group, strong: bool, layout: Layout, names: Sequence[str]) -> str:
    """The emitted text, what it weighs, and a line to its group; later tokens are pale."""
    y, target, start = layout.rows[leaf], layout.slots[group.key], layout.end + layout.room
    compared = spelled(group.tokens, names)
    ink, line, thick = (INK, BLUE, 2) if strong else (MUTED, LINE, 1)
    left, paper = layout.end + 8, PALE_BLUE if strong else PAPER
    later = spelled(leaf.tokens[len(group.tokens) :], names)
    if later:
        later = _text(left + text_width(compared + " "), y + 4, later, font_family=MONOSPACE)
    stroke = f'fill="none" stroke="{line}"'
    behind = layout.places[leaf.steps[-1].column] + layout.width
    return (
        f'<path d="M{behind:.4g} {y:.4g}H{layout.end:.4g}" {stroke} stroke-dasharray="1 4"/>'
        f'<path d="M{start + 4:.4g} {y:.4g}C{start + 24:.4g} {y:.4g} {GROUP_LEFT - 24} '
        f'{target:.4g} {GROUP_LEFT} {target:.4g}" {stroke} stroke-width="{thick}"/>'
        f'<rect x="{left - 4:.4g}" y="{y - 11:.4g}" width="{layout.room:.4g}" height="22" rx="4" '
        f'fill="{paper}"/>'
        + _text(left, y + 4, compared, INK, font_family=MONOSPACE, font_weight="bold")
        + later
        + _text(start, y + 4, str(leaf.probability), ink, text_anchor="end")
    )


def _box(group: Group, strong: bool, layout: Layout, names: Sequence[str]) -> str:
    """The text of a group, its sum, the target's product, and whether they are equal."""
    top, right = layout.slots[group.key] - layout.box / 2, WIDTH - MARGIN - 8
    last = top + layout.box - 7
    equal = group.total == group.target
    longest = max(text_width(str(value)) for value in (group.total, group.target))
    words = ("sum", "target") if longest < LONG else ("Σ", "p")
    ink, fill = (BLUE, PALE_BLUE) if equal else (VERMILION, PALE_VERMILION)
    if equal and not strong:
        fill = PAPER
    return (
        f'<rect x="{GROUP_LEFT}" y="{top:.4g}" width="{GROUP_WIDTH}" height="{layout.box}" '
        f'rx="5" fill="{fill}" stroke="{ink}" stroke-width="{3 if strong else 1}"/>'
        + _text(
            GROUP_LEFT + 8, top + 16, spelled(group.tokens, names), INK,
            font_family=MONOSPACE, font_weight="bold",
        )
        + _text(right, top + 16, group.verdict, ink, text_anchor="end", font_weight="bold")
        + _text(GROUP_LEFT + 8, top + 31, f"{words[0]} {group.total}", INK)
        + _text(right, last, f"{words[1]} {group.target}", INK, text_anchor="end")
    )  # fmt: skip


def _headings(layout: Layout, compare: int) -> str:
    parts = [f'<path d="M{MARGIN} {TOP - 14}H{WIDTH - MARGIN}" stroke="{LINE}"/>']
    several = any(10 <= column < TOKEN for column in layout.places)
    for column, x in layout.places.items():
        i, kind = divmod(column, 10)
        if column > TOKEN:
            words = ("then the" if layout.wide else "then", "target ·" if layout.roomy else "p ·")
        elif column == TOKEN:
            words = ("residual ↻", "or bonus +") if layout.wide else ("residual", "or bonus")
        elif kind == 2:
            words = ("residual", f"↻ {i + 1}")
        else:
            words = (("draft", "coin")[kind] + (f" {i + 1}" if several else ""),)
        parts += _lines(x + layout.bend + 2, words)
    by = "first token" if compare == 1 else f"first {compare} tokens"
    parts += _lines(layout.end + 8, ("text, and", "its share"))
    parts += _lines(GROUP_LEFT, (f"grouped by {by}:", "sum of the leaves, and target"))
    return "".join(parts)


def draw_title(target: Rows, draft: Rows, names: Sequence[str], gamma: int, rule: str) -> str:
    """What the tree is of: p, q, gamma and the rule, so that a still picture says it too."""
    parts = []
    for i, (side, letter, rows) in enumerate((("target", "p", target), ("draft", "q", draft))):
        listed = ", ".join(f"{letter}({n}) = {x}" for n, x in zip(names, rows[0], strict=True))
        more = "; then a row after each token" if len(rows) > 1 else ""
        parts.append(_text(MARGIN, 20 + 17 * i, f"{side}: {listed}{more}", INK))
    for i, words in enumerate((f"gamma = {gamma}", rule)):
        parts.append(_text(WIDTH - MARGIN, 20 + 17 * i, words, INK, text_anchor="end"))
    return "".join(parts)


def _lines(x: float, words: Sequence[str]) -> list[str]:
    top = TOP - 24 - 14 * (len(words) - 1)
    return [_text(x, top + 14 * i, line) for i, line in enumerate(words)]


def _text(x: float, y: float, words: str, fill: str = MUTED, **attributes: object) -> str:
    return svg_text(round(x, 1), round(y, 1), words, 11, fill, **attributes)


def spelled(tokens: Sequence[int], names: Sequence[str]) -> str:
    return " ".join(names[token] for token in tokens)
