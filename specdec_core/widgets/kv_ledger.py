"""The KV ledger: both caches of a run, row by row, through draft, verify and roll back.

    kv_ledger(pair, "Once upon a time")     a stage with controls
    draw_kv_ledger(ledger, decode, step)    one picture of it

Every row was written down by `lab.ledger` while the core's own loop ran.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec_core.lab.ledger import Ledger, Moment, record_caches
from specdec_core.pairs import Pair
from specdec_core.widgets.kv_history import HEIGHT as HISTORY_HEIGHT
from specdec_core.widgets.kv_history import ROUNDING, draw_history
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
    clickable,
    html_table,
    shorten,
    svg_frame,
    svg_text,
    text_width,
    visible,
)
from specdec_core.widgets.stage import Stage, select, stepper, text

WIDTH, MARGIN, CELLS, SUMMARY = 760, 12, 122, 76
GAP, LONGEST = 3, 150  # between two cells; width of a token
CELL_HEIGHT, LANE_STEP, LANES = 38, 48, 102
HISTORY = LANES + 16 + 3 * LANE_STEP + 14
MOST_TOKENS = 24

PHASES = ("draft", "verify", "roll back")
FAULTS = {
    "none": "none",
    "M18": "target never rolled back (M18)",
    "M18b": "target rolled back one row too far (M18b)",
    "M18c": "target rolled back one row too little (M18c)",
    "M19": "draft never rolled back (M19)",
    "M19b": "draft short by a row after a full accept (M19b)",
}

# Mark, word, ink, fill, dash: a mark and a word first, a colour (Okabe-Ito) last.
STATES = {
    "committed": ("✓", "committed", BLUE, PALE_BLUE, ""),
    "newest": ("◆", "newest token", GREEN, PALE_GREEN, ""),
    "speculative": ("?", "speculative", "#7a5200", "#fdf3d8", "4 2"),
    "missing": ("○", "not fed yet", MUTED, PAPER, "1 3"),
    "rejected": ("✗", "rejected", MUTED, PAPER, "2 3"),
    "not judged": ("–", "not judged", MUTED, PAPER, "2 3"),
    "past the end": ("■", "past the end", MUTED, PAPER, "2 3"),
    "stale": ("!", "stale: not in the text, still read", VERMILION, PALE_VERMILION, ""),
    "out of place": ("↔", "out of place", "#8a2f6b", "#f9e8f2", ""),
    "lost": ("∅", "lost: no row, never fed again", VERMILION, PAPER, "4 2"),
}
HEAVY = ("newest", "stale", "out of place", "lost")
# How a drafted token looks in the text, and its row where that was cut off, by the verdict.
VERDICTS = {
    "accepted": "committed", "rejected": "rejected", "unjudged": "not judged",
    "unused": "past the end",
}  # fmt: skip

# Tokens: after each round the ledger compares with a forward without cache, and nobody waits long.
LONGEST_PROMPT = 120

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Cell:
    """One token in one lane."""

    text: str
    state: str


class KVLedger(Stage):
    """A stage whose step stays inside the run. last_step: state -> the run's last."""

    def __init__(
        self, *arguments: object, last_step: Callable[[dict], int], **state: object
    ) -> None:
        self._last_step = last_step
        super().__init__(*arguments, **self.settled({}, state))

    def settled(self, before: dict, now: dict) -> dict:
        return now | {"step": min(now["step"], self._last_step(now))}


