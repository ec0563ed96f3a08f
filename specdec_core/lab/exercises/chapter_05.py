"""Checks of chapter 05: rows after a round, rolling back a growing cache, finding a fault."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from specdec_core.lab.exercises.verdicts import NOT_ATTEMPTED, call, verdict
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


def check_rows_after(function: Callable[[int, int, int, int], tuple[int, int]]) -> None:
    """Exercise 1: rows of the target's and the draft's cache after a round."""
    for case in ROUNDS:
        answer, problem = call(function, *case)
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        problem = problem or _explain_rows(answer, *case)
        if problem:
            target, draft, gamma, accepted = case
            verdict(
                f"{problem} (target_rows={target}, draft_rows={draft}, gamma={gamma}, "
                f"accepted={accepted})"
            )
            return
    verdict(None)


def _explain_rows(answer: object, target: int, draft: int, gamma: int, accepted: int) -> str | None:
    try:
        mine = tuple(int(rows) for rows in answer)
    except (TypeError, ValueError):
        mine = ()
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


def check_write_rows(function: Callable[[list[str], int, list[str]], int]) -> None:
    """Exercise 2: write rows into a buffer of fixed size by index; the new length comes back."""
    for capacity, length, count in BUFFERS:
        good = [f"row {i}" for i in range(length)]
        buffer = good + ["stale"] * (capacity - length)
        new = [f"new {i}" for i in range(count)]
        before = list(buffer)
        answer, problem = call(function, buffer, length, list(new))
        if answer is None and problem is None and buffer == before:
            print(NOT_ATTEMPTED)
            return
        if length + count > capacity:
            problem = _explain_overflow(problem, buffer, before)
        else:
            problem = problem or _explain_write(answer, buffer, before, good, new)
        if problem:
            verdict(f"{problem} (a buffer of {capacity}, length={length}, {count} new rows)")
            return
    verdict(None)


def _explain_overflow(problem: str | None, buffer: list[str], before: list[str]) -> str | None:
    if problem is None or "ValueError" not in problem:
        if len(buffer) > len(before):
            return "a slice past the end makes a list grow: raise ValueError where rows do not fit"
        return "the new rows do not fit: raise ValueError"
    return None if buffer == before else "it writes before it looks whether the rows fit"


def _explain_write(
    answer: object, buffer: list[str], before: list[str], good: list[str], new: list[str]
) -> str | None:
    right = [*good, *new]
    if len(buffer) != len(before):
        return f"the buffer now has {len(buffer)} places: write by index, nothing is appended"
    if buffer == before:
        return "the buffer itself is unchanged: write into it, not into a copy"
    if buffer[: len(good)] != good:
        return "a good row was overwritten: the first new row goes to `length`"
    if "stale" in buffer[: len(right)]:
        return "a stale row is left among the good ones: the first new row goes to `length`"
    if buffer[: len(right)] != right:
        return "the new rows are not in order"
    if answer == len(right):
        return None
    if answer == len(buffer):
        return "it returns the capacity; the length counts good rows only"
    return f"the length is now {len(right)}: the good rows and the new ones, not {answer!r}"


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

Rows = list[tuple[int, int, int]]


@cache
def _fault_cases() -> tuple[tuple[str, Rows], ...]:
    """Right names and rounds (tokens emitted, target rows, draft rows) of real runs."""
    cases = []
    for seed in (1, 2):
        for mistake, name in FAULTS.items():
            rounds = REMEMBERING.run(Seeded(seed), mistake).trace.rounds
            lines = [(len(r.emitted), r.target_length[1], r.draft_length[1]) for r in rounds]
            cases.append((name, lines))
    return tuple(cases)


def check_find_fault(function: Callable[[int, Rows], str]) -> None:
    """Exercise 3: which cache is wrong, from the rows after each round."""
    prompt = len(REMEMBERING.prompt)
    for right, rounds in _fault_cases():
        answer, problem = call(function, prompt, list(rounds))
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        if problem is None and answer != right:
            problem = _explain_fault(answer, right, prompt, rounds)
        if problem:
            verdict(f"{problem} (prompt_length={prompt}, rounds={rounds})")
            return
    verdict(None)


def _explain_fault(answer: object, right: str, prompt: int, rounds: Rows) -> str:
    if answer not in FAULTS.values():
        return (
            f"it returns {answer!r}, which is none of {', '.join(dict.fromkeys(FAULTS.values()))}"
        )
    if right == "none":
        if str(answer).startswith("target"):
            return (
                "nothing is wrong here: the right number of rows is prompt_length + all tokens "
                "emitted so far - 1, since the newest token is in no cache"
            )
        return "nothing is wrong here: the draft's rows may be fewer than the target's, never more"
    needed = prompt - 1
    for number, (emitted, target, draft) in enumerate(rounds, start=1):
        needed += emitted
        if target != needed or draft > needed:
            return (
                f"this is {right!r}: after round {number} the caches hold {target} and {draft} "
                f"rows, and the text without its newest token has {needed}"
            )
    raise AssertionError("a fault that no round shows")
