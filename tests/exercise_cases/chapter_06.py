"""Answers to the exercises of chapter 06."""

from __future__ import annotations

import math
from itertools import cycle

import numpy as np
import torch

from exercise_cases import sources
from specdec_core import largest_difference, marginal, total_variation
from specdec_core.lab import exercises


def distance(law, other):
    outcomes = law.keys() | other.keys()
    return 0.5 * sum(abs(law.get(t, 0) - other.get(t, 0)) for t in outcomes)


def same_law(law, target_law):
    return total_variation(law, target_law) < 1e-9


def plan_samples(power, wanted):
    high = 1
    while power(high) < wanted:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= wanted else (middle, high)
    return high


def count_up(power, wanted):
    n = 1
    while power(n) < wanted:
        n += 1
    return n


def double_only(power, wanted):
    n = 1
    while power(n) < wanted:
        n *= 2
    return n


def powers_of_ten(power, wanted):
    n = 1
    while power(n) < wanted:
        n *= 10
    return n


def above(power, wanted):
    n = 1
    while power(n) <= wanted:
        n += 1
    return n


def in_turn(function, *kinds):
    """`function`, whose answers are of one kind after the other."""
    turns = cycle(kinds)
    return lambda *arguments: next(turns)(function(*arguments))


CHECKS = {
    exercises.check_distance: {
        "right": in_turn(distance, np.float32, torch.tensor, float, np.array),
        "it lacks the half": lambda a, b: 2 * total_variation(a, b),
        "its differences cancel": lambda a, b: sum(a.get(t, 0) - b.get(t, 0) for t in a | b),
        "the first law only": lambda a, b: 0.5 * sum(abs(a[t] - b.get(t, 0)) for t in a),
        "counts an outcome of both laws twice": lambda a, b: (
            0.5 * sum(abs(a.get(t, 0) - b.get(t, 0)) for t in [*a, *b])
        ),
        "the largest single difference": largest_difference,
        "use .get(tokens, 0)": lambda a, b: 0.5 * sum(abs(a[t] - b[t]) for t in a | b),
        "not a number": lambda a, b: {t: a.get(t, 0) - b.get(t, 0) for t in a | b},
        "where 0.4 is right": lambda a, b: 0.7,
        "it gives 0.40001 where 0.4 is right": lambda a, b: total_variation(a, b) + 1e-5,
        "it gives nan": lambda a, b: math.nan,
        "it gives inf": lambda a, b: math.inf,
        "it returns True, not a number": lambda a, b: total_variation(a, b) > 0,
        "it returns '0.4', not a number": lambda a, b: str(round(total_variation(a, b), 9)),
        "it returns array([0.4, 0.4])": lambda a, b: np.array([total_variation(a, b)] * 2).round(9),
        "it returned None": lambda a, b: (
            total_variation(a, b) if 0.5 in a.values() or a.keys() == b.keys() else None
        ),
    },
    exercises.check_right_law: {
        "right": in_turn(same_law, np.bool_, torch.tensor, bool, np.array),
        "lets M7 through": lambda law, target: (
            total_variation(marginal(law, 1), marginal(target, 1)) < 1e-9
        ),
        "lets a late mistake through: its first four tokens are right": lambda law, target: (
            total_variation(marginal(law, 2), marginal(target, 2)) < 1e-9
        ),
        "lets M14 through": lambda law, target: total_variation(law, target) < 0.01,
        "which is rounding": lambda law, target: law == target,
        "lets M1 through": lambda law, target: True,
        "it fails a right decoder": lambda law, target: False,
        "not True or False": total_variation,
        "it returns 1, not True": lambda law, target: int(same_law(law, target)),
        "it returns array([ True])": lambda law, target: np.array([same_law(law, target)]),
        "use .get(tokens, 0)": lambda law, target: all(
            abs(law[t] - target[t]) < 1e-9 for t in law | target
        ),
    },
    exercises.check_plan: {
        "right": in_turn(plan_samples, torch.tensor, np.int64, float, int),
        "double until it is enough": count_up,
        "it gives 128, which is enough but not the smallest": double_only,
        "it gives 100, which is enough but not the smallest": powers_of_ten,
        "at least, not above": above,
        "below 0.97": lambda power, wanted: plan_samples(power, wanted) - 1,
        "not a whole number": lambda power, wanted: power,
        "it returns inf, not a whole": lambda power, wanted: math.inf,
        "it returns nan, not a whole": lambda power, wanted: math.nan,
        "it returns 97.5, not a whole": lambda power, wanted: plan_samples(power, wanted) + 0.5,
        "it returns '97', not a whole": lambda power, wanted: str(plan_samples(power, wanted)),
        "it returns array([97, 97])": lambda power, wanted: np.array(
            [plan_samples(power, wanted)] * 2
        ),
        "at least one sample": lambda power, wanted: -4,
        "which is enough, but": lambda power, wanted: plan_samples(power, wanted) + 10,
    },
}

SOLUTIONS = sources(distance, same_law, plan_samples)

# Cells that must print something else when a mistake of the museum stands in for the core, and
# the cells they need beyond the first.
TEETH = {
    "M1": ["law = exact_law(three_tokens)", "largest_difference(law, product)"],
    "M7": ["law = exact_law(three_tokens)", "largest_difference(law, product)"],
    "M14": ["largest_difference(law, product)"],
    "M19": ['print(f"drafts accepted a run'],
}
NEEDS = [
    "toy_target = TableModel",
    "law = exact_law(three_tokens)",
    'memory = museum.MISTAKES["M19"].example',
    "def law_of(run)",
]
