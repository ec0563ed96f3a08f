"""Answers to the exercises of chapter 09."""

from __future__ import annotations

import numpy as np
import torch

from exercise_cases import sources
from specdec_core.lab import exercises


def copy_draft(text, n, gamma):
    for place in range(len(text) - n - 1, -1, -1):
        if text[place : place + n] == text[-n:]:
            return text[place + n : place + n + gamma]
    return []


def drafts_in_round(q, threshold):
    for i, value in enumerate(q):
        if value < threshold:
            return i + 1
    return len(q)


def best_draft(drafts, gamma):
    best, gain = "plain", 1.0
    for name, (alpha, c) in drafts.items():
        speedup = sum(alpha**i for i in range(gamma + 1)) / (gamma * c + 1)
        if speedup > gain:
            best, gain = name, speedup
    return best


def places(text, n, end):
    return [i for i in range(end) if text[i : i + n] == text[-n:]]


def shifted(text, n, gamma, by=0, which=-1, own=0):
    """A look-up whose draft begins `by` tokens late, at another place, or at the text's own end."""
    found = places(text, n, len(text) - n + own)
    first = found[which] + n + by if found else len(text)
    return text[first : first + gamma]


CHECKS = {
    exercises.check_look_up: {
        "right": lambda *a: torch.tensor(copy_draft(*a), dtype=torch.int64),
        "right, as an array": lambda *a: np.array(copy_draft(*a), dtype=np.int64),
        "this is the earliest place": lambda *a: shifted(*a, which=0),
        "the end of the text itself is no earlier place": lambda *a: shifted(*a, own=1),
        "draft what came after them": lambda t, n, g: shifted(t, n, g, by=-n),
        "the first token after the match is left out": lambda *a: shifted(*a, by=1),
        "gamma = 3 is the most": lambda t, n, g: shifted(t, n, 99),
        "these are the last tokens of the text": lambda t, n, g: t[-g:],
        "nothing is drafted, not [4]": lambda t, n, g: copy_draft(t, n, g) or t[-1:],
        "which is not a list of tokens": lambda *a: 4,
    },
    exercises.check_drafts_in_round: {
        "right": lambda *a: torch.tensor(drafts_in_round(*a)),
        "the unsure token is dropped": lambda q, t: next(
            (i for i, value in enumerate(q) if value < t), len(q)
        ),
        "not where it equals it": lambda q, t: next(
            (i + 1 for i, value in enumerate(q) if value <= t), len(q)
        ),
        "nothing stops the draft": lambda q, t: len(q),
        "this counts the sure tokens": lambda q, t: sum(value >= t for value in q),
        "no token is unsure": lambda q, t: next(
            (i + 1 for i, value in enumerate(q) if value < t), 0
        ),
        "it is 3, not 1": lambda q, t: 1,
        "which is not a whole number": lambda q, t: q,
    },
    exercises.check_best_draft: {
        "right": best_draft,
        "the highest acceptance is not the fastest": lambda d, g: max(d, key=lambda n: d[n][0]),
        "the cheapest is not the fastest": lambda d, g: min(d, key=lambda n: d[n][1]),
        "no draft gains here": lambda d, g: max(
            d, key=lambda n: sum(d[n][0] ** i for i in range(g + 1)) / (g * d[n][1] + 1)
        ),
        "a draft gains here": lambda d, g: "plain",
        "return one of plain": lambda d, g: 1.2,
    },
}

SOLUTIONS = sources(copy_draft, drafts_in_round, best_draft)
# Cells that must print something else with the mistake; the first makes the pair and the prompt.
RUNS, LAWS = "runs = {name: speculative_decode(", "for name, (drafter, gamma) in ways.items():"
DROPS, GAMMAS = "class Dropping(ModelDrafter)", "schedule = AdaptiveGamma("
TEETH = {"M1": [LAWS, DROPS], "M20": [RUNS, GAMMAS], "M19": [RUNS]}
NEEDS = [RUNS, "def law(drafter, gamma=2)"]
