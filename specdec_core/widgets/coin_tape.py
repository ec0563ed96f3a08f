"""The coin tape: each draft of one round over a bar from 0 to 1, with its threshold and its coin.

    coin_tape(out.trace, pair.decode)                                  a real run, coins to move
    coin_tape(out.trace, pair.decode, pair.target, pair.drafter)       ... and the last token too
    coin_tape_by_hand(".6 .4", ".8 .2", "A A B", u=(0.3, 0.9, 0.5))    your own p, q and drafts

Whatever is set, the picture shows a `Round` that the core's own loop made from those coins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdec_core.decode import speculative_rounds
from specdec_core.drafters import Drafter, TableDrafter
from specdec_core.models import LanguageModel, TableModel
from specdec_core.randomness import Scripted, inverse_cdf, judge, upload
from specdec_core.sampling import Sampling
from specdec_core.text import Ending
from specdec_core.trace import Round, Trace, coins_for
from specdec_core.widgets.coin_picture import draw_coin_tape
from specdec_core.widgets.picture import Picture, visible
from specdec_core.widgets.rows import floats, read_row
from specdec_core.widgets.stage import Stage, shell_with, slider, stepper, text

Decode = Callable[[Sequence[int]], str]
# Stands for the token that would be drawn where no model is at hand to draw it.
NOT_DRAWN = -1
LARGEST_COIN = 0.999
MOST_BY_HAND = 6
MOST_ROOM = 10_000
LETTERS = "ABCDEFGHIJ"

# A dragged coin has as many digits as the screen has pixels; three are enough to read.
ROUND_COINS = """
local.reduce = (state, changes) => {
  const next = { ...state };
  for (const [name, value] of Object.entries(changes))
    next[name] = typeof value === "number" ? Math.round(value * 1000) / 1000 : value;
  return next;
};
"""


class Coins(Scripted):
    """Drafts and coins written down; the token after them by inverse CDF from the uniform `last`.

    last_row: what that token was drawn from, [V], once it was drawn.
    """

    def __init__(self, drafted: Sequence[int], coins: Sequence[float], last: float) -> None:
        super().__init__(drafted, coins)
        self._drafts_left = len(drafted)
        self._last = _float64(_checked(last, "v"))
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
    stop_tokens: tuple[int, ...] = ()
    room: int = MOST_ROOM

    def play(self, coins: Sequence[float], last: float) -> tuple[Round, Tensor]:
        """The round that the core's loop makes of these coins; and the row of its last draw."""
        gamma, vocab = len(self.drafted), self.p.shape[-1]
        randomness = Coins(self.drafted, coins, last)
        rounds = speculative_rounds(
            TableModel(lambda prefix: self.p[len(prefix) - 1], vocab),
            TableDrafter(lambda prefix: self.q[len(prefix) - 1], vocab),
            [0], gamma=gamma, max_new_tokens=self.room, stop_tokens=self.stop_tokens,
            randomness=randomness,
        )  # fmt: skip
        return next(rounds), randomness.last_row

    @property
    def favourites(self) -> list[int]:
        """The target's most likely token at each position."""
        return self.p.argmax(-1).tolist()


class CoinTape(Stage):
    """A stage that puts back the recorded coins when another round is chosen."""

    _esm = shell_with(ROUND_COINS)

    def __init__(self, *arguments: object, starts: Callable[[int], dict], **state: object) -> None:
        self._starts = starts
        super().__init__(*arguments, **state)

    def _redraw(self, change: dict) -> None:
        before, now = change["old"], change["new"]
        if now.get("round") != before.get("round"):
            fresh = {**now, **self._starts(now["round"])}
            if fresh != now:
                self.state = fresh
                return
        super()._redraw(change)


def coin_tape(
    trace: Trace,
    decode: Decode,
    target: LanguageModel | None = None,
    drafter: Drafter | None = None,
    *,
    sampling: Sampling = Sampling(),
    round: int = 1,
) -> Stage:
    """A recorded run, one round at a time; its coins can be moved.

    decode: token ids -> text, used for one token at a time.
    target, drafter: the pair of the run. With them the round is played again for other coins, the
        last token included, so they must not be in the middle of a run; without them another
        verdict leaves that token open.
    sampling: the one the run used. round: the one to show first, from 1.

    Raises ValueError for a round the run does not have.
    """
    run = _Recorded(trace, decode, target, drafter, sampling)
    most = max((r.gamma for r in trace.rounds), default=0)
    controls = [
        stepper("round", "round", 1, len(trace.rounds)),
        *(slider(f"u{i}", f"coin u of draft {i}", 0, LARGEST_COIN, 0.001) for i in _count(most)),
    ]
    if run.live:
        controls.append(slider("v", "coin v of the last token", 0, LARGEST_COIN, 0.001))
    idle = {f"u{i}": 0.5 for i in _count(most)}
    state = {**idle, "round": round, **run.starts(round)}
    return CoinTape(run.view, "Coin tape", controls, starts=run.starts, **state)


