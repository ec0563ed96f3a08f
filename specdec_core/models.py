"""Language models whose cache can roll back: a real one, and one made of tables.

A model here is its weights and a cache of `length` rows. `forward` appends rows and returns their
logits; `rollback` forgets all rows past a length. Decoding needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_core.cache import (
    GrowingCache,
    PreallocatedCache,
    cache_argument,
    causal_mask,
    make_cache,
    refuse_if_fixed,
)
from specdec_core.graphs import GraphedForward
from specdec_core.llama import LlamaForward, supports
from specdec_core.randomness import upload
from specdec_core.sampling import is_whole
from specdec_core.threads import Threads

# Longest text a cache is made for unless the caller says otherwise: memory grows with it.
DEFAULT_MAX_LENGTH = 4096
KEYS_VALUES = ("keys", "values")
# Hidden size from which a second thread pays on a CPU.
WIDE = 384


def _width(model: PreTrainedModel) -> int:
    return model.get_output_embeddings().weight.shape[1]


class LanguageModel(Protocol):
    """A causal language model with a cache that rolls back.

    vocab_size: columns of the logits. max_length: most rows the cache can hold, None for any.
    length: rows in the cache now. forwards: forward passes so far, ever. device: of the logits.
    threads: how many it is fastest in, on a CPU; None for as many as torch is set to.
    """

    vocab_size: int
    max_length: int | None
    forwards: int
    device: torch.device
    threads: int | None

    @property
    def length(self) -> int: ...

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        """Append `tokens` (n ids) and return the logits [n, vocab_size] of what follows each.

        keep: return only the last `keep` rows, which saves the output head for the others.
        """

    def rollback(self, length: int) -> None:
        """Forget all rows past `length`. Raises ValueError where there are fewer."""

    def fresh(self) -> LanguageModel:
        """The same model with an empty cache of its own; weights are shared."""


def check_rollback(length: int, rows: int) -> None:
    """Raise ValueError unless a cache of `rows` rows can go back to `length`."""
    if not 0 <= length <= rows:
        raise ValueError(f"Cannot roll back to {length} rows: the cache holds {rows}.")


class CausalLM:
    """A Hugging Face causal language model, batch of one.

    A model of the Llama family runs by our own forward (`llama.py`), any other by transformers'.

    max_length: capacity of the cache in tokens; by default the model's context, at most 4,096.
    growing: True for transformers' growing cache, False for the preallocated one, None to choose
        by the model's layers.
    library: True for transformers' forward in any case.

    Raises ValueError where the model's state cannot roll back, or where `max_length` is longer
    than the model's context.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_length: int | None = None,
        growing: bool | None = None,
        library: bool = False,
    ) -> None:
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if max_length is None:
            max_length = min(context or DEFAULT_MAX_LENGTH, DEFAULT_MAX_LENGTH)
        if not is_whole(max_length) or max_length < 1:
            raise ValueError(
                f"max_length must be a whole number of at least 1, not {max_length!r}."
            )
        if context and max_length > context:
            raise ValueError(f"max_length {max_length} is past the model's context of {context}.")
        refuse_if_fixed(model, max_length)
        self.model = model.eval()
        self.max_length: int | None = max_length
        self.vocab_size: int = model.get_output_embeddings().out_features
        self.device = model.device
        self.threads = 1 if self.device.type == "cpu" and _width(model) < WIDE else None
        self.forwards = 0
        self._cache = make_cache(model, max_length, growing)
        fast = not library and isinstance(self._cache, PreallocatedCache) and supports(model)
        self.own = LlamaForward(model, self._cache) if fast else None
        on_cuda = fast and self.device.type == "cuda"
        self._fast = GraphedForward(self.own) if on_cuda else self.own
        self._hidden, self._hidden_from = torch.empty(0, _width(model)), 0
        self._cache_argument = cache_argument(model)
        # Building the mask ourselves is cheaper; only sdpa takes it as booleans.
        self._own_mask = model.config._attn_implementation == "sdpa"

    @property
    def length(self) -> int:
        return self._cache.length

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def fast(self) -> bool:
        """Whether our own forward runs this model."""
        return self.own is not None

    @property
    def hidden(self) -> Tensor:
        """Hidden rows of the last forward after the last norm, [k, width], in the model's dtype.

        Only of rows that are still in the cache; the last is the row of its newest token. Raises
        ValueError where transformers' forward runs the model.
        """
        if not self.fast:
            raise ValueError(
                f"{type(self.model).__name__} does not run by our own forward, so its hidden rows "
                "are not kept; choose a drafter that does not read them."
            )
        return self._hidden[: max(self.length - self._hidden_from, 0)]

    @property
    def cache_bytes(self) -> int:
        """Memory the cache holds now."""
        rows = (getattr(layer, part, None) for layer in self._cache.layers for part in KEYS_VALUES)
        return sum(part.nbytes for part in rows if isinstance(part, Tensor))

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        """Append `tokens`; logits [n, vocab_size] in the model's dtype, or the last `keep` rows.

        Raises ValueError where the cache is too small for them.
        """
        ids = upload(tokens, torch.int64, self.device)
        rows, length = ids.shape[0], self._cache.length
        if length + rows > self.max_length:
            raise ValueError(
                f"{length + rows} tokens do not fit the cache of {self.max_length}; "
                "load the model with a larger max_length, or write less."
            )
        self._cache.truncate(length)
        self.forwards += 1
        with Threads(self.threads):
            if self._fast:
                hidden = self._fast(ids, length)
                logits = self._fast.head(hidden[-(keep or 0) :])
                self._hidden, self._hidden_from = hidden, length
            else:
                logits = self._library(ids, length, keep or 0)
        self._cache.advance(rows)
        return logits

    def _library(self, ids: Tensor, length: int, keep: int) -> Tensor:
        """Logits by transformers' own forward, of the last `keep` rows if not 0."""
        end, mask = length + ids.shape[0], None
        if self._own_mask and ids.shape[0] > 1 and length > 0:
            mask = causal_mask(ids.shape[0], length, self.device)
        return self.model(
            input_ids=ids[None],
            attention_mask=mask,
            position_ids=torch.arange(length, end, device=self.device)[None],
            use_cache=True,
            logits_to_keep=keep,
            **{self._cache_argument: self._cache},
        ).logits[0]

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        self._cache.truncate(length)

    def fresh(self) -> CausalLM:
        growing = isinstance(self._cache, GrowingCache)
        one = CausalLM(
            self.model, max_length=self.max_length, growing=growing, library=not self.fast
        )
        one.threads = self.threads
        return one


