"""What both caches of a run hold, row by row, and how far their logits are from uncached ones.

The models are watched from outside, with or without a mistake of the museum between them and the
loop, so what is written down is what a cache holds and not what the loop believes it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_core.decode import speculative_rounds
from specdec_core.drafters import ModelDrafter
from specdec_core.lab.measure import draft_network
from specdec_core.lab.memory import cache_bytes
from specdec_core.lab.museum import installed
from specdec_core.lab.museum.caches import Passed
from specdec_core.models import CausalLM
from specdec_core.pairs import Pair
from specdec_core.randomness import Seeded
from specdec_core.trace import Round, Stats

# Rows the watched caches have room for: a lesson's text, and what a mistake leaves behind.
CAPACITY = 512


@dataclass(frozen=True)
class Row:
    """One row of a cache: the token it was computed from, and that token's place in the text.

    drafted: the round that drafted it, None for a token that was text when it was fed.
    verdict: what the trace says of that draft, None for such a token.
    """

    token: int
    place: int
    drafted: int | None = None
    verdict: str | None = None

    @property
    def kept(self) -> bool:
        """The text took it in, at that place."""
        return self.verdict in (None, "accepted")


@dataclass(frozen=True)
class CacheRound:
    """One cache in one round. before: its rows when the round began. full: after the forwards.

    after: after the roll-back. error: max |logit - logit without cache| over the logits the round
    used, None where it used none.
    """

    before: tuple[Row, ...]
    full: tuple[Row, ...]
    after: tuple[Row, ...]
    error: float | None


@dataclass(frozen=True)
class LedgerRound:
    """A round of the trace with both caches. text: prompt + emitted tokens before it."""

    text: tuple[int, ...]
    round: Round
    target: CacheRound
    draft: CacheRound


@dataclass(frozen=True)
class Ledger:
    """A run with its caches. fault: the museum's id, or None. row_bytes: of target, of draft."""

    fault: str | None
    rounds: tuple[LedgerRound, ...]
    row_bytes: tuple[int, int]

    def stats(self, rounds: int) -> Stats:
        """Counts over the first `rounds` rounds."""
        stats = Stats()
        for entry in self.rounds[:rounds]:
            stats.add(entry.round)
        return stats


@dataclass(frozen=True)
class Moment:
    """A place in a run: round `number` from 0, after `phase` 0 to 2."""

    ledger: Ledger
    number: int
    phase: int

    @property
    def entry(self) -> LedgerRound:
        return self.ledger.rounds[self.number]

    @property
    def done(self) -> int:
        """Rounds that are over."""
        return self.number + (self.phase == 2)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The text now."""
        return (*self.entry.text, *(self.entry.round.emitted if self.phase == 2 else ()))

    def cache(self, side: str) -> CacheRound:
        """The round's cache of "target" or "draft"."""
        return self.entry.target if side == "target" else self.entry.draft

    def row_bytes(self, side: str) -> int:
        """Keys and values of one row, in bytes."""
        return self.ledger.row_bytes[side == "draft"]

    def rows(self, side: str) -> tuple[Row, ...]:
        """What a cache holds now."""
        cache = self.cache(side)
        if self.phase == 2:
            return cache.after
        return cache.before if side == "target" and self.phase == 0 else cache.full

    def states(self, side: str) -> list[str]:
        """The state of each of those rows: committed, speculative (not judged yet), stale (of a
        draft that was not kept), or out of place (the text's, at a row that is not its place)."""
        return [self._state(row, index) for index, row in enumerate(self.rows(side))]

    def _state(self, row: Row, index: int) -> str:
        if row.drafted == self.number and self.phase < 2:
            return "speculative"
        if not row.kept:
            return "stale"
        return "committed" if row.place == index else "out of place"

    def lost(self, side: str) -> list[int]:
        """Places of the text without a row that the next forwards read past."""
        return [place for place in self._lacking(side) if place < self._fed(side)]

    def unfed(self, side: str) -> list[int]:
        """Places of the text that the draft has yet to feed; the target always has fed its own."""
        return [place for place in self._lacking(side) if place >= self._fed(side)]

    def _lacking(self, side: str) -> list[int]:
        """Places of the text, without its newest token, that have no row."""
        held = set(self._places(side))
        return [place for place in range(len(self.tokens) - 1) if place not in held]

    def _fed(self, side: str) -> int:
        """The place up to which a cache must hold every row: the draft may lag, and then feeds all
        it lacks, so there it ends with its last row."""
        if side == "target":
            return len(self.tokens) - 1
        return max(self._places(side), default=0)

    def _places(self, side: str) -> list[int]:
        rows = zip(self.rows(side), self.states(side), strict=True)
        return [row.place for row, state in rows if state != "stale"]

    def wrong(self, side: str) -> int:
        """Rows a pass without a cache would not have, and lost ones, which it would have."""
        bad = sum(state in ("stale", "out of place") for state in self.states(side))
        return bad + len(self.lost(side))

    def largest_error(self, side: str) -> float:
        """The largest `error` of one side in the rounds that are over."""
        rounds = self.ledger.rounds[: self.done]
        return max((getattr(entry, side).error or 0.0 for entry in rounds), default=0.0)


