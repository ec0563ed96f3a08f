"""What the pieces of a round cost, each timed on its own.

One step is one token of plain decoding: a target forward, its distribution, the draw, and the
loop's own work. In its unit, c is one draft step, v(gamma) the verification of gamma drafts, and o
whatever else a round takes. None is fitted to a speed-up: `sweep.py` holds them against whole runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from specdec_core.decode import autoregressive_decode, speculative_rounds
from specdec_core.drafters import Drafter
from specdec_core.lab.speed_model import GAMMAS, Costs
from specdec_core.lab.timing import fastest
from specdec_core.models import CausalLM, LanguageModel
from specdec_core.randomness import Randomness, Seeded
from specdec_core.sampling import Sampling
from specdec_core.texts import texts_of
from specdec_core.threads import Threads
from specdec_core.trace import Round
from specdec_core.verify import Draft, verify

ROUNDS = 40  # of a loop on models that cost nothing


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Median wall time of `run`, which must wait for its result, after one warm-up."""
    run()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def draft_network(drafter: Drafter) -> CausalLM | None:
    """The network a drafter runs; None where it drafts from a table."""
    model = getattr(drafter, "model", None)
    return model if isinstance(model, CausalLM) else None


# --- The pieces of a round ------------------------------------------------------------------------


@torch.inference_mode()
def measure_costs(
    target: CausalLM,
    drafter: Drafter,
    text: Sequence[int],
    gammas: Sequence[int] = GAMMAS,
    sampling: Sampling = Sampling(),
    repeats: int = 15,
) -> Costs:
    """Time a plain step, a draft step and each verification after `text`, two tokens or more.

    The pieces take turns and the fastest turn of each counts, as in `timing.fastest`. The step
    includes what the plain loop adds to it. Raises ValueError where the text and a draft do not fit
    the target's cache.
    """
    text, rows, randomness = list(text), len(text) - 1, Seeded(0)
    longest = max(4, *gammas)
    drafter.rollback(0)
    target.rollback(0)
    target.forward(text[:-1], keep=1)

    def propose(gamma: int) -> Draft:
        draft = drafter.propose(text, gamma, sampling, randomness)
        draft.tokens[-1].item()  # waits for the device
        return Draft(draft.tokens.to(target.device), draft.probs.to(target.device))

    drafts = propose(longest)
    pieces = {
        "step": (
            lambda: target.rollback(rows),
            lambda: _step(target, text[-1:], sampling, randomness),
        ),
        "draft": (lambda: drafter.rollback(rows), lambda: propose(longest)),
    }
    for gamma in gammas:
        draft = Draft(drafts.tokens[:gamma], drafts.probs[:gamma])
        pieces[gamma] = (
            lambda: target.rollback(rows),
            lambda draft=draft: _judge(target, text[-1:], draft, sampling, randomness),
        )
    with Threads(target.threads):
        seconds = fastest(pieces, repeats)
    step = seconds["step"] + loop_seconds(target, 0, sampling)
    return Costs(step, seconds["draft"] / longest / step, {g: seconds[g] / step for g in gammas})


def _step(
    target: LanguageModel, newest: list[int], sampling: Sampling, randomness: Randomness
) -> None:
    randomness.categorical(sampling.probs(target.forward(newest))[0]).item()


def _judge(
    target: LanguageModel,
    newest: list[int],
    draft: Draft,
    sampling: Sampling,
    randomness: Randomness,
) -> None:
    fed = torch.cat([draft.tokens.new_tensor(newest), draft.tokens])
    verify(sampling.probs(target.forward(fed)), draft, randomness).token.item()


class _Free:
    """A model whose forwards cost nothing: the same logits at every call."""

    def __init__(self, like: LanguageModel, rows: int) -> None:
        self.vocab_size, self.device, self.threads = like.vocab_size, like.device, like.threads
        self.max_length, self.length, self.forwards = None, 0, 0
        self._logits = torch.zeros(rows, like.vocab_size, device=like.device)

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        self.length += len(tokens)
        self.forwards += 1
        return self._logits[: keep or len(tokens)]

    def rollback(self, length: int) -> None:
        self.length = length


class _Fixed:
    """A drafter that proposes the same tokens again, at no cost."""

    max_length, length = None, 0

    def __init__(self, target: LanguageModel, gamma: int) -> None:
        self.vocab_size = target.vocab_size
        probs = torch.full((gamma, self.vocab_size), 1 / self.vocab_size, device=target.device)
        self._draft = Draft(torch.arange(gamma, device=target.device), probs)

    def propose(self, context: Sequence[int], gamma: int, *_: object) -> Draft:
        return Draft(self._draft.tokens[:gamma], self._draft.probs[:gamma])

    def rollback(self, length: int) -> None: ...


@torch.inference_mode()
def loop_seconds(target: LanguageModel, gamma: int, sampling: Sampling = Sampling()) -> float:
    """Seconds a round takes beyond drafting and verifying; at gamma 0, a plain token beyond a step.

    Measured on models of the target's vocabulary whose forwards cost nothing: a whole loop, less
    the bare pieces on the same models.
    """
    free, randomness = _Free(target, gamma + 1), Seeded(0)
    draft = _Fixed(target, gamma).propose([], gamma)
    limit = ROUNDS * (gamma + 1)

    def rounds() -> Iterator[Round]:
        return speculative_rounds(
            free, _Fixed(target, gamma), [0], gamma=gamma, sampling=sampling,
            max_new_tokens=limit + 1, randomness=randomness,
        )  # fmt: skip

    def plain() -> None:
        autoregressive_decode(
            free, [0], sampling=sampling, max_new_tokens=ROUNDS, randomness=randomness
        )

    def bare() -> None:
        for _ in range(ROUNDS):
            if gamma:
                _judge(free, [0], draft, sampling, randomness)
            else:
                _step(free, [0], sampling, randomness)

    loop = (lambda: list(islice(rounds(), ROUNDS))) if gamma else plain
    with Threads(target.threads):
        seconds = fastest({"loop": (bool, loop), "bare": (bool, bare)}, repeats=7)
    return max(0.0, seconds["loop"] - seconds["bare"]) / ROUNDS


def measure_overhead(
    target: LanguageModel, step: float, sampling: Sampling = Sampling(), gamma: int = 4
) -> float:
    """o: the loop's own time per round, in steps of `step` seconds; it hardly depends on gamma."""
    return loop_seconds(target, gamma, sampling) / step


@torch.inference_mode()
def batch_times(
    target: LanguageModel,
    text: Sequence[int],
    batches: Sequence[int],
    counts: Sequence[int],
    repeats: int = 7,
) -> dict[tuple[int, int], float]:
    """Seconds of a forward over n tokens of each of B texts, by (B, n), after all rows of `text`.

    v(gamma, B) is the time at (B, gamma + 1) over the time at (B, 1).
    """
    text, runs = list(text), {}
    for batch in batches:
        texts = texts_of(target, len(text) + max(counts))
        texts.prefill([text] * batch)
        for count in counts:
            tokens = torch.tensor([text[:1] * count] * batch, device=target.device)
            runs[batch, count] = (
                lambda texts=texts, batch=batch: texts.rollback([len(text)] * batch),
                lambda texts=texts, tokens=tokens: texts.forward(tokens)[0, -1, -1].item(),
            )
    with Threads(target.threads):
        return fastest(runs, repeats)
