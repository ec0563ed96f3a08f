"""The coin tape: each draft of one round over a bar from 0 to 1, with its threshold and its coin.

    coin_tape(out.trace, pair.decode)                                  a real run, coins to move
    coin_tape(out.trace, pair.decode, pair.target, pair.drafter)       ... and the last token too
    coin_tape_by_hand(".6 .4", ".8 .2", "A A B", u=(0.3, 0.9, 0.5))    your own p, q and drafts

Whatever is set, the picture shows a `Round` that the core's own loop made from those coins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from specdec_core.drafters import Drafter
from specdec_core.models import LanguageModel
from specdec_core.randomness import Scripted, judge, upload
from specdec_core.sampling import Sampling
from specdec_core.text import Ending
from specdec_core.trace import Round, Trace, coins_for
from specdec_core.widgets.coin_picture import draw_coin_tape
from specdec_core.widgets.coin_replay import (
    LARGEST_COIN,
    MOST_ROOM,
    Rows,
    checked,
    coin_shown,
    float64,
    last_coin_shown,
)
from specdec_core.widgets.picture import Picture, visible
from specdec_core.widgets.rows import floats, read_pair
from specdec_core.widgets.stage import Control, Stage, shell_with, slider, stepper, text

Decode = Callable[[Sequence[int]], str]
# Stands for the token that would be drawn where no model is at hand to draw it.
NOT_DRAWN = -1
MOST_BY_HAND = 6
NOT_THIS_RUN = (
    "These are not the models or the sampling of this run: give target, drafter, sampling and "
    "draft_sampling as the run had them."
)
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


class CoinTape(Stage):
    """A stage that puts back the recorded coins when another round is chosen."""

    _esm = shell_with(ROUND_COINS)

    def __init__(self, *arguments: object, starts: Callable[[int], dict], **state: object) -> None:
        self._starts = starts
        super().__init__(*arguments, **state)

    def settled(self, before: dict, now: dict) -> dict:
        if now.get("round") == before.get("round"):
            return now
        return now | self._starts(now["round"])


def coin_tape(
    trace: Trace,
    decode: Decode,
    target: LanguageModel | None = None,
    drafter: Drafter | None = None,
    *,
    sampling: Sampling = Sampling(),
    draft_sampling: Sampling | None = None,
    stop_tokens: Iterable[int] | None = None,
    round: int = 1,
) -> Stage:
    """A recorded run, one round at a time; its coins can be moved.

    decode: token ids -> text, used for one token at a time.
    target, drafter: the pair of the run. With them the round is played again for other coins, the
        last token included, so they must not be in the middle of a run; without them another
        verdict leaves that token open.
    sampling, draft_sampling: as the run had them.
    stop_tokens: as the run had them, so that other coins end the text too. By default the last
        token of a run that stopped, if it has no text; one with text may have ended a stop string.
        Stop strings are not looked for: the text ends by one only where it ended in the run.
    round: the one to show first, from 1.

    Raises ValueError for a round the run does not have, and where the pair does not give the p
    and q that were recorded.
    """
    stops = _inferred_stops(trace, decode) if stop_tokens is None else frozenset(stop_tokens)
    draft_sampling = sampling if draft_sampling is None else draft_sampling
    run = _Recorded(trace, decode, target, drafter, sampling, draft_sampling, stops)
    most = max((r.gamma for r in trace.rounds), default=0)
    rounds = stepper("round", "round", 1, len(trace.rounds))
    controls = [rounds, *_sliders(most)] if run.live else [rounds, *_sliders(most)[:-1]]
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
        *_sliders(MOST_BY_HAND),
    ]
    state = {f"u{i}": coin for i, coin in enumerate(coins, start=1)}
    return CoinTape(
        view_by_hand, "Coin tape", controls, starts=lambda _: {}, p=p, q=q, drafted=drafted,
        **state, v=v,
    )  # fmt: skip


def view_by_hand(p: str, q: str, drafted: str, v: float, **u: float) -> Picture:
    """The picture of `coin_tape_by_hand`; ValueError where the numbers make no round."""
    target, draft = (float64(floats(row)) for row in read_pair(p, q, len(LETTERS)))
    tokens = _letters(drafted, draft)
    gamma = len(tokens)
    rows = Rows(target.expand(gamma + 1, -1), draft.expand(gamma, -1), tokens)
    played = rows.play(_coins(u, gamma), v)
    return draw_coin_tape(
        played, lambda token: LETTERS[token], "One round on your numbers",
        favourites=rows.favourites, last_coin=v, coins=len(u),
    )  # fmt: skip


@dataclass
class _Recorded:
    """The rounds of a run, played again with the coins the reader sets."""

    trace: Trace
    decode: Decode
    target: LanguageModel | None
    drafter: Drafter | None
    sampling: Sampling
    draft_sampling: Sampling
    stop_tokens: frozenset[int]

    def __post_init__(self) -> None:
        # The models read each round once.
        self.rows, self.fell = cache(self._rows), cache(self._fell)

    @property
    def live(self) -> bool:
        return self.target is not None and self.drafter is not None

    def name(self, token: int) -> str:
        """A token as it is shown; special tokens have no text."""
        if token == NOT_DRAWN:
            return "?"
        return visible(self.decode([token])) or "⟨end⟩"

    def recorded(self, number: int) -> Round:
        if not 1 <= number <= len(self.trace.rounds):
            raise ValueError(f"This run has rounds 1 to {len(self.trace.rounds)}, no {number}.")
        return self.trace.rounds[number - 1]

    def text(self, number: int) -> list[int]:
        """Prompt and emitted tokens when the round began."""
        emitted = (token for r in self.trace.rounds[: number - 1] for token in r.emitted)
        return [*self.trace.prompt, *emitted]

    def room(self, number: int) -> int:
        """Tokens that could still be written when the round began, where that is known."""
        if self.trace.rounds[-1].finish_reason != "length":
            return MOST_ROOM
        return len(self.trace.prompt) + len(self.trace.tokens) - len(self.text(number))

    def _fell(self, number: int) -> dict[str, tuple[float, float]]:
        """Each coin of a round: as its control shows it, and as it is played while left there."""
        round = self.recorded(number)
        u = coins_for(round) if round.u is None else round.u
        facts = zip(u, round.target_prob, round.draft_prob, strict=True)
        coins = {f"u{i}": coin_shown(*fact) for i, fact in enumerate(facts, start=1)}
        if self.live:
            row = self.rows(number).after(round.accepted)
            coins["v"] = last_coin_shown(round.token, row)
        return coins

    def starts(self, number: int) -> dict[str, float]:
        """The coins of a round as its controls show them first."""
        return {name: shown for name, (shown, _) in self.fell(number).items()}

    def _rows(self, number: int) -> Rows:
        """p and q of a round; ValueError where they are not the recorded ones."""
        round = self.recorded(number)
        try:
            p, q, tolerance = self._forwards(number)
            ends = self.stop_tokens, self.room(number)
            rows = Rows(p.double().cpu(), q.double().cpu(), round.drafted, *ends)
            same = rows.are_of(round, tolerance)
        except (ValueError, IndexError) as error:
            raise ValueError(NOT_THIS_RUN) from error
        if not same:
            raise ValueError(NOT_THIS_RUN)
        return rows

    def _forwards(self, number: int) -> tuple[Tensor, Tensor, float]:
        """The draft of a round again, then one target forward: p [gamma + 1, V], q [gamma, V],
        and how far they may be from the recorded ones."""
        drafted, text = self.recorded(number).drafted, self.text(number)
        self.drafter.rollback(0)
        self.target.rollback(0)
        try:
            draft = self.drafter.propose(text, len(drafted), self.draft_sampling, Scripted(drafted))
            ids = upload([*text, *drafted], torch.int64, self.target.device)
            logits = self.target.forward(ids, keep=len(drafted) + 1)
            p = self.sampling.probs(logits, ids if self.sampling.processors else None)
            q = pad(draft.probs, (0, p.shape[-1] - draft.probs.shape[-1]))
            # The run fed its text piece by piece, which rounds otherwise than all of it at once.
            eps = max(torch.finfo(x.dtype).eps for x in (logits, q))
            return p, q, max(1e-6, eps**0.5)
        finally:
            self.drafter.rollback(0)
            self.target.rollback(0)

    def judged_again(self, number: int, coins: Sequence[float]) -> Round:
        """The round with other coins, where no models are at hand: the verdict from p and q."""
        recorded = self.recorded(number)
        p, q = (float64(x) for x in (recorded.target_prob, recorded.draft_prob))
        accepted = int(judge(float64(coins), p, q))
        token = recorded.token if accepted == recorded.accepted else NOT_DRAWN
        ending = Ending(self.room(number), self.stop_tokens, None)
        emitted = ending.keep([*recorded.drafted[:accepted], token])
        return replace(
            recorded, accepted=accepted, token=token, emitted=tuple(emitted), u=tuple(coins),
            finish_reason=ending.reason,
        )  # fmt: skip

    def played(self, number: int, coins: Sequence[float], v: float) -> Round:
        """The round with these coins; the text that ended in the run ends here too."""
        recorded = self.recorded(number)
        again = self.rows(number).play(coins, v) if self.live else self.judged_again(number, coins)
        written = (*again.drafted[: again.accepted], again.token)[: len(recorded.emitted)]
        if recorded.finish_reason is None or written != recorded.emitted:
            return again
        return replace(again, emitted=written, finish_reason=recorded.finish_reason)

    def view(self, round: int, v: float = 0.5, **u: float) -> Picture:
        """One round of the run, with the coins `u1`, `u2`, ... and `v` of its last token."""
        recorded, now = self.recorded(round), {**u, "v": v}
        fell = self.fell(round)
        coins = {n: fall if now[n] == shown else now[n] for n, (shown, fall) in fell.items()}
        us = _coins(coins, recorded.gamma)
        if all(now[name] == shown for name, (shown, _) in fell.items()):
            played = replace(recorded, u=tuple(us))
        else:
            played = self.played(round, us, coins.get("v", v))
        outcomes = {(r.accepted, r.token, r.emitted, r.finish_reason) for r in (played, recorded)}
        how = "as it ran" if len(outcomes) == 1 else "with other coins"
        return draw_coin_tape(
            played, self.name, f"Round {round} of {len(self.trace.rounds)}, {how}",
            before=self.decode(self.text(round)[-12:]),
            favourites=self.rows(round).favourites if self.live else None,
            last_coin=coins.get("v"), stop_tokens=self.stop_tokens, coins=len(u),
        )  # fmt: skip


def _inferred_stops(trace: Trace, decode: Decode) -> frozenset[int]:
    """The stop token that a run shows for certain, if any: no stop string ends without text."""
    token = trace.tokens[-1]
    stopped = trace.rounds[-1].finish_reason == "stop"
    return frozenset([token] if stopped and not decode([token]) else ())


def _count(most: int) -> range:
    return range(1, most + 1)


def _sliders(most: int) -> list[Control]:
    """A control for the coin of each draft, then one for the coin of the last token."""
    labels = {f"u{i}": f"coin u of draft {i}" for i in _count(most)}
    labels["v"] = "coin v of the last token"
    return [slider(name, label, 0, LARGEST_COIN, 0.001) for name, label in labels.items()]


def _coins(u: Mapping[str, float], gamma: int) -> list[float]:
    """The coins of the first `gamma` positions; ValueError for one outside [0, 1)."""
    return [checked(u[f"u{i}"], f"u of draft {i}") for i in _count(gamma)]


def _letters(words: str, q: Tensor) -> tuple[int, ...]:
    """Drafted letters as token ids; ValueError for one that the draft cannot offer."""
    names = [name for name in words.upper() if name not in ", "]
    if len(names) > MOST_BY_HAND:
        raise ValueError(f"Draft at most {MOST_BY_HAND} tokens; these are {len(names)}.")
    tokens = []
    for name in names:
        token = LETTERS.find(name)
        if not 0 <= token < len(q):
            last = LETTERS[len(q) - 1]
            raise ValueError(f"There is no token {name!r}: write letters from A to {last}.")
        if q[token] == 0:
            raise ValueError(f"The draft cannot offer {name}: its q is 0.")
        tokens.append(token)
    return tuple(tokens)
