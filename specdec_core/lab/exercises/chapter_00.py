"""Checks of chapter 00: counting forwards, keeping a word."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from specdec_core.lab.exercises.verdicts import (
    NOT_ATTEMPTED,
    as_number,
    as_truth,
    attempted,
    call,
    verdict,
)
from specdec_core.trace import Round, ratio


def check_order(mine: Sequence[str] | None, rates: Mapping[str, float]) -> None:
    """Prediction: the names of the drafts, the least accepted first."""
    if mine is None:
        print(NOT_ATTEMPTED)
        return
    right = sorted(rates, key=rates.__getitem__)
    try:
        names = re.findall(r"[^\s,]+", mine) if isinstance(mine, str) else [n.strip() for n in mine]
    except (AttributeError, TypeError):
        names = []
    if sorted(names) != sorted(right):
        form = ", ".join(['"..."'] * len(right))
        verdict(f"an order is a list [{form}] that holds each of these names once: "
                f"{', '.join(sorted(right))}")  # fmt: skip
    elif names == right[::-1]:
        verdict("it is the other way round: put the least accepted first")
    elif names != right:
        first = next(i for i, name in enumerate(names) if name != right[i])
        verdict(f"{right[first]} is accepted less often than {names[first]}")
    else:
        verdict(None)


def _round(drafted: int, accepted: int, written: int | None = None) -> Round:
    """A round of made-up tokens; only the counts matter. written: tokens, where the text ended."""
    emitted = tuple(range(accepted + 1 if written is None else written))
    fill = (0.5,) * drafted
    return Round(tuple(range(drafted)), accepted, 0, emitted, fill, fill, fill, 1.0, False,
                 (0, accepted + 1), (0, accepted + 1),
                 None if written is None else "stop")  # fmt: skip


# Means that differ, one of them no whole number: a constant or a rounded answer fails at least one.
RUNS = (
    [_round(4, 4), _round(4, 1)],
    [_round(4, 3)],
    [_round(4, 2)] * 3,
    [_round(3, 1), _round(3, 3), _round(3, 0)],
    # A stop token among the kept drafts: fewer are written than were kept.
    [_round(4, 2), _round(4, 4, written=2)],
)


@attempted
def check_tokens_per_forward(function: Callable[[Sequence[Round]], float]) -> None:
    """Exercise 1: mean tokens emitted per round."""
    answers = [call(function, list(rounds)) for rounds in RUNS]
    numbers = {as_number(answer) for answer, _ in answers}
    constant = numbers.pop() if len(numbers) == 1 else None
    for rounds, (answer, problem) in zip(RUNS, answers, strict=True):
        problem = problem or _explain_ratio(answer, rounds)
        if problem and constant is not None:
            problem = f"it gives {constant:g} for any rounds: count in those it is given"
        if problem:
            verdict(f"{problem} (for rounds that emit {[len(r.emitted) for r in rounds]})")
            return
    verdict(None)


PLUS_ONE = (
    "it counts r.accepted + 1 tokens a round, and a stop token may cut the last round: count "
    "r.emitted"
)


def _explain_ratio(answer: object, rounds: Sequence[Round]) -> str | None:
    number = as_number(answer)
    if number is None:
        return f"it returns {answer!r}, not a number"
    tokens, drafts = sum(len(r.emitted) for r in rounds), sum(r.gamma for r in rounds)
    kept = sum(r.accepted for r in rounds)
    right = ratio(tokens, len(rounds))
    slips = (
        (right, None),
        (kept / len(rounds) + 1, PLUS_ONE),
        (1 / right, "it is upside down: it gives forwards per token"),
        (tokens / drafts, "it divides by the drafted tokens, and each round is one forward"),
        (drafts / len(rounds), "it counts the drafted tokens; count the emitted ones"),
        (right - 1, "it leaves out the corrected or bonus token of each round"),
        (tokens, "it gives the number of tokens; divide it by the forwards"),
        (tokens // len(rounds), "it rounds down: divide with /, not with //"),
    )
    return next(
        (words for value, words in slips if math.isclose(number, value)),
        f"it gives {number:.3f} where {right:.3f} is right",
    )


# p, q, u, whether the word is kept; chosen so that each usual slip fails at least one.
KEEP_CASES = (
    (0.6, 0.8, 0.74, True),
    (0.6, 0.8, 0.76, False),
    (0.4, 0.2, 0.99, True),
    (0.0, 0.5, 0.0, False),
    (0.3, 0.6, 0.45, True),
    (0.3, 0.6, 0.5, False),
    (1e-320, 1e-310, 0.5, False),
    (2e-9, 1e-9, 0.5, True),
    (2e-30, 1e-30, 0.5, True),
)
# Where p and q are this small, a word that should stay is lost to what was added to one of them.
TINY = 1e-8


@attempted
def check_keep(function: Callable[[float, float, float], bool]) -> None:
    """Exercise 2: u * q < p."""
    for p, q, u, kept in KEEP_CASES:
        answer, problem = call(function, p, q, u)
        if problem is None and as_truth(answer) is None:
            problem = f"it returns {answer!r}, not True or False"
        elif problem is None and as_truth(answer) != kept:
            least = min(Fraction(1), Fraction(p) / Fraction(q))
            fate = "kept" if kept else "rejected"
            problem = f"the word must be {fate}: it is kept where u is below {float(least):.3g}"
            if kept and p < TINY:
                problem += "; add nothing to p or q, however small (mistake M14 of the museum)"
        if problem:
            verdict(f"{problem} (p = {p:g}, q = {q:g}, u = {u:g})")
            return
    verdict(None)
