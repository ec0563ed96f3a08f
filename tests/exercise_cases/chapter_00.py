"""Answers to the exercises of chapter 00."""

from __future__ import annotations

from exercise_cases import sources
from specdec_core.lab import exercises


def tokens(rounds):
    return sum(len(round.emitted) for round in rounds)


def tokens_per_forward(rounds):
    return sum(len(round.emitted) for round in rounds) / len(rounds)


def keep(p, q, u):
    return u * q < p


CHECKS = {
    exercises.check_tokens_per_forward: {
        "right": tokens_per_forward,
        "upside down": lambda rounds: len(rounds) / tokens(rounds),
        "drafted tokens": lambda rounds: tokens(rounds) / sum(r.gamma for r in rounds),
        "leaves out": lambda rounds: sum(r.accepted for r in rounds) / len(rounds),
        "a stop token may cut the last round: count r.emitted": lambda rounds: (
            sum(r.accepted + 1 for r in rounds) / len(rounds)
        ),
        "not a number": lambda rounds: [len(r.emitted) for r in rounds],
        "it gives 3 for any rounds": lambda rounds: 3,
        "it gives 3.5 for any rounds": lambda rounds: 3.5,
        "it gives 4.500 where 3.500 is right": lambda rounds: tokens(rounds) / len(rounds) + 1,
        "rounds down": lambda rounds: tokens(rounds) // len(rounds),
        "it returns '3.5', not a number": lambda rounds: "3.5",
        "counts the drafted tokens": lambda rounds: sum(r.gamma for r in rounds) / len(rounds),
        "number of tokens": tokens,
        "returned None": lambda rounds: print(end=""),
        "raised ZeroDivisionError": lambda rounds: 1 / 0,
    },
    exercises.check_keep: {
        "right": keep,
        "must be rejected: it is kept where u is below 0.75": lambda p, q, u: True,
        "must be kept": lambda p, q, u: p > q,
        "is kept where u is below 0 (p = 0": lambda p, q, u: u * q <= p,
        "is kept where u is below 0.75 (p = 0.6": lambda p, q, u: u < p,
        "u = 0.76": lambda p, q, u: u < q,
        "it returns [True], not True or False": lambda p, q, u: [u * q < p],
        "returned None: return the answer": lambda p, q, u: print(end="") if u * q < p else None,
        "below 1; add nothing to p or q, however small (mistake M14 of the museum) (p = 2e-09": (
            lambda p, q, u: u < p / (q + 1e-8)),
        "add nothing to p or q, however small (mistake M14 of the museum) (p = 2e-30": (
            lambda p, q, u: u * (q + 1e-12) < p),
        "add nothing to p or q": lambda p, q, u: p - u * q > 1e-9,
        "raised ZeroDivisionError": lambda p, q, u: u < p / (q if q > 1e-300 else 0),
        "u = 0)": lambda p, q, u: u <= p / q,
    },
}  # fmt: skip

SOLUTIONS = sources(tokens_per_forward, keep)

# With one of the museum's mistakes in the core's place, these cells print something else.
NEEDS = ["pair = load_pair", "toy_target = TableModel", "longer = speculative_decode"]
TEETH = {
    "M1": ["law = exact_law(", "first_word = marginal(law, 1)"],
    "M20": ['print("target forwards:", stats.target_forwards)'],
}
