"""Loop efficiency: how much of the time of a run its forwards alone would take.

The forwards of a recorded run are done again, with the same shapes and the same cache lengths and
nothing around them. What they take, over what the run took, is 1 where the loop costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from specdec_core.decode import Result, autoregressive_decode, speculative_decode
from specdec_core.drafters import Drafter
from specdec_core.lab.bench.ours import Work
from specdec_core.lab.measure import draft_network
from specdec_core.models import CausalLM, LanguageModel
from specdec_core.threads import Threads
from specdec_core.trace import Trace


@torch.inference_mode()
def bare_forwards(target: LanguageModel, draft: LanguageModel | None, trace: Trace) -> float:
    """Seconds of the forwards of a recorded run; draft None where it drafted without a network."""
    text = list(trace.prompt)
    _wait_for(target)
    started = time.perf_counter()
    with Threads(target.threads):
        target.rollback(0)
        if draft is not None:
            draft.rollback(0)
        if len(text) > 1:
            target.forward(text[:-1], keep=1)
        for round in trace.rounds:
            target.rollback(round.target_length[0])
            if draft is not None and round.drafted:
                draft.rollback(round.draft_length[0])
                feed = text[round.draft_length[0] :]
                for token in round.drafted:
                    draft.forward(feed, keep=1)
                    feed = [token]
            target.forward([text[-1], *round.drafted])
            text += round.emitted
    _wait_for(target)
    return time.perf_counter() - started


def _wait_for(model: LanguageModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def loop_efficiency(
    target: CausalLM, drafter: Drafter | None, gamma: int, work: Work, repeats: int
) -> list[float]:
    """Bare forwards over wall time, one value a repeat; drafter None measures plain decoding.

    The two are timed one right after the other, and the first pair is not counted.
    """
    options = work.options()

    def decode(seed: int) -> Result:
        prompt, randomness = work.prompt(seed), work.randomness(seed)
        if drafter is None:
            return autoregressive_decode(target, prompt, randomness=randomness, **options)
        return speculative_decode(
            target, drafter, prompt, gamma=gamma, randomness=randomness, **options
        )

    network = None if drafter is None else draft_network(drafter)
    return [_share(decode, target, network, seed) for seed in range(repeats + 1)][1:]


def _share(
    decode: Callable[[int], Result], target: CausalLM, draft: LanguageModel | None, seed: int
) -> float:
    started = time.perf_counter()
    out = decode(seed)
    wall = time.perf_counter() - started
    return bare_forwards(target, draft, out.trace) / wall
