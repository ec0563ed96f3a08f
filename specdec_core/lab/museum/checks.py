"""Which check sees which mistake: each check compares a mistaken run with the right one, exactly.

No check alone sees them all, which is why the core has so many tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from specdec_core.decode import Result
from specdec_core.exact import exact_law, marginal, total_variation
from specdec_core.lab.museum.pieces import MISTAKES, Example
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling

# Far above rounding (1e-15) and far below any mistake on show.
TOLERANCE = 1e-9


def distance(example: Example, mistake: str, length: int | None = None) -> float:
    """Total variation between the mistaken and the right law of the first `length` tokens."""
    right, wrong = example.law(), example.law(mistake)
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


def _accepted_length(example: Example, mistake: str) -> bool:
    values = (accepted, first_round_length)
    return any(abs(mean(example, mistake, v) - mean(example, None, v)) > TOLERANCE for v in values)


CHECKS: dict[str, Callable[[Example, str], bool]] = {
    "first token": lambda toy, mistake: distance(toy, mistake, 1) > TOLERANCE,
    "two tokens": lambda toy, mistake: distance(toy, mistake, 2) > TOLERANCE,
    "whole text": lambda toy, mistake: distance(toy, mistake) > TOLERANCE,
    "greedy": differs_greedily,
    "accepted length": _accepted_length,
    "cache rows": lambda toy, mistake: mean(toy, mistake, wrong_rows) > 0,
    "end of text": lambda toy, mistake: mean(toy, mistake, past_the_end(toy)) > 0,
}


def seen_by(mistake: str, example: Example | None = None) -> tuple[str, ...]:
    """The names of the checks that see `mistake` on its own example, or on another.

    A run that breaks off is seen by anyone: then the answer is "it runs".
    """
    toy = MISTAKES[mistake].example if example is None else example
    try:
        return tuple(name for name, sees in CHECKS.items() if sees(toy, mistake))
    except ValueError:
        return ("it runs",)
