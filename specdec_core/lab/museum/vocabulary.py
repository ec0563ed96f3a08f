"""Mistakes about two vocabularies: one size taken for one numbering, and padding (M23)."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.lab.museum.drafting import Changed
from specdec_core.lab.museum.pieces import Example, Pieces, always, exhibit
from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling
from specdec_core.verify import Draft


class Renumbered(Changed):
    """A drafter whose tokenizer counts the same tokens from the other end, and is not asked.

    It reads the target's ids as if they were its own, and its own ids are taken as they come.
    """

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        last = self.vocab_size - 1
        read = [last - token for token in context]
        draft = self.inner.propose(read, gamma, sampling, randomness)
        return Draft(last - draft.tokens, draft.probs.flip(-1))


SKEWED = always(0.7, 0.2, 0.1)


@exhibit(
    "M23",
    "Equal size taken for an equal tokenizer",
    breaks="acceptance",
    how="Two vocabularies of one size number the tokens differently, and only the sizes are "
    "compared.",
    damage="The law is right: q is recorded by the ids that are judged. A draft that is the target "
    "itself, numbered from the other end, is accepted with .4 instead of 1.",
    seen_by=("accepted length",),
    example=Example(SKEWED, SKEWED),
)
def renumbered(run: Pieces) -> None:
    run.drafter = Renumbered(run.drafter)


@exhibit(
    "M23b",
    "Padded vocabulary refused",
    breaks="crash",
    how="Models of one family are padded to different sizes (152064 and 151936 rows); a check on "
    "equal sizes turns the pair away.",
    damage="The run breaks off on a legitimate pair. Right: q is zero beyond the draft's own "
    "vocabulary, and of 1 draft .8 is accepted.",
    seen_by=("it runs",),
    example=Example(always(0.5, 0.3, 0.2), always(0.6, 0.4)),
)
def equal_sizes_only(run: Pieces) -> None:
    target, draft = run.target.vocab_size, run.drafter.vocab_size
    if target != draft:
        raise ValueError(f"The vocabularies have {target} and {draft} ids: different tokenizers.")
