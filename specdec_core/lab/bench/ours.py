"""Our own rows: plain and speculative decoding, of one text or of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from specdec_core.batch import autoregressive_decode_batch, speculative_decode_batch
from specdec_core.decode import Result, autoregressive_decode, speculative_decode
from specdec_core.drafters import Drafter, ModelDrafter
from specdec_core.lab.bench.rows import Row, Written
from specdec_core.models import CausalLM
from specdec_core.randomness import Randomness, Seeded
from specdec_core.sampling import Sampling


@dataclass(frozen=True)
class Work:
    """What every row of a table is given alike.

    prompts: token ids; the repeat of seed s takes prompts[s % n]. randomness: makes the source of
    random choices from a seed, for our own rows.
    """

    prompts: Sequence[list[int]]
    temperature: float = 1.0
    max_new_tokens: int = 64
    stop_tokens: tuple[int, ...] = ()
    randomness: Callable[[int], Randomness] = Seeded

    def prompt(self, seed: int) -> list[int]:
        return self.prompts[seed % len(self.prompts)]

    def options(self) -> dict:
        """The arguments of our decoders that do not change from run to run."""
        return {
            "sampling": Sampling(self.temperature),
            "max_new_tokens": self.max_new_tokens,
            "stop_tokens": self.stop_tokens,
        }

    def without_stops(self) -> Work:
        """The same, but every text runs to its full length."""
        return replace(self, stop_tokens=())


def plain_row(target: CausalLM, work: Work) -> Row:
    options = work.options()

    def run(seed: int) -> Written:
        out = autoregressive_decode(
            target, work.prompt(seed), randomness=work.randomness(seed), **options
        )
        return Written([out.tokens])

    return Row("plain", run, work.stop_tokens)


def speculative_row(name: str, target: CausalLM, drafter: Drafter, gamma: int, work: Work) -> Row:
    options = work.options()

    def run(seed: int) -> Written:
        out = speculative_decode(
            target, drafter, work.prompt(seed), gamma=gamma, randomness=work.randomness(seed),
            record="stats", **options,
        )  # fmt: skip
        return Written([out.tokens], [out.stats])

    return Row(name, run, work.stop_tokens)


def batch_rows(target: CausalLM, drafter: ModelDrafter, gamma: int, size: int, work: Work):
    """Plain and speculative decoding of `size` texts at once, the prompts taken in turn."""
    prompts = [work.prompt(i) for i in range(size)]
    options = work.options()

    def written(seed: int, decode: Callable[..., list[Result]]) -> Written:
        sources = [work.randomness(seed * size + i) for i in range(size)]
        out = decode(prompts=prompts, randomness=sources, record="stats", **options)
        return Written([result.tokens for result in out], [result.stats for result in out])

    def plain(**given: object) -> list[Result]:
        return autoregressive_decode_batch(target, **given)

    def speculative(**given: object) -> list[Result]:
        return speculative_decode_batch(target, drafter, gamma=gamma, **given)

    return [
        Row("plain", lambda seed: written(seed, plain), work.stop_tokens),
        Row("speculative", lambda seed: written(seed, speculative), work.stop_tokens),
    ]


def moved(drafter: ModelDrafter, device: torch.device) -> ModelDrafter:
    """A copy of a drafter whose network lies on another device."""
    network = copy.deepcopy(drafter.model.model).to(device)
    model = CausalLM(network, max_length=drafter.max_length)
    return ModelDrafter(model, vocab_size=drafter.vocab_size)
