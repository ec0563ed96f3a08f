"""Checks of chapter 02: what a row judges, the draft chain, the greedy verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from specdec_core.lab.exercises.verdicts import NOT_ATTEMPTED, call, verdict

DRAFTS = ("a", "b", "c", "d")


def check_row_duty(function: Callable[[int, Sequence[str]], tuple]) -> None:
    """Exercise 1: the drafted tokens a row sees, and the one it judges."""
    for drafted in (DRAFTS, DRAFTS[:2]):
        for row in range(len(drafted) + 1):
            answer, problem = call(function, row, list(drafted))
            if answer is None and problem is None:
                print(NOT_ATTEMPTED)
                return
            problem = problem or _explain_duty(answer, row, drafted)
            if problem:
                verdict(f"{problem} (row {row} of drafted = {list(drafted)})")
                return
    verdict(None)


def _explain_duty(answer: object, row: int, drafted: Sequence[str]) -> str | None:
    try:
        sees, judges = answer
        sees = list(sees)
    except (TypeError, ValueError):
        return f"it returns {answer!r}, not a pair (tokens seen, token judged)"
    right = (list(drafted[:row]), drafted[row] if row < len(drafted) else None)
    if (sees, judges) == right:
        return None
    if right[1] is None and judges is not None:
        return f"the last row sees every draft, so it judges none: None, not {judges!r}"
    if judges in sees:
        return f"the row is to judge {judges!r}, which it has seen already"
    if sees != right[0]:
        if len(sees) > row:
            return f"it sees {len(sees)} drafts; the causal mask hides all after the first {row}"
        return f"it sees {len(sees)} drafts; row 0 sees none, and each later row sees one more"
    return f"the first token it does not see is {right[1]!r}, not {judges!r}"


def _next(context: Sequence[int]) -> int:
    """A draft model for the check: its token depends on every token before it."""
    return (3 * sum(context) + len(context)) % 11


def check_draft_chain(function: Callable[[Callable, Sequence[int], int], Sequence[int]]) -> None:
    """Exercise 2: gamma tokens, each from the context and the drafts before it."""
    for context, gamma in (([1, 5], 3), ([2], 1), ([4, 0, 7], 4)):
        mine = list(context)
        answer, problem = call(function, _next, mine, gamma)
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        problem = problem or _explain_chain(answer, context, gamma)
        if problem is None and mine != context:
            problem = "it changes the context it was given: make a list of your own first"
        if problem:
            verdict(f"{problem} (context {context}, gamma {gamma})")
            return
    verdict(None)


def chain(context: Sequence[int], gamma: int) -> list[int]:
    """The right answer of exercise 2."""
    text = list(context)
    for _ in range(gamma):
        text.append(_next(text))
    return text[len(context) :]


def _explain_chain(answer: object, context: Sequence[int], gamma: int) -> str | None:
    try:
        answer = [int(token) for token in answer]
    except (TypeError, ValueError):
        return f"it returns {answer!r}, not a list of tokens"
    right = chain(context, gamma)
    if answer == right:
        return None
    if answer == [*context, *right]:
        return "it returns the context too: only the drafts are wanted"
    if gamma > 1 and answer == [_next(context)] * gamma:
        return "every draft comes from the same context: add each draft before the next"
    if len(answer) != gamma:
        return f"it returns {len(answer)} tokens where gamma is {gamma}"
    if answer == _short_sighted(context, gamma):
        return "from the second draft on it reads the newest token alone, without the text before"
    return f"it gives {answer} where {right} is right"


def _short_sighted(context: Sequence[int], gamma: int) -> list[int]:
    """Drafts of one that forgets the text after the first."""
    tokens = [_next(context)]
    while len(tokens) < gamma:
        tokens.append(_next(tokens[-1:]))
    return tokens


# drafted, the most likely token of each row: none, one, two, all kept; a match after a mismatch.
VERDICTS = (
    ((7, 8, 9), (7, 5, 9, 4)),
    ((7, 8, 9), (7, 8, 9, 4)),
    ((7, 8, 9), (3, 7, 8, 9)),
    ((7, 8, 9), (7, 8, 2, 4)),
    ((6,), (6, 1)),
    ((5, 5), (6, 5, 5)),
)


def check_greedy_verdict(function: Callable[[Sequence[int], Sequence[int]], tuple]) -> None:
    """Exercise 3: how many drafts are kept, and the token after them."""
    for drafted, best in VERDICTS:
        answer, problem = call(function, list(drafted), list(best))
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        problem = problem or _explain_verdict(answer, drafted, best)
        if problem:
            verdict(f"{problem} (drafted {list(drafted)}, best of each row {list(best)})")
            return
    verdict(None)


def _kept(drafted: Sequence[int], best: Sequence[int]) -> int:
    """Matches before the first mismatch."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(drafted, best, strict=False))))


def _explain_verdict(answer: object, drafted: Sequence[int], best: Sequence[int]) -> str | None:
    try:
        accepted, token = answer
    except (TypeError, ValueError):
        return f"it returns {answer!r}, not a pair (number kept, next token)"
    right = _kept(drafted, best)
    if (accepted, token) == (right, best[right]):
        return None
    if accepted != right:
        if accepted == _kept(drafted, best[1:]):
            return "row i + 1 judges the draft that row i predicts: the rows are off by one"
        if accepted == sum(d == b for d, b in zip(drafted, best, strict=False)):
            return f"it counts matches after the first mismatch: {right} kept, not {accepted}"
        return f"it keeps {accepted} where {right} is right"
    if right == len(drafted):
        return f"all drafts are kept, so the last row gives the bonus token {best[-1]}, not {token}"
    if token == drafted[right]:
        return f"it emits the rejected draft {token}: the target's own token {best[right]} is right"
    if token == best[-1]:
        return f"it takes the last row's token {token}, which follows a rejected draft"
    return f"the next token is {best[right]}, from row {right}, not {token}"
