"""The speed model: what a pair gains, from its acceptance and its costs; arithmetic alone.

In units of one plain step, c is a draft step, v(gamma) the verification of gamma drafts and o
whatever else a round takes. alpha is the probability that a judged draft is kept, N the mean number
of tokens a round emits. Nothing here is timed: `measure.py` does that.

All functions raise ValueError, in one sentence, for an alpha, gamma or cost that cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from specdec_core.lab.checks import check_above_zero, check_number, check_whole

GAMMAS = (1, 2, 3, 4, 6, 8)


def expected_tokens(alpha: float, gamma: int) -> float:
    """N(gamma), tokens per target forward where each draft is kept with probability alpha.

    (1 - alpha^(gamma+1)) / (1 - alpha), Leviathan et al. 2023, equation 1; summed, so that
    alpha = 1 needs no case of its own.
    """
    check_number("alpha", alpha, high=1.0)
    check_whole("gamma", gamma, least=0)
    return sum(alpha**i for i in range(gamma + 1))


def tokens_from_positions(rates: Sequence[float]) -> float:
    """N from the acceptance at each position of a draft, given that it was judged: gamma numbers.

    1 + the sum over i of P(first i accepted). It needs no position to be like the next, so it also
    holds where contexts differ. N of the mean alpha is then too small, N being convex, and N of
    accepted / judged too large, since more is judged where more is kept.
    """
    for rate in rates:
        check_number("The acceptance at a position", rate, high=1.0)
    return 1.0 + sum(accumulate(rates, mul))


def accepted_fraction(alpha: float, gamma: int) -> float:
    """Expected accepted / drafted, (N - 1) / gamma: below alpha, and falling with gamma."""
    check_whole("gamma", gamma, least=1)
    return (expected_tokens(alpha, gamma) - 1) / gamma


def alpha_of_fraction(fraction: float, gamma: int) -> float:
    """The alpha at which accepted / drafted is `fraction`, to 12 digits."""
    check_number("accepted / drafted", fraction, high=1.0)
    low, high = 0.0, 1.0
    for _ in range(40):  # (N - 1) / gamma rises with alpha, so halving finds it
        middle = (low + high) / 2
        below = accepted_fraction(middle, gamma) < fraction
        low, high = (middle, high) if below else (low, middle)
    return high


def gain(tokens: float, gamma: int, c: float, v: float, o: float = 0.0) -> float:
    """S = N / (gamma c + v + o) over plain decoding, for N `tokens` a round; 1 at gamma 0."""
    _check_round(tokens, gamma, c, v, o)
    return tokens / (gamma * c + v + o) if gamma else 1.0


def _check_round(tokens: float, gamma: int, c: float, v: float, o: float) -> None:
    check_number("tokens", tokens)
    check_whole("gamma", gamma, least=0)
    check_number("c", c)
    check_above_zero("v", v)
    check_number("o", o)


def speedup(alpha: float, gamma: int, c: float, v: float = 1.0, o: float = 0.0) -> float:
    """`gain` with N(alpha, gamma); with v = 1 and o = 0 it is Leviathan et al.'s Theorem 3.8."""
    return gain(expected_tokens(alpha, gamma), gamma, c, v, o)


@dataclass(frozen=True)
class Costs:
    """Measured times of a pair. step: seconds of one plain step. c, and v by gamma, in steps."""

    step: float
    c: float
    v: dict[int, float]

    def __post_init__(self) -> None:
        check_above_zero("step", self.step)
        check_number("c", self.c)
        if not self.v:
            raise ValueError("v is empty: give the cost of a verification for one gamma or more.")
        for gamma, cost in self.v.items():
            check_whole("gamma", gamma, least=0)
            check_above_zero(f"v at gamma {gamma}", cost)


def best_gamma(alpha: float, costs: Costs, o: float = 0.0) -> tuple[int, float]:
    """The measured gamma with the largest predicted speed-up, and that; (0, 1) where none gains.

    Every measured v is tried: on a CPU it may jump down as gamma grows, so that the speed-up has
    several peaks and no rule that stops at the first would do.
    """
    gains = {gamma: speedup(alpha, gamma, costs.c, v, o) for gamma, v in costs.v.items()}
    return max([(0, 1.0), *gains.items()], key=lambda pair: pair[1])


