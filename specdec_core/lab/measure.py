"""What a pair costs and what it can gain: memory, time of a step, acceptance, the best gamma.

Times are medians over repeats of the very pieces a round consists of. One step is one token of
plain decoding: a target forward, its distribution, and the draw. In its unit, c is one draft step,
v(gamma) the verification of gamma drafts, and o whatever else a round takes.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from specdec_core.decode import speculative_rounds
from specdec_core.drafters import Drafter
from specdec_core.models import CausalLM
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.trace import Stats
from specdec_core.verify import Draft, verify

GAMMAS = (1, 2, 3, 4, 6, 8)


def expected_tokens(alpha: float, gamma: int) -> float:
    """N(gamma), tokens per target forward where each draft is kept with probability alpha.

    (1 - alpha^(gamma+1)) / (1 - alpha), Leviathan et al. 2023, equation 1; summed, so that
    alpha = 1 needs no case of its own.
    """
    return sum(alpha**i for i in range(gamma + 1))


def speedup(alpha: float, gamma: int, c: float, v: float, o: float = 0.0) -> float:
    """S = N / (gamma c + v + o) over plain decoding; 1 at gamma 0, which is plain decoding."""
    return expected_tokens(alpha, gamma) / (gamma * c + v + o) if gamma else 1.0


@dataclass(frozen=True)
class Costs:
    """Measured times of a pair. step: seconds of one plain step. c, and v by gamma, in steps."""

    step: float
    c: float
    v: dict[int, float]


def best_gamma(alpha: float, costs: Costs, o: float = 0.0) -> tuple[int, float]:
    """The measured gamma with the largest predicted speed-up, and that; (0, 1) where none gains."""
    gains = {gamma: speedup(alpha, gamma, costs.c, v, o) for gamma, v in costs.v.items()}
    return max([(0, 1.0), *gains.items()], key=lambda pair: pair[1])


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Median wall time of `run`, which must wait for its result, after one warm-up."""
    run()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def measure_costs(
    target: CausalLM,
    drafter: Drafter,
    text: Sequence[int],
    gammas: Sequence[int] = GAMMAS,
    sampling: Sampling = Sampling(),
    repeats: int = 15,
) -> Costs:
    """Time a plain step, a draft step and each verification after `text`, two tokens or more.

    Raises ValueError where the text and a draft do not fit the target's cache.
    """
    text, rows, randomness = list(text), len(text) - 1, Seeded(0)
    drafter.rollback(0)
    target.rollback(0)
    target.forward(text[:-1], keep=1)

    def step() -> None:
        target.rollback(rows)
        randomness.categorical(sampling.probs(target.forward(text[-1:]))[0]).item()

    def propose(gamma: int) -> Draft:
        drafter.rollback(rows)
        draft = drafter.propose(text, gamma, sampling, randomness)
        draft.tokens[-1].item()  # waits for the device
        return Draft(draft.tokens.to(target.device), draft.probs.to(target.device))

    def judge(draft: Draft) -> None:
        target.rollback(rows)
        fed = torch.cat([draft.tokens.new_tensor(text[-1:]), draft.tokens])
        verify(sampling.probs(target.forward(fed)), draft, randomness).token.item()

    one = median_seconds(step, repeats)
    c = median_seconds(lambda: propose(4), repeats) / 4 / one
    drafts = {gamma: propose(gamma) for gamma in gammas}
    v = {g: median_seconds(lambda d=d: judge(d), repeats) / one for g, d in drafts.items()}
    return Costs(one, c, v)


def measure_run(
    target: CausalLM, drafter: Drafter, prompt: Sequence[int], *, gamma: int, **options: object
) -> tuple[Stats, float]:
    """Counts of one speculative run, and seconds a round, prefill left out (NaN for one round)."""
    stats, ends = Stats(), []
    for round in speculative_rounds(target, drafter, prompt, gamma=gamma, **options):
        stats.add(round)
        ends.append(time.perf_counter())
    return stats, (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else math.nan


def draft_network(drafter: Drafter) -> CausalLM | None:
    """The network a drafter runs; None where it drafts from a table."""
    model = getattr(drafter, "model", None)
    return model if isinstance(model, CausalLM) else None


@dataclass(frozen=True)
class Bill:
    """One line of the memory bill, in bytes; allocated is None where it was not measured."""

    what: str
    predicted: int
    allocated: int | None = None


def memory_bill(target: CausalLM, drafter: Drafter, gamma: int) -> list[Bill]:
    """Weights and caches of both models, predicted from their configs and as allocated now.

    transformers' forward allocates its cache at the first call, so run the pair before.
    """
    bill = _model_bill("target", target)
    draft = draft_network(drafter)
    if draft is not None:
        shared = draft.model is target.model
        bill += [
            line for line in _model_bill("draft", draft) if not (shared and "weights" in line.what)
        ]
    rows = gamma + 1
    return [*bill, Bill(f"activations of {rows} rows, roughly", activation_bytes(target, rows))]


def _model_bill(side: str, lm: CausalLM) -> list[Bill]:
    config, length = lm.model.config, lm.max_length
    weights = sum(p.nbytes for p in lm.model.parameters())
    return [
        Bill(f"{side} weights", weight_bytes(config, lm.dtype), weights),
        Bill(
            f"{side} cache of {length:,} tokens",
            cache_bytes(config, length, lm.dtype),
            lm.cache_bytes,
        ),
    ]


def weight_bytes(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """Size of a model's parameters, without making it."""
    return count_parameters(config) * dtype.itemsize


def count_parameters(config: PretrainedConfig) -> int:
    """How many parameters a model of this config has, tied ones counted once."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def cache_bytes(config: PretrainedConfig, length: int, dtype: torch.dtype) -> int:
    """Keys and values: 2 x layers x key-value heads x head width x tokens x bytes."""
    config = config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return 2 * config.num_hidden_layers * kv_heads * width * length * dtype.itemsize


def activation_bytes(lm: CausalLM, rows: int) -> int:
    """A rough count for one forward: one layer's states, logits, and p, q, residual in float32."""
    config = lm.model.config.get_text_config()
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    layer = (8 * config.hidden_size + 3 * inner) * lm.dtype.itemsize
    return rows * (layer + lm.vocab_size * (lm.dtype.itemsize + 3 * 4))
