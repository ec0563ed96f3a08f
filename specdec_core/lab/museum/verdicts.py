"""Mistakes in the verdict: who is accepted, and what is drawn then (M1 to M7, M9 to M11, M14 to
M16, M20 and M22).

p is the target's distribution, q the draft's, [gamma + 1, V] and [gamma, V].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from specdec_core.lab.museum.pieces import Example, Pieces, Relayed, always, by_last, exhibit
from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling
from specdec_core.verify import Draft, Verification, emit, residual_weights, verify

FIRST = ("first token", "two tokens", "whole text")
LATER = ("two tokens", "whole text")


def peaks(probs: Tensor) -> Tensor:
    """Each row with all its mass on its most likely token."""
    return one_hot(probs.argmax(-1), probs.shape[-1]).to(probs.dtype)


@exhibit(
    "M1",
    "After a rejection, draw from p",
    how="The residual is forgotten: on a rejection the target's own distribution is sampled again.",
    damage="The law is (.72, .28) instead of (.6, .4).",
    seen_by=FIRST,
)
def draw_from_target(run: Pieces) -> None:
    run.residual_weights = lambda p, q: p


@exhibit(
    "M3",
    "Softmax over the residual",
    how="max(p - q, 0) is passed to softmax instead of being divided by its sum.",
    damage="The law is (.6900, .3100): tokens with no residual are drawn too.",
    seen_by=FIRST,
)
def softmax_residual(run: Pieces) -> None:
    def weights(p: Tensor, q: Tensor) -> Tensor:
        bonus = q.sum(-1, keepdim=True) == 0
        return torch.where(bonus, p, residual_weights(p, q).softmax(-1))

    run.residual_weights = weights


@exhibit(
    "M4",
    "Residual not normalised",
    how="The inverse CDF runs over max(p - q, 0) as it is; where u is past its sum, the search "
    "falls through to the last id.",
    damage="The law is (.29, .30, .41) instead of (.5, .3, .2).",
    seen_by=FIRST,
    example=Example(always(0.5, 0.3, 0.2), always(0.2, 0.5, 0.3)),
)
def fall_through(run: Pieces) -> None:
    def weights(p: Tensor, q: Tensor) -> Tensor:
        rest = residual_weights(p, q)
        rest[..., -1] += (1 - rest.sum(-1)).clamp(min=0)
        return rest

    run.residual_weights = weights


@exhibit(
    "M5",
    "Accept only the most likely, while sampling",
    how="The greedy test, `draft == argmax(p)`, is kept when temperature is not 0.",
    damage="The law is (1, 0): total variation .4.",
    seen_by=FIRST,
)
def greedy_test(run: Pieces) -> None:
    run.verify = lambda p, draft, randomness, rule="token": verify(
        peaks(p), draft, randomness, rule
    )


class OneUniform(Relayed):
    """Judges several positions by one and the same uniform, known so far to lie in [low, high)."""

    def __init__(self, inner: Randomness, whole_run: bool) -> None:
        super().__init__(inner)
        self.whole_run = whole_run
        self.low, self.high = 0.0, 1.0

    coins = None

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        low, high = (self.low, self.high) if self.whole_run else (0.0, 1.0)
        ratio = (target_prob.double() / draft_prob.double()).clamp(max=1)
        # Position i is the first to fail where u lies between the least ratio up to i and before.
        edges = torch.cat([ratio.new_ones(1), ratio, ratio.new_zeros(1)]).cummin(0).values
        edges = edges.clamp(low, high)
        index = self.inner.categorical(edges[:-1] - edges[1:])
        self.low, self.high = edges[index + 1].item(), edges[index].item()
        return index


SAME_COIN = Example(always(0.6, 0.4), always(0.4, 0.6), gamma=2, tokens=3)


@exhibit(
    "M6",
    "One uniform for all positions of a round",
    how="A seed set inside the loop, or one `rand()` compared with all ratios.",
    damage="The first token is right; two tokens have total variation .08.",
    seen_by=(*LATER, "accepted length"),
    example=SAME_COIN,
)
def one_uniform_a_round(run: Pieces) -> None:
    run.randomness = OneUniform(run.randomness, whole_run=False)


@exhibit(
    "M6b",
    "One uniform for the whole run",
    how="The generator is seeded anew before every coin.",
    damage="The first token is right; two tokens have total variation .16.",
    seen_by=(*LATER, "accepted length"),
    example=SAME_COIN,
)
def one_uniform_a_run(run: Pieces) -> None:
    run.randomness = OneUniform(run.randomness, whole_run=True)


@exhibit(
    "M7",
    "Bonus token is the most likely one",
    how="`argmax` of the last row instead of a draw from it.",
    damage="The first token is right; two tokens have total variation .36.",
    seen_by=LATER,
    example=Example(always(0.6, 0.4), always(0.5, 0.5), tokens=3),
)
def argmax_bonus(run: Pieces) -> None:
    def stand_in(p: Tensor, draft: Draft, randomness: Randomness, rule: str) -> Verification:
        if draft.tokens.shape[-1]:
            p = torch.cat([p[:-1], peaks(p[-1:])])
        return verify(p, draft, randomness, rule)

    run.verify = stand_in


CONTEXTS = by_last((0.6, 0.4), (0.9, 0.1), (0.2, 0.8))


@exhibit(
    "M9",
    "Go on after a rejection",
    how="The loop corrects the token and judges the next draft, which was made for another text.",
    damage="The first token is right; two tokens have total variation .07.",
    seen_by=(*LATER, "accepted length"),
    example=Example(CONTEXTS, always(0.5, 0.5), gamma=2, tokens=3),
)
def go_on(run: Pieces) -> None:
    def stand_in(p: Tensor, draft: Draft, randomness: Randomness, rule: str) -> Verification:
        target_prob = p[:-1].gather(-1, draft.tokens[:, None])[:, 0]
        draft_prob = draft.probs.gather(-1, draft.tokens[:, None])[:, 0]
        coins = []
        for i in range(len(draft.tokens)):
            one = slice(i, i + 1)
            kept = randomness.first_rejection(target_prob[one], draft_prob[one])
            coins.append(randomness.coins)
            if not kept:
                # The drafts are emitted as they stand, so the correction is written among them.
                draft.tokens[i] = emit(p[i], draft.probs[i], randomness)[0]
        bonus = emit(p[-1], torch.zeros_like(p[-1]), randomness)
        judged = torch.cat(coins) if coins and coins[0] is not None else None
        accepted = torch.tensor(len(draft.tokens), device=p.device)
        return Verification(accepted, bonus[0], target_prob, draft_prob, judged, *bonus[1:])

    run.verify = stand_in


def as_point_mass(p: Tensor, draft: Draft, randomness: Randomness, rule: str) -> Verification:
    """Keep x with probability p(x), as if q were certain of it; else draw from p without x."""
    certain = one_hot(draft.tokens, p.shape[-1]).to(p.dtype)
    return verify(p, Draft(draft.tokens, certain), randomness, rule)


@exhibit(
    "M10",
    "Compare with a target sample, then draw again",
    how="A sample of p is compared with the draft; on a mismatch a second sample is emitted.",
    damage="The drafted token with p = .4 comes out with .64.",
    seen_by=FIRST,
    example=Example(always(0.6, 0.4), always(0.0, 1.0)),
)
def draw_again(run: Pieces) -> None:
    run.verify = as_point_mass
    run.residual_weights = lambda p, q: p


@exhibit(
    "M11",
    "Row off by one",
    how="The token at position i is judged with the row that predicts position i + 1.",
    damage="The first token is (.5, .5) instead of (.6, .4).",
    seen_by=(*FIRST, "accepted length"),
    example=Example(CONTEXTS, always(0.5, 0.5)),
)
def row_off_by_one(run: Pieces) -> None:
    run.verify = lambda p, draft, randomness, rule="token": verify(
        torch.cat([p[1:], p[-1:]]), draft, randomness, rule
    )


EPSILON = 1e-6


class WithEpsilon(Relayed):
    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        return self.inner.first_rejection(target_prob, draft_prob + EPSILON)


@exhibit(
    "M14",
    "Epsilon added to q",
    how="`p / (q + 1e-6)`, against a division by zero that cannot happen.",
    damage="P(first id) is .6 * .8 / (.8 + epsilon): off by .75 epsilon.",
    seen_by=(*FIRST, "accepted length"),
)
def epsilon_in_ratio(run: Pieces) -> None:
    run.verify = lambda p, draft, randomness, rule="token": verify(
        p, draft, WithEpsilon(randomness), rule
    )


# A coin of 8 binary digits, as many as bfloat16 has.
COARSE = torch.arange(256) / 256


class CoarseCoins(Relayed):
    """Coins, p and q in bfloat16: a draft is kept by as many of the 256 coins as pass its test."""

    coins = None

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        u = COARSE.to(target_prob.device, torch.bfloat16)
        passed = u * draft_prob.bfloat16()[:, None] < target_prob.bfloat16()[:, None]
        kept = passed.double().mean(-1)
        return self.inner.first_rejection(kept, torch.ones_like(kept))


@exhibit(
    "M15",
    "Verification in half precision",
    how="p, q and u stay in the model's bfloat16, so u takes 256 values and p, q have 8 bits.",
    damage="199 of 256 coins keep the first id, .7773 instead of .7778, so P(first id) is .69961 "
    "instead of .7.",
    seen_by=(*FIRST, "accepted length"),
    example=Example(always(0.7, 0.3), always(0.9, 0.1)),
)
def half_precision(run: Pieces) -> None:
    def stand_in(p: Tensor, draft: Draft, randomness: Randomness, rule: str) -> Verification:
        rounded = Draft(draft.tokens, draft.probs.bfloat16().to(p.dtype))
        return verify(p.bfloat16().to(p.dtype), rounded, CoarseCoins(randomness), rule)

    run.verify = stand_in


class RoundedUp(Sampling):
    """Sampling whose softmax rounds the first probability up by its last bit."""

    def probs(self, logits: Tensor, tokens: Tensor | None = None) -> Tensor:
        row = super().probs(logits, tokens)
        up = torch.nextafter(row, torch.ones_like(row))
        return torch.cat([up[..., :1], row[..., 1:]], -1)


@exhibit(
    "M16",
    "Zero residual divided by its sum",
    breaks="crash",
    how="Where p = q up to rounding, a rejection (rare, but it comes) leaves no residual: 0 / 0.",
    damage="NaN: the run breaks off. Right: fall back to p and count it.",
    seen_by=("it runs",),
    example=Example(draft=always(0.6, 0.4), draft_sampling=RoundedUp()),
)
def no_fallback(run: Pieces) -> None:
    def stand_in(p: Tensor, q: Tensor, randomness: Randomness) -> tuple[Tensor, ...]:
        weights = residual_weights(p, q)
        probs = weights / weights.sum(-1, keepdim=True)
        token = randomness.categorical(probs)
        return token, probs.sum(-1), torch.zeros_like(token, dtype=torch.bool)

    run.emit = stand_in


@exhibit(
    "M20",
    "No bonus token",
    breaks="speed",
    how="After a full accept the round ends with the last draft.",
    damage="The law is right; a round of gamma = 2 emits at most 2 tokens instead of 3. (The trace "
    "then shows the last draft in the bonus token's place.)",
    seen_by=("accepted length",),
    example=Example(draft=always(0.6, 0.4), gamma=2, tokens=3),
)
def no_bonus(run: Pieces) -> None:
    def stand_in(p: Tensor, draft: Draft, randomness: Randomness, rule: str) -> Verification:
        verdict = verify(p, draft, randomness, rule)
        gamma = draft.tokens.shape[-1]
        if gamma == 0 or verdict.accepted < gamma:
            return verdict
        return verdict._replace(accepted=verdict.accepted - 1, token=draft.tokens[-1])

    run.verify = stand_in


@exhibit(
    "M22",
    "Sampler match, taken for a mistake",
    breaks="acceptance",
    how="Keep x where a sample of p equals it, else emit that sample: no q needed, and exact.",
    damage="The law is right; acceptance is sum p q = .56 instead of sum min(p, q) = .8.",
    seen_by=("accepted length",),
)
def sampler_match(run: Pieces) -> None:
    run.verify = as_point_mass
