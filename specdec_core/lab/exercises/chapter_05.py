"""Checks of chapter 05: rows after a round, writing into a fixed buffer, finding a fault."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from specdec_core.lab.exercises.verdicts import as_whole, as_wholes, attempted, call, over
from specdec_core.lab.museum import Example, by_parity
from specdec_core.randomness import Seeded

# target rows, draft rows, gamma, accepted
ROUNDS = (
    (18, 18, 4, 2),
    (18, 18, 4, 0),
    (18, 18, 4, 4),
    (23, 22, 4, 1),
    (23, 22, 4, 4),
    (30, 28, 6, 5),
    (12, 12, 1, 1),
    (12, 9, 0, 0),
)


def rows_after(target: int, draft: int, gamma: int, accepted: int) -> tuple[int, int]:
    """Rows of both caches after a round that began with `target` and `draft` rows.

    The draft first reads what it lacks, so it holds target + gamma rows when it has drafted.
    """
    kept = target + accepted + 1
    drafted = target + gamma if gamma else draft
    return kept, min(drafted, kept)


@attempted
def check_rows_after(function: Callable[[int, int, int, int], tuple[int, int]]) -> None:
    """Exercise 1: rows of the target's and the draft's cache after a round."""
    over(
        ROUNDS,
        function,
        _explain_rows,
        "target_rows={}, draft_rows={}, gamma={}, accepted={}".format,
    )


def _explain_rows(answer: object, target: int, draft: int, gamma: int, accepted: int) -> str | None:
    mine = tuple(as_wholes(answer) or ())
    if len(mine) != 2:
        return f"it returns {answer!r}, not two numbers of rows"
    right = rows_after(target, draft, gamma, accepted)
    if mine == right:
        return None
    if mine == right[::-1]:
        return "the two are swapped: the target's rows come first"
    if mine == (gamma - accepted, max(gamma - accepted - 1, 0)):
        return "these are the rows that are cut off; return what is left"
    return _explain_target(mine[0], right[0], target, gamma, accepted) or _explain_draft(
        mine[1], right[1], target, draft, gamma, accepted
    )


def _explain_target(mine: int, right: int, target: int, gamma: int, accepted: int) -> str | None:
    if mine == right:
        return None
    if mine == target + gamma + 1:
        return "the target's rejected rows are still there: nothing was rolled back"
    if mine == target + accepted:
        return "the target also read the newest token in this round, so it keeps one row more"
    if mine == target + accepted + 2:
        return "the token drawn last is in no cache yet: the target has one row too many"
    return f"the target holds {right} rows, not {mine}"


def _explain_draft(
    mine: int, right: int, target: int, draft: int, gamma: int, accepted: int
) -> str:
    if gamma == 0:
        return f"nothing was drafted, so the draft read nothing: it still holds {draft} rows"
    if mine == target + gamma and mine > right:
        return "the draft's rejected rows are still there: nothing was rolled back"
    if accepted == gamma and mine == target + gamma + 1:
        return "after a full accept the draft never read its last token: it is one row short"
    if target != draft and mine == min(draft + gamma, draft + accepted + 1):
        return "the draft first reads the tokens it lacks, so it catches up with the target"
    if mine == target + accepted:
        return "the draft cuts too much: its row of the last kept draft is good"
    return f"the draft holds {right} rows, not {mine}"


# Capacity, rows that are good, how many new ones; the last does not fit.
BUFFERS = ((8, 5, 2), (8, 0, 3), (6, 4, 2), (9, 6, 1), (8, 6, 3))
# What a function returns, or how it fails, and the buffer it leaves.
Written = tuple[object, str | None, list[str]]


def _buffer(capacity: int, length: int) -> list[str]:
    return [f"row {i}" if i < length else f"stale {i}" for i in range(capacity)]


def _new(count: int) -> list[str]:
    return [f"new {i}" for i in range(count)]


@attempted
def check_write_rows(function: Callable[[list[str], int, list[str]], int]) -> None:
    """Exercise 2: write rows into a buffer of fixed size by index; the new length comes back."""

    def write(capacity: int, length: int, count: int) -> Written:
        buffer = _buffer(capacity, length)
        answer, problem = call(function, buffer, length, _new(count))
        # An array among the rows could not be compared with a word.
        rows = [row if isinstance(row, str) else repr(row) for row in buffer]
        return answer, problem, rows

    over(BUFFERS, write, _explain_write, "a buffer of {}, length={}, {} new rows".format)


def _explain_write(written: Written, capacity: int, length: int, count: int) -> str | None:
    before, new = _buffer(capacity, length), _new(count)
    answer, problem, buffer = written
    if length + count > capacity:
        return _explain_overflow(problem, buffer, before)
    right = before[:length] + new
    if problem and " ValueError" in problem:
        exactly = " exactly" if length + count == capacity else ""
        return f"{problem}, but they fit{exactly}"
    problem = problem or _explain_buffer(buffer, before, length, right)
    if problem or as_whole(answer) == len(right):
        return problem
    if as_whole(answer) == len(buffer):
        return "it returns the capacity; the length counts good rows only"
    return f"the length is now {len(right)}: the good rows and the new ones, not {answer!r}"


def _explain_overflow(problem: str | None, buffer: list[str], before: list[str]) -> str | None:
    if problem is None or "ValueError" not in problem:
        if len(buffer) > len(before):
            return "a slice past the end makes a list grow: raise ValueError where rows do not fit"
        return "the new rows do not fit: raise ValueError"
    return None if buffer == before else "it writes before it looks whether the rows fit"


def _explain_buffer(
    buffer: list[str], before: list[str], length: int, right: list[str]
) -> str | None:
    """What is wrong with a buffer that should begin with the rows `right`."""
    if len(buffer) != len(before):
        return f"the buffer now has {len(buffer)} places: write by index, nothing is appended"
    if buffer == before:
        return "the buffer itself is unchanged: write into it, not into a copy"
    if buffer[:length] != right[:length]:
        return "a good row was overwritten: the first new row goes to `length`"
    if any(row.startswith("stale") for row in buffer[: len(right)]):
        return "a stale row is left among the good ones: the first new row goes to `length`"
    if buffer[: len(right)] != right:
        return "the new rows are not in order"
    if buffer[len(right) :] != before[len(right) :]:
        return "a place behind the new rows was changed: write the rows of `new` and nothing else"
    return None


REMEMBERING = Example(by_parity((0.8, 0.2), (0.3, 0.7)), by_parity((0.6, 0.4), (0.4, 0.6)),
                      gamma=3, tokens=14, prompt=(0, 1, 1))  # fmt: skip
# A mistake of the museum, and what its rows show.
FAULTS = {
    None: "none",
    "M18": "target too long",
    "M18b": "target too short",
    "M18c": "target too long",
    "M19": "draft too long",
}

# Of each round: tokens emitted, target rows, draft rows.
Rows = list[tuple[int, int, int]]
# Prompt length, rounds and the right name; a full accept in the last round hides the fault.
HIDDEN: tuple[tuple[int, Rows, str], ...] = (
    (3, [(2, 6, 4), (4, 8, 7)], "target too long"),
    (3, [(3, 4, 5), (4, 9, 8)], "target too short"),
    (3, [(1, 3, 5), (4, 7, 6)], "draft too long"),
)


@cache
def _fault_cases() -> tuple[tuple[int, Rows, str], ...]:
    """Prompt lengths and rounds, real runs first, and the right names."""
    cases = []
    for seed in (1, 2):
        for mistake, name in FAULTS.items():
            rounds = REMEMBERING.run(Seeded(seed), mistake).trace.rounds
            lines = [(len(r.emitted), r.target_length[1], r.draft_length[1]) for r in rounds]
            cases.append((len(REMEMBERING.prompt), lines, name))
    return (*cases, *HIDDEN)


@attempted
def check_find_fault(function: Callable[[int, Rows], str]) -> None:
    """Exercise 3: which cache is wrong, from the rows after each round."""
    over(
        _fault_cases(),
        lambda prompt, rounds, right: function(prompt, rounds),
        _explain_fault,
        lambda prompt, rounds, right: f"prompt_length={prompt}, rounds={rounds}",
    )


def _explain_fault(answer: object, prompt: int, rounds: Rows, right: str) -> str | None:
    names = list(dict.fromkeys(FAULTS.values()))
    if not isinstance(answer, str) or answer not in names:
        return f"it returns {answer!r}, which is none of {', '.join(names)}"
    if answer == right:
        return None
    if right == "none":
        if answer.startswith("target"):
            return (
                "nothing is wrong here: the right number of rows is prompt_length + all tokens "
                "emitted so far - 1, since the newest token is in no cache"
            )
        return "nothing is wrong here: the draft's rows may be fewer than the target's, never more"
    needed = prompt - 1
    for number, (emitted, target, draft) in enumerate(rounds, start=1):
        needed += emitted
        if target != needed or draft > needed:
            later = "; a later round hides it" if (prompt, rounds, right) in HIDDEN else ""
            return (
                f"this is {right!r}: after round {number} the caches hold {target} and {draft} "
                f"rows, and the text without its newest token has {needed}{later}"
            )
    raise AssertionError("a fault that no round shows")
