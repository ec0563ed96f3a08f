"""Checks of chapter 06: a distance, a check that catches, a number of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from numbers import Real

from specdec_core.exact import Law, total_variation
from specdec_core.lab.exercises.verdicts import NOT_ATTEMPTED, call, verdict
from specdec_core.lab.museum import MISTAKES

# Two laws each; the last pair differs in what it can write at all.
DISTANCES: tuple[tuple[Law, Law], ...] = (
    ({(0,): 0.6, (1,): 0.4}, {(0,): 0.8, (1,): 0.2}),
    ({(0,): 0.4, (1,): 0.3, (2,): 0.2, (3,): 0.1}, {(0,): 0.1, (1,): 0.2, (2,): 0.3, (3,): 0.4}),
    ({(0,): 0.75, (1,): 0.25}, {(0,): 0.75, (2,): 0.25}),
    ({(0,): 1.0}, {(1,): 1.0}),
)


def check_distance(function: Callable[[Law, Law], float]) -> None:
    """Exercise 1: half the sum of |law - other| over all outcomes of both."""
    for law, other in DISTANCES:
        answer, problem = call(function, dict(law), dict(other))
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        problem = _lookup(problem) or problem or _explain_distance(answer, law, other)
        if problem:
            verdict(f"{problem} (for {law} and {other})")
            return
    verdict(None)


def _lookup(problem: str | None) -> str | None:
    if problem and "KeyError" in problem:
        return f"{problem}: one law can hold an outcome that the other lacks; use .get(tokens, 0)"
    return None


def _explain_distance(answer: object, law: Law, other: Law) -> str | None:
    if not isinstance(answer, Real):
        return f"it returns {answer!r}, not a number"
    right = total_variation(law, other)
    if math.isclose(answer, right, abs_tol=1e-9):
        return None
    gaps = {t: law.get(t, 0.0) - other.get(t, 0.0) for t in law | other}
    slips = (
        (2 * right, "it lacks the half: mass that moves is counted where it leaves and arrives"),
        (math.fsum(gaps.values()), "its differences cancel: take absolute values"),
        (
            0.5 * math.fsum(abs(gaps[t]) for t in law),
            "it looks at the outcomes of the first law only; the other has more",
        ),
        (max(map(abs, gaps.values())), "it is the largest single difference, not the distance"),
    )
    for value, reason in slips:
        if math.isclose(answer, value, abs_tol=1e-9):
            return reason
    return f"it gives {answer:.4g} where {right:.4g} is right"


# Mistakes by what a careless check overlooks, in the order in which they are tried.
CAUGHT = {
    "M1": "its first token is off by .12",
    "M7": "its first token is right, and the second is not: look at whole texts",
    "M17": "it writes past the end, where the target writes nothing: look at all outcomes of both",
    "M14": "its law is off by 7.5e-07, which is far more than rounding (1e-15)",
}
# A decoder may be slow and right.
KEPT = {"M19": "only its acceptance suffers", "M20": "only its speed suffers"}


@cache
def _laws(mistake: str) -> tuple[Law, Law]:
    example = MISTAKES[mistake].example
    return example.law(mistake), example.law()


# As right as floating point allows: .1 + .2 is not .3.
ROUNDED: tuple[Law, Law] = ({(0,): 0.1 + 0.2, (1,): 0.7}, {(0,): 0.3, (1,): 0.7})


def check_right_law(function: Callable[[Law, Law], bool]) -> None:
    """Exercise 2: pass a right decoder, catch M7 and others by their exact laws."""
    for decoder, (law, target) in _decoders():
        answer, problem = call(function, dict(law), dict(target))
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        problem = _lookup(problem) or problem or _explain_check(answer, decoder)
        if problem:
            verdict(problem)
            return
    verdict(None)


def _decoders() -> list[tuple[str, tuple[Law, Law]]]:
    """Right ones first, then those to be caught, each with its law and the target's."""
    exact = MISTAKES["M1"].example.law()
    found = [("exact", (exact, exact)), ("rounded", ROUNDED)]
    return found + [(id, _laws(id)) for id in (*KEPT, *CAUGHT)]


def _explain_check(answer: object, decoder: str) -> str | None:
    # numpy has a bool of its own.
    if type(answer).__name__ not in ("bool", "bool_"):
        return f"it returns {answer!r}, not True or False"
    if decoder in CAUGHT:
        return f"it lets {decoder} through: {CAUGHT[decoder]}" if answer else None
    if answer:
        return None
    if decoder == "exact":
        return "it fails a right decoder"
    if decoder == "rounded":
        return "it fails a right decoder whose law differs by 6e-17, which is rounding"
    return f"it fails {decoder}, whose law is the target's: {KEPT[decoder]}"


def _geometric(rate: float) -> Callable[[int], float]:
    return lambda n: 1 - (1 - rate) ** n


# A power function, what is wanted, and the smallest number that reaches it.
PLANS = (
    (lambda n: min(1.0, n / 100), 0.99, 99),
    (lambda n: n / (n + 4), 0.5, 4),
    (_geometric(0.01), 0.99, 459),
    (_geometric(3e-7), 0.99, None),
)
MOST_CALLS = 10_000


class _TooManyCalls(Exception):
    pass


def check_plan(function: Callable[[Callable[[int], float], float], int]) -> None:
    """Exercise 3: the smallest number of samples whose power is at least `wanted`."""
    for power, wanted, right in PLANS:
        if right is None:
            right = math.ceil(math.log(1 - wanted) / math.log1p(-3e-7))
        answer, problem = call(function, _counted(power), wanted)
        if answer is None and problem is None:
            print(NOT_ATTEMPTED)
            return
        if problem and "_TooManyCalls" in problem:
            problem = (
                f"it asks for the power more than {MOST_CALLS:,} times where {right:,} samples are "
                "needed: double until it is enough, then halve the gap"
            )
        problem = problem or _explain_plan(answer, right, power, wanted)
        if problem:
            verdict(problem)
            return
    verdict(None)


def _counted(power: Callable[[int], float]) -> Callable[[int], float]:
    calls = 0

    def ask(n: int) -> float:
        nonlocal calls
        calls += 1
        if calls > MOST_CALLS:
            raise _TooManyCalls
        return power(n)

    return ask


def _explain_plan(
    answer: object, right: int, power: Callable[[int], float], wanted: float
) -> str | None:
    if not isinstance(answer, Real) or answer != int(answer):
        return f"it returns {answer!r}, not a whole number"
    if abs(answer - right) <= max(0, round(right * 1e-6)):
        return None
    if answer < right:
        return f"it gives {answer:,}, where the power is {power(int(answer)):.4f}, below {wanted}"
    if answer == right + 1 and power(right) == wanted:
        return f"it gives {answer:,}, but {right:,} reaches {wanted} already: at least, not above"
    if math.log2(answer).is_integer():
        return (
            f"it gives {answer:,}, which is enough but not the smallest: halve the gap afterwards"
        )
    return f"it gives {answer:,}, which is enough, but {right:,} is too"