class TableModel:
    """A model given by a function from a prefix to the next token's probabilities.

    function: `prefix: tuple[int, ...]` -> probabilities, vocab_size numbers that sum to one. The
        logits are their logarithms in float64, so every worked example is exact.
    """

    def __init__(
        self, function: Callable[[tuple[int, ...]], Sequence[float] | Tensor], vocab_size: int
    ) -> None:
        self.function = function
        self.vocab_size = vocab_size
        self.max_length: int | None = None
        self.device = torch.device("cpu")
        self.threads: int | None = 1
        self.forwards = 0
        self._tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self._tokens)

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        """Append `tokens`; log-probabilities float64 [n, vocab_size], or the last `keep` rows."""
        fed = tokens.tolist() if isinstance(tokens, Tensor) else list(tokens)
        self.forwards += 1
        self._tokens += fed
        first = len(self._tokens) - min(keep or len(fed), len(fed))
        rows = [self._row(tuple(self._tokens[: i + 1])) for i in range(first, len(self._tokens))]
        return torch.stack(rows).log()

    def _row(self, prefix: tuple[int, ...]) -> Tensor:
        row = torch.as_tensor(self.function(prefix), dtype=torch.float64)
        if row.shape != (self.vocab_size,):
            raise ValueError(
                f"The table gives {tuple(row.shape)} numbers after {prefix}, "
                f"not {self.vocab_size} probabilities."
            )
        return row

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        del self._tokens[length:]

    def fresh(self) -> TableModel:
        return TableModel(self.function, self.vocab_size)
