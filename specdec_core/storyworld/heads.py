"""What is trained on top of the target: a norm for an early exit, and Medusa heads."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from specdec_core.drafters import MedusaHeads


def exit_model(
    target: LlamaForCausalLM, layers: int, norm: Tensor | None = None
) -> LlamaForCausalLM:
    """The first layers of `target` and its head as a model of its own, to train and to measure.

    norm: the last norm, [width]; by default it starts as the target's. Only the norm is trained.
    """
    config = deepcopy(target.config)
    config.num_hidden_layers = layers
    model = LlamaForCausalLM(config).to(target.dtype)
    # The deeper layers are what is left over.
    model.load_state_dict(target.state_dict(), strict=False)
    model.requires_grad_(False)
    if norm is not None:
        model.model.norm.weight.data.copy_(norm)
    model.model.norm.weight.requires_grad_(True)
    return model.eval()


class TrainableHeads(nn.Module):
    """`MedusaHeads` as parameters; they start at zero, where each is the target's own prediction.

    head: [V, width], the target's output head, which is not trained.
    """

    def __init__(self, head: Tensor, heads: int) -> None:
        super().__init__()
        width = head.shape[1]
        self.weight = nn.Parameter(torch.zeros(heads, width, width))
        self.bias = nn.Parameter(torch.zeros(heads, width))
        self._head = head.detach()

    @property
    def heads(self) -> MedusaHeads:
        """The same numbers as the drafter takes them."""
        return MedusaHeads(self.weight, self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [..., K, V] of the places ahead of hidden rows [..., width]."""
        return self.heads.hidden(hidden) @ self._head.t()


def ahead(rows: Tensor, heads: int) -> Tensor:
    """What lies 1 to `heads` rows after each row, [B, n - heads, heads, ...], of [B, n, ...].

    The row that predicted the newest token is all a head reads, so the first head stands for the
    row one after it.
    """
    count = rows.shape[1] - heads
    return torch.stack([rows[:, i : i + count] for i in range(1, heads + 1)], 2)
