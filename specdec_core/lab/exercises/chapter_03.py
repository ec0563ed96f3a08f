"""Checks of chapter 03: the residual, one token by the rule, and its expected acceptance.

The second is proved rather than sampled: the learner's own function is run for every outcome of
its draws and of its coin.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import index

import numpy as np
import torch

from specdec_core.exact import exact_law
from specdec_core.lab.exercises.verdicts import as_number, attempted, call, verdict
from specdec_core.randomness import Enumerated, Randomness

Row = list[float]
# p and q; the first is the chapter's, the others tell apart what agrees on two tokens.
CASES = (
    ([0.6, 0.4], [0.8, 0.2]),
    ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]),
    ([0.1, 0.0, 0.6, 0.3], [0.4, 0.3, 0.25, 0.05]),
)
EQUAL = ([0.7, 0.3], [0.7, 0.3])


def _scaled(weights: Sequence[float]) -> Row:
    return [w / sum(weights) for w in weights]


def _softmax(weights: Sequence[float]) -> Row:
    return _scaled([math.exp(w) for w in weights])


def _rest(p: Row, q: Row) -> Row:
    return [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]


def _residual(p: Row, q: Row) -> Row:
    return _scaled(_rest(p, q))


# What is written in place of the residual, and its name.
RESIDUAL_SLIPS: dict[str, Callable[[Row, Row], Row]] = {
    "this is p itself, mistake M1: tokens the draft offered enough of would come twice": (
        lambda p, q: p
    ),
    "it goes through a softmax, mistake M3: tokens with nothing left get a share": (
        lambda p, q: _softmax(_rest(p, q))
    ),
    "it is not divided by its sum, mistake M4: it does not add up to 1": _rest,
    "it takes q - p: that is what the draft offered too much of": lambda p, q: _scaled(_rest(q, p)),
    "it takes |p - q|: tokens of which there was too much get a share": (
        lambda p, q: _scaled([abs(a - b) for a, b in zip(p, q, strict=True)])
    ),
    "this is min(p, q), the part that is kept": lambda p, q: list(map(min, p, q)),
    "this is min(p, q), the part that is kept, scaled": lambda p, q: _scaled(list(map(min, p, q))),
}


NEGATIVE = "negative entries stay in it: use max(a - b, 0)"


def _close(row: Sequence[float], other: Sequence[float]) -> bool:
    return len(row) == len(other) and all(
        math.isclose(a, b, abs_tol=1e-9) for a, b in zip(row, other, strict=True)
    )


def _said(row: Sequence[float], digits: int = 4) -> str:
    return "(" + ", ".join(f"{value:.{digits}g}" for value in row) + ")"


def _apart(row: Row, right: Row) -> str:
    """What was given and what is right, with as many digits as tell them apart."""
    digits = next((n for n in range(4, 17) if _said(row, n) != _said(right, n)), 17)
    said = f"it gives {_said(row, digits)} where {_said(right, digits)} is right"
    if digits > 4 and sum(row) < 1 and _close(_scaled(row), right):
        said += ": it adds up to less than 1, so add nothing to the sum you divide by"
    return said


def _as_row(answer: object, size: int) -> tuple[Row | None, str | None]:
    """The answer as numbers, or what is wrong with its form."""
    try:
        row = [float(value) for value in answer]
    except (TypeError, ValueError):
        return None, f"it returns {answer!r}, not a list of numbers"
    if len(row) != size:
        return None, f"it returns {len(row)} numbers for {size} tokens"
    return row, None


@attempted
def check_residual(function: Callable[[Row, Row], Sequence[float]]) -> None:
    """Exercise 1: max(p - q, 0) over its sum; p itself where p = q."""
    for p, q in (*CASES, EQUAL):
        answer, problem = call(function, list(p), list(q))
        if p != q and 0 not in p and problem and "ZeroDivisionError" in problem:
            problem = f"{NEGATIVE}: p - q adds up to 0"
        row, problem = (None, problem) if problem else _as_row(answer, len(p))
        problem = problem or _explain_residual(row, p, q)
        if problem and p == q:
            problem = f"where p = q nothing is left, and p is to be returned: {problem}"
        if problem:
            verdict(f"{problem} (p = {_said(p)}, q = {_said(q)})")
            return
    verdict(None)


def _explain_residual(row: Row, p: Row, q: Row) -> str | None:
    right = p if p == q else _residual(p, q)
    if _close(row, right):
        return None
    seen = _apart(row, right)
    if p != q and min(row) < 0:
        return f"{NEGATIVE}; it gives {_said(row)}"
    if p != q:
        for name, slip in RESIDUAL_SLIPS.items():
            if _close(row, slip(p, q)):
                return f"{name}; {seen}"
    return seen


class TooMany(Exception):
    """A third draw: one draft and at most one more token belong to a position."""


class Uniform:
    """A number of [0, 1) that is not decided before it is compared.

    Each comparison splits what is still possible in two, and `randomness` chooses a side with its
    exact probability.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._low, self._high = 0.0, 1.0

    def below(self, edge: float) -> bool:
        edge = min(max(edge, self._low), self._high)
        sides = torch.tensor([edge - self._low, self._high - edge], dtype=torch.float64)
        below = int(self._randomness.categorical(sides)) == 0
        self._low, self._high = (self._low, edge) if below else (edge, self._high)
        return below


