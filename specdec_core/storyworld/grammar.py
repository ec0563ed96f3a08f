"""The grammar of storyworld: stories, recipes and toy code, each text with its exact probability.

`log_prob` is always that of the text under the whole grammar, the choice of its kind included
(a text shows its kind in its first word), in nats.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .code import code
from .plots import story
from .recipes import recipe
from .writer import Program, SamplingWriter, Writer, derivations

PROGRAMS: dict[str, Program] = {"story": story, "recipe": recipe, "code": code}
KINDS = tuple(PROGRAMS)
KIND_WEIGHTS = (2.0, 1.0, 1.0)


@dataclass(frozen=True)
class Text:
    """One text: its words, and the natural log of its probability under the whole grammar."""

    kind: str
    tokens: tuple[str, ...]
    log_prob: float

    @property
    def text(self) -> str:
        """The text as people write it: punctuation attached, code indented by four spaces."""
        return spell(self.tokens)


def any_text(w: Writer) -> None:
    """The whole grammar as one program."""
    PROGRAMS[w.choose(KINDS, KIND_WEIGHTS)](w)


def sample(rng: random.Random, kind: str | None = None) -> Text:
    """Draw one text, of any kind or of one kind (`log_prob` counts the choice of kind anyway)."""
    if kind is not None and kind not in PROGRAMS:
        raise ValueError(f"There is no kind {kind!r}; there are {', '.join(KINDS)}.")
    w = SamplingWriter(rng)
    drawn = w.choose(KINDS, KIND_WEIGHTS) if kind is None else kind
    if kind is not None:
        w.log_prob = _kind_log_prob(kind)
    PROGRAMS[drawn](w)
    return Text(drawn, tuple(w.tokens), w.log_prob)


def texts(seed: int, count: int, kind: str | None = None) -> Iterator[Text]:
    """`count` texts; the same seed gives the same texts."""
    rng = random.Random(seed)
    for _ in range(count):
        yield sample(rng, kind)


def log_prob(tokens: tuple[str, ...] | list[str]) -> float:
    """Natural log probability of exactly these words.

    Raises ValueError where the grammar cannot write them.
    """
    found = derivations(any_text, tokens)
    if not found:
        raise ValueError("The grammar of storyworld cannot write this text.")
    if len(found) > 1:
        raise AssertionError("The grammar of storyworld must write a text in one way only.")
    return found[0]


def _kind_log_prob(kind: str) -> float:
    probe = _KindOnly(KINDS.index(kind))
    probe.choose(KINDS, KIND_WEIGHTS)
    return probe.log_prob


class _KindOnly(Writer):
    """Always takes one fixed option: used to read off its probability."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def choose_index(self, count: int, weights: tuple[float, ...] | None) -> int:
        return self.index


def spell(words: tuple[str, ...] | list[str]) -> str:
    """Join words as people write them; the same rules as the tokenizer's decoder."""
    text = " ".join(words)
    for mark in (".", ",", "!", "?", ":", ")", "”", "("):
        text = text.replace(f" {mark}", mark)
    text = text.replace(" \n", "\n").replace(" \t", "\t")
    for mark in ("\n", "\t", "(", "“"):
        text = text.replace(f"{mark} ", mark)
    return text.replace("\t", "    ")