def coin_tape_by_hand(
    p: str = ".6 .4",
    q: str = ".8 .2",
    drafted: str = "A A A",
    *,
    u: Sequence[float] = (0.3, 0.9, 0.5),
    v: float = 0.5,
) -> Stage:
    """A round on numbers the reader sets: p and q (the same at every position), drafts and coins.

    p, q: probabilities of the tokens A, B, C, ... as text. drafted: their letters, one a draft.
    u: the coin of each draft. v: the uniform that draws the token after them.
    """
    coins = [*u, *[0.5] * MOST_BY_HAND][:MOST_BY_HAND]
    controls = [
        text("p", "p of A, B, ...", 12),
        text("q", "q of A, B, ...", 12),
        text("drafted", "drafted tokens", 12),
        *(slider(f"u{i}", f"coin u of draft {i}", 0, LARGEST_COIN, 0.001)
          for i in _count(MOST_BY_HAND)),
        slider("v", "coin v of the last token", 0, LARGEST_COIN, 0.001),
    ]  # fmt: skip
    state = {f"u{i}": coin for i, coin in enumerate(coins, start=1)}
    return CoinTape(
        view_by_hand, "Coin tape", controls, starts=lambda _: {}, p=p, q=q, drafted=drafted,
        **state, v=v,
    )  # fmt: skip


def view_by_hand(p: str, q: str, drafted: str, v: float, **u: float) -> Picture:
    """The picture of `coin_tape_by_hand`; ValueError where the numbers make no round."""
    target, draft = (
        _float64(floats(read_row(x, n, len(LETTERS)))) for x, n in ((p, "p"), (q, "q"))
    )
    if len(target) != len(draft):
        raise ValueError(f"p has {len(target)} numbers and q has {len(draft)}: give the same.")
    tokens = _letters(drafted, draft)
    gamma = len(tokens)
    rows = Rows(target.expand(gamma + 1, -1), draft.expand(gamma, -1), tokens)
    played, _ = rows.play(_coins(u, gamma), v)
    return draw_coin_tape(
        played, lambda token: LETTERS[token], "One round on your numbers",
        favourites=rows.favourites, last_coin=v,
    )  # fmt: skip


