"""The museum wall: mistakes by checks, filled in as the reader runs the checks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from specdec_core.exact import Law, marginal
from specdec_core.lab.museum import CHECKS, MISTAKES, Example, always, distance, seen_by
from specdec_core.lab.museum.checks import TOLERANCE, law_of_tokens, mean_of
from specdec_core.widgets.picture import (
    BLUE,
    INK,
    LINE,
    MUTED,
    PALE_BLUE,
    PALE_GREY,
    PAPER,
    VERMILION,
    Picture,
    clickable,
    html_table,
    svg_frame,
    svg_text,
)
from specdec_core.widgets.rows import floats, read_row
from specdec_core.widgets.stage import Stage, button, select, text

COLUMNS = (*CHECKS, "it runs")
TOYS = {"own": "the exhibit's own toy", "mine": "my p and q"}
BREAKS = {
    "law": "the law of the text",
    "text": "where the text ends",
    "acceptance": "acceptance only",
    "speed": "speed only",
    "crash": "the run itself",
}
NEED_TWO_DRAFTS = ("M6", "M6b", "M9", "M19", "M21")
WIDTH, MARGIN, PANEL, HEAD, ROW = 760, 8, 262, 48, 20
TITLE_X, BREAKS_X, GRID_X, CELL = 52, 322, 388, 45.5
BARS_X, BAR, MOST_BARS = 492, 150, 5
LINKED = r'<td><a href="https://github.com/\1">\1</a></td>'
SEEN = "#00513b"


@dataclass(frozen=True)
class Finding:
    """What the checks said about one mistake on one toy; `laws` is None where the run broke off."""

    seen: tuple[str, ...]
    laws: tuple[Law, Law] | None = None
    length: int | None = None
    distance: float = 0.0
    accepted: tuple[float, float] = (0.0, 0.0)


@cache
def find(mistake: str, toy: Example) -> Finding:
    """Run every check; the laws are of as many tokens as it takes to see a difference."""
    seen = seen_by(mistake, toy)
    if seen == ("it runs",):
        return Finding(seen)
    lengths = [n for n in (1, 2, None) if distance(toy, mistake, n) > TOLERANCE]
    length = lengths[0] if lengths else 1
    laws = law_of_tokens(toy, None), law_of_tokens(toy, mistake)
    if length is not None:
        laws = marginal(laws[0], length), marginal(laws[1], length)
    accepted = mean_of(toy, None, "accepted"), mean_of(toy, mistake, "accepted")
    return Finding(seen, laws, length, distance(toy, mistake, length), accepted)


@cache
def own_pair(mistake: str, p: tuple[float, ...], q: tuple[float, ...]) -> Example:
    """The toy of `mistake` with other numbers: its sampling stays, and its length where p is short.

    With three tokens a long run has too many outcomes to walk while a reader waits.
    """
    if len(p) != len(q) and mistake != "M23b":
        raise ValueError(f"p has {len(p)} tokens and q has {len(q)}: give both the same number.")
    toy = MISTAKES[mistake].example
    small = len(p) == 2
    return replace(
        toy,
        gamma=toy.gamma if small or mistake in NEED_TWO_DRAFTS else 1,
        tokens=toy.tokens if small else min(toy.tokens, 3),
        target=always(*p),
        draft=always(*q),
        prompt=tuple(min(token, len(p) - 1) for token in toy.prompt),
        stop_tokens=tuple(token for token in toy.stop_tokens if token < len(p)),
    )


def draw_museum_wall(
    chosen: str, tried: str, toy: str = "own", p: str = ".6 .4", q: str = ".8 .2", **_: object
) -> Picture:
    """The wall with one mistake in front.

    chosen: its id. tried: the ids whose checks have run, with spaces between. toy: a key of TOYS;
        the rows of the wall are always of each exhibit's own toy. p, q: the reader's pair.

    Raises ValueError for an unknown mistake or toy, or where p or q is no distribution.
    """
    done = tried.split()
    for id in (chosen, *done):
        if id not in MISTAKES:
            raise ValueError(f"There is no mistake {id!r} on the wall.")
    if toy not in TOYS:
        raise ValueError(f"There is no toy {toy!r}; choose one of: {', '.join(TOYS)}.")
    found = None
    if chosen in done:
        example = MISTAKES[chosen].example
        if toy == "mine":
            example = own_pair(chosen, floats(read_row(p, "p")), floats(read_row(q, "q")))
        found = find(chosen, example)
    body = _panel(chosen, found, toy) + _head() + "".join(
        _row(i, id, id == chosen, done) for i, id in enumerate(MISTAKES)
    )  # fmt: skip
    height = PANEL + HEAD + ROW * len(MISTAKES) + MARGIN
    return Picture(
        svg_frame(WIDTH, height, body), _sentence(chosen, found, toy, done), _table(done)
    )


def _lines(x: float, y: float, words: str, width: int, fill: str = INK) -> tuple[str, float]:
    """Wrapped lines of text and where the next one goes."""
    rows = textwrap.wrap(words, width)
    return "".join(svg_text(x, y + 15 * i, row, 12, fill) for i, row in enumerate(rows)), (
        y + 15 * len(rows)
    )


def _panel(chosen: str, found: Finding | None, toy: str) -> str:
    """The chosen mistake: how it comes about, what it does, and its laws beside the right ones."""
    mistake = MISTAKES[chosen]
    parts = [
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{WIDTH - 2 * MARGIN}" height="{PANEL - 14}" '
        f'rx="6" fill="{PALE_GREY}" stroke="{LINE}"/>',
        svg_text(20, 32, f"{chosen} · {mistake.title}", 14, font_weight="bold"),
    ]
    y = 54.0
    hidden = "Which checks will see it? Guess, then run the checks."
    for name, words in (
        ("How: ", mistake.how.replace("`", "")),
        ("Breaks: ", hidden if found is None else f"{BREAKS[mistake.breaks]}. {mistake.damage}"),
        ("Met in: ", mistake.source + "."),
    ):
        drawn, y = _lines(20, y, name + words, 68)
        parts.append(drawn)
        y += 6
    if found is not None:
        seen = ", ".join(found.seen) or "no check"
        parts.append(_lines(20, y, f"On {TOYS[toy]}, seen by: {seen}.", 68)[0])
    if found is None:
        parts.append(svg_text(BARS_X, 54, "not tried yet", 12, MUTED))
    elif found.laws is None:
        parts.append(svg_text(BARS_X, 54, "✗ the run breaks off: no law"))
    else:
        parts.append(_bars(found, toy))
    return "".join(parts)


def _bars(found: Finding, toy: str) -> str:
    """The right and the mistaken law as pairs of bars, the largest differences first."""
    right, wrong = found.laws
    outcomes = sorted(right | wrong, key=lambda t: (-round(abs(_gap(right, wrong, t)), 12), t))
    shown = sorted(outcomes[:MOST_BARS])
    what = {1: "first token", 2: "two tokens", None: "whole text"}[found.length]
    parts = [
        svg_text(BARS_X, 54, f"Law of the {what}", 12, font_weight="bold"),
        f'<rect x="{BARS_X}" y="62" width="18" height="8" fill="{PAPER}" stroke="{BLUE}"/>',
        svg_text(BARS_X + 24, 70, "right", 11),
        f'<rect x="{BARS_X + 70}" y="62" width="18" height="8" fill="{VERMILION}"/>',
        svg_text(BARS_X + 94, 70, "with the mistake", 11),
    ]
    top = max(max(right.values()), max(wrong.values()))
    y = 80
    for tokens in shown:
        parts.append(svg_text(BARS_X, y + 15, " ".join(map(str, tokens)), 12))
        for law, offset, paint in (
            (right, 0, f'fill="{PAPER}" stroke="{BLUE}"'),
            (wrong, 11, f'fill="{VERMILION}" stroke="{VERMILION}"'),
        ):
            value = law.get(tokens, 0.0)
            width = round(BAR * value / top, 1)
            parts.append(
                f'<rect x="{BARS_X + 44}" y="{y + offset}" width="{width:g}" height="8" {paint}/>'
            )
            parts.append(svg_text(BARS_X + 50 + width, y + offset + 8, f"{value:.4f}", 11))
        y += 27
    left_out = len(outcomes) - len(shown)
    more = f" (the {left_out} others differ less)" if left_out else ""
    parts.append(svg_text(BARS_X, y + 10, f"total variation {found.distance:.3g}{more}", 11))
    a, b = found.accepted
    parts.append(
        svg_text(BARS_X, y + 25, f"drafts accepted a run: {a:.4g} right, {b:.4g} here", 11)
    )
    return "".join(parts)


def _gap(right: Law, wrong: Law, tokens: tuple[int, ...]) -> float:
    return right.get(tokens, 0.0) - wrong.get(tokens, 0.0)


def _head() -> str:
    y = PANEL + 16
    parts = [
        svg_text(10, y + 15, "mistake, on its own toy", 11, MUTED),
        svg_text(BREAKS_X, y + 15, "breaks", 11, MUTED),
    ]
    for i, name in enumerate(COLUMNS):
        x = GRID_X + CELL * (i + 0.5)
        first, _, rest = name.rpartition(" ") if name == "end of text" else name.partition(" ")
        for line, word in enumerate((first, rest) if rest else ("", first)):
            if word:
                parts.append(svg_text(x, y + 1 + 14 * line, word, 11, text_anchor="middle"))
    return "".join(parts)


def _row(index: int, id: str, chosen: bool, done: Sequence[str]) -> str:
    """One mistake of the wall; what has not been tried offers to run the checks."""
    y = PANEL + HEAD + ROW * index - 8
    mistake = MISTAKES[id]
    fill = PALE_BLUE if chosen else PAPER
    name = (
        f'<rect x="{MARGIN}" y="{y}" width="{GRID_X - MARGIN}" height="{ROW}" fill="{fill}" '
        f'stroke="{LINE}"/>'
        + svg_text(10, y + 14, ("▸" if chosen else "") + id, 11, font_weight="bold")
        + svg_text(TITLE_X, y + 14, mistake.title, 11)
    )
    if id in done:
        name += svg_text(BREAKS_X, y + 14, mistake.breaks, 11)
    parts = [clickable(name, f"{id}, {mistake.title}: put it in front", chosen=id)]
    if id not in done:
        run = (
            f'<rect x="{GRID_X}" y="{y}" width="{CELL * len(COLUMNS):g}" height="{ROW}" '
            f'fill="{PAPER}" stroke="{LINE}" stroke-dasharray="3 3"/>'
            + svg_text(GRID_X + CELL * 4, y + 14, "▶ run the checks", 11, MUTED,
                       text_anchor="middle")
        )  # fmt: skip
        state = {"chosen": id, "tried": " ".join([*done, id])}
        return parts[0] + clickable(run, f"run the checks on {id}", **state)
    found = find(id, mistake.example)
    for i, check in enumerate(COLUMNS):
        parts.append(_cell(GRID_X + CELL * i, y, _word(found, check)))
    return "".join(parts)


def _word(found: Finding, check: str) -> str:
    """ "sees", "blind", or "none" where the run broke off before the check could look."""
    if check in found.seen:
        return "sees"
    return "none" if found.laws is None else "blind"


def _cell(x: float, y: float, word: str) -> str:
    box = f'<rect x="{x:g}" y="{y}" width="{CELL:g}" height="{ROW}" stroke="{LINE}" '
    if word == "sees":
        return (
            box + f'fill="{SEEN}"/>'
            + svg_text(x + CELL / 2, y + 14, "● sees", 11, PAPER, text_anchor="middle")
        )  # fmt: skip
    shown = "–" if word == "none" else "blind"
    return box + f'fill="{PAPER}"/>' + svg_text(
        x + CELL / 2, y + 14, shown, 11, MUTED, text_anchor="middle"
    )  # fmt: skip


def _sentence(chosen: str, found: Finding | None, toy: str, done: Sequence[str]) -> str:
    mistake = MISTAKES[chosen]
    count = f"{len(set(done))} of {len(MISTAKES)} mistakes tried."
    name = f"{chosen}, {mistake.title}"
    if found is None:
        return f"{name}: not tried yet. {count}"
    where = TOYS[toy]
    if found.laws is None:
        return f"{name}: on {where} the run breaks off, which anyone sees. {count}"
    if not found.seen:
        return (
            f"{name}: on {where} no check sees it; law and acceptance are the right ones. {count}"
        )
    law = (
        f"total variation {found.distance:.3g}" if found.distance > TOLERANCE
        else f"the law is right, {found.accepted[1]:.4g} drafts accepted a run instead of "
        f"{found.accepted[0]:.4g}"
    )  # fmt: skip
    blind = [check for check in CHECKS if check not in found.seen]
    rest = f"; blind: {', '.join(blind)}" if blind else ""
    return f"{name}: on {where}, {law}. Seen by: {', '.join(found.seen)}{rest}. {count}"


def _table(done: Sequence[str]) -> str:
    rows = []
    for id, mistake in MISTAKES.items():
        words = ["not tried"] * len(COLUMNS)
        if id in done:
            found = find(id, mistake.example)
            words = [_word(found, check).replace("none", "–") for check in COLUMNS]
        rows.append((id, mistake.title, mistake.breaks if id in done else "", *words, mistake.link))
    table = html_table(("id", "mistake", "breaks", *COLUMNS, "met in"), rows)
    return re.sub(r"<td>https://github.com/([^<]+)</td>", LINKED, table)


def museum_wall(tried: Sequence[str] = ("M1", "M7", "M19", "M22"), chosen: str = "M7") -> Stage:
    """The wall as a live view; `tried` are the mistakes whose checks have run at the start."""
    names = {id: f"{id} {mistake.title}" for id, mistake in MISTAKES.items()}
    stage = Stage(
        draw_museum_wall,
        "Museum of mistakes",
        [
            select("chosen", "mistake", names),
            button("runs", "Run the checks"),
            button("all", "Try all"),
            select("toy", "on", TOYS),
            text("p", "my p", 12),
            text("q", "my q", 12),
        ],
        chosen=chosen, tried=" ".join(tried), toy="own", p=".6 .4", q=".8 .2", runs=0, all=0,
    )  # fmt: skip

    def press(change: dict) -> None:
        """A button only counts; what was tried follows from which one was pressed."""
        old, new = change["old"], change["new"]
        added = [new["chosen"]] if new["runs"] != old["runs"] else []
        if new["all"] != old["all"]:
            added = list(MISTAKES)
        done = dict.fromkeys([*new["tried"].split(), *added])
        if len(done) > len(new["tried"].split()):
            stage.state = {**new, "tried": " ".join(done)}

    stage.observe(press, "state")
    return stage
