"""Medusa heads: small heads on the target's last hidden row guess several next tokens at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specdec_core.drafters.protocol import no_draft
from specdec_core.models import CausalLM
from specdec_core.randomness import Randomness, upload
from specdec_core.sampling import Sampling
from specdec_core.threads import Threads
from specdec_core.verify import Draft


class MedusaHeads:
    """K residual blocks x + silu(W x + b), one for each place ahead.

    weight: [K, width, width], each [out, in]. bias: [K, width]. The target's own output head makes
    logits of what comes out, so weights of zero predict what the target itself would.
    Source: Cai et al. 2024 (arXiv 2401.10774), section 2.1.1. Raises ValueError where the shapes
    or dtypes do not fit each other.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        square = weight.dim() == 3 and weight.shape[1] == weight.shape[2] and len(weight) > 0
        if not square or bias.shape != weight.shape[:2] or bias.dtype != weight.dtype:
            raise ValueError(
                "Medusa heads need weight [K, width, width] and bias [K, width] of one dtype, not "
                f"{list(weight.shape)} {weight.dtype} and {list(bias.shape)} {bias.dtype}."
            )
        self.weight, self.bias = weight, bias

    def __len__(self) -> int:
        return len(self.weight)

    def hidden(self, row: Tensor, heads: int | None = None) -> Tensor:
        """Hidden rows [..., K, width] of the places ahead of `row` [..., width], by one product.

        heads: only the first so many of the K.
        """
        weight, bias = self.weight[:heads], self.bias[:heads]
        blocks = F.linear(row, weight.flatten(0, 1), bias.flatten()).unflatten(-1, bias.shape)
        return row.unsqueeze(-2) + F.silu(blocks)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> MedusaHeads:
        """The heads that `to_tensors` named."""
        return cls(tensors["weight"], tensors["bias"])

    def to_tensors(self) -> dict[str, Tensor]:
        """The weights by name, for a safetensors file."""
        return {"weight": self.weight.detach(), "bias": self.bias.detach()}


class MedusaDrafter:
    """Drafts with heads on the target's own last hidden row: no draft model, no cache.

    The row that predicted the newest token is there already, from the forward that verified the
    last round. Head i guesses the token i places after the newest from that row alone: it is not
    told which tokens were drafted before its own, so acceptance falls with i. It drafts at most K
    tokens, and none where the target has no row yet (a prompt of one token).

    Exact, since `verify` judges it with the q it drew from. Medusa's own "typical acceptance"
    (section 2.3.1) is not: it keeps a token whenever p of it passes a threshold that depends on
    the entropy of p, whatever q is: a token that passes comes out as often as it is drafted.

    Raises ValueError where the target does not run by our own forward, or the heads do not fit it.
    """

    max_length: int | None = None
    length = 0

    def __init__(self, target: CausalLM, heads: MedusaHeads) -> None:
        if not getattr(target, "fast", False):
            name = type(getattr(target, "model", target)).__name__
            raise ValueError(
                f"{name} does not run by our own forward, so its hidden "
                "rows are not kept; choose a model of the Llama family, or another drafter."
            )
        norm, weight = target.own.norm, heads.weight
        fits = norm.shape[0], norm.dtype, norm.device
        if (weight.shape[-1], weight.dtype, weight.device) != fits:
            raise ValueError(
                f"The heads are {weight.shape[-1]} wide in {weight.dtype} on {weight.device}, and "
                f"the target is {fits[0]} in {fits[1]} on {fits[2]}: load heads trained for this "
                "target, in its dtype."
            )
        self.target, self.heads = target, heads
        self.vocab_size = target.vocab_size

    @torch.inference_mode()
    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        target = self.target
        if target.length != len(context) - 1:
            raise ValueError(
                f"These heads read a target of {target.length} rows beside a text of "
                f"{len(context)} tokens: decode with the very target they were built with."
            )
        row, gamma = target.hidden[-1:], min(gamma, len(self.heads))
        if not len(row) or not gamma:
            return no_draft(self.vocab_size, target.device)
        with Threads(target.threads):
            logits = target.own.head(self.heads.hidden(row[0], gamma))
            return self._drawn(logits, context, sampling, randomness)

    def _drawn(
        self, logits: Tensor, context: Sequence[int], sampling: Sampling, randomness: Randomness
    ) -> Draft:
        """One token of each row [gamma, vocab_size], in order."""
        if not sampling.processors:
            probs = sampling.probs(logits)
            tokens = [randomness.categorical(row) for row in probs]
            return Draft(torch.stack(tokens), probs)
        # What depends on the prefix must see the tokens drawn before.
        text = upload(context, torch.int64, logits.device)
        rows = []
        for row in logits.split(1):
            rows.append(sampling.probs(row, text))
            text = torch.cat([text, randomness.categorical(rows[-1][0]).reshape(1)])
        return Draft(text[len(context) :], torch.cat(rows))

    def rollback(self, length: int) -> None:
        """Nothing to forget: it has no rows."""
