"""Drafts as a chain: a model draws each token after the ones before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec_core.models import LanguageModel, TableModel
from specdec_core.ngram import NGramTable
from specdec_core.randomness import Randomness, upload
from specdec_core.sampling import Sampling
from specdec_core.verify import Draft


class ModelDrafter:
    """Drafts with a language model: a chain, each token drawn after the ones before it.

    vocab_size: draw only ids below this (the target's vocabulary size, where the draft's is
        padded further); q is zero elsewhere, by restricting the softmax.
    """

    def __init__(self, model: LanguageModel, vocab_size: int | None = None) -> None:
        self.model = model
        self.vocab_size = min(vocab_size or model.vocab_size, model.vocab_size)
        self.max_length = model.max_length

    @property
    def length(self) -> int:
        return self.model.length

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        device = self.model.device
        text = upload(context, torch.int64, device) if sampling.processors else None
        # Whatever the cache lacks goes into the first forward: one token as a rule, two after a
        # full accept, the whole prompt at the start.
        feed: Sequence[int] | Tensor = self.readable(context[self.model.length :])
        tokens, rows = [], []
        for _ in range(gamma):
            logits = self.model.forward(feed, keep=1)
            if self.vocab_size < self.model.vocab_size:
                logits = logits[:, : self.vocab_size]
            probs = sampling.probs(logits, text)
            feed = randomness.categorical(probs[0]).reshape(1)
            if text is not None:
                text = torch.cat([text, feed])
            tokens.append(feed)
            rows.append(probs)
        if not rows:
            return Draft(
                torch.empty(0, dtype=torch.int64, device=device),
                torch.empty(0, self.vocab_size, device=device),
            )
        return Draft(torch.cat(tokens), torch.cat(rows))

    def readable(self, tokens: Sequence[int]) -> Sequence[int]:
        """Ids as this model can read them: a target padded further may emit an id past its rows.

        Any row will do for those; a wrong guess costs acceptance and never changes the law.
        """
        last = self.model.vocab_size - 1
        return [min(token, last) for token in tokens]

    def rollback(self, length: int) -> None:
        self.model.rollback(min(length, self.model.length))


class TableDrafter(ModelDrafter):
    """Drafts from a function `prefix -> probabilities [vocab_size]`, for exact examples."""

    def __init__(
        self, function: Callable[[tuple[int, ...]], Sequence[float] | Tensor], vocab_size: int
    ) -> None:
        super().__init__(TableModel(function, vocab_size))


class NGramDrafter(TableDrafter):
    """Drafts from an n-gram table: no network, a dense q, and modest acceptance."""

    def __init__(self, table: NGramTable) -> None:
        super().__init__(table.probs, table.vocab_size)
        self.table = table
