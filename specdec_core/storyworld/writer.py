"""A grammar as a program: it writes words and asks a chooser at every open choice.

The program does not know who chooses. A sampler draws at random; an enumerator visits every choice;
a parser keeps only the choices that agree with a given text. The product of the probabilities of
the choices is the exact probability of the text, as long as one text has one derivation; the
parser returns every derivation, so that this can be tested.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

Weights = tuple[float, ...]
Program = Callable[["Writer"], None]


@lru_cache(maxsize=4096)
def _log_probs(count: int, weights: Weights | None) -> tuple[float, ...]:
    """Natural log of the probability of each of `count` options."""
    if weights is None:
        return (-math.log(count),) * count
    if len(weights) != count:
        raise ValueError(f"{count} options need {count} weights, not {len(weights)}.")
    total = math.fsum(weights)
    return tuple(math.log(weight / total) for weight in weights)


@lru_cache(maxsize=4096)
def _cumulative(weights: Weights) -> tuple[float, ...]:
    total = math.fsum(weights)
    return tuple(accumulate(weight / total for weight in weights))


class Writer:
    """Takes down the words of one text; a subclass says how an option is chosen."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.log_prob = 0.0

    def write(self, words: str) -> None:
        """Append words that stand separated by one space each."""
        self.tokens.extend(words.split(" "))

    def choose(self, options: Sequence, weights: Weights | None = None):
        """One of `options`, each with its share of `weights` (None: all alike)."""
        index = self.choose_index(len(options), weights)
        self.log_prob += _log_probs(len(options), weights)[index]
        return options[index]

    def pick(self, words: Sequence[str], weights: Weights | None = None) -> str:
        """`choose` for a word the text is sure to show later (a parser then rules out the rest)."""
        return self.choose(words, weights)

    def choose_index(self, count: int, weights: Weights | None) -> int:
        raise NotImplementedError


class SamplingWriter(Writer):
    """Draws every choice from a generator: one seed, one text."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.uniform = rng.random

    def choose_index(self, count: int, weights: Weights | None) -> int:
        if weights is None:
            return int(self.uniform() * count)
        return min(bisect_right(_cumulative(weights), self.uniform()), count - 1)


class PathWriter(Writer):
    """Follows a path of option numbers, then takes option 0; notes how many options there were."""

    def __init__(self, path: Sequence[int]) -> None:
        super().__init__()
        self.path = list(path)
        self.counts: list[int] = []

    def choose_index(self, count: int, weights: Weights | None) -> int:
        depth = len(self.counts)
        self.counts.append(count)
        if depth == len(self.path):
            self.path.append(0)
        return self.path[depth]


class _Disagreement(Exception):
    """The derivation has left the text that is being parsed."""


class ParsingWriter(PathWriter):
    """A path that is given up as soon as it writes a word the text does not have there."""

    def __init__(self, path: Sequence[int], text: Sequence[str]) -> None:
        super().__init__(path)
        self.text = text

    def pick(self, words: Sequence[str], weights: Weights | None = None) -> str:
        word = self.choose(words, weights)
        if word not in self.text:
            raise _Disagreement
        return word

    def write(self, words: str) -> None:
        start = len(self.tokens)
        super().write(words)
        if self.tokens[start:] != list(self.text[start : len(self.tokens)]):
            raise _Disagreement


def _next_path(path: list[int], counts: list[int], keep: int) -> list[int] | None:
    """The path after `path` in dictionary order with its first `keep` choices fixed."""
    for depth in range(len(counts) - 1, keep - 1, -1):
        if path[depth] + 1 < counts[depth]:
            return [*path[:depth], path[depth] + 1]
    return None


def enumerate_program(program: Program, prefix: Sequence[int] = ()) -> Iterator[Writer]:
    """Every text of `program` whose first choices are `prefix`, as finished writers.

    `log_prob` is that of the whole text, so the probabilities sum to that of the prefix.
    """
    path: list[int] | None = list(prefix)
    while path is not None:
        writer = PathWriter(path)
        program(writer)
        yield writer
        path = _next_path(writer.path, writer.counts, len(prefix))


def derivations(program: Program, tokens: Sequence[str]) -> list[float]:
    """Natural log probability of every derivation of exactly these tokens (one, or none)."""
    found: list[float] = []
    path: list[int] | None = []
    while path is not None:
        writer = ParsingWriter(path, tokens)
        try:
            program(writer)
            if len(writer.tokens) == len(tokens):
                found.append(writer.log_prob)
        except _Disagreement:
            pass
        path = _next_path(writer.path, writer.counts, 0)
    return found
