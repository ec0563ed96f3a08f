"""Which check sees which mistake: each check compares a mistaken run with the right one, exactly.

No check alone sees them all, which is why the core has so many tests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from specdec_core.decode import Result
from specdec_core.exact import Law, exact_law, marginal, total_variation
from specdec_core.lab.museum.pieces import MISTAKES, Example
from specdec_core.randomness import Randomness, Seeded
from specdec_core.sampling import Sampling

# Far above rounding (1e-15) and far below any mistake on show.
TOLERANCE = 1e-9


def distance(example: Example, mistake: str, length: int | None = None) -> float:
    """Total variation between the mistaken and the right law of the first `length` tokens."""
    right, wrong = law_of_tokens(example, None), law_of_tokens(example, mistake)
    if length is not None:
        right, wrong = marginal(right, length), marginal(wrong, length)
    return total_variation(right, wrong)


def mean(example: Example, mistake: str | None, value: Callable[[Result], int]) -> float:
    """Exact expectation of a whole number that a run gives."""
    law = exact_law(lambda randomness: [value(example.run(randomness, mistake))])
    return math.fsum(number * probability for (number,), probability in law.items())


def accepted(result: Result) -> int:
    return result.stats.accepted


def first_round_length(result: Result) -> int:
    """Tokens the first round emitted."""
    return len(result.trace.rounds[0].emitted)


def differs_greedily(example: Example, mistake: str) -> bool:
    """At temperature 0 there is one right text; is it this one?"""
    greedy = Sampling(temperature=0, processors=example.sampling.processors)
    toy = replace(example, sampling=greedy, draft_sampling=None)
    return toy.run(Seeded(0), mistake).tokens != toy.run(Seeded(0)).tokens


def wrong_rows(result: Result) -> int:
    """Rounds after which a cache does not hold what it should: prompt + emitted - the newest."""
    rows, wrong = len(result.trace.prompt) - 1, 0
    for round in result.trace.rounds:
        rows += len(round.emitted)
        wrong += round.target_length[1] != rows or round.draft_length[1] > rows
    return wrong


def past_the_end(example: Example) -> Callable[[Result], int]:
    """Tokens emitted after a stop token or after `max_new_tokens`."""

    def count(result: Result) -> int:
        stops = [i + 1 for i, x in enumerate(result.tokens) if x in example.stop_tokens]
        return len(result.tokens) - min([*stops, example.tokens, len(result.tokens)])

    return count


class Outcome(NamedTuple):
    """What the checks look at in one run."""

    tokens: tuple[int, ...]
    accepted: int
    first_round_length: int
    wrong_rows: int
    past_the_end: int


@lru_cache(maxsize=256)
def outcomes(example: Example, mistake: str | None) -> dict[Outcome, float]:
    """The exact law of everything the checks look at, by one walk through all runs."""
    past = past_the_end(example)

    def run(randomness: Randomness) -> Outcome:
        out = example.run(randomness, mistake)
        return Outcome(
            tuple(out.tokens), accepted(out), first_round_length(out), wrong_rows(out), past(out)
        )

    return {Outcome(*seen): probability for seen, probability in exact_law(run).items()}


def law_of_tokens(example: Example, mistake: str | None) -> Law:
    """`example.law(mistake)`, from the walk that all checks share."""
    sums: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for outcome, probability in outcomes(example, mistake).items():
        sums[outcome.tokens].append(probability)
    return {tokens: math.fsum(values) for tokens, values in sums.items()}


def mean_of(example: Example, mistake: str | None, name: str) -> float:
    """Exact expectation of one number of an `Outcome`, from the walk that all checks share."""
    seen = outcomes(example, mistake)
    return math.fsum(getattr(outcome, name) * p for outcome, p in seen.items())


def _accepted_length(example: Example, mistake: str) -> bool:
    return any(
        abs(mean_of(example, mistake, name) - mean_of(example, None, name)) > TOLERANCE
        for name in ("accepted", "first_round_length")
    )


CHECKS: dict[str, Callable[[Example, str], bool]] = {
    "first token": lambda toy, mistake: distance(toy, mistake, 1) > TOLERANCE,
    "two tokens": lambda toy, mistake: distance(toy, mistake, 2) > TOLERANCE,
    "whole text": lambda toy, mistake: distance(toy, mistake) > TOLERANCE,
    "greedy": differs_greedily,
    "accepted length": _accepted_length,
    "cache rows": lambda toy, mistake: mean_of(toy, mistake, "wrong_rows") > 0,
    "end of text": lambda toy, mistake: mean_of(toy, mistake, "past_the_end") > 0,
}


def seen_by(mistake: str, example: Example | None = None) -> tuple[str, ...]:
    """The names of the checks that see `mistake` on its own example, or on another.

    A run that breaks off is seen by anyone: then the answer is "it runs". Raises ValueError where
    the right decoder breaks off too.
    """
    toy = MISTAKES[mistake].example if example is None else example
    try:
        outcomes(toy, None)
    except ValueError as error:
        raise ValueError(f"No decoder runs on these numbers: {error}") from None
    try:
        return tuple(name for name, sees in CHECKS.items() if sees(toy, mistake))
    except ValueError:
        return ("it runs",)
