"""The exact law of a decoder: the code that samples, run once for every outcome of its choices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from specdec_core.randomness import Enumerated, Randomness

Law = dict[tuple[int, ...], float]


def exact_law(run: Callable[[Randomness], Sequence[int]], max_runs: int = 1_000_000) -> Law:
    """The output distribution of `run`, float64: tokens -> probability.

    run: takes a `Randomness`, decodes with it, and returns the tokens; any decoder that makes its
        choices through it will do, correct or not.
    max_runs: most paths to visit.

    The tree of choices is walked depth first, one call of `run` a leaf. Raises ValueError where
    more than `max_runs` calls would be needed.
    """
    parts: dict[tuple[int, ...], list[float]] = defaultdict(list)
    path: list[int] | None = []
    runs = 0
    while path is not None:
        if runs == max_runs:
            raise ValueError(
                f"More than {max_runs} paths: use a smaller vocabulary or fewer tokens, or raise "
                "max_runs."
            )
        randomness = Enumerated(path)
        tokens = tuple(run(randomness))
        parts[tokens].append(randomness.probability)
        path = randomness.next_path()
        runs += 1
    return {tokens: math.fsum(values) for tokens, values in sorted(parts.items())}


def largest_difference(law: Law, other: Law) -> float:
    """max over outputs of |law - other|; an output that one of them lacks counts as zero there."""
    return max(abs(law.get(tokens, 0.0) - other.get(tokens, 0.0)) for tokens in law | other)


def total_variation(law: Law, other: Law) -> float:
    """Total variation distance, half the sum of |law - other|."""
    return 0.5 * math.fsum(abs(law.get(t, 0.0) - other.get(t, 0.0)) for t in law | other)


def marginal(law: Law, length: int) -> Law:
    """The law of the first `length` tokens; shorter outputs stay as they are."""
    parts: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for tokens, probability in law.items():
        parts[tokens[:length]].append(probability)
    return {tokens: math.fsum(values) for tokens, values in parts.items()}
