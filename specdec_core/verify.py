"""Accept, reject, and what is emitted then: the heart of speculative decoding.

The target's distribution is p, the draft's is q, both after temperature, top-k, top-p and
penalties. Vocabulary of a round: accepted tokens are drafts that pass; at the first failure a
corrected token is drawn from the residual norm(max(p - q, 0)); if all pass, a bonus token is drawn
from p.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from specdec_core.randomness import Randomness


class Draft(NamedTuple):
    """What a drafter proposes: tokens int64 [..., gamma] and q [..., gamma, V].

    Row i of `probs` is the very distribution that token i was drawn from, so q of a drawn token is
    never zero.
    """

    tokens: Tensor
    probs: Tensor


class Verification(NamedTuple):
    """The verdict of one round; tensors on the target's device, leading axes as the inputs'.

    accepted: int64 [...], how many drafts are kept, 0 to gamma.
    token: int64 [...], the token after them: corrected where accepted < gamma, else the bonus.
    target_prob, draft_prob: [..., gamma], p and q of the drafted tokens.
    coins: float64 [..., gamma], the uniforms compared, or None where no uniforms decided.
    residual_mass: [...], sum of max(p - q, 0) at the judged position; 1 for a bonus token. NaN
        where p or q were no distributions.
    zero_residual: bool [...], whether p = q up to rounding left no residual and p was used.
    """

    accepted: Tensor
    token: Tensor
    target_prob: Tensor
    draft_prob: Tensor
    coins: Tensor | None
    residual_mass: Tensor
    zero_residual: Tensor


def residual_weights(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    """max(p - q, 0) over the vocabulary, not normalised (Leviathan et al. 2023, section 2.3)."""
    return (target_probs - draft_probs).clamp(min=0)


def emit(target_probs: Tensor, draft_probs: Tensor, randomness: Randomness) -> tuple[Tensor, ...]:
    """Draw the token after the accepted ones from rows p and q [..., V]; q = 0 gives the bonus.

    Returns token int64 [...], residual mass [...], and whether the residual was zero [...]. A zero
    residual can only come from rounding (p = q); then p itself is the right distribution.
    """
    weights = residual_weights(target_probs, draft_probs)
    mass = weights.sum(-1)
    zero = mass <= 0
    token = randomness.categorical(torch.where(zero.unsqueeze(-1), target_probs, weights))
    return token, mass, zero


def token_rule(target_probs: Tensor, draft: Draft, randomness: Randomness) -> Verification:
    """Judge drafts one by one, left to right: keep x while u * q(x) < p(x), u uniform in [0, 1).

    Leviathan et al. 2023 (arXiv 2211.17192), Algorithm 1; Chen et al. 2023 (arXiv 2302.01318). At
    temperature 0 both p and q are one-hot and the rule is greedy matching.
    """
    gamma, vocab = draft.tokens.shape[-1], target_probs.shape[-1]
    # q knows no ids beyond its own vocabulary, and a row of zeros after the last draft: with q = 0
    # the residual is p itself, so the bonus token needs no case of its own.
    q = pad(draft.probs, (0, vocab - draft.probs.shape[-1], 0, 1))
    drafted = draft.tokens.unsqueeze(-1)
    target_prob = target_probs[..., :gamma, :].gather(-1, drafted).squeeze(-1)
    draft_prob = q[..., :gamma, :].gather(-1, drafted).squeeze(-1)
    accepted = randomness.first_rejection(target_prob, draft_prob)
    row = accepted[..., None, None]
    p_row = target_probs.take_along_dim(row, -2).squeeze(-2)
    q_row = q.take_along_dim(row, -2).squeeze(-2)
    token, mass, zero = emit(p_row, q_row, randomness)
    return Verification(accepted, token, target_prob, draft_prob, randomness.coins, mass, zero)


RULES = {"token": token_rule}


def verify(
    target_probs: Tensor, draft: Draft, randomness: Randomness, rule: str = "token"
) -> Verification:
    """Judge a draft of gamma tokens against the target; vectorised over positions and a batch.

    target_probs: p, [..., gamma + 1, V]; row i is the distribution after i accepted drafts.
    draft: tokens int64 [..., gamma] and q [..., gamma, V'], V' at most V, on the same device.
    rule: "token".

    No value is read back to the host. Raises ValueError for an unknown rule.
    """
    if rule not in RULES:
        raise ValueError(f"There is no rule {rule!r}; choose one of: {', '.join(RULES)}.")
    return RULES[rule](target_probs, draft, randomness)
