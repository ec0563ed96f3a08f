"""Adaptive gamma against every fixed one: counted on the same texts, and timed on real runs.

Counted: the target writes texts once. A token x of such a text, had it been drafted, would have
been kept with probability min(1, q(x) / p(x)): accepted and x has probability min(p, q)(x), and x
has p(x). So every schedule can be replayed on the same texts and the same uniforms, exactly as it
would run, and its rounds paid for at measured costs. Many texts cost little, and no other work on
the machine is seen. Timed: what was waited for, on runs of their own.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from specdec_core.batch import autoregressive_decode_batch
from specdec_core.decode import speculative_decode
from specdec_core.drafters import Drafter, EarlyExitModel, ModelDrafter
from specdec_core.lab.checks import check_whole, check_wholes
from specdec_core.lab.measure import measure_costs, measure_overhead
from specdec_core.models import CausalLM, LanguageModel
from specdec_core.pairs import Pair
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.schedules import AdaptiveGamma, Schedule
from specdec_core.trace import Round, Stats

ALL = "all"  # the row of all kinds of text together


@dataclass(frozen=True)
class ScheduleRow:
    """What one choice of gamma made of one kind of text, or of all.

    gamma: the fixed gamma, None for the adaptive one. tokens, rounds, drafted: of the replayed
    texts. counted: their tokens a plain step, by the measured costs. timed: tokens a second of real
    runs, prefill included, each run at its median over the turns; None where none was timed.
    """

    kind: str
    gamma: int | None
    tokens: int
    rounds: int
    drafted: int
    counted: float
    timed: float | None


def measure_round_costs(
    target: CausalLM,
    drafter: Drafter,
    text: Sequence[int],
    most: int = 16,
    sampling: Sampling = Sampling(),
    repeats: int = 25,
) -> dict[int, float]:
    """gamma -> the time of a round of gamma drafts after `text`, over one plain step; 0 to `most`.

    gamma c + v(gamma) + o, all measured. Arguments and errors as `measure_costs`.
    """
    most = check_whole("most", most, least=1)
    costs = measure_costs(target, drafter, text, range(most + 1), sampling, repeats)
    o = measure_overhead(target, text, costs.step, sampling, repeats)
    return {gamma: gamma * costs.c + v + o for gamma, v in costs.v.items()}


@torch.inference_mode()
def kept_probabilities(
    target: CausalLM,
    drafter: ModelDrafter,
    text: Sequence[int],
    start: int,
    sampling: Sampling = Sampling(),
) -> list[float]:
    """min(1, q / p) of each token of `text` from position `start`, by a forward of either model.

    The probability that it would have been kept as a draft, given that it is there: `text` from
    `start` must be the target's own, sampled by `sampling`, without processors.
    """
    ids, read = torch.tensor(text[1:])[:, None], text[:-1]
    draft = drafter.model
    if isinstance(draft, EarlyExitModel):  # it would read what the target does beside it
        draft = draft.fresh()
    p = _probs(target, read, target.vocab_size, sampling)
    q = _probs(draft, drafter.readable(read), drafter.vocab_size, sampling)
    q = pad(q, (0, p.shape[-1] - q.shape[-1]))
    return (q.gather(-1, ids) / p.gather(-1, ids)).clamp(max=1.0)[start - 1 :, 0].tolist()


def _probs(model: LanguageModel, read: Sequence[int], width: int, sampling: Sampling) -> Tensor:
    model.rollback(0)
    return sampling.probs(model.forward(read)[:, :width]).cpu()


def replay(kept: Sequence[float], schedule: int | Schedule, seed: int = 0) -> list[int]:
    """gamma of each round that writes a text whose tokens would be kept with these probabilities.

    One uniform belongs to each position, so that schedules differ by their choices alone.
    """
    uniforms = random.Random(seed)
    right = [uniforms.random() < probability for probability in kept]
    stats, gammas = Stats(), []
    while stats.emitted < len(kept):
        wanted = schedule if isinstance(schedule, int) else schedule.next(stats)
        gamma = min(wanted, len(kept) - stats.emitted - 1)
        ahead = [*right[stats.emitted : stats.emitted + gamma], False]
        accepted = ahead.index(False)
        stats.add(_round(gamma, accepted))
        gammas.append(gamma)
    return gammas


def compare_schedules(
    pair: Pair,
    drafter: ModelDrafter,
    prompts: Mapping[str, Sequence[Sequence[int]]],
    gammas: Sequence[int],
    costs: Mapping[int, float],
    *,
    samplings: Mapping[str, Sampling] | None = None,
    texts: int = 24,
    runs: int = 1,
    turns: int = 3,
    max_new_tokens: int = 100,
) -> list[ScheduleRow]:
    """Rows for each kind of text and for all, of each fixed gamma and of `AdaptiveGamma`.

    prompts: token ids by kind of text. gammas: the fixed ones; the adaptive one chooses among
        them and 0. costs: of every gamma up to the largest, see `measure_round_costs`.
    samplings: how a kind is sampled, where not plainly. texts: written for each prompt, and
        replayed. runs: timed for each prompt, `turns` times over; 0 for none. All schedules take
        their turn at one run, forwards and backwards, before the next run.

    Raises ValueError where there is nothing to run, or a cost is missing.
    """
    gammas = check_wholes("gammas", gammas, least=0)
    for name, value, least in (("texts", texts, 1), ("runs", runs, 0), ("turns", turns, 1)):
        check_whole(name, value, least)
    missing = [gamma for gamma in range(max(gammas) + 1) if gamma not in costs]
    if missing:
        raise ValueError(f"costs lack gamma {missing[0]}: give one for every gamma up to the last.")
    if not prompts or not all(prompts.values()):
        raise ValueError("There is nothing to write: give one prompt or more of each kind.")
    adaptive = AdaptiveGamma({gamma: costs[gamma] for gamma in {0, *gammas}})
    schedules = {**{gamma: gamma for gamma in gammas}, None: adaptive}
    counts, taken = defaultdict(list), defaultdict(list)
    for kind, starts in prompts.items():
        options = {
            "sampling": (samplings or {}).get(kind, Sampling()),
            "max_new_tokens": max_new_tokens, "stop_tokens": pair.stop_tokens,
        }  # fmt: skip
        written = _written(pair.target, drafter, starts, texts, options)
        for name, schedule in schedules.items():
            for seed, kept in enumerate(written):
                counts[kind, name].append((len(kept), replay(kept, schedule, seed)))
        for start in starts:
            for seed in range(runs):
                timed = _in_turns(pair.target, drafter, start, seed, schedules, turns, options)
                for name, part in timed.items():
                    taken[kind, name].append(part)
    for table in (counts, taken):
        for name in schedules:
            table[ALL, name] = [part for kind in prompts for part in table[kind, name]]
    return [
        _row(kind, name, counts[kind, name], taken[kind, name], costs)
        for kind in (*prompts, ALL)
        for name in schedules
    ]


def against_fixed(
    rows: Sequence[ScheduleRow], by: str = "counted"
) -> dict[str, tuple[int, float, float]]:
    """kind -> the best fixed gamma there, the adaptive pace over its pace, and over that of the
    one gamma that is best for all kinds together.

    by: "counted" or "timed".
    """
    paces = {(row.kind, row.gamma): getattr(row, by) for row in rows}
    gammas = {gamma for _, gamma in paces if gamma is not None}
    single = max(gammas, key=lambda gamma: paces[ALL, gamma])
    found = {}
    for kind in dict.fromkeys(row.kind for row in rows):
        best = max(gammas, key=lambda gamma, kind=kind: paces[kind, gamma])
        adaptive = paces[kind, None]
        found[kind] = best, adaptive / paces[kind, best], adaptive / paces[kind, single]
    return found


def _written(
    target: CausalLM,
    drafter: ModelDrafter,
    prompts: Sequence[Sequence[int]],
    texts: int,
    options: dict,
) -> list[list[float]]:
    """What the target wrote after each prompt, as `kept_probabilities`."""
    starts = [list(prompt) for prompt in prompts for _ in range(texts)]
    results = autoregressive_decode_batch(
        target, starts, randomness=[Seeded(seed) for seed in range(len(starts))], **options
    )
    return [
        kept_probabilities(
            target, drafter, [*start, *result.tokens], len(start), options["sampling"]
        )
        for start, result in zip(starts, results, strict=True)
    ]


def _in_turns(
    target: CausalLM,
    drafter: Drafter,
    text: Sequence[int],
    seed: int,
    schedules: Mapping[int | None, int | Schedule],
    turns: int,
    options: dict,
) -> dict[int | None, tuple[int, float]]:
    """One run by each schedule, `turns` times over: its tokens and its median seconds."""
    tokens, seconds = {}, defaultdict(list)
    for turn in range(turns):
        for name, schedule in list(schedules.items())[:: -1 if (turn + seed) % 2 else 1]:
            started = time.perf_counter()
            result = speculative_decode(
                target, drafter, text, gamma=schedule, randomness=Seeded(seed), **options
            )
            seconds[name].append(time.perf_counter() - started)
            tokens[name] = len(result.tokens)
    return {name: (tokens[name], statistics.median(seconds[name])) for name in schedules}


def _round(gamma: int, accepted: int) -> Round:
    """A round by its counts alone."""
    return Round(
        drafted=(0,) * gamma, accepted=accepted, token=0, emitted=(0,) * (accepted + 1),
        target_prob=(), draft_prob=(), u=None, residual_mass=1.0, zero_residual=False,
        target_length=(0, 0), draft_length=(0, 0),
    )  # fmt: skip


def _row(
    kind: str,
    gamma: int | None,
    counts: Sequence[tuple[int, list[int]]],
    taken: Sequence[tuple[int, float]],
    costs: Mapping[int, float],
) -> ScheduleRow:
    chosen = [one for _, gammas in counts for one in gammas]
    tokens = sum(length for length, _ in counts)
    timed = sum(made for made, _ in taken) / sum(s for _, s in taken) if taken else None
    steps = sum(costs[one] for one in chosen)
    return ScheduleRow(kind, gamma, tokens, len(chosen), sum(chosen), tokens / steps, timed)
