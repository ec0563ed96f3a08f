"""What all checks share: their three answers, and a learner's code called and read safely."""

from __future__ import annotations

import dis
import math
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, wraps
from numbers import Real
from pathlib import Path
from types import FrameType

NOT_ATTEMPTED = "not attempted"


def verdict(problem: str | None) -> None:
    """Print *right*, or *wrong because* and the problem."""
    print("right" if problem is None else f"wrong because {problem}")


def compare_prediction(mine: float | None, measured: float, unit: str) -> None:
    """Print a prediction beside what was measured."""
    number = as_number(mine)
    if mine is None:
        print(f"{NOT_ATTEMPTED}: no prediction; measured {measured:g} {unit}")
    elif number is None:
        verdict(f"a prediction is a number, not {mine!r}")
    elif not math.isfinite(number):
        verdict(f"a prediction is a finite number, not {mine!r}")
    else:
        print(
            f"you said {number:g}, measured {measured:g} {unit}: off by {abs(number - measured):g}"
        )


def compare_choice(mine: str | None, seen: str, choices: Sequence[str]) -> None:
    """Print which of a few names was predicted beside the one that was seen."""
    if mine is None:
        print(f"{NOT_ATTEMPTED}: no prediction; it is {seen}")
    elif mine not in choices:
        names = " or ".join(f'"{name}"' for name in choices)
        verdict(f"a prediction is {names}, not {mine!r}")
    else:
        print(f"you said {mine}, it is {seen}")


def attempted(check: Callable[[Callable], None]) -> Callable[[Callable], None]:
    """A check that first looks whether the function was written at all."""

    @wraps(check)
    def checked(function: Callable) -> None:
        if _untouched(function):
            print(NOT_ATTEMPTED)
        else:
            check(function)

    return checked


def _untouched(function: Callable) -> bool:
    """Whether a body holds nothing but `...`, `pass`, a docstring or `return None`.

    Its instructions tell; the answer does not, since a function that only prints gives None too.
    """
    if not (code := getattr(function, "__code__", None)):
        return False
    idle = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}
    steps = list(dis.get_instructions(code))
    returned = {step.argval for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST")}
    return {step.opname for step in steps} <= idle and returned <= {None, ...}


RETURNED_NONE = "it returned None: return the answer, on every path; print only shows it"


# Lines of a learner's own code in one call: some hundred times what any answer needs.
MOST_LINES = 200_000
NOT_THEIRS = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"), "<frozen ")


class Endless(Exception):
    """A loop that was still running after `MOST_LINES` lines."""


@cache
def _written_here(file: str) -> bool:
    """Whether code of that file is a learner's: not the package's, nor that of what it uses."""
    return not file.startswith(NOT_THEIRS) and "-packages" not in file


@contextmanager
def ending() -> Iterator[None]:
    """Raise `Endless` in a learner's code that does not end."""
    before, lines = sys.gettrace(), 0

    def trace(frame: FrameType, event: str, _: object) -> Callable | None:
        nonlocal lines
        if not _written_here(frame.f_code.co_filename):
            return None
        lines += event == "line"
        if lines > MOST_LINES:
            raise Endless
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def call(function: Callable, *arguments: object) -> tuple[object, str | None]:
    """The function's answer, or what went wrong in one phrase; no exercise is answered by None."""
    try:
        with ending():
            answer = function(*arguments)
    except Endless:
        return None, "it does not end: a loop goes round for ever"
    except Exception as error:  # a learner's code may raise anything
        return None, f"it raised {type(error).__name__}: {error}"
    return answer, RETURNED_NONE if answer is None else None


# --- Reading an answer ----------------------------------------------------------------------------


def _plain(answer: object) -> object:
    """A numpy scalar or a tensor without dimensions as a number or bool of Python's own."""
    return answer.item() if getattr(answer, "ndim", None) == 0 else answer


def as_number(answer: object) -> float | None:
    """A real number as a float, which may be nan or infinite; None for anything else.

    Numpy scalars and tensors without dimensions are numbers. A bool is none: where a number is
    asked for, it is the result of a comparison that went astray.
    """
    plain = _plain(answer)
    if isinstance(plain, bool) or not isinstance(plain, Real):
        return None
    try:
        return float(plain)
    except OverflowError:
        return math.inf if plain > 0 else -math.inf


def as_whole(answer: object) -> int | None:
    """A whole number (3, 3.0, a tensor of one) as an int; None for anything else."""
    number = as_number(answer)
    return int(number) if number is not None and number.is_integer() else None


def as_wholes(answer: object) -> list[int] | None:
    """A row of whole numbers (list, tuple, array, tensor) as a list; None for anything else."""
    found, problem = call(lambda: [as_whole(x) for x in answer])
    return None if problem or None in found else found


def as_truth(answer: object) -> bool | None:
    """True or False, of Python, numpy or torch; None for anything else."""
    plain = _plain(answer)
    return plain if isinstance(plain, bool) else None


# --- A function tried on cases --------------------------------------------------------------------


def over(
    cases: Sequence[tuple],
    function: Callable,
    explain: Callable[..., str | None],
    about: Callable[..., str] | None = None,
    hints: Mapping[str, str] | None = None,
) -> None:
    """Try `function(*case)` on all cases and print the verdict: the first thing that is wrong.

    explain(answer, *case): what is wrong with the answer, or None. about(*case): the case in words
    that follow the problem. hints: what to add for an error of that name.
    """
    for case in cases:
        answer, problem = call(function, *deepcopy(case))
        if problem:
            added = [f": {hint}" for name, hint in (hints or {}).items() if f" {name}: " in problem]
            problem += "".join(added)
        else:
            problem = explain(answer, *case)
        if problem:
            verdict(f"{problem} ({about(*case)})" if about else problem)
            return
    verdict(None)
