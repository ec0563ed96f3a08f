"""One method is one row: its runs, its times, and the one counter that all rows share.

Rows take turns: a repeat measures each once, with the seed and the prompts of that repeat, and the
row that begins moves on by one. A ratio is always taken within a repeat, so that whatever slows the
machine down for a while slows both of its sides.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from specdec_core.trace import Stats


@dataclass(frozen=True)
class Written:
    """What one run wrote: the new token ids of each text, and our own counts where it was ours."""

    texts: list[list[int]]
    stats: list[Stats] = field(default_factory=list)


@dataclass
class Row:
    """One method.

    name: what the table calls it. run: a seed -> what was written. stop_tokens: ids that end a
    text. same_law: False where it samples from another law than ours, a truncated one for instance.
    tokens, seconds: of each repeat. accepted, judged: drafts, over all repeats.
    """

    name: str
    run: Callable[[int], Written]
    stop_tokens: tuple[int, ...] = ()
    same_law: bool = True
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accepted: int = 0
    judged: int = 0

    def measure(self, seed: int) -> None:
        """One repeat; counting is not timed."""
        started = time.perf_counter()
        written = self.run(seed)
        self.seconds.append(time.perf_counter() - started)
        self.tokens.append(sum(count_tokens(text, self.stop_tokens) for text in written.texts))
        for stats in written.stats:
            self.accepted += stats.accepted
            self.judged += stats.accepted + stats.rejected

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repeat."""
        return [n / s for n, s in zip(self.tokens, self.seconds, strict=True)]

    def times(self, base: Row) -> list[float]:
        """How many times as fast as `base`, repeat by repeat."""
        return [a / b for a, b in zip(self.rates, base.rates, strict=True)]

    def numbers(self, base: Row) -> dict:
        """Everything measured, for JSON; acceptance is None where no draft of ours was judged."""
        return {
            "name": self.name,
            "same_law": self.same_law,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_second": self.rates,
            "times_plain": self.times(base),
            "acceptance": self.accepted / self.judged if self.judged else None,
        }


def count_tokens(tokens: Sequence[int], stop_tokens: Iterable[int]) -> int:
    """Tokens up to and including the first stop token: the one counter for every method."""
    stops = set(stop_tokens)
    ends = (i + 1 for i, token in enumerate(tokens) if token in stops)
    return next(ends, len(tokens))


def interleave(
    rows: Sequence[Row], repeats: int, progress: Callable[[str], None] = lambda _: None
) -> None:
    """Measure all rows once a repeat, after one run of each that is not counted.

    The seed of repeat i is i for all rows, and the row that begins is another in each.
    """
    for row in rows:
        progress(f"warming up {row.name}")
        row.run(0)
    for repeat in range(repeats):
        first = repeat % len(rows)
        for row in [*rows[first:], *rows[:first]]:
            progress(f"repeat {repeat + 1} of {repeats}, {row.name}")
            row.measure(repeat + 1)


def middle_half(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high
