"""Checks of chapter 00: counting forwards, keeping a word."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from specdec_core.lab.exercises.verdicts import NOT_ATTEMPTED, call, verdict
from specdec_core.trace import Round, ratio


def check_order(mine: Sequence[str] | None, rates: Mapping[str, float]) -> None:
    """Prediction: the names of the drafts, the least accepted first."""
    if mine is None:
        print(NOT_ATTEMPTED)
        return
    right = sorted(rates, key=rates.__getitem__)
    try:
        names = [name.strip() for name in (mine.split(",") if isinstance(mine, str) else mine)]
    except (AttributeError, TypeError):
        names = []
    if sorted(names) != sorted(right):
        verdict(f"an order holds each of these names once: {', '.join(right)}")
    elif names == right[::-1]:
        verdict("it is the other way round: put the least accepted first")
    elif names != right:
        first = next(i for i, name in enumerate(names) if name != right[i])
        verdict(f"{right[first]} is accepted less often than {names[first]}")
    else:
        verdict(None)


def _round(drafted: int, accepted: int) -> Round:
    """A round of made-up tokens; only the counts matter."""
    emitted = tuple(range(accepted + 1))
    fill = (0.5,) * drafted
    return Round(tuple(range(drafted)), accepted, 0, emitted, fill, fill, fill, 1.0, False,
                 (0, accepted + 1), (0, accepted + 1))  # fmt: skip


def check_tokens_per_forward(function: Callable[[Sequence[Round]], float]) -> None:
    """Exercise 1: mean tokens emitted per round."""
    runs = ([_round(4, 4), _round(4, 0)], [_round(4, 2)] * 3, [_round(3, 1), _round(3, 3)] * 2)
    for rounds in runs:
        answer, problem = call(function, rounds)
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        tokens, drafts = sum(len(r.emitted) for r in rounds), sum(r.gamma for r in rounds)
        right = ratio(tokens, len(rounds))
        problem = problem or _explain_ratio(answer, right, len(rounds) / tokens, tokens / drafts)
        if problem:
            verdict(f"{problem} (for rounds that emit {[len(r.emitted) for r in rounds]})")
            return
    verdict(None)


def _explain_ratio(answer: object, right: float, inverse: float, per_draft: float) -> str | None:
    try:
        answer = float(answer)
    except (TypeError, ValueError):
        return f"it returns {answer!r}, not a number"
    if math.isclose(answer, right):
        return None
    if math.isclose(answer, inverse):
        return "it is upside down: it gives forwards per token"
    if math.isclose(answer, per_draft):
        return "it divides by the drafted tokens, and each round is one forward"
    if math.isclose(answer, right - 1):
        return "it leaves out the corrected or bonus token of each round"
    return f"it gives {answer:.3f} where {right:.3f} is right"


# p, q, u, whether the word is kept; chosen so that each usual slip fails at least one.
KEEP_CASES = (
    (0.6, 0.8, 0.74, True),
    (0.6, 0.8, 0.76, False),
    (0.4, 0.2, 0.99, True),
    (0.0, 0.5, 0.0, False),
    (0.3, 0.6, 0.45, True),
    (0.3, 0.6, 0.5, False),
    (1e-320, 1e-310, 0.5, False),
)


def check_keep(function: Callable[[float, float, float], bool]) -> None:
    """Exercise 2: u * q < p."""
    for p, q, u, kept in KEEP_CASES:
        answer, problem = call(function, p, q, u)
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        if problem is None and bool(answer) != kept:
            least = min(Fraction(1), Fraction(p) / Fraction(q))
            fate = "kept" if kept else "rejected"
            problem = f"the word must be {fate}: it is kept where u is below {float(least):.3g}"
        if problem:
            verdict(f"{problem} (p = {p:g}, q = {q:g}, u = {u:g})")
            return
    verdict(None)
