"""Self-speculation by early exit: the target's own first layers draft for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.graphs import GraphedForward
from specdec_core.models import CausalLM, check_rollback
from specdec_core.randomness import upload
from specdec_core.sampling import is_whole
from specdec_core.threads import Threads


class EarlyExitModel:
    """The first layers of a target and its output head: a `LanguageModel` that costs no memory.

    target: the model that verifies; our own forward must run it.
    layers: how many of its layers to run, 1 to all.
    norm: a last norm trained for this exit, [width] in the target's dtype; by default the
        target's own, which was trained for another depth.

    The first layers compute the same keys and values whoever runs them, so this model reads the
    target's cache and has none of its own: wherever the target has read, it has nothing to catch
    up with. Past the target's rows it writes its own, which verification writes again, and they
    count only until the target reads or rolls back. `ModelDrafter(EarlyExitModel(target, 4))` is
    the drafter; in a batch each text gets a cache of the whole target for it. Source: Zhang et al.
    2023 (arXiv 2309.08168), section 3; Elhoushi et al. 2024 (arXiv 2404.16710), section 4.3, for
    the shared cache.

    Raises ValueError where the target has not so many layers or does not run by our own forward,
    or where `norm` does not fit it.
    """

    def __init__(self, target: CausalLM, layers: int, norm: Tensor | None = None) -> None:
        if not getattr(target, "fast", False):
            name = type(getattr(target, "model", target)).__name__
            raise ValueError(
                f"{name} does not run by our own forward, so it has no "
                "early exit; choose a model of the Llama family, or another drafter."
            )
        most = len(target.own.layers)
        if not is_whole(layers) or not 1 <= layers <= most:
            raise ValueError(
                f"An early exit needs a whole number of layers from 1 to {most}, not {layers!r}."
            )
        self.target, self.layers = target, layers
        self.norm = target.own.norm if norm is None else _checked(norm, target.own.norm)
        self.own = target.own.first(layers, self.norm)
        on_cuda = target.device.type == "cuda"
        self._run = GraphedForward(self.own) if on_cuda else self.own
        self.vocab_size, self.max_length = target.vocab_size, target.max_length
        self.device, self.threads = target.device, target.threads
        self.forwards = 0
        self._length, self._beside = target.length, self._state()

    def _state(self) -> tuple[int, int]:
        """What changes whenever the target reads or rolls back."""
        return self.target.forwards, self.target.length

    @property
    def length(self) -> int:
        """Rows it can read: the target's, and those it wrote past them since."""
        return self._length if self._beside == self._state() else self.target.length

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        """Append `tokens`; logits [n, vocab_size] in the target's dtype, or the last `keep` rows.

        Raises ValueError where the cache is too small for them, or where they would take the
        place of rows the target still reads.
        """
        ids = upload(tokens, torch.int64, self.device)
        length = self.length
        end = length + ids.shape[0]
        if length < self.target.length:
            raise ValueError(
                f"Rows from {length} on would overwrite the target's, which holds "
                f"{self.target.length}: roll the target back first."
            )
        if end > self.max_length:
            raise ValueError(
                f"{end} tokens do not fit the target's cache of {self.max_length}; load it with a "
                "larger max_length, or write less."
            )
        self.forwards += 1
        with Threads(self.threads):
            logits = self._run.head(self._run(ids, length)[-(keep or 0) :])
        self._length, self._beside = end, self._state()
        return logits

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        self._length, self._beside = length, self._state()

    def fresh(self) -> EarlyExitModel:
        """The same exit of a fresh target, which nobody else reads: it then runs on its own."""
        return EarlyExitModel(self.target.fresh(), self.layers, self.norm)


def _checked(norm: Tensor, own: Tensor) -> Tensor:
    """`norm` itself, without gradient, once it is known to fit where `own` is."""
    if norm.shape != own.shape or norm.dtype != own.dtype or norm.device != own.device:
        raise ValueError(
            f"The exit norm is {_named(norm)}, and the target needs {_named(own)}: train one for "
            "this target, and load it in the target's dtype."
        )
    return norm.detach()


def _named(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
