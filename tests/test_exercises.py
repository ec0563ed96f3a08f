"""Checks of exercises: untouched, wrong in the usual ways and right, each told apart."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import exercise_cases
import pytest

from specdec_core.lab import exercises


def stub(*_):
    """An exercise nobody has touched."""


MODULES = [
    import_module(f"exercise_cases.{info.name}")
    for info in pkgutil.iter_modules(exercise_cases.__path__)
]
CHECKS = {check: kinds for module in MODULES for check, kinds in module.CHECKS.items()}
CASES = [(check, said, answer) for check, kinds in CHECKS.items() for said, answer in kinds.items()]


@pytest.mark.parametrize(
    ("check", "said", "answer"), CASES, ids=lambda x: getattr(x, "__name__", x)
)
def test_check_answers_and_says_why(check, said, answer, capsys):
    check(answer)
    printed = capsys.readouterr().out.strip()
    if said == "right":
        assert printed == "right"
    else:
        assert printed.startswith("wrong because ") and said in printed


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_an_untouched_stub_is_not_attempted(check, capsys):
    check(stub)
    assert capsys.readouterr().out.strip() == "not attempted"


def test_predictions_are_set_beside_what_was_measured(capsys):
    exercises.compare_prediction(None, 15, "forwards")
    exercises.compare_prediction(20, 15, "forwards")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "not attempted: no prediction; measured 15 forwards"
    assert second == "you said 20, measured 15 forwards: off by 5"


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        (None, "not attempted"),
        (["weak", "default", "strong"], "right"),
        ("weak, default, strong", "right"),
        ("weak default strong", "right"),
        (["strong", "default", "weak"], "wrong because it is the other way round"),
        (["default", "weak", "strong"], "wrong because weak is accepted less often than default"),
        (["weak", "strong"], 'wrong because an order is a list ["...", "...", "..."] that holds'),
        (
            3,
            'wrong because an order is a list ["...", "...", "..."] that holds each of these names',
        ),
    ],
)
def test_an_order_is_told_apart(mine, said, capsys):
    exercises.check_order(mine, {"strong": 0.9, "weak": 0.4, "default": 0.8})
    assert capsys.readouterr().out.startswith(said)
