"""Checks of exercises: untouched, wrong in the usual ways and right, each told apart."""

from __future__ import annotations

import pytest

from specdec_core.lab import exercises


def stub(*_):
    """An exercise nobody has touched."""


def tokens(rounds):
    return sum(len(round.emitted) for round in rounds)


CHECKS = {
    exercises.check_tokens_per_forward: {
        "right": lambda rounds: tokens(rounds) / len(rounds),
        "upside down": lambda rounds: len(rounds) / tokens(rounds),
        "drafted tokens": lambda rounds: tokens(rounds) / sum(r.gamma for r in rounds),
        "leaves out": lambda rounds: sum(r.accepted for r in rounds) / len(rounds),
        "not a number": lambda rounds: [len(r.emitted) for r in rounds],
        "it gives 2.500 where 3.000 is right": lambda rounds: 2.5,
        "raised ZeroDivisionError": lambda rounds: 1 / 0,
    },
    exercises.check_keep: {
        "right": lambda p, q, u: u * q < p,
        "must be rejected: it is kept where u is below 0.75": lambda p, q, u: True,
        "must be kept": lambda p, q, u: p > q,
        "is kept where u is below 0 (p = 0": lambda p, q, u: u * q <= p,
        "is kept where u is below 0.75 (p = 0.6": lambda p, q, u: u < p,
        "u = 0.76": lambda p, q, u: u < q,
        "raised ZeroDivisionError": lambda p, q, u: u < p / (q if q > 1e-300 else 0),
        "u = 0)": lambda p, q, u: u <= p / q,
    },
}  # fmt: skip
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