def kv_ledger(
    pair: Pair, prompt: str, *, gamma: int = 4, max_new_tokens: int = 24, seed: int = 1,
    step: int = 3, fault: str = "none",
) -> Stage:  # fmt: skip
    """The ledger of a run of the pair's default drafter, with faults to switch on.

    max_new_tokens: at most 24. step: from 1, three a round; a step past the run shows its last.
    fault: a key of `FAULTS`. The pair's own caches are not used: a run of yours may go on.
    """
    if not 1 <= max_new_tokens <= MOST_TOKENS:
        raise ValueError(f"The ledger shows 1 to {MOST_TOKENS} new tokens, not {max_new_tokens}.")

    @functools.cache
    def recorded(prompt: str, gamma: int, seed: int, fault: str) -> Ledger:
        if not prompt.strip():
            raise ValueError("Write a prompt of one word or more.")
        ids = pair.encode(prompt)
        if len(ids) > LONGEST_PROMPT:
            raise ValueError(
                f"The prompt has {len(ids)} tokens; the ledger reads {LONGEST_PROMPT} or fewer."
            )
        return record_caches(
            pair, ids, gamma=gamma, max_new_tokens=max_new_tokens, seed=seed,
            fault=None if fault == "none" else fault,
        )  # fmt: skip

    def view(prompt: str, gamma: int, seed: int, fault: str, step: int) -> Picture:
        return draw_kv_ledger(recorded(prompt, gamma, seed, fault), pair.decode, step)

    def last_step(state: dict) -> int:
        run = {name: state[name] for name in ("prompt", "gamma", "seed", "fault")}
        return 3 * len(recorded(**run).rounds)

    controls = [
        stepper("step", "step", 1, 3 * max_new_tokens), select("fault", "fault", FAULTS),
        stepper("gamma", "gamma", 1, 8), stepper("seed", "seed", 0, 999),
        text("prompt", "prompt"),
    ]  # fmt: skip
    return KVLedger(
        view, "KV ledger", controls, last_step=last_step,
        prompt=prompt, gamma=gamma, seed=seed, fault=fault, step=step,
    )  # fmt: skip


def draw_kv_ledger(ledger: Ledger, decode: Decode, step: int = 3) -> Picture:
    """Both caches after `step` steps, three a round: draft, verify, roll back.

    decode: token ids -> text, used for one token at a time. A step past the last shows the last.
    """
    step = max(1, min(step, 3 * len(ledger.rounds)))
    at = Moment(ledger, (step - 1) // 3, (step - 1) % 3)
    body = _legend() + _phases(at) + _draw_lanes(at, decode) + draw_history(at, HISTORY)
    svg = svg_frame(WIDTH, HISTORY + HISTORY_HEIGHT, body)
    return Picture(svg, _sentence(at, decode), _table(at))


def name(token: int, decode: Decode) -> str:
    """A token as the ledger writes it; one that has no text, such as the text's start, is named."""
    return visible(decode([token])) or "special"


def counted(rows: int) -> str:
    """A number of rows in words."""
    return f"{rows} row" if rows == 1 else f"{rows} rows"


def _lanes(at: Moment, decode: Decode) -> dict[str, list[Cell]]:
    return {
        "text": _text_lane(at, decode),
        "target cache": _cache_lane(at, "target", decode),
        "draft cache": _cache_lane(at, "draft", decode),
    }


def _text_lane(at: Moment, decode: Decode) -> list[Cell]:
    cells = [Cell(name(token, decode), "committed") for token in at.tokens]
    cells[-1] = Cell(cells[-1].text, "newest")
    if at.phase == 2:
        return cells
    played = at.entry.round
    states = [VERDICTS[v] if at.phase else "speculative" for v in played.verdicts]
    return cells + [Cell(name(t, decode), s) for t, s in zip(played.drafted, states, strict=True)]


def _cache_lane(at: Moment, side: str, decode: Decode) -> list[Cell]:
    """The rows of one cache; behind them those cut off, lost before, or not fed yet."""
    rows, lost, unfed = at.rows(side), at.lost(side), at.unfed(side)
    cells = [Cell(name(row.token, decode), s) for row, s in zip(rows, at.states(side), strict=True)]
    gone = at.cache(side).full[len(rows) :] if at.phase == 2 else ()
    cut = {row.place for row in gone if row.kept}
    for row in gone:
        state = "lost" if row.place in lost else "missing"
        cells.append(Cell(name(row.token, decode), state if row.kept else VERDICTS[row.verdict]))
    cells += [Cell(name(at.tokens[p], decode), "lost") for p in lost if p not in cut]
    return cells + [Cell("", "missing") for place in unfed if place not in cut]


def _box(x: float, y: float, width: float, height: float, state: str) -> str:
    _, _, ink, fill, dash = STATES[state]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    heavy = ' stroke-width="2"' if state in HEAVY else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height}" rx="4" '
        f'fill="{fill}" stroke="{ink}"{dashes}{heavy}/>'
    )


