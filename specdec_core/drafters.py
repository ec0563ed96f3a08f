"""Who proposes: drafters that guess the next gamma tokens for the target to judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specdec_core.models import LanguageModel, TableModel
from specdec_core.ngram import NGramTable
from specdec_core.randomness import Randomness, upload
from specdec_core.sampling import Sampling, is_whole
from specdec_core.verify import Draft

__all__ = [
    "Drafter",
    "LookupDrafter",
    "ModelDrafter",
    "NGramDrafter",
    "NGramTable",
    "TableDrafter",
]


class Drafter(Protocol):
    """Proposes tokens, and says with which probability it drew each.

    vocab_size: it drafts ids below this. max_length: longest text it can read, None for any.
    length: rows in its cache, always a prefix of the committed text without its newest token.
    """

    vocab_size: int
    max_length: int | None

    @property
    def length(self) -> int: ...

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """Draft at most `gamma` tokens to follow `context`, one after the other.

        Returns tokens int64 [gamma] and q [gamma, vocab_size]; q comes from the call that drew the
        token, so it cannot differ from what was sampled.
        """

    def rollback(self, length: int) -> None:
        """Keep at most `length` rows of the cache."""


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


class LookupDrafter:
    """Drafts what followed the last few tokens when they stood in the text before: no network.

    longest, shortest: how many last tokens to look for, the most first. Where they never stood,
        nothing is drafted. The latest place counts, and a draft that reaches the end of the text
        goes on with itself, so that a loop is copied as one.

    q is a point mass, whatever the sampling: a draft is kept with the target's own probability of
    it. The places of all n-grams are kept, so a look-up costs the same however long the text is.
    Source: prompt look-up decoding, Saxena 2023 (github.com/apoorvumang/prompt-lookup-decoding).
    Raises ValueError unless 1 <= shortest <= longest.
    """

    max_length: int | None = None
    length = 0

    def __init__(self, vocab_size: int, longest: int = 3, shortest: int = 1) -> None:
        if not (is_whole(longest) and is_whole(shortest) and 1 <= shortest <= longest):
            raise ValueError(
                "A look-up needs whole numbers 1 <= shortest <= longest, "
                f"not shortest={shortest!r} and longest={longest!r}."
            )
        self.vocab_size = vocab_size
        self.sizes = range(longest, shortest - 1, -1)
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        self._read(context)
        text = self._text
        found = (self._after.get(tuple(text[-n:])) for n in self.sizes if n < len(text))
        place = next((place for place in found if place is not None), None)
        drafted: list[int] = []
        while place is not None and len(drafted) < gamma:
            ahead = place + len(drafted) - len(text)
            token = drafted[ahead] if ahead >= 0 else text[ahead]
            if token >= self.vocab_size:
                break
            drafted.append(token)
        tokens = torch.tensor(drafted, dtype=torch.int64)
        probs = torch.zeros(len(drafted), self.vocab_size)
        return Draft(tokens, probs.scatter_(1, tokens[:, None], 1.0))

    def _read(self, context: Sequence[int]) -> None:
        """Note what follows each n-gram, for the part of the text that is new."""
        known = len(self._text)
        self._text += context[known:]
        for place in range(max(known, 1), len(self._text)):
            for n in self.sizes:
                if n <= place:
                    self._after[tuple(self._text[place - n : place])] = place

    def rollback(self, length: int) -> None:
        if length < len(self._text):
            self._text, self._after = [], {}
