"""How many tokens to draft in the next round: schedules, and why none of them changes the law.

A schedule sees the counts of the rounds so far and nothing of the draft it asks for. Whatever came
before, a round is exact for any gamma, so the law of the text stays the target's. One that looked
at the draft before it settled the length would bias it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from specdec_core.request import check_gamma
from specdec_core.sampling import is_number, is_whole
from specdec_core.trace import Stats

PRIOR = 4  # judged drafts that the rate expected at the start counts for


class Schedule(Protocol):
    """Chooses gamma for the next round from what has happened so far; the law does not change."""

    def next(self, stats: Stats) -> int: ...


class AdaptiveGamma:
    """The gamma that pays most at the acceptance seen lately.

    costs: for each gamma that may be chosen, the time of a round that drafts so many tokens, over
        one plain step: gamma c + v(gamma) + o, as measured. 0 may always be chosen; where no cost
        is given for it, it is one step. v need not rise with gamma, since all are compared.
    expected: acceptance taken for granted at the start; it counts as 4 judged drafts, and fades.
    memory: judged drafts after which an old verdict counts 1/e.
    probe: rounds without a draft after which one is tried, or drafting could never come back.

    Chooses the largest N(gamma) / costs[gamma] (the best-gamma rule of Leviathan et al. 2023,
    section 3.5, for any costs). What is known of alpha after a accepted and b rejected drafts is a
    distribution, Beta(a, b), not a number: N is its mean over that, 1 + the sum over i of
    a (a+1) ... (a+i-1) / ((a+b) (a+b+1) ... (a+b+i-1)). It exceeds N at the mean alpha, as it
    should where contexts differ.

    A probe drafts what costs least. Where nothing is ever accepted, probing costs
    (least cost / cost of 0 - 1) in every `probe` + 1 rounds: 2 % at 16 and a cost of 1.35.

    An object serves one run at a time and begins anew with each, where no round has been counted.
    Raises ValueError for costs, an `expected`, a `memory` or a `probe` that cannot be.
    """

    def __init__(
        self,
        costs: Mapping[int, float],
        *,
        expected: float = 0.8,
        memory: int = 40,
        probe: int = 16,
    ) -> None:
        self.costs = _checked(costs)
        if not (is_number(expected) and 0 < expected < 1):
            raise ValueError(f"expected must lie between 0 and 1, both left out, not {expected!r}.")
        for name, value in (("memory", memory), ("probe", probe)):
            if not is_whole(value) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")
        self.expected, self.memory, self.probe = expected, memory, probe
        self._cheapest = min((g for g in self.costs if g), key=self.costs.get)
        self._begin()

    @property
    def acceptance(self) -> float:
        """The estimate of alpha now: `expected` before any verdict."""
        return self._kept / (self._kept + self._lost)

    def next(self, stats: Stats) -> int:
        if stats.rounds == 0:
            self._begin()
        self._learn(stats.accepted, stats.rejected)
        gamma = self._best()
        self._idle = 0 if gamma else self._idle + 1
        if self._idle > self.probe:
            self._idle, gamma = 0, self._cheapest
        return gamma

    def _begin(self) -> None:
        self._kept, self._lost = PRIOR * self.expected, PRIOR * (1 - self.expected)
        self._counted, self._idle = (0, 0), 0

    def _learn(self, accepted: int, rejected: int) -> None:
        """Add the verdicts that are new; all that was known before fades."""
        kept, lost = accepted - self._counted[0], rejected - self._counted[1]
        stays = (1 - 1 / self.memory) ** (kept + lost)
        self._kept, self._lost = self._kept * stays + kept, self._lost * stays + lost
        self._counted = accepted, rejected

    def _best(self) -> int:
        tokens, all_kept, judged = 1.0, 1.0, self._kept + self._lost
        pace = {0: 1 / self.costs[0]}
        for i in range(max(self.costs)):
            all_kept *= (self._kept + i) / (judged + i)
            tokens += all_kept
            if i + 1 in self.costs:
                pace[i + 1] = tokens / self.costs[i + 1]
        return max(pace, key=pace.get)


class WarmUp:
    """No draft for the first tokens of a text, then another schedule, or one gamma throughout.

    then: what chooses from there on. tokens: emitted tokens before that. A round that begins below
    `tokens` drafts nothing, so exactly as many are plain. Raises ValueError for a gamma or a number
    of tokens that cannot be.
    """

    def __init__(self, then: int | Schedule, tokens: int) -> None:
        if not is_whole(tokens) or tokens < 0:
            raise ValueError(f"tokens must be a whole number of 0 or more, not {tokens!r}.")
        self.then = then if hasattr(then, "next") else check_gamma(then)
        self.tokens = tokens

    def next(self, stats: Stats) -> int:
        # `then` is asked in every round: it must see the run begin.
        gamma = self.then if isinstance(self.then, int) else self.then.next(stats)
        return 0 if stats.emitted < self.tokens else gamma


def _checked(costs: Mapping[int, float]) -> dict[int, float]:
    if not isinstance(costs, Mapping):
        raise ValueError(
            "costs must map each gamma to the cost of its round in plain steps, such as "
            f"{{1: 1.3, 4: 1.6}}, not {costs!r}."
        )
    found = {0: 1.0, **{check_gamma(gamma): cost for gamma, cost in costs.items()}}
    for gamma, cost in found.items():
        if not (is_number(cost) and 0 < cost < float("inf")):
            raise ValueError(f"The cost of gamma {gamma} must be a number above 0, not {cost!r}.")
    if len(found) == 1:
        raise ValueError("costs name no gamma above 0: give the cost of one or more.")
    return found
