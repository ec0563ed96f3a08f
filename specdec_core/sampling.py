"""From logits to the distribution that is really sampled from.

Everything that shapes a distribution lives here, and both sides of speculative decoding use it:
the p and q of the acceptance test are what these functions return, never the raw softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real

import torch
from torch import Tensor

# A Hugging Face `LogitsProcessor`: (input_ids int64 [1, L], scores [1, V]) -> scores [1, V].
Processor = Callable[[Tensor, Tensor], Tensor]


# Below this, logits divided by the temperature may overflow; 0 is there for greedy.
COLDEST = 1e-6


def is_whole(value: object) -> bool:
    """Whether `value` is a whole number; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether `value` is a real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def keep_top_k(scores: Tensor, top_k: int) -> Tensor:
    """Scores [..., V] with all below the k-th largest set to -inf; ties with the k-th stay."""
    if top_k >= scores.shape[-1]:
        return scores
    smallest_kept = scores.topk(top_k).values[..., -1:]
    return scores.masked_fill(scores < smallest_kept, -torch.inf)


def keep_top_p(scores: Tensor, top_p: float) -> Tensor:
    """Scores [..., V] of the smallest set with mass at least `top_p`; the rest is -inf.

    Nucleus sampling (Holtzman et al. 2020); the most likely token always stays.
    """
    ascending, order = scores.sort(-1)
    removed = ascending.softmax(-1).cumsum(-1) <= 1.0 - top_p
    removed[..., -1] = False
    return scores.masked_fill(removed.scatter(-1, order, removed), -torch.inf)


@dataclass(frozen=True)
class Sampling:
    """How a distribution is made from logits: processors, then temperature, top-k, top-p.

    temperature: 0 is greedy; ties go to the lowest id.
    top_k: keep the k most likely tokens. None keeps all.
    top_p: keep the smallest set of tokens with this mass, in (0, 1]. None keeps all.
    processors: Hugging Face `LogitsProcessor` objects, for whatever depends on the prefix.

    Raises ValueError where a value is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    processors: tuple[Processor, ...] = ()

    def __post_init__(self) -> None:
        warm = is_number(self.temperature) and COLDEST <= self.temperature < math.inf
        if not (warm or (is_number(self.temperature) and self.temperature == 0)):
            raise ValueError(
                f"temperature must be 0 (greedy), or finite and at least {COLDEST:g}, "
                f"not {self.temperature!r}."
            )
        if self.top_k is not None and (not is_whole(self.top_k) or self.top_k < 1):
            raise ValueError(f"top_k must be a whole number of at least 1, not {self.top_k!r}.")
        if self.top_p is not None and not (is_number(self.top_p) and 0 < self.top_p <= 1):
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p!r}.")
        if not isinstance(self.processors, Iterable) or not all(map(callable, self.processors)):
            raise TypeError("processors must be a list of LogitsProcessor objects, such as [mine].")
        object.__setattr__(self, "processors", tuple(self.processors))

    def probs(self, logits: Tensor, tokens: Tensor | None = None) -> Tensor:
        """The distributions that `logits` [n, V] stand for, [n, V], float32 or float64.

        tokens: int64 [m], the whole text whose last n prefixes the rows continue: row i is the
        distribution after `tokens[: m - n + 1 + i]`. Only processors read it; without any it may
        be None. Half-precision logits are upcast first. A row whose logits are NaN, hold +inf or
        are all -inf comes out as NaN, so that the caller can check it without waiting here.
        """
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.processors:
            scores = self._process(scores, tokens)
        if self.temperature == 0:
            best, index = scores.max(-1, keepdim=True)
            return torch.zeros_like(scores).scatter(-1, index, 1.0) + (best - best)
        if self.temperature != 1:
            scores = scores / self.temperature
        if self.top_k is not None:
            scores = keep_top_k(scores, self.top_k)
        if self.top_p is not None and self.top_p < 1:
            scores = keep_top_p(scores, self.top_p)
        return scores.softmax(-1)

    @torch.inference_mode()
    def _process(self, scores: Tensor, tokens: Tensor | None) -> Tensor:
        if tokens is None:
            raise ValueError("These processors read the prefix: pass `tokens` beside the logits.")
        first = tokens.shape[0] - scores.shape[0] + 1
        rows = []
        for i, row in enumerate(scores.unbind(0)):
            prefix, row = tokens[None, : first + i], row[None]
            for processor in self.processors:
                row = processor(prefix, row)
            rows.append(row)
        return torch.cat(rows) if rows else scores
