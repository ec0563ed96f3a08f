"""What all checks share: their three answers, and a learner's code called safely."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

NOT_ATTEMPTED = "not attempted"


def verdict(problem: str | None) -> None:
    """Print *right*, or *wrong because* and the problem."""
    print("right" if problem is None else f"wrong because {problem}")


def compare_prediction(mine: float | None, measured: float, unit: str) -> None:
    """Print a prediction beside what was measured."""
    if mine is None:
        print(f"{NOT_ATTEMPTED}: no prediction; measured {measured:g} {unit}")
    elif not isinstance(mine, Real):
        print(f"wrong because a prediction is a number, not {mine!r}")
    else:
        print(f"you said {mine:g}, measured {measured:g} {unit}: off by {abs(mine - measured):g}")


def call(function: Callable, *arguments: object) -> tuple[object, str | None]:
    """The function's answer, or what went wrong in one phrase."""
    try:
        return function(*arguments), None
    except Exception as error:  # a learner's code may raise anything
        return None, f"it raised {type(error).__name__}: {error}"
