"""The verification staircase: what each row of one target forward sees, and what it judges.

One forward over [newest, x1 .. x_gamma] gives gamma + 1 rows. Row i sees the text up to x_i, so it
judges x_(i+1), and the last row gives the bonus token. The reader places the rows, or shifts all of
them by one and sees the text and the law change.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from specdec_core.exact import Law, marginal, total_variation
from specdec_core.pairs import Pair
from specdec_core.widgets.passes import (
    OnePass,
    after_drop,
    greedy_run,
    in_hand,
    one_pass,
    placing_words,
    row_read,
    toy_law,
    waiting_rows,
)
from specdec_core.widgets.picture import (
    BLUE,
    GREEN,
    INK,
    LINE,
    MONOSPACE,
    MUTED,
    PALE_BLUE,
    PALE_GREEN,
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
from specdec_core.widgets.rows import floats, read_rows
from specdec_core.widgets.stage import Stage, select, stepper, text

WIDTH, MARGIN = 760, 16
LABEL, SAYS = 76, 196  # widths of the row names and of what the rows expect
HEAD, CELL = 64, 34  # heights of the column heads and of a row
MOST_GAMMA, MOST_ROUNDS = 6, 8
EXACT = 1e-9  # far above rounding
VERDICTS = {"✓": (GREEN, PALE_GREEN), "✗": (VERMILION, PALE_VERMILION)}
WIRINGS = {
    "mine": "I place each row",
    "0": "shift 0",
    "+1": "shift +1: one row too late",
    "-1": "shift −1: one row too early",
}


def _cut(token: str, width: float, size: int) -> str:
    """`token` with its blanks visible, cut to what fits `width`."""
    return shorten(visible(token), width, size)


def draw_staircase(
    one: OnePass, wiring: str, placed: Sequence[int], row: int, p: str, q: str
) -> Picture:
    """The staircase of one pass.

    wiring: a key of `WIRINGS`; "mine" shows what the reader placed. placed: for each row the place
    it was dropped on, 1 to gamma + 1, or 0. row: the row last taken, see `in_hand`. p, q: the
    toy's rows, see `toy_rows`; the law is drawn for all wirings but "mine".
    """
    rows, table_p, table_q = one.gamma + 1, toy_rows(p, 3, "Toy p"), toy_rows(q, 1, "Toy q")
    placed = [place if place <= rows else 0 for place in placed[:rows]]
    hand = in_hand(placed, row) if wiring == "mine" else None
    floor = HEAD + rows * CELL
    body = _heads(one) + "".join(_row(one, i, i == hand) for i in range(rows))
    if wiring == "mine":
        judged = {(i, place): i + 1 == place for i, place in enumerate(placed) if place}
        body += _placements(one, placed, hand) + _score(placed, hand, floor)
        svg = svg_frame(WIDTH, floor + 44, body)
        return Picture(svg, placing_words(one, placed, hand), _table(one, judged))
    shift = int(wiring)
    laws = toy_law(table_p, table_q, 0), toy_law(table_p, table_q, shift)
    body += _shift_chips(wiring) + _wires(one, shift)
    body += _consequence(one, shift, floor) + _law_panel(*laws, floor + 104)
    svg = svg_frame(WIDTH, floor + 252, body)
    wires = {(i, place): i + 1 == place for place, i in enumerate(_read_rows(one, shift), 1)}
    return Picture(svg, _shifted_words(one, shift, *laws), _table(one, wires))


def toy_rows(line: str, count: int, name: str) -> tuple[tuple[float, ...], ...]:
    """`count` rows of two probabilities, with | between them."""
    rows = read_rows(line, name, most=2)
    if len(rows) != count:
        wanted = "one row" if count == 1 else f"{count} rows, with | between them"
        raise ValueError(f"{name} needs {wanted}, not {len(rows)}.")
    return tuple(map(floats, rows))


def _columns(one: OnePass) -> tuple[float, float]:
    """Where the first column starts, and the width of one."""
    count = len(one.tail) + one.gamma + 1
    return MARGIN + LABEL, round((WIDTH - 2 * MARGIN - LABEL - SAYS) / count, 1)


def _x(one: OnePass, place: int) -> float:
    """Left edge of a place: 1 to gamma + 1 after the newest token, 0 and less before."""
    left, width = _columns(one)
    return round(left + (len(one.tail) - 1 + place) * width, 1)


def _heads(one: OnePass) -> str:
    """Above each column its name and its token."""
    width, parts = _columns(one)[1], []
    older = ["text"] * (len(one.tail) - 1) + ["newest"]
    names = [*older, *(f"x{i}" for i in range(1, one.gamma + 1)), "bonus"]
    tokens = [*one.tail, *one.drafted, "?"]
    for place, (name, token) in enumerate(zip(names, tokens, strict=True), 1 - len(one.tail)):
        middle = round(_x(one, place) + width / 2, 1)
        ink = INK if place > 0 else MUTED
        parts.append(svg_text(middle, 26, name, 12, ink, text_anchor="middle", font_weight="bold"))
        parts.append(
            svg_text(middle, 46, _cut(token, width - 2, 12), 12, ink, text_anchor="middle",
                     font_family=MONOSPACE)
        )  # fmt: skip
    says = _x(one, one.gamma + 2) + 14
    parts.append(svg_text(says, 26, "this row expects", 12, INK, font_weight="bold"))
    parts.append(svg_text(says, 46, "two likeliest tokens, p", 11, MUTED))
    return "".join(parts)


def _box(x: float, y: float, width: float, fill: str, ink: str, stroke: float = 1) -> str:
    return (
        f'<rect x="{x + 1.5:g}" y="{y + 1.5:g}" width="{width - 3:g}" height="{CELL - 3}" rx="3" '
        f'fill="{fill}" stroke="{ink}" stroke-width="{stroke:g}"/>'
    )


def _row(one: OnePass, i: int, held: bool) -> str:
    """One row of the stair: its name, what it sees, what it expects."""
    width, y = _columns(one)[1], HEAD + i * CELL
    parts = []
    for place in range(1 - len(one.tail), one.gamma + 2):
        x = _x(one, place)
        sees = place <= i
        parts.append(_box(x, y, width, PALE_BLUE if sees else PAPER, LINE))
        if sees:
            parts.append(svg_text(x + width / 2, y + 22, "sees", 11, BLUE, text_anchor="middle"))
    for k, (token, value) in enumerate(one.top[i]):
        x, words = (
            _x(one, one.gamma + 2) + 14 + 96 * k,
            f"{_cut(token, 60, 11)} {_number(value)}",
        )
        ink = MUTED if k else INK
        parts.append(svg_text(x, y + 22, words, 11, ink, font_family=MONOSPACE))
    mark = "▶ " if held else ""
    weight = {"font_weight": "bold"} if held else {}
    parts.append(svg_text(MARGIN + 4, y + 22, f"{mark}row {i}", 12, **weight))
    return "".join(parts)


def _number(value: float) -> str:
    """A probability with two digits, as short as it reads well."""
    if 0 < value < 0.005:
        return "<.01"
    return f"{value:.2f}".removeprefix("0") if value < 0.995 else "1.0"


def _placements(one: OnePass, placed: Sequence[int], hand: int | None) -> str:
    """Where the reader dropped the rows, and where the row in hand can be dropped."""
    width, parts = _columns(one)[1], []
    for i, place in enumerate(placed):
        y = HEAD + i * CELL
        face = _face(MARGIN, y, LABEL - 4, BLUE if i == hand else LINE)
        parts.append(face if hand is None else clickable(face, f"take row {i}", row=i))
        if place:
            mark = "✓ yes" if place == i + 1 else "✗ seen" if place <= i else "✗ no"
            x, (ink, fill) = _x(one, place), VERDICTS[mark[0]]
            parts.append(_box(x, y, width, fill, ink, 2))
            parts.append(svg_text(x + width / 2, y + 22, mark, 11, ink, text_anchor="middle"))
    return "".join(parts) + ("" if hand is None else _slots(one, placed, hand))


def _slots(one: OnePass, placed: Sequence[int], hand: int) -> str:
    """The places where the row in hand can be dropped; what it sees stays readable under them."""
    width, y, parts = _columns(one)[1], HEAD + hand * CELL, []
    for place in range(1, one.gamma + 2):
        if place == placed[hand]:
            continue
        x = _x(one, place)
        middle = x + width - 8 if place <= hand else x + width / 2
        slot = _face(x, y, width, BLUE)
        slot += svg_text(round(middle, 1), y + 22, "?", 13, BLUE, text_anchor="middle")
        state = {f"r{hand}": place, "row": after_drop(placed, hand, place)}
        parts.append(clickable(slot, f"drop row {hand} on {one.name(place)}", **state))
    return "".join(parts)


def _face(x: float, y: float, width: float, ink: str) -> str:
    """A frame that can be clicked all over: its face is transparent, not empty."""
    return _box(x, y, width, "none", ink, 2).replace(
        'fill="none"', 'fill="#ffffff" fill-opacity="0"'
    )


def _score(placed: Sequence[int], hand: int | None, y: float) -> str:
    right = len(placed) - len(waiting_rows(placed))
    words = f"{right} of {len(placed)} rows right"
    again = {f"r{i}": 0 for i in range(MOST_GAMMA + 1)}
    button = (
        f'<rect x="{MARGIN}" y="{y + 10:g}" width="92" height="24" rx="4" fill="{PAPER}" '
        f'stroke="{MUTED}"/>' + svg_text(MARGIN + 46, y + 26, "start over", text_anchor="middle")
    )
    hint = "▶ in hand: click a ? to drop it, or take another row"
    if hand is None:
        hint = "✓ nothing left in hand: now set Rows to a shift"
    elif placed[hand] not in (0, hand + 1):
        hint = f"✗ row {hand} stays in hand: click another ?"
    return (
        clickable(button, "start over, no row placed", **again, row=0)
        + svg_text(MARGIN + 112, y + 26, words, 12, INK, font_weight="bold")
        + svg_text(MARGIN + 270, y + 26, hint, 12, MUTED)
    )


def _read_rows(one: OnePass, shift: int) -> list[int]:
    """For x1 to x_gamma and the bonus, the row that is read."""
    return [row_read(i, shift, one.gamma) for i in range(one.gamma + 1)]


def _shift_chips(wiring: str) -> str:
    """The three shifts side by side, to flip through them over the stair."""
    parts = [svg_text(MARGIN + 4, 26, "shift", 12, font_weight="bold")]
    for k, key in enumerate(("-1", "0", "+1")):
        x, chosen = MARGIN + 24 * k, key == wiring
        fill, stroke, weight = (PALE_BLUE, 2, "bold") if chosen else (PAPER, 1, "normal")
        chip = (
            f'<rect x="{x}" y="33" width="22" height="20" rx="3" fill="{fill}" '
            f'stroke="{BLUE}" stroke-width="{stroke}"/>'
        )
        name = key.replace("-", "−")
        chip += svg_text(x + 11, 47, name, 11, BLUE, text_anchor="middle", font_weight=weight)
        parts.append(clickable(chip, WIRINGS[key], wiring=key))
    return "".join(parts)


def _wires(one: OnePass, shift: int) -> str:
    """The cell where each token meets the row that judges it, with p and the verdict."""
    width, parts, accepted = _columns(one)[1], [], one.rounds[shift].accepted
    for place, i in enumerate(_read_rows(one, shift), 1):
        mark = "✓" if place <= accepted else "✗" if place == accepted + 1 else "–"
        if place <= one.gamma:
            words = f"{mark} {_number(one.prob[i][place - 1])}"
        else:
            mark = "✓" if accepted == one.gamma else "–"
            words = "+ bonus" if accepted == one.gamma else "unused"
        ink, fill = VERDICTS.get(mark, (MUTED, PAPER))
        x, y = _x(one, place), HEAD + i * CELL
        parts.append(_box(x, y, width, fill, ink, 2))
        parts.append(svg_text(x + width / 2, y + 22, words, 11, ink, text_anchor="middle"))
    return "".join(parts)


def _consequence(one: OnePass, shift: int, y: float) -> str:
    """What this wiring emits from the pass, above what plain greedy decoding writes."""
    made = one.emitted[shift]
    same = made == one.plain[: len(made)]
    verdict, ink = ("✓ the same so far", GREEN) if same else ("✗ another text", VERMILION)
    lines = (("this wiring emits", made), ("the target writes", one.plain))
    legend = "framed: p of the token in the row that judges it, ✓ kept, ✗ rejected, – not judged"
    parts = [svg_text(MARGIN + 4, y + 20, legend, 12, MUTED)]
    parts.append(svg_text(WIDTH - MARGIN, y + 48, verdict, 12, ink, text_anchor="end"))
    for k, (label, tokens) in enumerate(lines):
        words = " ".join(_cut(token, min(66, 480 / len(tokens) - 8), 12) for token in tokens)
        parts.append(svg_text(MARGIN + 4, y + 48 + 22 * k, label, 12, font_weight="bold"))
        parts.append(svg_text(MARGIN + 140, y + 48 + 22 * k, words, font_family=MONOSPACE))
    return "".join(parts)


def _law_panel(right: Law, made: Law, y: float) -> str:
    """Exact laws of a toy of two words, A and B: first word, and two words."""
    title = "A toy of two words, all outcomes added up: the target (white), this wiring (dark)"
    parts = [
        f'<path d="M{MARGIN} {y - 14:g}H{WIDTH - MARGIN}" stroke="{LINE}"/>',
        svg_text(MARGIN + 4, y + 6, title, 12, INK),
    ]
    for x, length, head in ((MARGIN + 4, 1, "first word"), (MARGIN + 260, 2, "two words")):
        a, b = marginal(right, length), marginal(made, length)
        parts.append(_bars(a, b, x, y + 24))
        distance = total_variation(a, b)
        verdict = "✓ same law" if distance < EXACT else f"✗ law broken, TV {_number(distance)}"
        ink = GREEN if distance < EXACT else VERMILION
        parts.append(svg_text(x, y + 132, f"{head}: {verdict}", 12, ink, font_weight="bold"))
    return "".join(parts)


def _bars(right: Law, made: Law, left: float, top: float, height: float = 62) -> str:
    parts = []
    for k, tokens in enumerate(sorted(right.keys() | made.keys())):
        x = left + k * 110
        pairs = ((right.get(tokens, 0.0), PAPER), (made.get(tokens, 0.0), BLUE))
        for j, (value, fill) in enumerate(pairs):
            tall = round(height * value, 1)
            parts.append(
                f'<rect x="{x + 44 * j:g}" y="{top + 14 + height - tall:g}" width="36" '
                f'height="{tall:g}" fill="{fill}" stroke="{BLUE}"/>'
            )
            middle, above = x + 44 * j + 18, top + 10 + height - tall
            parts.append(svg_text(middle, above, _number(value), 11, text_anchor="middle"))
        name = "".join("AB"[t] for t in tokens)
        parts.append(svg_text(x + 40, top + height + 28, name, 12, text_anchor="middle"))
    return "".join(parts)


def _shifted_words(one: OnePass, shift: int, right: Law, made: Law) -> str:
    """The wiring, its verdict on the real pass, and what it does to the toy's law."""
    rows = _read_rows(one, shift)
    first, two = (total_variation(marginal(right, n), marginal(made, n)) for n in (1, 2))
    law = "the toy's law is the target's"
    if max(first, two) > EXACT:
        law = f"the toy's law is off by {first:.3f} for one word and {two:.3f} for two"
    emitted = " ".join(visible(token) for token in one.emitted[shift])
    name = WIRINGS[f"{shift:+d}" if shift else "0"].capitalize()
    judges = ", ".join(f"x{place} by row {i}" for place, i in enumerate(rows[:-1], 1))
    return (
        f"{name}. Judged are {judges}; the bonus comes from row {rows[-1]}. "
        f"{one.rounds[shift].accepted} of {one.gamma} drafts kept; the round emits “{emitted}”; "
        f"{law}."
    )


