"""An n-gram table learnt from text: the smallest language model that gives a dense q."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

DISCOUNT = 0.5


class NGramTable:
    """Counts of n-grams, smoothed by interpolated absolute discounting.

    p_k(x | c) = (max(count(c x) - d, 0) + d * kinds(c) * p_{k-1}(x | shorter c)) / count(c), with
    d = 0.5, down to the uniform distribution, so no token has probability zero (Chen and Goodman
    1999, section 2.7).
    """

    def __init__(self, counts: list[dict[tuple[int, ...], Counter[int]]], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._counts = counts
        self._row = lru_cache(maxsize=4096)(self._compute)

    @property
    def order(self) -> int:
        """Longest n-gram counted."""
        return len(self._counts)

    @classmethod
    def fit(cls, sequences: Iterable[Sequence[int]], order: int, vocab_size: int) -> NGramTable:
        """Count all n-grams up to `order` tokens; none crosses the border of a sequence.

        Raises ValueError where `order` is below 1 or an id lies outside the vocabulary.
        """
        if order < 1:
            raise ValueError(f"order must be at least 1, not {order}.")
        counts: list[dict[tuple[int, ...], Counter[int]]] = [{} for _ in range(order)]
        for sequence in sequences:
            ids = [int(token) for token in sequence]
            if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
                raise ValueError(f"A token id lies outside the vocabulary of {vocab_size}.")
            for i, token in enumerate(ids):
                for k in range(min(order, i + 1)):
                    counts[k].setdefault(tuple(ids[i - k : i]), Counter())[token] += 1
        return cls(counts, vocab_size)

    def probs(self, context: Sequence[int]) -> Tensor:
        """The distribution after `context`, float64 [vocab_size]; its last order - 1 ids count."""
        longest = self.order - 1
        return self._row(tuple(int(token) for token in context[max(0, len(context) - longest) :]))

    def _compute(self, context: tuple[int, ...]) -> Tensor:
        row = torch.full((self.vocab_size,), 1.0 / self.vocab_size, dtype=torch.float64)
        for k in range(min(self.order, len(context) + 1)):
            followers = self._counts[k].get(context[len(context) - k :])
            if not followers:
                break
            row = row * (DISCOUNT * len(followers))
            ids = torch.tensor(list(followers))
            row[ids] += torch.tensor(list(followers.values()), dtype=torch.float64) - DISCOUNT
            row = row / followers.total()
        return row

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain int32 tensors to save: `ngrams_k` [m, k] and `counts_k` [m], k from 1 to order."""
        tensors = {"vocab_size": torch.tensor([self.vocab_size], dtype=torch.int32)}
        for k, table in enumerate(self._counts, start=1):
            rows = [((*c, t), n) for c, followers in table.items() for t, n in followers.items()]
            ngrams = torch.tensor([ngram for ngram, _ in rows], dtype=torch.int32).reshape(-1, k)
            tensors[f"ngrams_{k}"] = ngrams
            tensors[f"counts_{k}"] = torch.tensor([n for _, n in rows], dtype=torch.int32)
        return tensors

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> NGramTable:
        """The table that `to_tensors` wrote."""
        order = sum(name.startswith("ngrams_") for name in tensors)
        counts: list[dict[tuple[int, ...], Counter[int]]] = [{} for _ in range(order)]
        for k in range(1, order + 1):
            counts_k = tensors[f"counts_{k}"].tolist()
            for ngram, n in zip(tensors[f"ngrams_{k}"].tolist(), counts_k, strict=True):
                counts[k - 1].setdefault(tuple(ngram[:-1]), Counter())[ngram[-1]] = n
        return cls(counts, int(tensors["vocab_size"]))
