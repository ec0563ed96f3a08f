"""What decoding asks of whoever proposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling
from specdec_core.verify import Draft


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

        Returns tokens int64 [n] and q [n, vocab_size], n from 0 to gamma; q comes from the call
        that drew the token, so it cannot differ from what was sampled.
        """

    def rollback(self, length: int) -> None:
        """Keep at most `length` rows of the cache."""


def no_draft(vocab_size: int, device: torch.device | str = "cpu") -> Draft:
    """A draft of no tokens."""
    return Draft(
        torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, vocab_size, device=device)
    )