def closed_best_gamma(alpha: float, c: float) -> int:
    """The best gamma where v = 1 and o = 0: the smallest with
    alpha^(gamma+1) (1 + c gamma) <= c N(gamma), after Leviathan et al. 2023, section 3.5.

    There one more draft no longer pays. Raises ValueError for alpha = 1 or c = 0 too, where more
    always pays.
    """
    check_above_zero("c", c)
    if check_number("alpha", alpha, high=1.0) == 1:
        raise ValueError("At alpha = 1 more drafts always pay: give an alpha below 1.")
    gamma = 0
    while alpha ** (gamma + 1) * (1 + c * gamma) > c * expected_tokens(alpha, gamma):
        gamma += 1
    return gamma


def operations_factor(alpha: float, gamma: int, c_hat: float) -> float:
    """Arithmetic per emitted token over plain decoding's, (gamma c_hat + gamma + 1) / N.

    c_hat: operations of a draft step / operations of a target step on one token (Leviathan et al.
    2023, Theorem 3.11). Above 1: rejected drafts were computed for nothing.
    """
    check_number("c_hat", c_hat)
    return (gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma)


def weight_reads(alpha: float, gamma: int) -> float:
    """How often the target's weights are read per emitted token, 1 / N; once in plain decoding."""
    return 1 / expected_tokens(alpha, gamma)


# --- A published table, explained -----------------------------------------------------------------


@dataclass(frozen=True)
class Reported:
    """One line of a published table: accepted / drafted and the speed-up, at one gamma.

    milliseconds: a token, where the table says so.
    """

    gamma: int
    fraction: float
    speedup: float
    milliseconds: float | None = None

    def __post_init__(self) -> None:
        check_whole("gamma", self.gamma, least=1)
        for what in ("fraction", "speedup"):
            check_above_zero(what, getattr(self, what))


# A 7B target with a 0.5B draft, as reported.
PUBLISHED = (
    Reported(2, 0.78, 1.6, 28),
    Reported(4, 0.72, 2.3, 19),
    Reported(6, 0.65, 2.5, 18),
    Reported(8, 0.58, 2.4, 19),
    Reported(10, 0.50, 2.1, 22),
)


@dataclass(frozen=True)
class Fit:
    """One alpha, c and o for a whole table; verification is taken to cost one step, v = 1."""

    alpha: float
    c: float
    o: float

    def errors(self, table: Sequence[Reported] = PUBLISHED) -> dict[int, tuple[float, float]]:
        """gamma -> relative errors of accepted / drafted and of the speed-up."""
        return {
            row.gamma: (
                accepted_fraction(self.alpha, row.gamma) / row.fraction - 1,
                speedup(self.alpha, row.gamma, self.c, 1.0, self.o) / row.speedup - 1,
            )
            for row in table
        }

    def worst(self, table: Sequence[Reported] = PUBLISHED) -> float:
        """The largest of all errors, without its sign."""
        return max(abs(error) for both in self.errors(table).values() for error in both)


def explain_table(table: Sequence[Reported] = PUBLISHED, overhead: bool = True) -> Fit:
    """The Fit with the smallest worst relative error, on a grid of .005.

    alpha is fitted to accepted / drafted alone, then c and o to the speed-ups; overhead=False
    holds o at 0.
    """
    if not table:
        raise ValueError("There is no line to explain: give a table of one or more.")
    grid = [i / 200 for i in range(201)]

    def worst_fraction(alpha: float) -> float:
        return max(abs(accepted_fraction(alpha, r.gamma) / r.fraction - 1) for r in table)

    alpha = min(grid, key=worst_fraction)
    # Steps a round took by the table: tokens it emitted / speed-up.
    rounds = [(r.gamma, expected_tokens(alpha, r.gamma), r.speedup) for r in table]

    def worst_speedup(costs: tuple[float, float]) -> float:
        c, o = costs
        return max(abs(gain(n, gamma, c, 1.0, o) / s - 1) for gamma, n, s in rounds)

    overheads = grid if overhead else [0.0]
    c, o = min(((c, o) for c in grid for o in overheads), key=worst_speedup)
    return Fit(alpha, c, o)


def mixture_tokens(parts: Mapping[float, float], gamma: int) -> float:
    """N where the context decides alpha: parts maps each alpha to its share of the rounds."""
    shares = [check_number("A share of the rounds", share, high=1.0) for share in parts.values()]
    if abs(sum(shares) - 1) > 1e-9:
        raise ValueError(f"The shares of the rounds must add up to 1, not {sum(shares):g}.")
    return sum(share * expected_tokens(alpha, gamma) for alpha, share in parts.items())
