"""Probabilities as a reader types them, read exactly."""

from __future__ import annotations

import re
from fractions import Fraction

Row = tuple[Fraction, ...]
# Short enough that no exponent can fill the memory, long enough for a float64 as it is printed.
NUMBER = re.compile(
    r"(?=.{1,24}$)-?([0-9]+/0*[1-9][0-9]*|([0-9]+\.?[0-9]*|\.[0-9]+)(e-?[0-9]{1,3})?)", re.ASCII
)
# What rounding to three decimals may leave of a sum; the row is then scaled.
SLACK = Fraction(2, 1000)


def read_row(line: str, name: str, most: int = 3) -> Row:
    """Two to `most` probabilities from a line such as ".6 .4", ".6, .4" or "3/5 2/5".

    They are scaled to add up to exactly one. Raises ValueError, in one sentence that begins with
    `name`, for anything else.
    """
    words = re.split(r"[\s,;]+", line.strip())
    if not all(map(NUMBER.fullmatch, words)):
        raise ValueError(f"{name} must be numbers with spaces between, such as .6 .4 or 1/3 2/3.")
    row = [Fraction(word) for word in words]
    total = sum(row)
    comma = "; write .6 for 0,6" if re.search(r"\b0,\d", line) else ""
    if not 2 <= len(row) <= most:
        wanted = "two numbers" if most == 2 else f"2 to {most} numbers"
        raise ValueError(f"{name} needs {wanted}, not {len(row)}{comma}.")
    for value, word in zip(row, words, strict=True):
        if not 0 <= value <= 1 + SLACK:
            where = "below 0" if value < 0 else "above 1"
            raise ValueError(f"{name} must be probabilities; {word} is {where}{comma}.")
    if abs(total - 1) > SLACK:
        raise ValueError(
            f"{name} must be probabilities that add up to 1; these add up to {float(total):g}."
        )
    return tuple(value / total for value in row)


def read_pair(p: str, q: str, most: int = 3) -> tuple[Row, Row]:
    """Two rows of one length, the target's and the draft's."""
    target, draft = read_row(p, "p", most), read_row(q, "q", most)
    if len(target) != len(draft):
        raise ValueError(f"p has {len(target)} numbers and q has {len(draft)}: give the same.")
    return target, draft


def read_rows(line: str, name: str, most: int = 3) -> tuple[Row, ...]:
    """Rows of one length from a line with | between them; each as in `read_row`."""
    rows = tuple(read_row(part, name, most) for part in line.split("|"))
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"{name} needs the same count of numbers in every row.")
    return rows


def floats(row: Row) -> tuple[float, ...]:
    """A row as float64."""
    return tuple(map(float, row))
