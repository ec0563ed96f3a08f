"""Acceptance as a sign of health: a draft that no longer fits costs speed and shows nowhere else.

The text stays right whatever the draft does, so a wrong draft model, a stale draft cache or a
sampling that differs between the two sides can run for weeks unseen. Acceptance shows them.
"""

from __future__ import annotations

import math
from collections import deque

from specdec_core.sampling import is_number, is_whole
from specdec_core.trace import Round, ratio


class AcceptanceMonitor:
    """Watches the acceptance of the rounds it is given, of one run or of many, and says if it fell.

    baseline: the acceptance rate of a healthy pair. None: learned from the first `learn` judged
        drafts, as their rate less two standard errors, so that the true one is below it in about
        2 % of cases.
    drop: the fall worth an alarm; half of the baseline where that is less.
    between_false_alarms: judged drafts from one false alarm to the next, on average, at least.
    learn: judged drafts a baseline is learned from. window: judged drafts that `rate` and
        `per_position` look back on.

    The rule is Page's CUSUM (Biometrika 41, 1954). `evidence` is the largest log-likelihood ratio
    of "the rate is baseline - drop" to "it is baseline" over any stretch of verdicts up to now, and
    the alarm is raised once it reaches log(between_false_alarms). While the rate is the baseline or
    more, verdicts independent, P(alarm within n judged drafts) <= n / between_false_alarms, and the
    mean time to one is `between_false_alarms` or more (Lorden, Ann. Math. Stat. 42, 1971). Power:
    every fall to baseline - drop or below is found, after about `delay(rate)` judged drafts.

    Verdicts of real text are not independent: rejections come in clumps, and kinds of text differ.
    On mixed text of the bundled pair, at 10,000, false alarms came every 7,000 to 20,000 judged
    drafts with its default draft, every 1,600 to 4,000 with the strong one, and with independent
    verdicts at the same rates hardly ever. Where the kinds differ by as much as `drop`, a change of
    kind is a fall: watch each kind on its own.

    Raises ValueError for a setting that cannot be.
    """

    def __init__(
        self,
        baseline: float | None = None,
        *,
        drop: float = 0.1,
        between_false_alarms: int = 10_000,
        learn: int = 400,
        window: int = 200,
    ) -> None:
        for name, rate in (("baseline", baseline), ("drop", drop)):
            if rate is not None and not (is_number(rate) and 0 < rate < 1):
                raise ValueError(f"{name} must lie between 0 and 1, both left out, not {rate!r}.")
        whole = {"between_false_alarms": between_false_alarms, "learn": learn, "window": window}
        for name, value in whole.items():
            if not is_whole(value) or value < 2:
                raise ValueError(f"{name} must be a whole number of at least 2, not {value!r}.")
        self.baseline, self.drop, self.learn = baseline, drop, learn
        self.limit = math.log(between_false_alarms)
        self._recent: deque[tuple[int, bool]] = deque(maxlen=window)
        self._learned = [0, 0]
        self.reset()

    def reset(self) -> None:
        """Forget the alarm and what led to it; the baseline stays."""
        self.evidence, self.alarm = 0.0, None
        self._recent.clear()

    def add(self, round: Round) -> None:
        """Take in one more round: its judged drafts, in order."""
        for position, verdict in enumerate(round.verdicts):
            if verdict in ("accepted", "rejected"):
                kept = verdict == "accepted"
                self._recent.append((position, kept))
                if self.baseline is None:
                    self._learn(kept)
                else:
                    self._weigh(kept)

    @property
    def rate(self) -> float:
        """accepted / judged over the window; NaN before any verdict."""
        return ratio(sum(kept for _, kept in self._recent), len(self._recent))

    @property
    def judged_at(self) -> list[int]:
        """Judged drafts in the window, by position in the draft."""
        return [len(verdicts) for verdicts in self._by_position()]

    @property
    def per_position(self) -> list[float]:
        """Acceptance in the window by position in the draft, given that it was judged."""
        return [ratio(sum(verdicts), len(verdicts)) for verdicts in self._by_position()]

    def delay(self, rate: float) -> float:
        """About how many judged drafts at `rate` raise the alarm; infinite where it need never be.

        limit / the mean evidence of a verdict: close for a fall of `drop` or more, and too long for
        a smaller one, which chance helps along. Raises ValueError before a baseline is known, and
        for a rate that cannot be.
        """
        if self.baseline is None:
            raise ValueError("There is no baseline yet: add more rounds, or give one.")
        if not (is_number(rate) and 0 <= rate <= 1):
            raise ValueError(f"rate must lie between 0 and 1, not {rate!r}.")
        gain = rate * self._step(True) + (1 - rate) * self._step(False)
        return self.limit / gain if gain > 0 else math.inf

    def __repr__(self) -> str:
        expected = f"{self.baseline:.3f} expected" if self.baseline else "expected rate not learned"
        positions = " ".join(f"{rate:.2f}" for rate in self.per_position)
        seen = f"{self.rate:.3f} over {len(self._recent)} judged drafts, by position {positions}"
        return (
            f"AcceptanceMonitor({seen if self._recent else 'nothing judged'}; {expected}; evidence "
            f"{self.evidence:.1f} of {self.limit:.1f}{'; ALARM' if self.alarm else ''})"
        )

    def _by_position(self) -> list[list[bool]]:
        found: list[list[bool]] = []
        for position, kept in self._recent:
            found += [[] for _ in range(position + 1 - len(found))]
            found[position].append(kept)
        return found

    def _learn(self, kept: bool) -> None:
        self._learned[0] += kept
        self._learned[1] += 1
        if self._learned[1] == self.learn:
            rate = (self._learned[0] + 1) / (self.learn + 2)  # never 0 or 1
            error = math.sqrt(rate * (1 - rate) / self.learn)
            self.baseline = max(rate - 2 * error, 1 / (self.learn + 2))

    def _step(self, kept: bool) -> float:
        """Evidence of one verdict: log(P(verdict | fallen) / P(verdict | healthy))."""
        fallen = max(self.baseline - self.drop, self.baseline / 2)
        healthy = self.baseline
        return math.log(fallen / healthy) if kept else math.log((1 - fallen) / (1 - healthy))

    def _weigh(self, kept: bool) -> None:
        self.evidence = max(0.0, self.evidence + self._step(kept))
        if self.evidence >= self.limit and self.alarm is None:
            self.alarm = (
                f"Acceptance fell: {self.rate:.2f} over the last {len(self._recent)} judged "
                f"drafts where {self.baseline:.2f} was expected; check that the draft fits the "
                "target (weights, tokenizer, sampling, caches), or whether the text is of a new "
                "kind."
            )
