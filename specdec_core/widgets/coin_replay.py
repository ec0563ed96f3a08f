"""One round played again by the core's own loop, with the coins that are set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from specdec_core.decode import speculative_rounds
from specdec_core.drafters import TableDrafter
from specdec_core.models import TableModel
from specdec_core.randomness import Scripted, inverse_cdf, judge
from specdec_core.trace import Round
from specdec_core.verify import emit

# Coins are set in steps of 0.001.
LARGEST_COIN = 0.999
MOST_ROOM = 10_000


class Coins(Scripted):
    """Drafts and coins written down; the token after them by inverse CDF from the uniform `last`.

    last_row: what that token was drawn from, [V], once it was drawn.
    """

    def __init__(self, drafted: Sequence[int], coins: Sequence[float], last: float) -> None:
        super().__init__(drafted, coins)
        self._drafts_left = len(drafted)
        self._last = float64(checked(last, "v"))
        self.last_row: Tensor | None = None

    def categorical(self, probs: Tensor) -> Tensor:
        if self._drafts_left:
            self._drafts_left -= 1
            return super().categorical(probs)
        self.last_row = probs
        return inverse_cdf(probs, self._last)


@dataclass(frozen=True)
class Rows:
    """The rows of one round, p [gamma + 1, V] and q [gamma, V], its drafts, and where it ends.

    room: tokens that may still be written.
    """

    p: Tensor
    q: Tensor
    drafted: tuple[int, ...]
    stop_tokens: frozenset[int] = frozenset()
    room: int = MOST_ROOM

    def play(self, coins: Sequence[float], last: float) -> Round:
        """The round that the core's loop makes of these coins."""
        gamma, vocab = len(self.drafted), self.p.shape[-1]
        rounds = speculative_rounds(
            TableModel(lambda prefix: self.p[len(prefix) - 1], vocab),
            TableDrafter(lambda prefix: self.q[len(prefix) - 1], vocab),
            [0], gamma=gamma, max_new_tokens=self.room, stop_tokens=self.stop_tokens,
            randomness=Coins(self.drafted, coins, last),
        )  # fmt: skip
        return next(rounds)

    def after(self, accepted: int) -> Tensor:
        """What the token after `accepted` kept drafts is drawn from, [V], not normalised."""
        q, randomness = pad(self.q, (0, 0, 0, 1)), Coins((), (), 0.5)
        emit(self.p[accepted], q[accepted], randomness)
        return randomness.last_row

    def are_of(self, round: Round, tolerance: float) -> bool:
        """Whether a recorded round could come from these rows."""
        p, q = ([row[t].item() for row, t in zip(rows, self.drafted, strict=False)]
                for rows in (self.p, self.q))  # fmt: skip
        here, there = float64([*p, *q]), float64([*round.target_prob, *round.draft_prob])
        close = torch.allclose(here, there, rtol=0, atol=tolerance)
        return close and self.p[round.accepted, round.token].item() > 0

    @property
    def favourites(self) -> list[int]:
        """The target's most likely token at each position."""
        return self.p.argmax(-1).tolist()


def coin_shown(u: float, p: float, q: float) -> tuple[float, float]:
    """The coin u of a draft as its control shows it, and as it is to be played.

    Both are a coin of three digits where one near u leaves the verdict, else the second is u.
    """
    fell, *probs = (torch.tensor([x], dtype=torch.float64) for x in (u, p, q))
    for candidate in (round(u, 3), round(u - 0.0005, 3), round(u + 0.0005, 3)):
        same = judge(fell.new_tensor([candidate]), *probs) == judge(fell, *probs)
        if 0 <= candidate <= LARGEST_COIN and same:
            return candidate, candidate
    return min(round(u, 3), LARGEST_COIN), u


def last_coin_shown(token: int, row: Tensor) -> tuple[float, float]:
    """A uniform by which `inverse_cdf` draws `token` from `row` [V], shown and to be played.

    A rare token may have none of three digits; the second is then longer than the first.
    """
    edges = (row.cumsum(-1) / row.sum()).tolist()
    middle = ((edges[token - 1] if token else 0.0) + edges[token]) / 2
    for coin in (round(middle, 2), round(middle, 3), LARGEST_COIN):
        if coin <= LARGEST_COIN and inverse_cdf(row, row.new_tensor(coin)) == token:
            return coin, coin
    return min(round(middle, 3), LARGEST_COIN), middle


def float64(values: float | Sequence[float]) -> Tensor:
    """Numbers as a tensor."""
    return torch.tensor(values, dtype=torch.float64)


def checked(coin: float, what: str) -> float:
    """The coin itself; ValueError outside [0, 1)."""
    if not 0 <= coin < 1:
        raise ValueError(f"The coin {what} must lie from 0 to below 1, not {coin:g}.")
    return float(coin)
