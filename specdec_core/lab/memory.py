"""The memory bill: what a pair takes, predicted from its configs and as it is allocated.

Weights and caches are predicted to the byte; the activations of a verification roughly, since how
long each intermediate tensor lives is a matter of the code that runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PretrainedConfig

from specdec_core.drafters import Drafter
from specdec_core.lab.checks import check_whole
from specdec_core.lab.measure import draft_network
from specdec_core.models import CausalLM, LanguageModel
from specdec_core.randomness import Seeded
from specdec_core.request import check_gamma
from specdec_core.sampling import Sampling
from specdec_core.verify import Draft, verify


@dataclass(frozen=True)
class Bill:
    """One line of the memory bill, in bytes; allocated is None where it was not measured."""

    what: str
    predicted: int
    allocated: int | None = None


def memory_bill(target: CausalLM, drafter: Drafter, gamma: int) -> list[Bill]:
    """Weights and caches of both models and the activations of one verification.

    Our own forward allocates its cache when the model is loaded, transformers' at its first call.
    One verification is run to be measured, which leaves the target's cache empty. Raises ValueError
    for a gamma below 0, and for one whose verification does not fit the target's cache.
    """
    rows = check_gamma(gamma) + 1
    if target.max_length is not None and rows >= target.max_length:
        raise ValueError(
            f"A verification of {gamma} drafts does not fit a cache of {target.max_length} tokens: "
            f"give a gamma of at most {target.max_length - 2}, or load the model with a larger "
            "max_length."
        )
    peak = peak_bytes(lambda: _verify_once(target, rows))
    bill = model_bill("target", target)
    draft = draft_network(drafter)
    if draft is not None:
        bill += [line for line in model_bill("draft", draft, beside=target) if line.predicted]
    return [
        *bill,
        Bill(f"activations of {rows} rows, roughly", activation_bytes(target, rows), peak),
    ]


def model_bill(side: str, lm: CausalLM, beside: CausalLM | None = None) -> list[Bill]:
    """Weights and cache of one model.

    beside: a model whose weights are there anyway; those it shares are not counted again.
    """
    config, length = lm.model.config, lm.max_length
    there = _pieces(beside) if beside else {}
    own = [w for w in lm.model.parameters() if w.untyped_storage().data_ptr() not in there]
    predicted = weight_bytes(config, lm.dtype)
    if len(own) < len(list(lm.model.parameters())):
        predicted = sum(w.numel() for w in own) * lm.dtype.itemsize
    held = {piece: size for piece, size in _pieces(lm).items() if piece not in there}
    return [
        Bill(f"{side} weights", predicted, sum(held.values())),
        Bill(
            f"{side} cache of {length:,} tokens",
            cache_bytes(config, length, lm.dtype),
            lm.cache_bytes,
        ),
    ]


def _pieces(lm: CausalLM) -> dict[int, int]:
    """Where its weights lie, and how long: parameters may be views of one piece of memory."""
    storages = (w.untyped_storage() for w in lm.model.parameters())
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def step_weights(model: LanguageModel) -> int:
    """Weights that one token is multiplied with in a step, about half its operations.

    Of a model our own forward runs, those of its layers and its head; of another, all parameters.
    """
    own = getattr(model, "own", None)
    if own is None:
        network = getattr(model, "model", None)
        return count_parameters(network.config) if network is not None else 0
    maps = ("qkv", "out", "gate_up", "down")
    layers = [getattr(layer, name).weight.numel() for layer in own.layers for name in maps]
    return sum(layers) + own.head.weight.numel()


def weight_bytes(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """Size of a model's parameters, without making it."""
    return count_parameters(config) * dtype.itemsize


def count_parameters(config: PretrainedConfig) -> int:
    """How many parameters a model of this config has, tied ones counted once."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def cache_bytes(config: PretrainedConfig, length: int, dtype: torch.dtype) -> int:
    """Keys and values: 2 x layers x key-value heads x head width x tokens x bytes.

    Raises ValueError for a length below 0.
    """
    check_whole("length", length, least=0)
    config = config.get_text_config()
    _, kv_heads, width = _heads(config)
    return 2 * config.num_hidden_layers * kv_heads * width * length * dtype.itemsize


def activation_bytes(lm: CausalLM, rows: int) -> int:
    """Rough peak of one verification of `rows` tokens: the larger of its two parts.

    In a layer: queries, keys and values, plain and turned, with the tables that turn them; the
    feed-forward's two halves, their product, and some hidden states. In the verdict: logits, p, q,
    and q with a row of zeros, in float32 or wider, and two rows in float64 to draw from. Raises
    ValueError for no rows.
    """
    check_whole("rows", rows, least=1)
    config = lm.model.config.get_text_config()
    heads, kv_heads, width = _heads(config)
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    layer = 4 * (heads + 2 * kv_heads) * width + 4 * inner + 6 * config.hidden_size
    verdict = rows * (lm.dtype.itemsize + 3 * max(4, lm.dtype.itemsize)) + 2 * 8
    return max(rows * layer * lm.dtype.itemsize, lm.vocab_size * verdict)


def _heads(config: PretrainedConfig) -> tuple[int, int, int]:
    """Query heads, key-value heads, and the width of each."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return heads, kv_heads, getattr(config, "head_dim", None) or config.hidden_size // heads


class _Watch(TorchDispatchMode):
    """Counts the memory of the tensors that are made inside it, and notes the peak."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {t.untyped_storage()._cdata for t in _tensors((args, kwargs))}
        out = function(*args, **(kwargs or {}))
        for tensor in _tensors(out):
            storage = tensor.untyped_storage()
            if storage._cdata not in given | self._known:
                self._known.add(storage._cdata)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        return out

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


@torch.inference_mode()
def peak_bytes(run: Callable[[], object]) -> int:
    """Most memory that the tensors made by `run` held at once, on any device.

    What a captured CUDA graph keeps for itself is not seen.
    """
    with _Watch() as watch:
        run()
    return watch.peak


def _verify_once(target: CausalLM, rows: int) -> None:
    """One verification of rows - 1 drafts, in every shape as a round runs it."""
    target.rollback(0)
    target.forward([0], keep=1)
    p = Sampling().probs(target.forward([0] * rows))
    tokens = torch.zeros(rows - 1, dtype=torch.int64, device=p.device)
    verify(p, Draft(tokens, p[:-1].clone()), Seeded(0))
    target.rollback(0)
