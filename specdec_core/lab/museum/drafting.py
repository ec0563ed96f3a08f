"""Mistakes in what is drafted and in which distribution is recorded (M2, M8, M12, M13, M21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from specdec_core.drafters import Drafter
from specdec_core.lab.museum.pieces import Example, Pieces, Relayed, always, by_last, exhibit
from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling
from specdec_core.verify import Draft, Verification, verify

FIRST = ("first token", "two tokens", "whole text")
LATER = ("two tokens", "whole text")


class Changed:
    """A drafter that passes everything on; a mistake overrides `propose`."""

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner
        self.vocab_size = inner.vocab_size
        self.max_length = inner.max_length

    @property
    def length(self) -> int:
        return self.inner.length

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        return self.inner.propose(context, gamma, sampling, randomness)

    def rollback(self, length: int) -> None:
        self.inner.rollback(length)


class MostLikely(Relayed):
    def categorical(self, probs: Tensor) -> Tensor:
        return probs.argmax(-1)


class ArgmaxDrafter(Changed):
    """Drafts the most likely token, and says it was drawn from the softmax."""

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        return self.inner.propose(context, gamma, sampling, MostLikely(randomness))


@exhibit(
    "M2",
    "Argmax draft, softmax q in the ratio",
    how="The draft is greedy (it is the faster one, after all), but q is taken for the softmax.",
    damage="The law is (.75, .25) instead of (.6, .4).",
    seen_by=(*FIRST, "accepted length"),
)
def argmax_draft(run: Pieces) -> None:
    run.drafter = ArgmaxDrafter(run.drafter)


class OneMore(Changed):
    """Drafts one token more than asked for and keeps it back."""

    extra: Tensor

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        if gamma == 0:
            return self.inner.propose(context, 0, sampling, randomness)
        draft = self.inner.propose(context, gamma + 1, sampling, randomness)
        self.extra = draft.tokens[-1]
        return Draft(draft.tokens[:-1], draft.probs[:-1])


@exhibit(
    "M8",
    "Bonus token drawn from the draft",
    how="After a full accept the draft's next token is taken over, unjudged.",
    damage="The first gamma tokens are right; with gamma = 1 two tokens have total variation .16.",
    seen_by=LATER,
    example=Example(tokens=3),
)
def bonus_from_draft(run: Pieces) -> None:
    drafter = OneMore(run.drafter)

    def stand_in(p: Tensor, draft: Draft, randomness: Randomness, rule: str) -> Verification:
        if draft.tokens.shape[-1]:
            bonus = one_hot(drafter.extra.to(p.device), p.shape[-1]).to(p.dtype)
            p = torch.cat([p[:-1], bonus[None]])
        return verify(p, draft, randomness, rule)

    run.drafter, run.verify = drafter, stand_in


class ShapedDraw(Relayed):
    """Draws from the distribution after temperature, top-k and top-p of the one it is given."""

    def __init__(self, inner: Randomness, sampling: Sampling) -> None:
        super().__init__(inner)
        self.sampling = sampling

    def categorical(self, probs: Tensor) -> Tensor:
        return self.inner.categorical(self.sampling.probs(probs.log()[None])[0])


class RawRecorder(Changed):
    """Records q as the plain softmax, and draws from what the sampling makes of it."""

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        raw = Sampling(processors=sampling.processors)
        draw = ShapedDraw(randomness, replace(sampling, processors=()))
        return self.inner.propose(context, gamma, raw, draw)


@exhibit(
    "M12",
    "q recorded before top-k, top-p or temperature",
    how="The ratio uses the draft's softmax, the draw uses its truncated one.",
    damage="The law is (.533, .467, 0) instead of (.625, .375, 0): total variation .092. "
    "Acceptance looks better: 1 instead of .908.",
    seen_by=(*FIRST, "accepted length"),
    example=Example(always(0.5, 0.3, 0.2), always(0.4, 0.35, 0.25), sampling=Sampling(top_k=2)),
)
def q_before_truncation(run: Pieces) -> None:
    run.drafter = RawRecorder(run.drafter)


class NoEcho:
    """A `LogitsProcessor`: no token may directly repeat itself."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.scatter(-1, input_ids[:, -1:], -torch.inf)


class OncePerRound(Sampling):
    """Applies the processors to all rows as if each continued the text before the draft."""

    def _process(self, scores: Tensor, tokens: Tensor | None) -> Tensor:
        if tokens is None:
            return super()._process(scores, tokens)
        before = tokens[: tokens.shape[0] - scores.shape[0] + 1]
        return torch.cat([super(OncePerRound, self)._process(row[None], before) for row in scores])


@exhibit(
    "M13",
    "Penalty applied once, not at each drafted prefix",
    how="The processors run on the round's whole block with the text before it.",
    damage="The first token is right, but the bonus token may repeat the draft before it: two "
    "tokens have total variation .319.",
    seen_by=(*LATER, "greedy"),
    example=Example(
        always(0.5, 0.3, 0.2), always(0.2, 0.5, 0.3), tokens=3, prompt=(2,),
        sampling=Sampling(processors=(NoEcho(),)),
    ),
)  # fmt: skip
def processed_once(run: Pieces) -> None:
    s = run.sampling
    run.sampling = OncePerRound(s.temperature, s.top_k, s.top_p, s.processors)


class Independent(Changed):
    """Draws gamma tokens, all from the distribution after the same context."""

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        drafts = [self.inner.propose(context, 0, sampling, randomness)]
        for _ in range(gamma):
            self.inner.rollback(len(context) - 1)
            drafts.append(self.inner.propose(context, 1, sampling, randomness))
        return Draft(torch.cat([d.tokens for d in drafts]), torch.cat([d.probs for d in drafts]))


COPYING = by_last((0.5, 0.5), (0.9, 0.1), (0.1, 0.9))


@exhibit(
    "M21",
    "Independent drafts instead of a chain",
    breaks="acceptance",
    how="gamma tokens are drawn from one forward of the draft.",
    damage="The law is right (q is recorded); of 2 drafts 1.6 are accepted instead of 2.",
    seen_by=("accepted length",),
    example=Example(COPYING, COPYING, gamma=2, tokens=3),
)
def independent_drafts(run: Pieces) -> None:
    run.drafter = Independent(run.drafter)
