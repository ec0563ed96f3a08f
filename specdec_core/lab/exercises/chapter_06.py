"""Checks of chapter 06: a distance, a check that catches, a number of samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

from specdec_core.exact import Law, total_variation
from specdec_core.lab.exercises.verdicts import as_number, as_truth, as_whole, attempted, over
from specdec_core.lab.museum import MISTAKES

# Two laws each. The first pair tells the slips apart; the last differs in what it can write at all.
DISTANCES: tuple[tuple[Law, Law], ...] = (
    ({(0,): 0.5, (1,): 0.3, (2,): 0.2}, {(0,): 0.3, (1,): 0.4, (3,): 0.3}),
    ({(0,): 0.6, (1,): 0.4}, {(0,): 0.8, (1,): 0.2}),
    ({(0,): 0.4, (1,): 0.3, (2,): 0.2, (3,): 0.1}, {(0,): 0.1, (1,): 0.2, (2,): 0.3, (3,): 0.4}),
    ({(0,): 0.75, (1,): 0.25}, {(0,): 0.75, (2,): 0.25}),
    ({(0,): 1.0}, {(1,): 1.0}),
)
# A distance may come in float32, whose rounding is far below any slip.
ROUNDING = 1e-6
LOOKUP = {"KeyError": "one law can hold an outcome that the other lacks; use .get(tokens, 0)"}


@attempted
def check_distance(function: Callable[[Law, Law], float]) -> None:
    """Exercise 1: half the sum of |law - other| over all outcomes of both."""
    over(DISTANCES, function, _explain_distance, "for {} and {}".format, LOOKUP)


def _explain_distance(answer: object, law: Law, other: Law) -> str | None:
    mine = as_number(answer)
    if mine is None:
        return f"it returns {answer!r}, not a number"
    right = total_variation(law, other)
    if math.isclose(mine, right, abs_tol=ROUNDING):
        return None
    gaps = {t: law.get(t, 0.0) - other.get(t, 0.0) for t in law | other}
    slips = (
        (2 * right, "it lacks the half: mass that moves is counted where it leaves and arrives"),
        (math.fsum(gaps.values()), "its differences cancel: take absolute values"),
        (
            0.5 * math.fsum(abs(gaps[t]) for t in law),
            "it looks at the outcomes of the first law only; the other has more",
        ),
        (
            0.5 * math.fsum(abs(gaps[t]) for t in [*law, *other]),
            "it counts an outcome of both laws twice: take each outcome once, law.keys() | "
            "other.keys()",
        ),
        (max(map(abs, gaps.values())), "it is the largest single difference, not the distance"),
    )
    for value, reason in slips:
        if math.isclose(mine, value, abs_tol=ROUNDING):
            return reason
    return f"it gives {mine:.7g} where {right:.7g} is right"


# Mistakes by what a careless check overlooks, in the order in which they are tried.
CAUGHT = {
    "M1": "its first token is off by .12",
    "M7": "its first token is right, and the second is not: look at whole texts",
    "a late mistake": "its first four tokens are right, and the fifth is off by .1: look at whole "
    "texts",
    "M17": "it writes past the end, where the target writes nothing: look at all outcomes of both",
    "M14": "its law is off by 7.5e-07, which is far more than rounding (1e-15)",
}
# A decoder may be slow and right.
KEPT = {"M19": "only its acceptance suffers", "M20": "only its speed suffers"}


# Five tokens, each 0 or 1; in the second law the last of them favours 0.
FAIR: Law = dict.fromkeys(itertools.product((0, 1), repeat=5), 1 / 32)
LATE: Law = {tokens: (0.4 if tokens[-1] else 0.6) / 16 for tokens in FAIR}


@cache
def _laws(mistake: str) -> tuple[Law, Law]:
    if mistake == "a late mistake":
        return LATE, FAIR
    example = MISTAKES[mistake].example
    return example.law(mistake), example.law()


# As right as floating point allows: .1 + .2 is not .3.
ROUNDED: tuple[Law, Law] = ({(0,): 0.1 + 0.2, (1,): 0.7}, {(0,): 0.3, (1,): 0.7})


@attempted
def check_right_law(function: Callable[[Law, Law], bool]) -> None:
    """Exercise 2: pass a right decoder, catch M7 and others by their exact laws."""
    over(
        _decoders(),
        lambda law, target, decoder: function(law, target),
        _explain_check,
        hints=LOOKUP,
    )


def _decoders() -> list[tuple[Law, Law, str]]:
    """A decoder's law, the target's, and its name: right ones first, then those to be caught."""
    exact = MISTAKES["M1"].example.law()
    found = [(exact, exact, "exact"), (*ROUNDED, "rounded")]
    return found + [(*_laws(id), id) for id in (*KEPT, *CAUGHT)]


def _explain_check(answer: object, law: Law, target: Law, decoder: str) -> str | None:
    passed = as_truth(answer)
    if passed is None:
        return f"it returns {answer!r}, not True or False"
    if decoder in CAUGHT:
        return f"it lets {decoder} through: {CAUGHT[decoder]}" if passed else None
    if passed:
        return None
    if decoder == "exact":
        return "it fails a right decoder"
    if decoder == "rounded":
        return "it fails a right decoder whose law differs by 6e-17, which is rounding"
    return f"it fails {decoder}, whose law is the target's: {KEPT[decoder]}"


def _geometric(rate: float) -> Callable[[int], float]:
    return lambda n: 1 - (1 - rate) ** n


RARE = 3e-7
# A power function, what is wanted, and the smallest number that reaches it.
PLANS = (
    (lambda n: min(1.0, n / 100), 0.97, 97),
    (lambda n: n / (n + 4), 0.5, 4),
    (_geometric(0.01), 0.99, 459),
    (_geometric(RARE), 0.99, math.ceil(math.log(1 - 0.99) / math.log1p(-RARE))),
)
MOST_CALLS = 10_000


class TooManyCalls(Exception):
    """The power was asked for too often."""


@attempted
def check_plan(function: Callable[[Callable[[int], float], float], int]) -> None:
    """Exercise 3: the smallest number of samples whose power is at least `wanted`."""
    over(
        PLANS,
        lambda power, wanted, right: function(_counted(power, right), wanted),
        _explain_plan,
    )


def _counted(power: Callable[[int], float], needed: int) -> Callable[[int], float]:
    calls = 0

    def ask(n: int) -> float:
        nonlocal calls
        calls += 1
        if calls > MOST_CALLS:
            raise TooManyCalls(
                f"the power was asked for more than {MOST_CALLS:,} times where {needed:,} samples "
                "are needed; double until it is enough, then halve the gap"
            )
        return power(n)

    return ask


def _explain_plan(
    answer: object, power: Callable[[int], float], wanted: float, right: int
) -> str | None:
    mine = as_whole(answer)
    if mine is None:
        return f"it returns {answer!r}, not a whole number"
    if abs(mine - right) <= round(right * 1e-6):
        return None
    if mine < 1:
        return f"it gives {mine:,}; at least one sample is needed"
    if mine < right:
        return f"it gives {mine:,}, where the power is {power(mine):.4f}, below {wanted}"
    if mine == right + 1 and power(right) == wanted:
        return f"it gives {mine:,}, but {right:,} reaches {wanted} already: at least, not above"
    if any(mine == base ** round(math.log(mine, base)) for base in (2, 10)):
        return f"it gives {mine:,}, which is enough but not the smallest: halve the gap afterwards"
    return f"it gives {mine:,}, which is enough, but {right:,} is too"
