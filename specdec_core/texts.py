"""Many texts of one model at once: each has its own rows in the cache, and its own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specdec_core.models import CausalLM, LanguageModel
from specdec_core.randomness import upload
from specdec_core.threads import Threads


class Texts(Protocol):
    """B texts of one model. lengths: rows of each text in the cache now."""

    lengths: list[int]

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Begin anew: the rows of each prompt, whose logits nobody needs."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Append n tokens to each text, int64 [B, n]; logits [B, n, vocab_size]."""

    def rollback(self, lengths: Sequence[int]) -> None:
        """Forget each text's rows past its length."""

    def keep(self, which: Sequence[int]) -> None:
        """Go on with these texts alone, in this order."""


def texts_of(model: LanguageModel, capacity: int) -> Texts:
    """Room for texts of up to `capacity` tokens: in one forward where the model can do so."""
    if isinstance(model, CausalLM) and model.fast:
        return LlamaTexts(model, capacity)
    return EachText(model)


class LlamaTexts:
    """Texts that share every forward of a model of the Llama family."""

    def __init__(self, model: CausalLM, capacity: int) -> None:
        self.lengths: list[int] = []
        self._model, self._capacity = model, capacity
        self._rows: list[Tensor] = []

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        prompts = [tuple(prompt) for prompt in prompts]
        different = list(dict.fromkeys(prompts))  # equal prompts are read once
        own = [self._one(prompt) for prompt in different]
        places = {prompt: i for i, prompt in enumerate(different)}
        which = upload([places[p] for p in prompts], torch.int64, self._model.device)
        self._rows = [torch.cat(layer, 1)[:, which] for layer in zip(*own, strict=True)]
        self.lengths = [len(prompt) for prompt in prompts]

    def _one(self, prompt: tuple[int, ...]) -> list[Tensor]:
        """A cache for one text that holds `prompt`."""
        run = self._model.own
        rows = [run.new_rows(self._capacity) for _ in run.layers]
        if prompt:
            ids = upload([prompt], torch.int64, self._model.device)
            run.many(ids, torch.zeros(1, dtype=torch.int64, device=ids.device), len(prompt), rows)
        return rows

    def forward(self, tokens: Tensor) -> Tensor:
        added = tokens.shape[1]
        lengths = upload(self.lengths, torch.int64, self._model.device)
        self._model.forwards += 1
        with Threads(self._model.threads):
            own, end = self._model.own, max(self.lengths) + added
            logits = own.head(own.many(tokens, lengths, end, self._rows))
        self.lengths = [length + added for length in self.lengths]
        return logits

    def rollback(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)

    def keep(self, which: Sequence[int]) -> None:
        chosen = upload(list(which), torch.int64, self._model.device)
        self._rows = [rows[:, chosen] for rows in self._rows]
        self.lengths = [self.lengths[i] for i in which]


class EachText:
    """Texts of a model that reads one text at a time: a cache and a forward for each."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._each: list[LanguageModel] = []

    @property
    def lengths(self) -> list[int]:
        return [one.length for one in self._each]

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        self._each = [self._model.fresh() for _ in prompts]
        for one, prompt in zip(self._each, prompts, strict=True):
            if prompt:
                one.forward(prompt, keep=1)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.stack([one.forward(row) for one, row in zip(self._each, tokens, strict=True)])

    def rollback(self, lengths: Sequence[int]) -> None:
        for one, length in zip(self._each, lengths, strict=True):
            one.rollback(length)

    def keep(self, which: Sequence[int]) -> None:
        self._each = [self._each[i] for i in which]
