"""An output head for the most frequent ids alone: a draft then spends its time on its layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ShortHead(nn.Module):
    """Logits for some ids of a vocabulary; -inf, so probability zero, for all others.

    weight: [n, width], one row for each of `ids`; an unchanged row of the target's head will do.
    ids: int64 [n], each once. out_features: size of the whole vocabulary, columns of the logits.

    Put in place of `lm_head`, it works on both of `CausalLM`'s forwards. A target that emits an id
    it has no row for costs an acceptance and no more: q is zero there, and the residual draws it.
    Source: Zhao et al. 2025, FR-Spec (arXiv 2502.14856).

    Raises ValueError where `ids` are no such list of ids.
    """

    def __init__(self, weight: Tensor, ids: Tensor, out_features: int) -> None:
        super().__init__()
        fits = ids.dtype == torch.int64 and ids.shape == weight.shape[:1] and len(ids) > 0
        inside = fits and ids.min() >= 0 and ids.max() < out_features
        if not inside or len(ids.unique()) < len(ids):
            raise ValueError(
                f"A short head needs one int64 id below {out_features} for each row of its "
                f"{list(weight.shape)} weight, none twice; got {list(ids.shape)} {ids.dtype}."
            )
        self.weight = nn.Parameter(weight)
        self.register_buffer("ids", ids)
        self.out_features = out_features

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [..., out_features] of hidden rows [..., width]."""
        logits = F.linear(hidden, self.weight)
        every = logits.new_full((*logits.shape[:-1], self.out_features), -torch.inf)
        return every.index_copy(-1, self.ids, logits)