def _words(cell: Cell) -> str:
    """The token of a cell, as much of it as is drawn."""
    return shorten(cell.text, LONGEST)


def _cell(x: float, y: float, width: float, cell: Cell) -> str:
    mark, _, ink, *_ = STATES[cell.state]
    return (
        _box(x, y, width, CELL_HEIGHT, cell.state)
        + svg_text(x + 5, y + 15, mark, 12, ink, font_weight="bold")
        + svg_text(x + 5, y + 31, _words(cell), 11, font_family=MONOSPACE)
    )


def _legend() -> str:
    x, y, parts = float(MARGIN), 8, []
    for state, (mark, words, ink, *_) in STATES.items():
        width = 28 + 6.0 * len(words)
        if x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + 23
        parts.append(_box(x, y, 18, 17, state))
        parts.append(svg_text(x + 9, y + 13, mark, 12, ink, text_anchor="middle"))
        parts.append(svg_text(x + 23, y + 13, words, 11))
        x += width + 8
    return "".join(parts)


def _phases(at: Moment) -> str:
    """The three steps of the round; the one shown is framed and marked."""
    title = f"Round {at.number + 1} of {len(at.ledger.rounds)}"
    parts = [svg_text(MARGIN, 77, title, 14, font_weight="bold")]
    for i, phase in enumerate(PHASES):
        x, now = CELLS + 28 + 122 * i, i == at.phase
        chip = (
            f'<rect x="{x}" y="60" width="112" height="26" rx="13" '
            f'fill="{PALE_BLUE if now else PAPER}" stroke="{BLUE if now else MUTED}" '
            f'stroke-width="{2 if now else 1}"/>'
        ) + svg_text(
            x + 56, 77, f"{'▶ ' if now else ''}{i + 1} {phase}", 12, text_anchor="middle",
            font_weight="bold" if now else "normal",
        )  # fmt: skip
        parts.append(clickable(chip, f"show step {i + 1}: {phase}", step=3 * at.number + i + 1))
    return "".join(parts)


def _columns(at: Moment, decode: Decode) -> tuple[dict[int, tuple[float, float]], int]:
    """Row number -> x and width of its column, for the last columns that fit; and where they end.

    They are the same in all three steps of a round.
    """
    steps = [_lanes(Moment(at.ledger, at.number, phase), decode) for phase in range(3)]
    lanes = [cells for step in steps for cells in step.values()]
    end = max(len(step["text"]) for step in steps)
    over = max(map(len, lanes)) > end
    room = WIDTH - MARGIN - CELLS - (SUMMARY + GAP) * (1 + over)
    widths: list[float] = []
    for column in reversed(range(end)):
        words = [_words(cells[column]) for cells in lanes if len(cells) > column]
        width = round(max(map(text_width, [*words, "--"])) + 10, 1)
        if sum(widths) + GAP * len(widths) + width > room:
            break
        widths.append(width)
    first, x, places = end - len(widths), float(CELLS), {}
    x += SUMMARY + GAP if first else 0
    for column, width in enumerate(reversed(widths), start=first):
        places[column] = (round(x, 1), width)
        x += width + GAP
    return places, end


def _draw_lanes(at: Moment, decode: Decode) -> str:
    places, end = _columns(at, decode)
    first = min(places, default=end)
    parts = [svg_text(MARGIN, LANES + 8, "row", 11, MUTED)]
    parts += [svg_text(x + 3, LANES + 8, str(c), 11, MUTED) for c, (x, _) in places.items()]
    for i, (lane, cells) in enumerate(_lanes(at, decode).items()):
        y = LANES + 14 + LANE_STEP * i
        parts.append(_label(at, lane, y))
        for column, cell in enumerate(cells):
            if column in places:
                x, width = places[column]
                parts.append(_cell(x, y, width, cell))
        if first:
            parts.append(_summary(CELLS, y, f"first {len(cells[:first])}", cells[:first]))
        if len(cells) > end:
            x = WIDTH - MARGIN - SUMMARY
            parts.append(_summary(x, y, f"{len(cells) - end} more", cells[end:]))
    return "".join(parts)