class Coin:
    """What the learner sees of the uniform: it can be scaled by a number, and compared."""

    def __init__(self, uniform: Uniform, factor: float = 1.0) -> None:
        self._uniform, self._factor = uniform, factor

    def __mul__(self, factor: float) -> Coin:
        return Coin(self._uniform, self._factor * float(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Coin:
        return Coin(self._uniform, self._factor / float(divisor))

    def __lt__(self, edge: float) -> bool:
        if self._factor == 0:
            return edge > 0
        return self._uniform.below(float(edge) / self._factor)

    def __gt__(self, edge: float) -> bool:
        return not self < edge

    # A uniform equals a given number with probability zero.
    __le__, __ge__ = __lt__, __gt__

    def __float__(self) -> float:
        raise TypeError("u is tossed when it is compared: use it in a comparison, as in u * q < p")


class Table:
    """What the learner's function is given: draws from rows, and one coin, all enumerated."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self.u = Coin(Uniform(randomness))
        self.rows: list[Row] = []
        self.tokens: list[int] = []

    def draw(self, row: Sequence[float]) -> int:
        """Walk up `row` with a fresh uniform; past its sum, the last index comes out."""
        if row is None:
            raise ValueError("draw was given None instead of a row: is the residual written?")
        weights = [float(w) for w in row]
        if len(self.rows) == 2:
            raise TooMany
        self.rows.append(weights)
        edges = [min(sum(weights[: i + 1]), 1.0) for i in range(len(weights) - 1)]
        shares = [b - a for a, b in zip([0.0, *edges], [*edges, 1.0], strict=True)]
        shares = torch.tensor(shares, dtype=torch.float64).clamp(min=0)
        self.tokens.append(int(self._randomness.categorical(shares.where(shares > 1e-15, 0.0))))
        return self.tokens[-1]


OneToken = Callable[[Row, Row, Callable[[Sequence[float]], int], Coin], int]


@dataclass
class Outcomes:
    """All runs of a function: its law, the rows each drew from, how often its first draw stayed."""

    law: Row
    drawn: list[list[Row]]
    first: float


def _outcomes(function: OneToken, p: Row, q: Row) -> Outcomes:
    """Every run of `function` on one p and q."""
    drawn: list[list[Row]] = []
    first = 0.0

    def run(randomness: Enumerated) -> tuple[int]:
        nonlocal first
        table = Table(randomness)
        token = index(function(list(p), list(q), table.draw, table.u))
        drawn.append(table.rows)
        first += randomness.probability * (table.tokens[:1] == [token])
        return (token,)

    law = exact_law(run)
    if any(token not in range(len(p)) for (token,) in law):
        raise ValueError(f"it returns {sorted(t for (t,) in law)}, and the tokens are 0, 1, ...")
    return Outcomes([law.get((i,), 0.0) for i in range(len(p))], drawn, first)


def _by_rule(
    keeps: Callable[[int, Row, Row, Coin], bool] = lambda x, p, q, u: u * q[x] < p[x],
    after: Callable[[Row, Row], Row] = _residual,
    first: Callable[[Row, Row, Callable], int] = lambda p, q, draw: draw(q),
) -> OneToken:
    """The rule with one part of it exchanged."""

    def one_token(p: Row, q: Row, draw: Callable, u: Coin) -> int:
        x = first(p, q, draw)
        return x if keeps(x, p, q, u) else draw(after(p, q))

    return one_token


def _top(row: Row) -> int:
    return row.index(max(row))


TOKEN_SLIPS: dict[str, OneToken] = {
    "after a rejection it draws from p again, mistake M1": _by_rule(after=lambda p, q: p),
    "the draft is the most likely token of q, not a draw from q, mistake M2": (
        _by_rule(first=lambda p, q, draw: _top(q))
    ),
    "the residual goes through a softmax, mistake M3": (
        _by_rule(after=lambda p, q: _softmax(_rest(p, q)))
    ),
    "the residual is not divided by its sum, mistake M4": _by_rule(after=_rest),
    "whatever is drafted, it writes the most likely token of p, mistake M5": (
        lambda p, q, draw, u: _top(p)
    ),
    "it keeps a draft only where it is the most likely token of p: toss the coin instead": (
        _by_rule(keeps=lambda x, p, q, u: x == _top(p))
    ),
    "the draft is drawn from p: the draft model draws from q": (
        _by_rule(first=lambda p, q, draw: draw(p))
    ),
    "the ratio is upside down: it keeps x with q/p": (
        _by_rule(keeps=lambda x, p, q, u: u * p[x] < q[x])
    ),
    "it forgets to divide by q: it keeps x with probability p(x)": (
        _by_rule(keeps=lambda x, p, q, u: u < p[x])
    ),
    "this is the law of q: every draft is kept, or comes back by q - p": _by_rule(
        keeps=lambda x, p, q, u: True
    ),
    "no coin is tossed: it keeps x only where p(x) >= q(x)": (
        _by_rule(keeps=lambda x, p, q, u: p[x] >= q[x])
    ),
    "after a rejection it draws from q again": _by_rule(after=lambda p, q: q),
    "after a rejection it returns the most likely token of p": (
        _by_rule(after=lambda p, q: [float(i == _top(p)) for i in range(len(p))])
    ),
    "after a rejection it takes the largest of p - q instead of drawing": (
        _by_rule(after=lambda p, q: [float(i == _top(_rest(p, q))) for i in range(len(p))])
    ),
    "keep and reject are exchanged": _by_rule(keeps=lambda x, p, q, u: u * q[x] >= p[x]),
}


@attempted
def check_one_token(function: OneToken) -> None:
    """Exercise 2: the whole rule; its law is enumerated, not sampled."""
    found, dice = [], _dice()
    for p, q in (*CASES, EQUAL):
        outcomes, problem = call(_outcomes, function, p, q)
        problem = _rephrase(problem) if _dice() == dice else OWN_COIN
        if problem:
            verdict(f"{problem} (p = {_said(p)}, q = {_said(q)})")
            return
        found.append(outcomes)
    problem = _explain_laws([outcomes.law for outcomes in found]) or _explain_draft(found)
    verdict(problem or _explain_zero(function))


OWN_COIN = "it rolls a random number of its own: the coin is u, and draw does the drawing"


def _dice() -> tuple:
    """Where the generators stand that a reader may use in place of u."""
    _, words, place, *_ = np.random.get_state()
    return random.getstate(), words.tobytes(), place, torch.get_rng_state().numpy().tobytes()


def _rephrase(problem: str | None) -> str | None:
    """A few of the things a run may raise, said in the words of the exercise."""
    if problem and "TooMany" in problem:
        return "it draws a third time: one draft, and after a rejection one more token, are all"
    if problem and ("NoneType" in problem or "is None" in problem):
        return "on some path it returns None: return a token after a rejection too"
    return problem


def _explain_laws(laws: Sequence[Row]) -> str | None:
    """None where each law is p; else the slip that has these laws, and the first wrong law."""
    wrong = [i for i, (p, _) in enumerate((*CASES, EQUAL)) if not _close(laws[i], p)]
    if not wrong:
        return None
    p, q = (*CASES, EQUAL)[wrong[0]]
    seen = f"it writes by {_said(laws[wrong[0]])} where p = {_said(p)} and q = {_said(q)}"
    for name, slip in TOKEN_SLIPS.items():
        slipped = (_outcomes(slip, *case).law for case in CASES)
        if all(map(_close, laws, slipped)):
            return f"{name}: {seen}"
    return seen


def _explain_draft(found: Sequence[Outcomes]) -> str | None:
    """The law is right; was there a draft, did it come first, and was it kept where it could be?"""
    for seen, (p, q) in zip(found, CASES, strict=False):
        if not all(any(_close(row, q) for row in rows) for rows in seen.drawn):
            return "the law is p, but no draw is from q: nothing was drafted"
        if not all(_close(rows[0], q) for rows in seen.drawn):
            return "the law is p, but draw from q first: the other draw follows a rejection"
        alpha = sum(map(min, p, q))
        if not math.isclose(seen.first, alpha, abs_tol=1e-9):
            always = all(len(rows) == 2 for rows in seen.drawn)
            thrown = "every draft is thrown away for a second draw; " if always else ""
            return (
                f"the law is p, but {thrown}the drafted word comes out in {seen.first:.3g} of the "
                f"runs and could in {alpha:.3g}, the sum of min(p, q): keep it where u * q < p "
                f"(p = {_said(p)}, q = {_said(q)})"
            )
    return None


def _explain_zero(function: OneToken) -> str | None:
    """The law is right; is a token of p = 0 rejected at u = 0 too?"""
    p, q = CASES[2]
    draws = iter((1, 2))
    answer, _ = call(function, list(p), list(q), lambda row: next(draws), 0.0)
    if answer == 1:
        return "u may be 0: then <= keeps a token of p = 0, and < rejects it"
    return None


def _ways(p: Row, q: Row) -> Iterator[tuple[str, float]]:
    """Usual wrong answers for the expected acceptance."""
    pairs = list(zip(p, q, strict=True))
    ratios = [min(1.0, a / b) for a, b in pairs if b]
    distance = 0.5 * sum(abs(a - b) for a, b in pairs)
    yield "this is TV(p, q), the chance of a rejection", distance
    yield "the half in TV is missing: 1 - sum |p - q|", 1 - 2 * distance
    yield "without the min, q times p/q adds up to sum p", sum(a for a, b in pairs if b)
    yield "each draft counts the same: weigh min(1, p/q) by q", sum(ratios) / len(ratios)
    yield "it adds up min(1, p/q): weigh each by q, how often it is drafted", sum(ratios)
    yield (
        "it weighs min(1, p/q) by p: drafts come from q",
        sum(a * min(1.0, a / b) for a, b in pairs if b),
    )
    yield "this is sum p q, the chance that two draws agree", sum(a * b for a, b in pairs)
    yield "it takes the larger of p and q", sum(max(a, b) for a, b in pairs)


@attempted
def check_expected_acceptance(function: Callable[[Row, Row], float]) -> None:
    """Exercise 3: sum min(p, q)."""
    for p, q in (CASES[1], CASES[2], CASES[0], EQUAL):
        answer, problem = call(function, list(p), list(q))
        right = sum(map(min, p, q))
        number = as_number(answer)
        if problem is None and number is None:
            problem = f"it returns {answer!r}, not a number"
        if problem is None and not math.isclose(number, right, abs_tol=1e-9):
            problem = f"it gives {number:.4g} where {right:.4g} is right"
            named = [n for n, value in _ways(p, q) if math.isclose(number, value, abs_tol=1e-9)]
            problem = f"{named[0]}; {problem}" if named else problem
        if problem:
            verdict(f"{problem} (p = {_said(p)}, q = {_said(q)})")
            return
    verdict(None)
