"""Key-value caches that roll back, and all that differs between versions of transformers.

Rolling back a preallocated cache is setting one integer: rows past it are stale and the next
forward overwrites them. Nothing is copied or freed.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values of one layer, [1, heads, capacity, head_dim], written by index."""

    is_sliding = False
    is_croppable = True

    def __init__(self, cache: PreallocatedCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        def allocate(states: Tensor) -> Tensor:
            batch, heads, _, width = states.shape
            return states.new_zeros(batch, heads, self._cache.capacity, width)

        self.keys, self.values = allocate(key_states), allocate(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_, **__) -> tuple[Tensor, Tensor]:
        """Write the new rows after the first `length` ones; all rows up to their end come back."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self._cache.length
        end = start + key_states.shape[-2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.length + query_length, 0

    def get_seq_length(self) -> int:
        return self._cache.length

    def get_max_length(self) -> int:
        return self._cache.capacity


class PreallocatedCache(Cache):
    """A cache of fixed capacity for a batch of one, whose state is one integer, `length`.

    A forward writes rows `length` and on; the caller then moves `length` past them (`advance`), so
    a forward that was interrupted leaves the cache as it was.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        super().__init__(layers=[PreallocatedLayer(self) for _ in range(layers)])

    def allocate(
        self, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> list[Tensor]:
        """Make room now; keys and values of each layer as one, [2, heads, capacity, head_dim]."""
        shape = (2, heads, self.capacity, head_dim)
        rows = [torch.zeros(shape, dtype=dtype, device=device) for _ in self.layers]
        for layer, own in zip(self.layers, rows, strict=True):
            layer.keys, layer.values = own[:, None]
            layer.is_initialized = True
        return rows

    def advance(self, rows: int) -> None:
        self.length += rows

    def truncate(self, length: int) -> None:
        self.length = length


class GrowingCache(DynamicCache):
    """transformers' own growing cache, for models whose layers cannot be preallocated.

    Rolling back slices every layer; appending copies all rows. Correct, and slower. A layer with a
    window keeps all its rows: a text that fits the window needs no more, and can roll back.
    """

    def __init__(self, config: object) -> None:
        super().__init__(config=config)
        self.layers = [
            DynamicLayer() if type(layer) is DynamicSlidingWindowLayer else layer
            for layer in self.layers
        ]
        self.length = 0

    def advance(self, rows: int) -> None:
        self.length += rows

    def truncate(self, length: int) -> None:
        """Keep `length` rows in each layer, also where a forward was interrupted between layers."""
        for layer in self.layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)
        self.length = length


def cache_argument(model: PreTrainedModel) -> str:
    """Name of the forward argument that takes the cache: `cache`, once `past_key_values`."""
    parameters = inspect.signature(model.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def cache_layers(model: PreTrainedModel) -> list:
    """The layers transformers would cache this model with; their classes say how it attends."""
    return DynamicCache(config=model.config).layers


def only_plain_layers(model: PreTrainedModel) -> bool:
    """Whether every layer attends to all that came before, without a window."""
    return all(type(layer) is DynamicLayer for layer in cache_layers(model))


def refuse_if_fixed(model: PreTrainedModel, max_length: int) -> None:
    """Raise ValueError, naming the model, where its state cannot go back to an earlier length."""
    name = model.config.name_or_path or type(model).__name__
    if model.config.is_encoder_decoder:
        raise ValueError(f"{name} is an encoder-decoder; this package runs decoder-only models.")
    layers = cache_layers(model)
    recurrent = any(not isinstance(layer, CacheLayerMixin) or _has_state(layer) for layer in layers)
    if recurrent or getattr(model, "_is_stateful", False):
        raise ValueError(
            f"{name} keeps a recurrent state, which cannot roll back; choose a model whose layers "
            "all attend to a key-value cache."
        )
    windows = [x.sliding_window for x in layers if isinstance(x, DynamicSlidingWindowLayer)]
    if windows and max_length > min(windows):
        raise ValueError(
            f"{name} attends through a sliding window of {min(windows)} tokens and cannot roll "
            f"back past it; load it with max_length={min(windows)} or less."
        )


def _has_state(layer: object) -> bool:
    return hasattr(layer, "recurrent_states") or hasattr(layer, "conv_states")


def make_cache(
    model: PreTrainedModel, capacity: int, growing: bool | None = None
) -> PreallocatedCache | GrowingCache:
    """A cache for `model`: preallocated where every layer is plain or windowed attention.

    growing: True or False to choose; None to let the model's layers decide.
    """
    layers = cache_layers(model)
    if growing is None:
        plain = (DynamicLayer, DynamicSlidingWindowLayer)
        growing = not layers or any(type(layer) not in plain for layer in layers)
    if growing:
        return GrowingCache(model.config)
    return PreallocatedCache(len(layers), capacity)


def causal_mask(rows: int, length: int, device: torch.device) -> Tensor:
    """Who sees whom, bool [1, 1, rows, length + rows]: every new row sees the past and itself."""
    mask = torch.ones(rows, length + rows, dtype=torch.bool, device=device)
    return mask.tril(length)[None, None]