def _table(one: OnePass, judged: dict[tuple[int, int], bool]) -> str:
    header = ["row", "sees up to", "expects", "p"]
    header += [f"p of x{i} {visible(token)}" for i, token in enumerate(one.drafted, 1)]
    rows = []
    for i, (top, prob) in enumerate(zip(one.top, one.prob, strict=True)):
        mine = [(place, right) for (row, place), right in judged.items() if row == i]
        words = ", ".join(f"{one.name(j)} ({'right' if r else 'wrong'})" for j, r in mine)
        sees = f"x{i}" if i else "newest"
        rows.append(
            (i, sees, visible(top[0][0]), f"{top[0][1]:.4f}", *(f"{x:.4f}" for x in prob), words)
        )
    return html_table([*header, "judges"], rows)


def staircase(
    pair: Pair,
    prompt: str = "Once upon a time",
    gamma: int = 4,
    round: int = 2,
    wiring: str = "mine",
    p: str = ".6 .4 | .9 .1 | .2 .8",
    q: str = ".5 .5",
) -> Stage:
    """The staircase of a greedy run of `pair`, live: place the rows, or shift them all.

    prompt, gamma, round: which forward to show; gamma 1 to 6, round 1 to 8. wiring: a key of
    `WIRINGS`. p, q: a toy of two words whose exact law each wiring gives, see `toy_rows`.
    Uses the pair's models, so not between two rounds of another run.
    """

    @lru_cache(maxsize=32)
    def run(prompt: str, gamma: int) -> list:
        return greedy_run(pair, prompt, gamma, MOST_ROUNDS)

    @lru_cache(maxsize=128)
    def forward(prompt: str, gamma: int, round: int) -> OnePass:
        rounds = run(prompt, gamma)
        if round > len(rounds):
            raise ValueError(f"The text ends in round {len(rounds)}; choose it or one before.")
        return one_pass(pair, *rounds[round - 1])

    def view(prompt: str, gamma: int, round: int, wiring: str, p: str, q: str, **rest) -> Picture:
        placed = [rest[f"r{i}"] for i in range(MOST_GAMMA + 1)]
        return draw_staircase(forward(prompt, gamma, round), wiring, placed, rest["row"], p, q)

    controls = [
        text("prompt", "Prompt", 26),
        stepper("gamma", "gamma", 1, MOST_GAMMA),
        stepper("round", "Round", 1, MOST_ROUNDS),
        select("wiring", "Rows", WIRINGS),
        text("p", "Toy p: first | after A | after B", 16),
        text("q", "q", 6),
    ]
    placed = {f"r{i}": 0 for i in range(MOST_GAMMA + 1)} | {"r0": 1}
    return Stage(
        view, "Verification staircase", controls, prompt=prompt, gamma=gamma, round=round,
        wiring=wiring, p=p, q=q, row=1, **placed,
    )  # fmt: skip
