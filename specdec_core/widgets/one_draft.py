"""One drafted position: p, q, and the exact law of what comes out, by the real verification."""

from __future__ import annotations

from functools import lru_cache

import torch

from specdec_core.exact import exact_law
from specdec_core.lab import museum
from specdec_core.randomness import Randomness
from specdec_core.verify import Draft

# How to draw after a rejection -> (mistake of the museum, words of a control, words of a sentence)
DRAWS = {
    "residual": (None, "the residual, max(p − q, 0) / sum", "the residual"),
    "M1": ("M1", "p itself (M1)", "p (M1)"),
    "M3": ("M3", "softmax of max(p − q, 0) (M3)", "a softmax of the residual (M3)"),
    "M4": ("M4", "max(p − q, 0), not divided (M4)", "the residual, not divided (M4)"),
}
Row = tuple[float, ...]


@lru_cache(maxsize=1024)
def one_draft_law(p: Row, q: Row, draw: str) -> tuple[Row, Row]:
    """Exact law of one drafted position: (kept, drawn again), each a probability a token.

    The real verification is run for every outcome of its choices, with the mistake installed that
    `draw` names, or with none.
    """
    # The row after a kept draft is not looked at here: one token, so that nothing branches on it.
    after = torch.zeros(len(p), dtype=torch.float64)
    after[0] = 1
    rows = torch.stack([torch.tensor(p, dtype=torch.float64), after])
    offered = torch.tensor(q, dtype=torch.float64)
    with museum.installed(DRAWS[draw][0], *museum.Example().models()) as pieces:

        def run(coins: Randomness) -> tuple[int, int]:
            token = coins.categorical(offered).reshape(1)
            verdict = pieces.verify(rows, Draft(token, offered[None]), coins, "token")
            kept = int(verdict.accepted)
            return int(token if kept else verdict.token), kept

        law = exact_law(run)
    kept, drawn = (tuple(law.get((i, flag), 0.0) for i in range(len(p))) for flag in (1, 0))
    return kept, drawn
