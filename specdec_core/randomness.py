"""Where every random choice of a run comes from: seeded, scripted, or enumerated.

A run makes only two kinds of choices: it draws a token from a distribution, and it finds the first
drafted token that is rejected. Both go through one object, so the same decoding code can be
sampled (`Seeded`), replayed (`Scripted`) or visited outcome by outcome (`Enumerated`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index
from typing import Protocol

import torch
from torch import Tensor


class Randomness(Protocol):
    """What decoding asks for.

    `coins` holds the uniforms that the last `first_rejection` compared, float64 [..., gamma], or
    None where the verdict was not decided by uniforms.
    """

    coins: Tensor | None

    def categorical(self, probs: Tensor) -> Tensor:
        """Draw one token id from `probs` [..., V] (any float dtype); int64 [...], same device."""

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        """Index of the first rejected draft, int64 [...]; gamma where all are accepted.

        Both inputs are [..., gamma]: p and q of the drafted tokens. A draft is accepted with
        probability min(1, p/q) (Leviathan et al. 2023, Algorithm 1).
        """


def upload(values: object, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Values as a tensor on `device`; to CUDA from pinned memory, so that the host never waits."""
    tensor = torch.as_tensor(values, dtype=dtype)
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def inverse_cdf(probs: Tensor, u: Tensor | float) -> Tensor:
    """Turn uniforms `u` float64 [...] in [0, 1) into token ids int64 [...] by inverse CDF.

    `probs` [..., V] need not sum to one. A token of probability zero is never returned: the CDF is
    flat over zeros, and the point looked up stays below the total, since u is at most 1 - 2**-53.
    """
    cdf = probs.cumsum(-1, dtype=torch.float64)
    if cdf.is_cuda:  # a parallel scan rounds differently from one token to the next
        cdf = torch.where(probs > 0, cdf, 0.0).cummax(-1).values
    total = cdf[..., -1:]
    point = (u.unsqueeze(-1) if isinstance(u, Tensor) else u) * total
    if probs.dtype == torch.float64:  # whose smallest numbers are too coarse for that
        point = torch.minimum(point, total.nextafter(-total))
    return torch.searchsorted(cdf, point, right=True).squeeze(-1).clamp(max=probs.shape[-1] - 1)


def judge(u: Tensor, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
    """First index where `u * q < p` fails, int64 [...]; gamma where it never fails.

    The product form needs no division: q may be as small as it likes, and p = 0 always rejects.
    """
    accepted = u * draft_prob < target_prob  # in float64, which u is
    return accepted.cumprod(-1).sum(-1)


def check_seed(seed: object) -> int:
    """`seed` itself, once it is known to be a whole number of 64 bits."""
    try:
        whole = index(seed)
    except TypeError:
        whole = None
    if whole is None or not -(2**63) <= whole < 2**64:
        raise ValueError(f"seed must be a whole number between -2**63 and 2**64, not {seed!r}.")
    return whole


def _fold(seed: int) -> int:
    """All 64 bits of a seed in the 32 that torch's generator reads; below 2**32 it stays itself.

    The factor is odd, so seeds that differ in one half alone stay different.
    """
    high, low = divmod(seed % 2**64, 2**32)
    return (low + 0x9E3779B1 * high) % 2**32


class Seeded:
    """Uniforms from one seed, drawn on the CPU in float64 whatever the model's device.

    One seed therefore gives the same tokens on CPU and GPU, for the same probabilities. Every call
    consumes a fixed number of uniforms: one a token, one a drafted position.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._generator = torch.Generator()
        self.seed = check_seed(self._generator.seed() if seed is None else seed)
        self._generator.manual_seed(_fold(self.seed))
        self.coins: Tensor | None = None

    def uniforms(self, *shape: int) -> Tensor:
        """The next uniforms of the stream, float64 on the CPU; n at once are n one by one."""
        return torch.rand(shape, dtype=torch.float64, generator=self._generator)

    def categorical(self, probs: Tensor) -> Tensor:
        u = self.uniforms(*probs.shape[:-1])
        # A single one goes along as a number: nothing to upload.
        return inverse_cdf(probs, upload(u, torch.float64, probs.device) if u.dim() else u.item())

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        u = self.uniforms(*target_prob.shape)
        self.coins = upload(u, torch.float64, target_prob.device)
        return judge(self.coins, target_prob, draft_prob)


class Scripted:
    """Choices written down beforehand: tokens to draw, in order, and coins to compare, in order.

    `trace.replay()` makes one from a recorded run; a learner makes one to set each coin by hand.
    Raises ValueError where the script has run out or names a token of probability zero.
    """

    def __init__(self, tokens: Iterable[int], coins: Iterable[float] = ()) -> None:
        self._tokens = iter(tokens)
        self._coins = iter(coins)
        self.coins: Tensor | None = None

    def categorical(self, probs: Tensor) -> Tensor:
        token = next(self._tokens, None)
        if token is None:
            raise ValueError("The script has no more tokens: give one for every draw of the run.")
        if not 0 <= token < probs.shape[-1] or not probs[token] > 0:
            raise ValueError(f"The script draws token {token}, which has probability zero here.")
        return torch.tensor(token, device=probs.device)

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        gamma = target_prob.shape[-1]
        coins = [coin for _, coin in zip(range(gamma), self._coins, strict=False)]
        if len(coins) < gamma:
            raise ValueError("The script has no more coins: give one for every drafted token.")
        self.coins = upload(coins, torch.float64, target_prob.device)
        return judge(self.coins, target_prob, draft_prob)


class Enumerated:
    """One path through all outcomes, with its probability; `exact_law` walks every path.

    `path` lists the branch taken at each choice so far; later choices take their first branch. A
    choice branches only where the outcome differs: one way for each token of positive probability,
    gamma + 1 ways at most for the verdict of a round.
    """

    coins: Tensor | None = None

    def __init__(self, path: Iterable[int] = ()) -> None:
        self._script = list(path)
        self.branches: list[tuple[int, int]] = []
        self._factors: list[float] = []

    @property
    def probability(self) -> float:
        """Probability of the choices made so far."""
        return math.prod(self._factors)

    def next_path(self) -> list[int] | None:
        """The path after this one in depth-first order; None after the last."""
        taken = list(self.branches)
        while taken:
            branch, ways = taken.pop()
            if branch + 1 < ways:
                return [b for b, _ in taken] + [branch + 1]
        return None

    def _choose(self, weights: list[float]) -> int:
        """Take one of the outcomes with positive weight and return its index in `weights`."""
        outcomes = [i for i, weight in enumerate(weights) if weight > 0]
        if not outcomes:
            raise ValueError("Nothing can be chosen here: every probability is zero or NaN.")
        step = len(self.branches)
        branch = self._script[step] if step < len(self._script) else 0
        self.branches.append((branch, len(outcomes)))
        self._factors.append(weights[outcomes[branch]])
        return outcomes[branch]

    def categorical(self, probs: Tensor) -> Tensor:
        weights = probs.double()
        weights = (weights / weights.sum()).tolist()
        return torch.tensor(self._choose(weights), device=probs.device)

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        reach, weights = 1.0, []
        for p, q in zip(target_prob.tolist(), draft_prob.tolist(), strict=True):
            # As in `judge`, NaN on either side rejects.
            accept = p / q if p < q else float(p >= q)
            weights.append(reach * (1.0 - accept))
            reach *= accept
        index = self._choose([*weights, reach])
        return torch.tensor(index, device=target_prob.device)
