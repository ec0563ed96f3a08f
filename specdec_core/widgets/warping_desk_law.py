"""One drafted token after temperature, top-k and top-p on both sides: the real code, enumerated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from specdec_core.drafters import TableDrafter
from specdec_core.exact import exact_law
from specdec_core.lab import museum
from specdec_core.models import TableModel
from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling

Row = tuple[float, ...]
# Which q the ratio uses -> (mistake of the museum, words of a control, words of a sentence)
RATIOS = {
    "drawn": (None, "the one really drawn from", "the q really drawn from"),
    "uncut": ("M12", "before top-k and top-p (M12)", "q before top-k and top-p (M12)"),
    "raw": ("M12", "also before temperature (M12)", "q before temperature, top-k and top-p (M12)"),
}


@dataclass(frozen=True)
class Drafted:
    """One drafted token; each row has one number a token of the vocabulary.

    wanted: the target's p, as it is sampled from. offered: how often a token is drafted. recorded:
        the q that enters the ratio. kept, redrawn: how often a token comes out as a kept draft, and
        after a rejection.
    """

    wanted: Row
    offered: Row
    recorded: Row
    kept: Row
    redrawn: Row

    @property
    def out(self) -> Row:
        """The law of the token."""
        return tuple(a + b for a, b in zip(self.kept, self.redrawn, strict=True))


@lru_cache(maxsize=4096)
def warped_draft(p: Row, q: Row, target: Sampling, draft: Sampling, ratio: str) -> Drafted:
    """Exact law of one drafted token, by the real drafter, the real verification and the museum.

    p, q: the models' probabilities at temperature 1, nothing cut. target, draft: what each side
    makes of them. ratio: a key of `RATIOS`.
    """
    wanted = _shaped(p, target)
    if ratio == "uncut":
        # M12 records the softmax of what the draft model gives, so give it the tempered row.
        q, draft = tuple(_shaped(q, Sampling(draft.temperature))), replace(draft, temperature=1.0)
    # The row after a kept draft is not looked at: one token, so that nothing branches on it.
    after = [1.0] + [0.0] * (len(p) - 1)
    rows = torch.tensor([wanted, after], dtype=torch.float64)
    drafter = TableDrafter(lambda prefix: q, len(q))
    model = TableModel(lambda prefix: p, len(p))
    recorded: Row = ()
    mistake = RATIOS[ratio][0]
    with museum.installed(mistake, model, drafter, sampling=target, draft_sampling=draft) as pieces:

        def run(coins: Randomness) -> tuple[int, int, int]:
            nonlocal recorded
            pieces.drafter.rollback(0)
            proposal = pieces.drafter.propose([0], 1, pieces.draft_sampling, coins)
            recorded = tuple(proposal.probs[0].tolist())
            verdict = pieces.verify(rows, proposal, coins, "token")
            drafted, kept = int(proposal.tokens[0]), int(verdict.accepted)
            return drafted, kept, drafted if kept else int(verdict.token)

        law = exact_law(run)

    def share(place: int, kept: tuple[int, ...]) -> Row:
        return tuple(
            sum(value for key, value in law.items() if key[place] == i and key[1] in kept)
            for i in range(len(p))
        )

    return Drafted(wanted, share(0, (0, 1)), recorded, share(2, (1,)), share(2, (0,)))


def _shaped(row: Row, sampling: Sampling) -> Row:
    """What the core's sampling makes of a model's probabilities."""
    logits = torch.tensor([row], dtype=torch.float64).log()
    return tuple(sampling.probs(logits)[0].tolist())
