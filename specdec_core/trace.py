"""What happened in a run, as plain data: rounds, counts over them, and a trace that replays."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from specdec_core.randomness import Scripted


@dataclass(frozen=True)
class Round:
    """One round: gamma drafts, one target forward, a verdict, and what was emitted.

    drafted: the gamma drafted tokens. accepted: how many of them the target kept.
    token: the token drawn after those: corrected (after a rejection) or bonus.
    emitted: the tokens that joined the text; fewer than accepted + 1 where it ended.
    target_prob, draft_prob: p and q of each drafted token. u: the uniform it was judged by; None
        where no uniforms decided (enumeration).
    residual_mass: sum of max(p - q, 0) where `token` was drawn; 1 for a bonus token.
    zero_residual: p = q up to rounding left nothing, so `token` came from p.
    target_length, draft_length: rows of each cache before the round and after it.
    finish_reason: "stop" or "length" where the text ended in this round, else None.
    """

    drafted: tuple[int, ...]
    accepted: int
    token: int
    emitted: tuple[int, ...]
    target_prob: tuple[float, ...]
    draft_prob: tuple[float, ...]
    u: tuple[float, ...] | None
    residual_mass: float
    zero_residual: bool
    target_length: tuple[int, int]
    draft_length: tuple[int, int]
    finish_reason: str | None = None

    @property
    def gamma(self) -> int:
        return len(self.drafted)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """For each drafted token: accepted, rejected, unjudged (after a rejection), or unused (
        accepted, but past the end of the text)."""
        names = []
        for i in range(self.gamma):
            if i > self.accepted:
                names.append("unjudged")
            elif i >= len(self.emitted):
                names.append("unused")
            else:
                names.append("rejected" if i == self.accepted else "accepted")
        return tuple(names)

    @property
    def origins(self) -> tuple[str, ...]:
        """For each emitted token: draft, corrected, bonus, or plain (nothing was drafted)."""
        last = (
            "plain" if not self.gamma else "bonus" if self.accepted == self.gamma else "corrected"
        )
        return tuple("draft" if i < self.accepted else last for i in range(len(self.emitted)))


def ratio(part: float, whole: float) -> float:
    """part / whole; NaN where there is nothing to divide by."""
    return part / whole if whole else math.nan


@dataclass
class Stats:
    """Counts over rounds; prefill is left out of `target_forwards`.

    accepted and rejected count judged drafts that lie inside the text: a draft past a stop token
    is neither. acceptance_rate estimates alpha, the probability that one judged draft is kept.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    emitted: int = 0
    target_forwards: int = 0
    zero_residuals: int = 0
    accepted_at: list[int] = field(default_factory=list)
    judged_at: list[int] = field(default_factory=list)

    def add(self, round: Round) -> None:
        """Count one more round."""
        self.rounds += 1
        self.target_forwards += 1
        self.drafted += round.gamma
        self.emitted += len(round.emitted)
        self.zero_residuals += round.zero_residual
        missing = round.gamma - len(self.judged_at)
        self.accepted_at += [0] * missing
        self.judged_at += [0] * missing
        for i, verdict in enumerate(round.verdicts):
            kept, lost = verdict == "accepted", verdict == "rejected"
            self.accepted += kept
            self.rejected += lost
            self.accepted_at[i] += kept
            self.judged_at[i] += kept or lost

    @property
    def acceptance_rate(self) -> float:
        """accepted / (accepted + rejected), an estimate of alpha; NaN before any verdict."""
        return ratio(self.accepted, self.accepted + self.rejected)

    @property
    def accepted_fraction(self) -> float:
        """accepted / drafted; not alpha: drafts after a rejection are never judged."""
        return ratio(self.accepted, self.drafted)

    @property
    def block_efficiency(self) -> float:
        """Mean tokens emitted per target forward."""
        return ratio(self.emitted, self.target_forwards)

    @property
    def per_position(self) -> list[float]:
        """Acceptance at each position of the draft, given that it was judged."""
        return [ratio(a, n) for a, n in zip(self.accepted_at, self.judged_at, strict=True)]


@dataclass
class Trace:
    """The rounds of one run after a prompt."""

    prompt: tuple[int, ...]
    rounds: list[Round] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """The tokens the rounds emitted."""
        return [token for round in self.rounds for token in round.emitted]

    def to_json(self) -> str:
        """JSON text that `from_json` reads back without loss."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """The trace that `to_json` wrote."""
        data = json.loads(text)
        rounds = [
            Round(**{k: tuple(v) if isinstance(v, list) else v for k, v in r.items()})
            for r in data["rounds"]
        ]
        return cls(tuple(data["prompt"]), rounds)

    def replay(self) -> Scripted:
        """Randomness that makes the recorded choices again: same tokens, same verdicts."""
        drawn = (token for r in self.rounds for token in (*r.drafted, r.token))
        return Scripted(drawn, self._coins())

    def _coins(self) -> Iterator[float]:
        for round in self.rounds:
            yield from coins_for(round) if round.u is None else round.u


def coins_for(round: Round) -> Iterable[float]:
    """Uniforms that lead to the recorded verdict: 0 keeps a draft, just below 1 rejects it."""
    return [0.0 if i < round.accepted else math.nextafter(1.0, 0.0) for i in range(round.gamma)]
