"""Checks of chapter 04: how many drafts are kept, and where a block is cut.

The check of its third exercise, the whole loop, is in `whole_loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random

import torch

from specdec_core.lab.exercises.verdicts import (
    as_whole,
    as_wholes,
    attempted,
    call,
    verdict,
)
from specdec_core.randomness import judge
from specdec_core.text import Ending

Row = Sequence[float]


# --- Exercise 1: how many drafts are kept ---------------------------------------------------------


def _ratio_cases() -> list[tuple[list[Row], list[Row], list[int], list[float]]]:
    """Rounds of gamma drafts over three tokens: p [gamma + 1], q [gamma], drafts, coins."""
    random = Random(4)

    def row() -> list[float]:
        parts = [random.randint(1, 8) for _ in range(3)]
        return [round(part / sum(parts), 3) for part in parts]

    cases = []
    for gamma in (1, 2, 3, 3, 4, 4, 4, 5, 5, 0):
        p, q = [row() for _ in range(gamma + 1)], [row() for _ in range(gamma)]
        drafted = [random.randrange(3) for _ in range(gamma)]
        cases.append((p, q, drafted, [round(random.random(), 2) for _ in range(gamma)]))
    zero = [0.0, 0.5, 0.5]
    return [*cases, ([zero, zero], [[0.4, 0.3, 0.3]], [0], [0.0])]


def _kept(p: list[Row], q: list[Row], drafted: list[int], coins: list[float]) -> int:
    """The core's verdict."""
    rows = [[row[x] for row, x in zip(rows, drafted, strict=False)] for rows in (p, q)]
    return int(judge(*(torch.tensor(x, dtype=torch.float64) for x in (coins, *rows))))


def _until(passes: Sequence[bool]) -> int:
    return next((i for i, passed in enumerate(passes) if not passed), len(passes))


COUNT_SLIPS = {
    "it goes on after a rejection and counts drafts that are never judged (mistake M9)": (
        lambda p, q, x, u: sum(u[i] * q[i][x[i]] < p[i][x[i]] for i in range(len(x)))
    ),
    "it compares one coin with every draft (mistake M6): each position has a coin of its own": (
        lambda p, q, x, u: _until([u[0] * q[i][x[i]] < p[i][x[i]] for i in range(len(x))])
    ),
    "it compares the coin with p alone; the threshold is p/q": (
        lambda p, q, x, u: _until([u[i] < p[i][x[i]] for i in range(len(x))])
    ),
    "it keeps only the target's favourite (mistake M5); the coin decides, not the argmax": (
        lambda p, q, x, u: _until([p[i][x[i]] == max(p[i]) for i in range(len(x))])
    ),
    "it never looks at the coins: a draft with p below q is kept with probability p/q": (
        lambda p, q, x, u: _until([p[i][x[i]] >= q[i][x[i]] for i in range(len(x))])
    ),
    "it reads row 0 for every draft: row i judges draft i": (
        lambda p, q, x, u: _until([u[i] * q[0][x[i]] < p[0][x[i]] for i in range(len(x))])
    ),
    "it reads the row after (mistake M11): row i judges draft i": (
        lambda p, q, x, u: _until([u[i] * q[i][x[i]] < p[i + 1][x[i]] for i in range(len(x))])
    ),
    "it counts the rejected draft among the kept ones": (
        lambda p, q, x, u: min(_kept(p, q, x, u) + 1, len(x))
    ),
    "it gives the place of the last kept draft, and you need how many there are": (
        lambda p, q, x, u: _kept(p, q, x, u) - 1
    ),
    "it keeps a draft that the target never writes: with p = 0 even u = 0 must reject": (
        lambda p, q, x, u: _until([u[i] * q[i][x[i]] <= p[i][x[i]] for i in range(len(x))])
    ),
}  # fmt: skip


@attempted
def check_count_kept(function: Callable[..., int]) -> None:
    """Exercise 1: drafts kept before the first rejection."""
    whole = (as_whole, "a whole number")
    _check_cases(function, _ratio_cases(), _kept, COUNT_SLIPS, "p, q, drafted, coins", whole)


# --- Exercise 2: where a block is cut -------------------------------------------------------------

CUT_CASES = (
    ([5, 6, 7], [9], 10),
    ([5, 9, 7], [9], 10),
    ([5, 8, 7], [9, 8], 10),
    ([9, 5, 9], [9], 10),
    ([5, 6, 9], [9], 10),
    ([5, 6, 7, 8], [9], 2),
    ([5, 9, 7, 8], [9], 1),
    ([5, 6, 9, 8], [8, 9], 3),
    ([5, 6, 7], [], 3),
)


def _cut(block: list[int], stop_tokens: list[int], room: int) -> list[int]:
    """What the core writes of a block."""
    return Ending(room, stop_tokens, None).keep(block)


def _cut_at(block: list[int], stops: Sequence[int], keep: int = 1) -> list[int]:
    places = [i for i, token in enumerate(block) if token in stops]
    return block[: places[0] + keep] if places else block


CUT_SLIPS = {
    "a stop token inside the block goes unnoticed (mistake M17): look at every token of it": (
        lambda b, stops, room: b[:room]
    ),
    "it knows one stop token; there may be several (mistake M17)": (
        lambda b, stops, room: _cut_at(b, stops[:1])[:room]
    ),
    "it writes past max_new_tokens (mistake M17): at most `room` tokens fit": (
        lambda b, stops, room: _cut_at(b, stops)
    ),
    "it throws the stop token away; the stop token belongs to the text": (
        lambda b, stops, room: _cut_at(b, stops, 0)[:room]
    ),
    "it writes nothing where the block is longer than the room": (
        lambda b, stops, room: [] if len(_cut_at(b, stops)) > room else _cut_at(b, stops)
    ),
    "it leaves one place empty: `room` tokens fit, not room - 1": (
        lambda b, stops, room: _cut_at(b, stops)[: room - 1]
    ),
    "it cuts at the last stop token, and the text ends at the first": (
        lambda b, stops, room: b[: max((i for i, t in enumerate(b) if t in stops), default=len(b))
                                 + 1][:room]
    ),
}  # fmt: skip


@attempted
def check_cut_block(function: Callable[..., Sequence[int]]) -> None:
    """Exercise 2: the tokens of a block that are written."""
    tokens = (as_wholes, "a list of token ids")
    _check_cases(function, CUT_CASES, _cut, CUT_SLIPS, "block, stop_tokens, room", tokens)


def _check_cases(
    function: Callable,
    cases: Sequence[tuple],
    right: Callable,
    slips: dict[str, Callable],
    names: str,
    kind: tuple[Callable, str],
) -> None:
    """Compare `function` with `right` on every case; name the slip that gives the same answers.

    kind: reads an answer (None where it cannot), and what an answer is, in words.
    """
    read, wanted = kind
    answers = []
    for case in cases:
        given, problem = call(function, *deepcopy(case))
        answers.append(read(given))
        if problem or answers[-1] is None:
            problem = problem or f"it returns {given!r}, not {wanted}"
            verdict(f"{problem} (for {names} = {case})")
            return
    wrong = [i for i, case in enumerate(cases) if answers[i] != right(*case)]
    if not wrong:
        verdict(None)
        return
    same = (w for w, slip in slips.items() if answers == [slip(*case) for case in cases])
    case = cases[wrong[0]]
    plain = f"it gives {answers[wrong[0]]} where {right(*case)} is right (for {names} = {case})"
    verdict(next(same, plain))
