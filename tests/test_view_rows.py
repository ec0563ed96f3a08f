"""Probabilities typed by a reader: read exactly, or refused in one sentence."""

from __future__ import annotations

from fractions import Fraction

import pytest

from specdec_core.widgets.rows import floats, read_pair, read_row, read_rows


@pytest.mark.parametrize("line", [".6 .4", " 0.6,0.4 ", "3/5 2/5", "6e-1; 4e-1", "0.60 .4"])
def test_a_row_is_read_exactly(line):
    assert read_row(line, "p") == (Fraction(3, 5), Fraction(2, 5))
    assert floats(read_row(line, "p")) == (0.6, 0.4)


def test_what_rounding_left_of_the_sum_is_scaled_away():
    assert read_row(".333 .333 .333", "p") == (Fraction(1, 3),) * 3
    assert read_row("1e-320 1", "p")[0] > 0
    assert floats(read_row("0.3333333333333333 0.6666666666666666", "p")) == (1 / 3, 2 / 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "p must be numbers"),
        ("x .4", "p must be numbers"),
        ("nan .4", "p must be numbers"),
        ("inf 0", "p must be numbers"),
        ("-.5 1.5", "p must be probabilities; -.5 is below 0"),
        ("1/0 0", "p must be numbers"),
        ("1e999999999 0", "p must be numbers"),
        ("\u0660.\u0665 \u0660.\u0665", "p must be numbers"),
        ("1e400 0", "p must be probabilities; 1e400 is above 1"),
        ("0,6 0,4", "p needs 2 to 3 numbers, not 4; write .6 for 0,6"),
        ("0,6 .4", "p must be probabilities; 6 is above 1; write .6 for 0,6"),
        ("1", "p needs 2 to 3 numbers, not 1"),
        (".25 .25 .25 .25", "p needs 2 to 3 numbers, not 4"),
        (".5 .6", "p must be probabilities that add up to 1; these add up to 1.1"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(line, said):
    with pytest.raises(ValueError, match=said):
        read_row(line, "p")


def test_rows_with_bars_between():
    assert read_rows(".6 .4 | .9 .1", "p")[1] == (Fraction(9, 10), Fraction(1, 10))
    with pytest.raises(ValueError, match="same count"):
        read_rows(".6 .4 | .5 .25 .25", "p")
    with pytest.raises(ValueError, match="p needs two numbers, not 3"):
        read_rows(".5 .25 .25", "p", most=2)


def test_a_pair_has_one_length():
    assert read_pair(".6 .4", ".8 .2")[1] == (Fraction(4, 5), Fraction(1, 5))
    with pytest.raises(ValueError, match="p has 2 numbers and q has 3: give the same"):
        read_pair(".6 .4", ".5 .25 .25")
