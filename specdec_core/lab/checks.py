"""Numbers that a caller may get wrong: one sentence each, said before anything is measured.

All raise ValueError. True and False are no numbers here, and NaN lies within no range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from specdec_core.sampling import is_number, is_whole


def check_whole(what: str, value: object, least: int) -> int:
    """`value`, once it is known to be a whole number of at least `least`."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return int(value)


def check_wholes(what: str, values: object, least: int) -> tuple[int, ...]:
    """The same for one or more numbers; `what` names them in the plural."""
    found = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else ()
    if not found or not all(is_whole(value) and value >= least for value in found):
        raise ValueError(
            f"{what} must be one or more whole numbers of at least {least}, such as [{least}], "
            f"not {values!r}."
        )
    return tuple(map(int, found))


def check_number(what: str, value: object, low: float = 0.0, high: float = math.inf) -> float:
    """`value`, once it is known to be a finite number from `low` to `high`."""
    if not (is_number(value) and low <= value <= high and math.isfinite(value)):
        reach = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of {low:g} or more"
        raise ValueError(f"{what} must be a number {reach}, not {value!r}.")
    return value


def check_above_zero(what: str, value: object) -> float:
    """`value`, once it is known to be finite and to be divided by."""
    if not (is_number(value) and 0 < value < math.inf):
        raise ValueError(f"{what} must be a number above 0, not {value!r}.")
    return value
