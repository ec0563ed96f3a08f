"""Checks of exercises: untouched, wrong in the usual ways and right, each told apart."""

from __future__ import annotations

import pkgutil
import re
import sys
from importlib import import_module

import exercise_cases
import pytest

from specdec_core.lab import exercises
from specdec_core.lab.exercises.verdicts import call


def stub(*_):
    """An exercise nobody has touched."""


def dots(*_): ...


def passes(*_):
    pass


def gives_up(*_):
    return None


def prints(*_):
    """What many write first: the answer is shown, and not returned."""
    print(end="")


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
    if said.startswith("right"):
        assert printed == "right"
    else:
        assert printed.startswith("wrong because ") and said in printed


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("untouched", [stub, dots, passes, gives_up])
def test_an_untouched_stub_is_not_attempted(check, untouched, capsys):
    check(untouched)
    assert capsys.readouterr().out.strip() == "not attempted"


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_an_answer_that_is_only_printed_was_attempted(check, capsys):
    check(prints)
    printed = capsys.readouterr().out
    assert re.match("wrong because .*it return(s|ed) None: return .*", printed)


def waits(*_):
    """A loop whose condition never changes, and that asks nobody anything."""
    n = 1
    while n:
        n += 1


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_a_loop_without_end_is_ended(check, capsys):
    check(waits)
    assert "it does not end" in capsys.readouterr().out


def test_what_watched_the_code_before_watches_it_again():
    def watcher(*_):
        return None

    before = sys.gettrace()
    sys.settrace(watcher)
    try:
        call(lambda: 1)
        assert sys.gettrace() is watcher
    finally:
        sys.settrace(before)


def test_predictions_are_set_beside_what_was_measured(capsys):
    exercises.compare_prediction(None, 15, "forwards")
    exercises.compare_prediction(20, 15, "forwards")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "not attempted: no prediction; measured 15 forwards"
    assert second == "you said 20, measured 15 forwards: off by 5"


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        (None, "not attempted: no prediction; it is M18"),
        ("M18", "you said M18, it is M18"),
        ("M20", "you said M20, it is M18"),
        (18, 'wrong because a prediction is "M20" or "M18", not 18'),
        (["M18"], """wrong because a prediction is "M20" or "M18", not ['M18']"""),
    ],
)
def test_a_choice_is_set_beside_what_was_seen(mine, said, capsys):
    exercises.compare_choice(mine, "M18", ("M20", "M18"))
    assert capsys.readouterr().out.strip() == said


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