class _Recorded:
    """The rounds of a run, played again with the coins the reader sets."""

    def __init__(
        self,
        trace: Trace,
        decode: Decode,
        target: LanguageModel | None,
        drafter: Drafter | None,
        sampling: Sampling,
    ) -> None:
        self.trace, self.decode, self.sampling = trace, decode, sampling
        self.target, self.drafter = target, drafter
        self.live = target is not None and drafter is not None
        last = trace.rounds[-1]
        self.stop_tokens = last.emitted[-1:] if last.finish_reason == "stop" else ()
        self._rows: dict[int, Rows] = {}

    def name(self, token: int) -> str:
        """A token as it is shown; special tokens have no text."""
        if token == NOT_DRAWN:
            return "?"
        return visible(self.decode([token])) or "⟨end⟩"

    def recorded(self, number: int) -> Round:
        if not 1 <= number <= len(self.trace.rounds):
            raise ValueError(f"This run has rounds 1 to {len(self.trace.rounds)}, no {number}.")
        return self.trace.rounds[number - 1]

    def room(self, number: int) -> int:
        """Tokens that could still be written when the round began, where that is known."""
        round = self.recorded(number)
        return len(round.emitted) if round.finish_reason == "length" else MOST_ROOM

    def starts(self, number: int) -> dict[str, float]:
        """The coins of a round as they fell, to three digits where those decide the same."""
        if not 1 <= number <= len(self.trace.rounds):
            return {}
        round = self.recorded(number)
        fell = coins_for(round) if round.u is None else round.u
        probs = zip(round.target_prob, round.draft_prob, strict=True)
        coins = [_short(u, p, q) for u, (p, q) in zip(fell, probs, strict=True)]
        state = {f"u{i}": coin for i, coin in enumerate(coins, start=1)}
        if self.live:
            _, row = self.rows(number).play(coins, 0.5)
            state["v"] = _coin_for(round.token, row)
        return state

    def rows(self, number: int) -> Rows:
        """p and q of a round, computed once: the draft again, then one target forward."""
        if number not in self._rows:
            drafted = self.recorded(number).drafted
            before = [t for r in self.trace.rounds[: number - 1] for t in r.emitted]
            text = [*self.trace.prompt, *before]
            self.drafter.rollback(0)
            self.target.rollback(0)
            draft = self.drafter.propose(text, len(drafted), self.sampling, Scripted(drafted))
            ids = upload([*text, *drafted], torch.int64, self.target.device)
            logits = self.target.forward(ids, keep=len(drafted) + 1)
            p = self.sampling.probs(logits, ids if self.sampling.processors else None)
            self.drafter.rollback(0)
            self.target.rollback(0)
            q = draft.probs.new_zeros(len(drafted), p.shape[-1])
            q[:, : draft.probs.shape[-1]] = draft.probs
            self._rows[number] = Rows(
                p.double().cpu(), q.double().cpu(), drafted, self.stop_tokens, self.room(number)
            )
        return self._rows[number]

    def judged_again(self, number: int, coins: Sequence[float]) -> Round:
        """The round with other coins, where no models are at hand: the verdict from p and q."""
        recorded = self.recorded(number)
        p, q = (_float64(x) for x in (recorded.target_prob, recorded.draft_prob))
        accepted = int(judge(_float64(coins), p, q))
        token = recorded.token if accepted == recorded.accepted else NOT_DRAWN
        ending = Ending(self.room(number), self.stop_tokens, None)
        emitted = ending.keep([*recorded.drafted[:accepted], token])
        return replace(
            recorded, accepted=accepted, token=token, emitted=tuple(emitted), u=tuple(coins),
            finish_reason=ending.reason,
        )  # fmt: skip

    def view(self, round: int, v: float = 0.5, **u: float) -> Picture:
        """One round of the run, with the coins `u1`, `u2`, ... and `v` of its last token."""
        recorded = self.recorded(round)
        coins = _coins(u, recorded.gamma)
        if self.live:
            rows = self.rows(round)
            played, favourites = rows.play(coins, v)[0], rows.favourites
        else:
            played, favourites = self.judged_again(round, coins), None
        same = (played.accepted, played.token) == (recorded.accepted, recorded.token)
        title = f"Round {round} of {len(self.trace.rounds)}" + (
            ", as it ran" if same else ", with other coins"
        )
        before = [t for r in self.trace.rounds[: round - 1] for t in r.emitted]
        tail = self.decode([*self.trace.prompt, *before][-12:]).replace("\n", "⏎")
        return draw_coin_tape(
            played, self.name, title, before=tail, favourites=favourites,
            last_coin=v if self.live else None,
        )  # fmt: skip


def _float64(values: float | Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _count(most: int) -> range:
    return range(1, most + 1)


def _checked(coin: float, what: str) -> float:
    if not 0 <= coin < 1:
        raise ValueError(f"The coin {what} must lie from 0 to below 1, not {coin:g}.")
    return float(coin)


def _coins(u: Mapping[str, float], gamma: int) -> list[float]:
    """The coins of the first `gamma` positions; ValueError for one outside [0, 1)."""
    return [_checked(u[f"u{i}"], f"u of draft {i}") for i in _count(gamma)]


def _short(u: float, p: float, q: float) -> float:
    """The coin to three digits where that leaves the verdict, else as it fell."""
    probs = _float64([p]), _float64([q])
    verdict = judge(_float64([u]), *probs)
    for candidate in (round(u, 3), round(u - 0.0005, 3), round(u + 0.0005, 3)):
        if 0 <= candidate <= LARGEST_COIN and verdict == judge(_float64([candidate]), *probs):
            return candidate
    return u


def _coin_for(token: int, row: Tensor) -> float:
    """A uniform by which `inverse_cdf` draws `token` from `row`, as short as it can be."""
    edges = (row.cumsum(-1) / row.sum()).tolist()
    middle = ((edges[token - 1] if token else 0.0) + edges[token]) / 2
    for digits in (2, 3, 4, 6):
        coin = round(middle, digits)
        if coin < 1 and inverse_cdf(row, _float64(coin)) == token:
            return coin
    return middle


def _letters(words: str, q: Tensor) -> tuple[int, ...]:
    """Drafted letters as token ids; ValueError for one that the draft cannot offer."""
    names = words.replace(",", " ").upper().split()
    if len(names) > MOST_BY_HAND:
        raise ValueError(f"Draft at most {MOST_BY_HAND} tokens; these are {len(names)}.")
    tokens = []
    for name in names:
        token = LETTERS.find(name) if len(name) == 1 else -1
        if not 0 <= token < len(q):
            last = LETTERS[len(q) - 1]
            raise ValueError(f"There is no token {name!r}: write letters from A to {last}.")
        if q[token] == 0:
            raise ValueError(f"The draft cannot offer {name}: its q is 0.")
        tokens.append(token)
    return tuple(tokens)
