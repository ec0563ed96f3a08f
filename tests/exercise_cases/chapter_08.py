"""Answers to the exercises of chapter 08."""

from __future__ import annotations

import numpy as np
import torch

from exercise_cases import sources
from specdec_core.lab import exercises


def tokens_per_round(alpha, gamma):
    return sum(alpha**i for i in range(gamma + 1))


def alpha_from(fraction, gamma):
    low, high = 0.0, 1.0
    for _ in range(30):
        alpha = (low + high) / 2
        if sum(alpha**i for i in range(1, gamma + 1)) < fraction * gamma:
            low = alpha
        else:
            high = alpha
    return alpha


def fastest_gamma(alpha, c, v, o):
    best, gain = 0, 1.0
    for gamma, cost in v.items():
        tokens = sum(alpha**i for i in range(gamma + 1))
        speedup = tokens / (gamma * c + cost + o)
        if speedup > gain:
            best, gain = gamma, speedup
    return best


def speedup(alpha, gamma, c, cost, o):
    return sum(alpha**i for i in range(gamma + 1)) / (gamma * c + cost + o)


def first_peak(alpha, c, v, o):
    best, gain = 0, 1.0
    for gamma in sorted(v):
        if speedup(alpha, gamma, c, v[gamma], o) < gain:
            break
        best, gain = gamma, speedup(alpha, gamma, c, v[gamma], o)
    return best


def without(alpha, c, v, o, flat=False, plain=1.0):
    """`fastest_gamma` with verification free, or with another speed-up of plain decoding."""
    gains = {g: speedup(alpha, g, c, 1.0 if flat else v[g], o) for g in v}
    return max([(0, plain), *gains.items()], key=lambda pair: pair[1])[0]


CHECKS = {
    exercises.check_expected_tokens: {
        "right": lambda a, g: torch.tensor(tokens_per_round(a, g), dtype=torch.float64),
        "right, with the closed form where it holds": lambda a, g: (
            g + 1 if a == 1 else np.float64((1 - a ** (g + 1)) / (1 - a))
        ),
        "a round emits one token more": lambda a, g: tokens_per_round(a, g) - 1,
        "only if all before it were kept": lambda a, g: 1 + a * g,
        "counts full accepts alone": lambda a, g: 1 + g * a**g,
        "one draft too many": lambda a, g: tokens_per_round(a, g + 1),
        "the bonus token is missing": lambda a, g: sum(a**i for i in range(g)),
        "not the mean": lambda a, g: g + 1,
        "a round without end": lambda a, g: 1 / (1 - a),
        "at alpha = 1 add the terms up": lambda a, g: (1 - a ** (g + 1)) / (1 - a),
        "it is 2.7731, not 3.0000": lambda a, g: round(tokens_per_round(a, g)),
        "which is not a number": lambda a, g: str(tokens_per_round(a, g)),
    },
    exercises.check_alpha_of_fraction: {
        "right": lambda f, g: np.float32(alpha_from(f, g)),
        "right, by trying": lambda f, g: min(
            (i / 1000 for i in range(1001)),
            key=lambda a: abs(sum(a**k for k in range(1, g + 1)) / g - f),
        ),
        "accepted / drafted is not alpha": lambda f, g: f,
        "this is N": lambda f, g: 1 + g * f,
        "drafts kept in a round": lambda f, g: g * f,
        "the chance of a full accept": lambda f, g: f ** (1 / g),
        "look for a smaller one": lambda f, g: alpha_from(f, g + 1),
        "look for a larger one": lambda f, g: round(alpha_from(f, g), 1) - 0.1,
        "alpha is a probability": lambda f, g: -alpha_from(f, g) - 1,
        "which is not a number": lambda f, g: [alpha_from(f, g)],
    },
    exercises.check_best_gamma: {
        "right": lambda *a: torch.tensor(fastest_gamma(*a)),
        "stops at the first peak": first_peak,
        "verification is not free": lambda *a: without(*a, flat=True),
        "so return 0": lambda *a: without(*a, plain=0.0),
        "the overhead o is left out": lambda a, c, v, o: fastest_gamma(a, c, v, 0.0),
        "a plain step is no round and pays no o": lambda a, c, v, o: without(
            a, c, v, o, plain=1 / (1 + o)
        ),
        "gamma times c, is left out": lambda a, c, v, o: fastest_gamma(a, 0.0, v, o),
        "return the gamma that gives it": lambda a, c, v, o: max(
            speedup(a, g, c, v[g], o) for g in v
        ),
        "faster than plain decoding": lambda *a: 0,
        "never measured at gamma": lambda *a: fastest_gamma(*a) + 1,
        "not a whole number": lambda *a: 2.5,
        "this is not the fastest: gamma 2": lambda a, c, v, o: min(
            v, key=lambda g: speedup(a, g, c, v[g], o)
        ),
        "this is not the fastest: gamma 8": lambda a, c, v, o: max(v),
        "this is not the fastest: gamma 1": lambda a, c, v, o: min(v),
    },
}

SOLUTIONS = sources(tokens_per_round, alpha_from, fastest_gamma)
# Cells that must print something else with the mistake; the first makes the pair and the prompt.
RUNS, MIRROR = "runs = {gamma: speculative_decode(", "mirror = speculative_decode("
TEETH = {"M20": [RUNS, MIRROR], "M19": [RUNS], "M21": [RUNS, MIRROR]}
NEEDS: list[str] = []
