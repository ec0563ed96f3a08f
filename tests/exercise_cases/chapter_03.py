"""Answers to the exercises of chapter 03, and the mistakes its cells must notice."""

from __future__ import annotations

import math
import random

import numpy as np

from exercise_cases import sources
from specdec_core.lab import exercises


def rest(p, q):
    return [max(a - b, 0) for a, b in zip(p, q, strict=True)]


def scaled(row):
    return [x / sum(row) for x in row]


def softmax(row):
    return scaled([math.exp(x) for x in row])


def residual(p, q):
    rest = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    total = sum(rest)
    return [x / total for x in rest] if total > 0 else p


def one_token(p, q, draw, u):
    x = draw(q)
    return x if u * q[x] < p[x] else draw(residual(p, q))


def expected_acceptance(p, q):
    return sum(min(a, b) for a, b in zip(p, q, strict=True))


def then(after):
    """The right verdict, and another token after a rejection."""

    def wrong(p, q, draw, u):
        x = draw(q)
        return x if u * q[x] < p[x] else after(p, q, draw)

    return wrong


def keeping(keep):
    """Another verdict, and the right residual."""

    def wrong(p, q, draw, u):
        x = draw(q)
        return x if keep(p[x], q[x], u) else draw(residual(p, q))

    return wrong


def argmax_draft(p, q, draw, u):
    x = q.index(max(q))
    return x if u * q[x] < p[x] else draw(residual(p, q))


def greedy_test(p, q, draw, u):
    x = draw(q)
    return x if x == p.index(max(p)) else draw(residual(p, q))


def greedy_law(p, q, draw, u):
    x, top = draw(q), p.index(max(p))
    return x if x == top else top


def draft_from_p(p, q, draw, u):
    x = draw(p)
    return x if u * q[x] < p[x] else draw(residual(p, q))


def second_draw_first(p, q, draw, u):
    other, x = draw(residual(p, q)), draw(q)
    return x if u * q[x] < p[x] else other


def until_kept(p, q, draw, u):
    x = draw(q)
    while not u * q[x] < p[x]:
        x = draw(q)
    return x


def throws_the_draft_away(p, q, draw, u):
    draw(q)
    return draw(p)


def half_as_often(p, q, draw, u):
    """Exact, as the second draw gives all that is missing; half of the good drafts are lost."""
    x = draw(q)
    if u * q[x] < 0.5 * min(p[x], q[x]):
        return x
    return draw(scaled([a - 0.5 * min(a, b) for a, b in zip(p, q, strict=True)]))


def forgets_to_return(p, q, draw, u):
    x = draw(q)
    if u * q[x] < p[x]:
        return x


