"""Speed-ups predicted from a pair's pieces, and speed-ups measured on whole runs, side by side.

The prediction sees neither the seeds nor the times of the runs it is held against.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specdec_core.batch import speculative_decode_batch
from specdec_core.decode import autoregressive_decode, speculative_rounds
from specdec_core.drafters import Drafter, ModelDrafter
from specdec_core.lab.checks import check_whole, check_wholes
from specdec_core.lab.measure import measure_costs, measure_overhead
from specdec_core.lab.speed_model import GAMMAS, Costs, gain, tokens_from_positions
from specdec_core.lab.timing import fastest
from specdec_core.models import CausalLM, LanguageModel
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.trace import Stats


def measure_acceptance(
    target: LanguageModel,
    drafter: ModelDrafter,
    prompts: Sequence[Sequence[int]],
    *,
    seeds: Sequence[int] = tuple(range(16)),
    **options: object,
) -> Stats:
    """Counts pooled over a run of each prompt with each seed, all at once.

    options as `speculative_decode_batch`; gamma is the deepest position counted. Raises ValueError
    where there is nothing to run.
    """
    runs = [(prompt, seed) for prompt in prompts for seed in seeds]
    if not runs:
        raise ValueError("There is nothing to count: give one prompt and one seed, or more.")
    results = speculative_decode_batch(
        target, drafter, [prompt for prompt, _ in runs],
        randomness=[Seeded(seed) for _, seed in runs], **options,
    )  # fmt: skip
    stats = Stats()
    for result in results:
        for round in result.trace.rounds:
            stats.add(round)
    return stats


@dataclass(frozen=True)
class SweepRow:
    """One gamma of a sweep: what the model predicts, and what runs of another seed measured.

    tokens_predicted, tokens: N, from the acceptance at each position, and as counted.
    predicted, measured: speed-up over plain decoding, prefill and first round left out.
    """

    gamma: int
    tokens_predicted: float
    tokens: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1


def predict(rates: Sequence[float], costs: Costs, o: float = 0.0) -> dict[int, tuple[float, float]]:
    """gamma -> (N, S) for every measured v, from the acceptance at each position of a draft.

    Where fewer positions were judged than gamma, the last one that was stands for the rest. Raises
    ValueError where none was.
    """
    judged, found = [rate for rate in rates if not math.isnan(rate)], {}
    if not judged:
        raise ValueError("No draft was judged: count acceptance with a larger gamma, or more text.")
    for gamma, v in costs.v.items():
        tokens = tokens_from_positions([*judged, *judged[-1:] * gamma][:gamma])
        found[gamma] = tokens, gain(tokens, gamma, costs.c, v, o)
    return found


def sweep_gammas(
    target: CausalLM,
    drafter: ModelDrafter,
    prompts: Sequence[Sequence[int]],
    *,
    gammas: Sequence[int] = GAMMAS,
    seeds: Sequence[int] = tuple(range(6)),
    turns: int = 3,
    sampling: Sampling = Sampling(),
    max_new_tokens: int = 100,
) -> list[SweepRow]:
    """Predict the speed-up of each gamma, then measure it on runs the prediction has not seen.

    Acceptance comes from 16 other seeds a prompt, at the largest gamma; c, v and o from the pieces
    of a round. Each turn times the pieces and then all runs, so that both see the same machine;
    medians over the turns count. Raises ValueError for a sweep without a prompt, gamma, seed or
    turn.
    """
    gammas = check_wholes("gammas", gammas, least=1)
    seeds = check_wholes("seeds", seeds, least=0)
    check_whole("turns", turns, least=1)
    if not prompts:
        raise ValueError("There is nothing to write: give one prompt or more.")
    options = {"sampling": sampling, "max_new_tokens": max_new_tokens}
    unseen = range(max(seeds) + 1, max(seeds) + 17)
    stats = measure_acceptance(target, drafter, prompts, seeds=unseen, gamma=max(gammas), **options)
    half = autoregressive_decode(
        target, prompts[0], sampling=sampling, max_new_tokens=max(1, max_new_tokens // 2),
        randomness=Seeded(unseen[0]),
    )  # fmt: skip
    text = [*prompts[0], *half.tokens]
    runs = [(prompt, seed) for prompt in prompts for seed in seeds]
    predicted, taken = [], []
    for _ in range(turns):
        costs = measure_costs(target, drafter, text, gammas, sampling)
        o = measure_overhead(target, text, costs.step, sampling)
        predicted.append(predict(stats.per_position, costs, o))
        taken.append(timed_runs(target, drafter, runs, gammas, turns=1, **options))
    return [
        SweepRow(
            gamma, predicted[0][gamma][0], taken[0][gamma].tokens / taken[0][gamma].rounds,
            statistics.median(turn[gamma][1] for turn in predicted),
            statistics.median(turn[gamma].pace / turn[0].pace for turn in taken),
        )
        for gamma in gammas
    ]  # fmt: skip


class Taken(NamedTuple):
    """What runs took: prefill, the first round and rounds that could not draft gamma left out."""

    seconds: float
    tokens: int
    rounds: int

    @property
    def pace(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def timed_runs(
    target: CausalLM,
    drafter: Drafter,
    runs: Sequence[tuple[Sequence[int], int]],
    gammas: Sequence[int],
    turns: int = 3,
    max_new_tokens: int = 64,
    **options: object,
) -> dict[int, Taken]:
    """Runs of (prompt, seed), summed for each gamma; 0 is plain decoding.

    All take turns, forwards and backwards; the fastest of `turns` counts for each. Raises
    ValueError where nothing is to be run, and where the texts are too short for a round of gamma
    drafts after the first.
    """
    gammas = check_wholes("gammas", gammas, least=1)
    check_whole("turns", turns, least=1)
    if not runs:
        raise ValueError("There is nothing to time: give one run of (prompt, seed), or more.")
    best: dict[tuple[int, int], Taken] = {}
    short: dict[int, float] = {}
    for turn in range(turns):
        for gamma in (0, *gammas)[:: -1 if turn % 2 else 1]:
            for i, (prompt, seed) in enumerate(runs):
                run = {**options, "randomness": Seeded(seed)}
                if gamma:
                    run["max_new_tokens"] = max_new_tokens
                    taken = _speculative(target, drafter, prompt, gamma, run)
                else:
                    one, taken = (
                        _plain(target, prompt, {**run, "max_new_tokens": most})
                        for most in (1, max_new_tokens)
                    )
                    short[i] = min(short.get(i, one.seconds), one.seconds)
                best[gamma, i] = min(best.get((gamma, i), taken), taken)
    summed = {
        gamma: Taken(*map(sum, zip(*(best[gamma, i] for i in range(len(runs))), strict=True)))
        for gamma in (0, *gammas)
    }
    plain, first = summed[0], len(runs)  # a run of one token is the prefill and the first token
    summed[0] = Taken(
        plain.seconds - sum(short.values()), plain.tokens - first, plain.rounds - first
    )
    for gamma, taken in summed.items():
        if not taken.tokens:
            raise ValueError(f"No whole round of gamma {gamma} is timed: raise max_new_tokens.")
    return summed


def _speculative(
    target: CausalLM, drafter: Drafter, prompt: Sequence[int], gamma: int, options: dict
) -> Taken:
    seconds, emitted, before = 0.0, [], None
    for round in speculative_rounds(target, drafter, prompt, gamma=gamma, **options):
        now = time.perf_counter()
        if before is not None and round.gamma == gamma:
            seconds += now - before
            emitted.append(len(round.emitted))
        before = now
    return Taken(seconds, sum(emitted), len(emitted))


def _plain(target: CausalLM, prompt: Sequence[int], options: dict) -> Taken:
    started = time.perf_counter()
    made = len(autoregressive_decode(target, prompt, **options).tokens)
    return Taken(time.perf_counter() - started, made, made)


def batch_pace(
    target: CausalLM,
    drafter: ModelDrafter,
    prompt: Sequence[int],
    batches: Sequence[int],
    gamma: int = 4,
    max_new_tokens: int = 48,
    repeats: int = 3,
) -> dict[int, tuple[float, float]]:
    """Tokens a second of plain and of speculative decoding, by how many texts share each forward.

    Every text continues `prompt` with a seed of its own; prefill is included. Raises ValueError for
    a batch of none or no repeats.
    """
    batches = check_wholes("batches", batches, least=1)
    check_whole("repeats", repeats, least=1)
    runs = {}
    for batch in batches:
        for name, draft in (("plain", None), ("speculative", drafter)):
            runs[batch, name] = (
                bool,
                lambda batch=batch, draft=draft: speculative_decode_batch(
                    target, draft, [prompt] * batch, gamma=gamma, max_new_tokens=max_new_tokens,
                    randomness=[Seeded(seed) for seed in range(batch)], record="stats",
                ),
            )  # fmt: skip
    seconds = fastest(runs, repeats)
    return {
        batch: tuple(
            batch * max_new_tokens / seconds[batch, name] for name in ("plain", "speculative")
        )
        for batch in batches
    }