@dataclass
class Notes:
    """What one model did in one round. fed: over all its forwards. length: its rows at the end."""

    fed: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    length: int = 0


class Watched(Passed):
    """A language model that passes everything on and notes it."""

    def __init__(self, inner: CausalLM) -> None:
        super().__init__(inner)
        self.notes = Notes()

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        logits = super().forward(tokens, keep)
        self.notes.fed += [int(token) for token in tokens]
        self.notes.logits.append(logits)
        return logits

    def take(self) -> Notes:
        """What was noted since the last call."""
        notes, self.notes = self.notes, Notes()
        notes.length = self.inner.length
        return notes


def record_caches(
    pair: Pair,
    prompt: Sequence[int],
    *,
    gamma: int = 4,
    max_new_tokens: int = 24,
    seed: int = 1,
    fault: str | None = None,
) -> Ledger:
    """Run the pair's default drafter and write both caches down; `pair`'s own stay untouched.

    fault: a cache mistake of the museum, such as "M18", or None.
    Raises ValueError where the drafter has no cache, and where a cache overflows.
    """
    network = draft_network(pair.drafter)
    if network is None:
        raise ValueError("This drafter has no cache; choose one that is a model.")
    models = [
        Watched(CausalLM(lm.model, max_length=min(CAPACITY, lm.max_length)))
        for lm in (pair.target, network)
    ]
    drafter = ModelDrafter(models[1], pair.drafter.vocab_size)
    text, noted = list(prompt), []
    with installed(fault, models[0], drafter, randomness=Seeded(seed)) as run:
        rounds = speculative_rounds(
            run.target, run.drafter, text, gamma=gamma, max_new_tokens=max_new_tokens,
            stop_tokens=pair.stop_tokens, randomness=run.randomness,
        )  # fmt: skip
        for round in rounds:
            noted.append((tuple(text), round, [watched.take() for watched in models]))
            text += round.emitted
    target, draft = (
        _one_cache(watched.inner, [(t, r, notes[side]) for t, r, notes in noted], side)
        for side, watched in enumerate(models)
    )
    entries = (
        LedgerRound(before, round, *caches)
        for (before, round, _), *caches in zip(noted, target, draft, strict=True)
    )
    sizes = [cache_bytes(lm.model.config, 1, lm.dtype) for lm in (pair.target, network)]
    return Ledger(fault, tuple(entries), (sizes[0], sizes[1]))


def _one_cache(
    model: CausalLM, noted: Sequence[tuple[tuple[int, ...], Round, Notes]], side: int
) -> list[CacheRound]:
    """The rounds of the target's cache (side 0) or of the draft's (side 1)."""
    caches: list[CacheRound] = []
    for number, (text, round, notes) in enumerate(noted):
        before = caches[-1].after if caches else ()
        # The target reads every draft; the draft never reads its last one.
        reading = [*text, *round.drafted][: len(text) + round.gamma - side]
        places = range(len(reading) - len(notes.fed), len(reading))
        rows = tuple(
            Row(token, place, number, round.verdicts[place - len(text)])
            if place >= len(text)
            else Row(token, place)
            for token, place in zip(notes.fed, places, strict=True)
        )
        if side == 0:  # the prompt is read before the first round begins
            early = sum(place < len(text) - 1 for place in places)
            before, rows = (*before, *rows[:early]), rows[early:]
        full = (*before, *rows)
        error = _distance_from_uncached(model, reading, notes.logits)
        caches.append(CacheRound(before, full, full[: notes.length], error))
    return caches


@torch.inference_mode()
def _distance_from_uncached(
    model: CausalLM, reading: list[int], logits: list[Tensor]
) -> float | None:
    """Largest difference of `logits`, the last rows after `reading`, from a pass with no cache."""
    if not logits:
        return None
    used = torch.cat(logits)
    ids = torch.tensor([reading], device=model.device)
    plain = model.model(input_ids=ids, use_cache=False).logits[0, -len(used) :]
    return (used - plain).abs().max().item()