CHECKS = {
    exercises.check_residual: {
        "right": residual,
        "this is p itself, mistake M1": lambda p, q: p,
        "a softmax, mistake M3": lambda p, q: softmax(rest(p, q)),
        "not divided by its sum, mistake M4": rest,
        "it takes q - p": lambda p, q: residual(q, p),
        "it takes |p - q|": lambda p, q: scaled([abs(a - b) for a, b in zip(p, q, strict=True)]),
        "negative entries stay in it: use max(a - b, 0); it gives (-0.2, 0.2)": (
            lambda p, q: [a - b for a, b in zip(p, q, strict=True)]
        ),
        # Scaled by a sum that is 0 up to rounding, or exactly.
        "negative entries stay in it: use max(a - b, 0)": lambda p, q: scaled(
            [a - b for a, b in zip(p, q, strict=True)]
        ),
        "use max(a - b, 0): p - q adds up to 0": lambda p, q: [
            (a - b) / round(sum(p) - sum(q), 9) for a, b in zip(p, q, strict=True)
        ],
        "the part that is kept; it gives (0.6, 0.2)": lambda p, q: list(map(min, p, q)),
        "the part that is kept, scaled": lambda p, q: scaled(list(map(min, p, q))),
        "where p = q nothing is left, and p is to be returned: it raised ZeroDivisionError": (
            lambda p, q: scaled(rest(p, q))
        ),
        "where p = q nothing is left, and p is to be returned: it gives (0, 0)": (
            lambda p, q: rest(p, q) if p == q else scaled(rest(p, q))
        ),
        "it gives (0, 0.999995) where (0, 1) is right: it adds up to less than 1": (
            lambda p, q: [x / (sum(rest(p, q)) + 1e-6) for x in rest(p, q)]
        ),
        "it gives (0, 0.99999998) where (0, 1) is right": lambda p, q: [
            x - 2e-8 * (x > 0) for x in residual(p, q)
        ],
        "not a list of numbers": lambda p, q: 0.5,
        "1 numbers for 2 tokens": lambda p, q: [1.0],
        "it gives (0.5, 0.5) where (0, 1) is right": lambda p, q: [1 / len(p)] * len(p),
    },
    exercises.check_one_token: {
        "right": one_token,
        "it draws from p again, mistake M1: it writes by (0.72, 0.28)": then(
            lambda p, q, draw: draw(p)
        ),
        "not a draw from q, mistake M2: it writes by (0.75, 0.25)": argmax_draft,
        "a softmax, mistake M3: it writes by (0.69, 0.31)": then(
            lambda p, q, draw: draw(softmax(rest(p, q)))
        ),
        "not divided by its sum, mistake M4: it writes by (0.29, 0.3, 0.41)": then(
            lambda p, q, draw: draw(rest(p, q))
        ),
        "the most likely token of p, mistake M5: it writes by (1, 0)": greedy_law,
        "it keeps a draft only where it is the most likely token of p: toss the coin": greedy_test,
        "the draft is drawn from p": draft_from_p,
        "draw from q first": second_draw_first,
        "u may be 0": keeping(lambda p, q, u: u * q <= p),
        "then <= keeps a token of p = 0": keeping(lambda p, q, u: not u > p / q),
        "a random number of its own": keeping(lambda p, q, u: random.random() * q < p),
        "the coin is u": keeping(lambda p, q, u: np.random.rand() * q < p),
        "the ratio is upside down": keeping(lambda p, q, u: u * p < q),
        "it forgets to divide by q": keeping(lambda p, q, u: u < p),
        "every draft is kept": lambda p, q, draw, u: draw(q),
        "no coin is tossed": keeping(lambda p, q, u: p >= q),
        "it draws from q again": then(lambda p, q, draw: draw(q)),
        "returns the most likely token of p": then(lambda p, q, draw: p.index(max(p))),
        "the largest of p - q instead of drawing": then(
            lambda p, q, draw: rest(p, q).index(max(rest(p, q)))
        ),
        "or comes back by q - p": then(lambda p, q, draw: draw(residual(q, p))),
        "keep and reject are exchanged": keeping(lambda p, q, u: u * q > p),
        "it draws a third time": until_kept,
        "on some path it returns None": forgets_to_return,
        "nothing was drafted": lambda p, q, draw, u: draw(p),
        "every draft is thrown away for a second draw; the drafted word comes out in 0.56 of the "
        "runs and could in 0.8": throws_the_draft_away,
        "law is p, but the drafted word comes out in 0.7 of the runs and could in": half_as_often,
        "is the residual written?": then(lambda p, q, draw: draw(None)),
        "use it in a comparison": keeping(lambda p, q, u: float(u) < p / q),
        "and the tokens are 0, 1, ...": lambda p, q, draw, u: draw(q) + 1,
    },
    exercises.check_expected_acceptance: {
        "right": expected_acceptance,
        "this is TV(p, q)": lambda p, q: 1 - sum(map(min, p, q)),
        "the half in TV is missing": lambda p, q: 2 * sum(map(min, p, q)) - 1,
        "without the min": lambda p, q: sum(b * (a / b) for a, b in zip(p, q, strict=True)),
        "each draft counts the same": lambda p, q: (
            sum(min(1, a / b) for a, b in zip(p, q, strict=True)) / len(p)
        ),
        "weigh each by q": lambda p, q: sum(min(1, a / b) for a, b in zip(p, q, strict=True)),
        "by p: drafts come from q": lambda p, q: sum(
            a * min(1, a / b) for a, b in zip(p, q, strict=True)
        ),
        "the chance that two draws agree": lambda p, q: sum(
            a * b for a, b in zip(p, q, strict=True)
        ),
        "the larger of p and q": lambda p, q: sum(map(max, p, q)),
        "not a number": lambda p, q: list(map(min, p, q)),
        "it gives 0.5 where 0.7 is right": lambda p, q: 0.5,
    },
}

SOLUTIONS = sources(residual, one_token, expected_acceptance)

# Cells whose output must change when the mistake is installed before the first cell.
_TOY = ["print(first_token_law(speculative_decode, [0.6, 0.4]"]
TEETH = {"M1": _TOY, "M3": _TOY, "M4": _TOY, "M5": _TOY}
NEEDS = ["def first_token_law"]
