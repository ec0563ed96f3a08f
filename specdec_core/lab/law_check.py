"""Is a sampled decoder right? A chi-square test of its outputs against the exact law.

The test is planned before it is run: the false-alarm level is stated, and the number of samples is
the one at which a given mistake is caught with a given power.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import chi2, ncx2

from specdec_core.batch import speculative_decode_batch
from specdec_core.drafters import ModelDrafter
from specdec_core.exact import Law
from specdec_core.lab.museum import Example
from specdec_core.models import CausalLM, LanguageModel
from specdec_core.pairs import Pair
from specdec_core.randomness import Randomness, Seeded
from specdec_core.sampling import Sampling
from specdec_core.threads import Threads

# Below 5 expected counts in a cell the statistic is no longer close to chi-square (Cochran 1954).
LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class LawCheck:
    """Sampled outputs against a law.

    statistic, degrees: Pearson's chi-square over the pooled cells, and its degrees of freedom.
    p_value: probability of so large a statistic if the law is right; 0 after an output the law
        rules out. impossible: how many of those. total_variation: of the counts from the law.
    """

    samples: int
    statistic: float
    degrees: int
    p_value: float
    impossible: int
    total_variation: float

    def passes(self, level: float) -> bool:
        """Whether the law is kept at this false-alarm level."""
        return self.p_value >= level


def sample(run: Callable[[Randomness], Sequence[int]], samples: int, seed: int) -> Counter:
    """How often each output comes, over independent runs fed from one seeded stream."""
    randomness = Seeded(seed)
    return Counter(tuple(run(randomness)) for _ in range(samples))


def draw(law: Law, samples: int, seed: int) -> Counter:
    """Counts of `samples` texts of a decoder that has this law, without running it so often."""
    p = np.array(list(law.values()))
    counts = np.random.default_rng(seed).multinomial(samples, p / p.sum())
    return Counter({t: n for t, n in zip(law, counts.tolist(), strict=True) if n})


def cells(law: Law, samples: int) -> list[list[tuple[int, ...]]]:
    """Outputs grouped so that each cell expects at least five: the rare ones share a cell."""
    order = sorted((t for t, p in law.items() if p > 0), key=lambda t: -law[t])
    alone = [[t] for t in order if law[t] * samples >= LEAST_EXPECTED]
    rare = order[len(alone) :]
    if rare and alone and sum(law[t] for t in rare) * samples < LEAST_EXPECTED:
        rare = alone.pop() + rare
    return [*alone, rare] if rare else alone


def check_law(counts: Mapping[tuple[int, ...], int], law: Law) -> LawCheck:
    """Compare `counts` of outputs with `law`."""
    samples = sum(counts.values())
    statistic, groups = 0.0, cells(law, samples)
    for group in groups:
        expected = samples * sum(law[t] for t in group)
        statistic += (sum(counts.get(t, 0) for t in group) - expected) ** 2 / expected
    impossible = sum(n for t, n in counts.items() if law.get(t, 0.0) == 0)
    degrees = len(groups) - 1
    p_value = 0.0 if impossible else float(chi2.sf(statistic, degrees)) if degrees else 1.0
    outputs = counts.keys() | law.keys()
    distance = 0.5 * sum(abs(counts.get(t, 0) / samples - law.get(t, 0.0)) for t in outputs)
    return LawCheck(samples, statistic, degrees, p_value, impossible, distance)


def power(law: Law, other: Law, samples: int, level: float) -> float:
    """Probability that the check at `level` fails a decoder whose law is `other`.

    By the noncentral chi-square distribution over the pooled cells, and by the outputs that `law`
    rules out: one of them is enough.
    """
    groups = cells(law, samples)
    degrees = len(groups) - 1
    missed = 1.0
    if degrees > 0:
        shift = 0.0
        for group in groups:
            p = sum(law[t] for t in group)
            shift += (sum(other.get(t, 0.0) for t in group) - p) ** 2 / p
        missed = float(ncx2.cdf(chi2.isf(level, degrees), degrees, samples * shift))
    impossible = sum(p for t, p in other.items() if law.get(t, 0.0) == 0)
    return 1.0 - missed * (1.0 - impossible) ** samples


def samples_needed(
    law: Law, other: Law, level: float = 1e-4, wanted: float = 0.99, most: float = 1e18
) -> int:
    """Samples at which a decoder with the law `other` is caught with power `wanted`.

    Raises ValueError where `most` are not enough: the laws are the same, or as good as.
    """
    high = 1
    while power(law, other, high, level) < wanted:
        if high > most:
            raise ValueError(f"These laws are too close to be told apart by {most:.0e} samples.")
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(law, other, middle, level) >= wanted else (middle, high)
    return high


def null_band(
    law: Law, samples: int, level: float, repeats: int | None = None, seed: int = 0
) -> float:
    """Total variation that a right decoder exceeds with probability `level`, by simulation.

    repeats: simulated right decoders; by default so many that 20 of them or more lie outside.
    """
    if repeats is None:
        repeats = max(10_000, math.ceil(20 / level))
    p = np.array(list(law.values()))
    counts = np.random.default_rng(seed).multinomial(samples, p / p.sum(), size=repeats)
    return float(np.quantile(0.5 * np.abs(counts / samples - p).sum(-1), 1 - level))


ELSE = ()  # stands for every output too rare to be named


def sample_models(
    target: CausalLM,
    drafter: ModelDrafter | None,
    prompt: Sequence[int],
    *,
    samples: int,
    seed: int,
    gamma: int = 2,
    tokens: int = 3,
    sampling: Sampling = Sampling(),
    width: int = 1000,
    workers: int = 2,
) -> Counter:
    """How often each text of `tokens` tokens follows `prompt`, from real forwards of both models.

    Decoded `width` at a time by `workers` threads of one core each; a text's randomness comes from
    `seed` and its own row alone, so the counts depend on neither, but for
    the rounding of forwards over more texts or fewer.
    """

    def some(first: int) -> Counter:
        rows = range(first, min(first + width, samples))
        sources = [Seeded((seed << 32) + row) for row in rows]
        results = speculative_decode_batch(
            target, drafter, [prompt] * len(rows), gamma=gamma, sampling=sampling,
            max_new_tokens=tokens, randomness=sources, record="stats",
        )  # fmt: skip
        return Counter(tuple(result.tokens) for result in results)

    with Threads(1), ThreadPoolExecutor(workers) as pool:
        return sum(pool.map(some, range(0, samples, width)), Counter())


def likely_law(
    target: CausalLM,
    prompt: Sequence[int],
    *,
    tokens: int = 3,
    least: float = 1e-5,
    sampling: Sampling = Sampling(),
) -> Law:
    """The target's law of `tokens` tokens after `prompt`, texts rarer than `least` under `ELSE`.

    Only beginnings of at least that probability are followed, by uncached forwards.
    """
    beginnings = {(): 1.0}
    for _ in range(tokens):
        longer = {}
        for new, p in beginnings.items():
            target.rollback(0)
            row = sampling.probs(target.forward([*prompt, *new], keep=1))[0].double() * p
            likely = (row >= least).nonzero()[:, 0]
            longer |= {
                (*new, token): mass
                for token, mass in zip(likely.tolist(), row[likely].tolist(), strict=True)
            }
        beginnings = longer
    target.rollback(0)
    return beginnings | {ELSE: max(0.0, 1.0 - sum(beginnings.values()))}


def name_rare(counts: Mapping[tuple[int, ...], int], law: Law) -> Counter:
    """`counts` with every output that `law` does not name under `ELSE`."""
    named: Counter = Counter()
    for text, n in counts.items():
        named[text if text in law else ELSE] += n
    return named


KEYHOLE = 3  # tokens left in view where a mistake could emit any of the vocabulary


def keyhole(pair: Pair, prompt: str, width: int = KEYHOLE) -> Example:
    """A real pair after `prompt`, seen through its `width` likeliest tokens: small enough to walk.

    The logits are the models' own. The target samples at temperature 1.5 and the draft at .5, so
    that a good draft is rejected often and a mistake in what follows shows.
    """
    ids = pair.encode(prompt)
    first = rows_of(pair.target, ids)(())
    seen = np.argsort(-first)[:width].tolist()
    return Example(
        rows_of(pair.target, ids, seen), rows_of(pair.drafter.model, ids, seen), gamma=2, tokens=3,
        sampling=Sampling(1.5), draft_sampling=Sampling(0.5),
    )  # fmt: skip


def rows_of(
    model: LanguageModel, prompt: Sequence[int], ids: Sequence[int] | None = None
) -> Callable[[tuple[int, ...]], np.ndarray]:
    """A real model after `prompt` as a table: new tokens -> probabilities, each computed once.

    ids: look through a keyhole at these tokens alone, numbered from 0; None for the whole
        vocabulary. The rows come from uncached forwards, in float64 where the model's logits are.
    """

    @cache
    def row(new: tuple[int, ...]) -> np.ndarray:
        real = new if ids is None else tuple(ids[token] for token in new)
        model.rollback(0)
        logits = model.forward([*prompt, *real], keep=1)
        probs = Sampling().probs(logits if ids is None else logits[:, list(ids)])
        model.rollback(0)
        return probs[0].double().cpu().numpy()

    return row