def _label(at: Moment, lane: str, y: float) -> str:
    """A lane's name, and how much it holds."""
    holds = f"{len(at.tokens)} tokens"
    if lane != "text":
        side = lane.split()[0]
        rows = len(at.rows(side))
        holds = f"{rows} rows, {kilobytes(rows * at.row_bytes(side))}"
    return svg_text(MARGIN, y + 16, lane, 12, font_weight="bold") + svg_text(
        MARGIN, y + 31, holds, 11, MUTED
    )


def kilobytes(size: int) -> str:
    """Bytes as a short text, in thousands."""
    return f"{size / 1000:.0f} kB"


def _summary(x: float, y: float, words: str, cells: list[Cell]) -> str:
    """A box for the cells that do not fit: how many, and how many are in which state."""
    states = [cell.state for cell in cells]
    counts = " ".join(f"{STATES[s][0]}{states.count(s)}" for s in STATES if s in states)
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{SUMMARY}" height="{CELL_HEIGHT}" rx="4" '
        f'fill="{PALE_GREY}" stroke="{LINE}"/>'
        + svg_text(x + 6, y + 15, words, 11, MUTED)
        + svg_text(x + 6, y + 31, counts, 11, INK, font_weight="bold")
    )


def _sentence(at: Moment, decode: Decode) -> str:
    entry, played = at.entry, at.entry.round
    target, draft = (len(at.rows(side)) for side in ("target", "draft"))
    if at.phase == 0:
        guessed = "1 token is" if played.gamma == 1 else f"{played.gamma} tokens are"
        words = (
            f"{guessed} guessed; the draft cache goes from "
            f"{len(entry.draft.before)} to {draft} rows, the target cache waits with {target}."
        )
    elif at.phase == 1:
        words = (
            f"the target cache goes from {len(entry.target.before)} to {target} rows; "
            f"{played.accepted} of {played.gamma} drafts pass, then "
            f"“{name(played.token, decode)}” is drawn."
        )
    else:
        dropped = [
            counted(len(at.cache(side).full) - len(at.rows(side))) for side in ("target", "draft")
        ]
        words = (
            f"the target cache drops {dropped[0]} and holds {target}, the draft cache drops "
            f"{dropped[1]} and holds {draft}; of {len(at.tokens)} tokens the newest, "
            f"“{name(at.tokens[-1], decode)}”, is in none."
        )
    where = f"Round {at.number + 1} of {len(at.ledger.rounds)}, {PHASES[at.phase]}: "
    return f"{where}{words} {_so_far(at)}"


def _so_far(at: Moment) -> str:
    """What is wrong now; acceptance and logits over the rounds that are over."""
    wrong = []
    for side in ("target", "draft"):
        if number := at.wrong(side):
            lost = f" ({n} lost)" if (n := len(at.lost(side))) else ""
            wrong.append(f"{counted(number)} wrong in the {side} cache{lost}")
    words = f"{'; '.join(wrong) or 'No row is wrong'}."
    if not at.done:
        return words
    stats = at.ledger.stats(at.done)
    errors = ", ".join(
        f"{side} {_difference(at.largest_error(side))}" for side in ("target", "draft")
    )
    return (
        f"{words} After {at.done} whole round{'' if at.done == 1 else 's'} {stats.accepted} of "
        f"{stats.accepted + stats.rejected} judged drafts are kept; largest logit difference: "
        f"{errors}."
    )


def _difference(error: float | None) -> str:
    if error is None:
        return "none used"
    return "rounding only" if error < ROUNDING else f"{error:.1f}"


def _table(at: Moment) -> str:
    header, rows = ["round", "drafts kept"], []
    for side in ("target", "draft"):
        header += [f"{side} rows: before, full, after", "wrong or lost", "held", "logit difference"]
    for number in range(at.done):
        end = Moment(at.ledger, number, 2)
        line = [number + 1, f"{end.entry.round.accepted} of {end.entry.round.gamma}"]
        for side in ("target", "draft"):
            cache = end.cache(side)
            counts = ", ".join(str(len(r)) for r in (cache.before, cache.full, cache.after))
            held = kilobytes(len(cache.after) * end.row_bytes(side))
            line += [counts, end.wrong(side), held, _difference(cache.error)]
        rows.append(line)
    return html_table(header, rows)
