"""Checks of chapter 01: rows a model reads, a loop with a cache, the end of the flat part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from specdec_core.lab.exercises.verdicts import (
    as_number,
    as_wholes,
    attempted,
    call,
    verdict,
)
from specdec_core.lab.timing import greedy_with_cache, most_tokens, rows_fed
from specdec_core.models import TableModel

ROWS_CASES = ((5, 24, True), (5, 24, False), (1, 4, True), (1, 4, False), (9, 1, False))


@attempted
def check_rows_fed(function: Callable[[int, int, bool], int]) -> None:
    """Exercise 1: tokens read to write n more, with a cache and without."""
    for prompt, new, cached in ROWS_CASES:
        answer, problem = call(function, prompt, new, cached)
        if problem is None and as_number(answer) is None:
            problem = f"it returns {answer!r}, not a number"
        elif problem is None and answer != rows_fed(prompt, new, cached):
            problem = _explain_rows(answer, prompt, new, cached)
        if problem:
            how = "with the cache" if cached else "without a cache"
            verdict(f"{problem} ({prompt} tokens of prompt, {new} new ones, {how})")
            return
    verdict(None)


def _explain_rows(answer: object, prompt: int, new: int, cached: bool) -> str:
    right = rows_fed(prompt, new, cached)
    slips = [
        (rows_fed(prompt, new, not cached), "it gives the same with and without a cache"),
        (new, "it counts forwards; count the tokens they read, the prompt too"),
        (right + prompt + new if not cached else right + 1,
         "it reads the last new token too, and nothing follows that one"),
        (None if cached else right + new,
         "it reads the last new token too, and nothing follows that one: the first forward reads "
         "the prompt alone"),
        (new * (prompt + new), "it reads the text at its final length each time, and it grows"),
        (new * (new + 1) // 2, "it leaves the prompt out, which is read again each time"),
    ]  # fmt: skip
    if cached:
        slips[0] = (slips[0][0], "with a cache, a token is read once and never again")
    return next(
        (words for value, words in slips if answer == value),
        f"it gives {answer!r} where {right} is right",
    )


class _Recorder(TableModel):
    """A table whose next token depends on every token before; it notes what each forward read.

    endless: whether it was called more often than any loop that ends would.
    """

    def __init__(self) -> None:
        super().__init__(lambda prefix: [float(i == _next(prefix)) for i in range(11)], 11)
        self.calls: list[tuple[int, list[int]]] = []
        self.endless = False

    def forward(self, tokens, keep=None):
        self.endless |= len(self.calls) >= MOST_FORWARDS
        if self.endless:
            raise RecursionError
        self.calls.append((self.length, [int(token) for token in tokens]))
        return super().forward(tokens, keep)


def _next(prefix: Sequence[int]) -> int:
    """A token that changes with any token of the prefix, with their order and their number."""
    return sum((i + 2) * (token + 1) for i, token in enumerate(prefix)) % 11


# Far more than the longest case takes, even where the prompt is read token by token.
MOST_FORWARDS = 100
LOOP_CASES = (([3, 7, 1, 4], 6), ([5, 2], 3))


@attempted
def check_greedy_loop(function: Callable[[TableModel, list[int], int], list[int]]) -> None:
    """Exercise 2: greedy decoding in which no token is read twice."""
    for prompt, new in LOOP_CASES:
        model, right = _Recorder(), greedy_with_cache(_Recorder(), prompt, new)
        model.forward([8, 8])  # what an earlier run left in the cache
        model.calls.clear()
        given = list(prompt)
        answer, problem = call(function, model, given, new)
        if model.endless:
            problem = "the loop does not end: stop when new_tokens tokens are written"
        problem = problem or _explain_loop(answer, model.calls, prompt, right)
        if problem is None and given != prompt:
            problem = "it changes the caller's list `prompt`: work on a copy, list(prompt)"
        if problem:
            verdict(f"{problem} (prompt {prompt}, {new} new tokens)")
            return
    verdict(None)


def _explain_loop(
    answer: object, calls: list[tuple[int, list[int]]], prompt: list[int], right: list[int]
) -> str | None:
    tokens = as_wholes(answer)
    if tokens is None:
        return f"it returns {answer!r}, not a list of tokens"
    read = [token for _, fed in calls for token in fed]
    if calls and calls[0][0] > 0:
        return "it starts with rows that an earlier run left in the cache: call model.rollback(0)"
    if any(rows > 0 and fed[: len(prompt)] == prompt for rows, fed in calls):
        return "it feeds the whole text into a cache that already holds it"
    if tokens == prompt + right:
        return "it returns the prompt too: return the new tokens alone"
    if tokens != right:
        return _explain_tokens(tokens, read, prompt, right)
    needed = len(prompt) + len(right) - 1
    if read == prompt + right:
        return "its last forward is not needed: no token is drawn from it"
    if len(read) > needed:
        return f"the tokens are right, but it reads {len(read)} tokens where {needed} are enough"
    return None


def _explain_tokens(tokens: list[int], read: list[int], prompt: list[int], right: list[int]) -> str:
    if tokens[:1] == [_next(prompt[:1])] != right[:1]:
        return "the first new token comes from the first row; the last row is the newest token's"
    if read[: len(prompt) + 1] == [*prompt, prompt[-1]]:
        return "it feeds the last token of the prompt twice"
    if len(tokens) != len(right):
        return f"it returns {len(tokens)} tokens, not {len(right)}"
    return f"it writes {tokens} where {right} is right"


TIMES_CASES = (
    {1: 10.0, 2: 10.4, 4: 11.0, 8: 12.5, 16: 15.0, 32: 20.0, 64: 31.0, 128: 52.0},
    {1: 3.0, 2: 3.1, 4: 3.3},
    {1: 2.0, 2: 4.5, 4: 8.0},
    {1: 10.0, 2: 25.0, 4: 12.0, 8: 19.0, 16: 30.0},
    {4: 11.0, 16: 30.0, 8: 13.0, 1: 10.0, 2: 10.5},
)


@attempted
def check_most_tokens(function: Callable[[Mapping[int, float]], int]) -> None:
    """Exercise 3: the largest n that costs at most twice a forward over one token."""
    for times in TIMES_CASES:
        answer, problem = call(function, dict(times))
        if problem is None and as_number(answer) is None:
            problem = f"it returns {answer!r}, not a number"
        elif problem is None and answer != most_tokens(times):
            problem = _explain_most(answer, times)
        if problem:
            verdict(f"{problem} (for {times})")
            return
    verdict(None)


def _explain_most(answer: object, times: Mapping[int, float]) -> str:
    right, twice = most_tokens(times), 2 * times[1]
    above = [n for n, seconds in times.items() if seconds > twice]
    below = [n for n, seconds in times.items() if seconds < twice]
    quick = [n for n, seconds in times.items() if seconds <= twice]
    cheap = [n for n, seconds in times.items() if seconds / n <= twice]
    if above and answer == min(above):
        return "it gives the first n that costs more than twice; take the last that does not"
    if answer == max(below):
        return "at most twice includes exactly twice"
    if answer == max((n for n in quick if n < min(above, default=0)), default=None):
        return (
            "it stops at the first n that costs more; times may be jagged, so look at all of them"
        )
    if answer == quick[-1]:
        return (
            "it takes the last in the order given; take the largest n, in whatever order they come"
        )
    if answer == times[right]:
        return "it gives a time; give the number of tokens"
    if answer == max(cheap):
        return "it compares the time per token; compare the time of the whole forward"
    return f"it gives {answer!r} where {right} is right"
