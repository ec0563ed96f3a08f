"""Checks of chapter 02: what a row judges, the draft chain, the greedy verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from specdec_core.lab.exercises.verdicts import attempted, over

DRAFTS = ("a", "b", "c", "d")


@attempted
def check_row_duty(function: Callable[[int, Sequence[str]], tuple]) -> None:
    """Exercise 1: the drafted tokens a row sees, and the one it judges."""
    cases = [(i, list(row)) for row in (DRAFTS, DRAFTS[:2]) for i in range(len(row) + 1)]
    over(cases, function, _explain_duty, "row {} of drafted = {}".format)


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


@attempted
def check_draft_chain(function: Callable[[Callable, Sequence[int], int], Sequence[int]]) -> None:
    """Exercise 2: gamma tokens, each from the context and the drafts before it."""

    def tried(context: list[int], gamma: int) -> tuple | None:
        answer = function(_next, context, gamma)
        return None if answer is None else (answer, context)

    cases = [([1, 5], 3), ([2], 1), ([4, 0, 7], 4), ([3, 6], 0)]
    over(cases, tried, _explain_tried, "context {}, gamma {}".format)


def _explain_tried(tried: tuple, context: Sequence[int], gamma: int) -> str | None:
    """What is wrong with the drafts, or with the context after the call."""
    answer, after = tried
    problem = _explain_chain(answer, context, gamma)
    if problem is None and after != context:
        return "it changes the context it was given: make a list of your own first"
    return problem


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
    if gamma == 0 and answer == list(context):
        return "text[-gamma:] is the whole list where gamma is 0: cut with text[len(context):]"
    if answer == [*context, *right]:
        return "it returns the context too: only the drafts are wanted"
    if gamma > 1 and answer == [_next(context)] * gamma:
        return "every draft comes from the same context: add each draft before the next"
    if len(answer) != gamma:
        tokens = "1 token" if len(answer) == 1 else f"{len(answer)} tokens"
        return f"it returns {tokens} where gamma is {gamma}"
    if answer == _short_sighted(context, gamma):
        return "from the second draft on it reads the newest token alone, without the text before"
    return f"it gives {answer} where {right} is right"


def _short_sighted(context: Sequence[int], gamma: int) -> list[int]:
    """Drafts of one that forgets the text after the first."""
    tokens = [_next(context)]
    while len(tokens) < gamma:
        tokens.append(_next(tokens[-1:]))
    return tokens


# drafted, the most likely token of each row: one, all, none, two kept; a match after a mismatch.
VERDICTS = (
    ((7, 8, 9), (7, 5, 9, 4)),
    ((7, 8, 9), (7, 8, 9, 4)),
    ((7, 8, 9), (3, 7, 8, 9)),
    ((7, 8, 9), (7, 8, 2, 4)),
    ((6,), (6, 1)),
    ((5, 5), (6, 5, 5)),
    ((), (4,)),
)


@attempted
def check_greedy_verdict(function: Callable[[Sequence[int], Sequence[int]], tuple]) -> None:
    """Exercise 3: how many drafts are kept, and the token after them."""
    cases = [(list(drafted), list(best)) for drafted, best in VERDICTS]
    over(cases, function, _explain_verdict, "drafted {}, best of each row {}".format)


def _kept(drafted: Sequence[int], best: Sequence[int]) -> int:
    """Matches before the first mismatch."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(drafted, best, strict=False))))


def _explain_verdict(answer: object, drafted: Sequence[int], best: Sequence[int]) -> str | None:
    right = _kept(drafted, best)
    if _listed(answer) == [*drafted[:right], best[right]] and answer != (right, best[right]):
        return "it returns the emitted tokens: return a pair (count, token)"
    try:
        accepted, token = answer
    except (TypeError, ValueError):
        return f"it returns {answer!r}, not a pair (count, token)"
    if (accepted, token) == (right, best[right]):
        return None
    if accepted != right:
        return _explain_count(accepted, token, drafted, best)
    if right == len(drafted):
        return f"all drafts are kept, so the last row gives the bonus token {best[-1]}, not {token}"
    if token == drafted[right]:
        return f"it emits the rejected draft {token}: the target's own token {best[right]} is right"
    if token == best[-1]:
        return f"it takes the last row's token {token}, which follows a rejected draft"
    return f"the next token is {best[right]}, from row {right}, not {token}"


def _listed(answer: object) -> list | None:
    """A list or tuple as a list."""
    return list(answer) if isinstance(answer, list | tuple) else None


def _explain_count(
    accepted: object, token: object, drafted: Sequence[int], best: Sequence[int]
) -> str:
    """Why the number of kept drafts is wrong."""
    right = _kept(drafted, best)
    if _listed(accepted) is not None:
        return f"it returns which drafts are kept, {accepted}: return a pair (count, token)"
    if (token, accepted) == (right, best[right]):
        return "the pair is the other way round: (count, token)"
    if accepted == _kept(drafted, best[1:]):
        return "you judge drafted[i] with row i + 1: use row i"
    if accepted == sum(d == b for d, b in zip(drafted, best, strict=False)):
        return f"it counts matches after the first mismatch: {right} kept, not {accepted}"
    return f"it keeps {accepted} where {right} is right"
