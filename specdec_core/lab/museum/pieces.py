"""What a mistake is: a stand-in for one piece of a run, put in from outside.

The core has no switch for any of them. A mistake changes a `Pieces`: an object the caller passes
(target, drafter, sampling, randomness) or a function of the core, which is replaced while the run
lasts and then put back.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from specdec_core.decode import Result, speculative_decode
from specdec_core.drafters import Drafter, TableDrafter
from specdec_core.exact import Law, exact_law
from specdec_core.lab.museum.sources import GITHUB, SOURCES
from specdec_core.models import LanguageModel, TableModel
from specdec_core.randomness import Randomness, Seeded
from specdec_core.sampling import Sampling
from specdec_core.text import Ending
from specdec_core.verify import emit, residual_weights, verify

# Where each function of the core is looked up while it runs. `specdec_core.verify` as an attribute
# is the function of that name, hence the import by string.
_DECODE = importlib.import_module("specdec_core.decode")
_VERIFY = importlib.import_module("specdec_core.verify")


@dataclass
class Pieces:
    """The parts of one run that a mistake may stand in for."""

    target: LanguageModel
    drafter: Drafter
    sampling: Sampling
    draft_sampling: Sampling
    randomness: Randomness
    verify: Callable = verify
    emit: Callable = emit
    residual_weights: Callable = residual_weights
    ending: Callable = Ending


Row = Sequence[float]
Rows = Callable[[tuple[int, ...]], Row]


def always(*row: float) -> Rows:
    """The same distribution at every context."""
    return lambda new: row


def by_last(first: Row, *after: Row) -> Rows:
    """`first` for the first new token, then one row for each value of the newest token."""
    return lambda new: after[new[-1]] if new else first


def by_parity(even: Row, odd: Row) -> Rows:
    """One row after new tokens of even sum, another after an odd one: every token matters."""
    return lambda new: odd if sum(new) % 2 else even


# The standard toy: one position, p against q.
STANDARD_P, STANDARD_Q = always(0.6, 0.4), always(0.8, 0.2)


@dataclass(frozen=True)
class Example:
    """A toy on which the damage of a mistake can be written down.

    target, draft: new tokens so far -> p or q. tokens: `max_new_tokens`; one more than what is
    looked at, since the last token of a run is never drafted.
    """

    target: Rows = STANDARD_P
    draft: Rows = STANDARD_Q
    gamma: int = 1
    tokens: int = 2
    prompt: tuple[int, ...] = (0,)
    stop_tokens: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    draft_sampling: Sampling | None = None

    def models(self) -> tuple[TableModel, TableDrafter]:
        """The target and the drafter, with empty caches."""
        start = len(self.prompt)
        return (
            TableModel(lambda prefix: self.target(prefix[start:]), len(self.target(()))),
            TableDrafter(lambda prefix: self.draft(prefix[start:]), len(self.draft(()))),
        )

    def run(self, randomness: Randomness, mistake: str | None = None) -> Result:
        """Decode the toy, with a mistake installed or with none."""
        return decode(
            mistake, *self.models(), self.prompt, gamma=self.gamma, max_new_tokens=self.tokens,
            stop_tokens=self.stop_tokens, sampling=self.sampling,
            draft_sampling=self.draft_sampling, randomness=randomness,
        )  # fmt: skip

    def law(self, mistake: str | None = None) -> Law:
        """The exact law of the tokens, with a mistake installed or with none."""
        return exact_law(lambda randomness: self.run(randomness, mistake).tokens)


@dataclass(frozen=True)
class Mistake:
    """One exhibit.

    breaks: "law", "text", "acceptance", "speed", or "crash".
    how: how it comes about. damage: what it does to `example`, exactly.
    seen_by: the checks of `museum.checks` that see it on `example`.
    source, link: where it was met, and the page that says so; "" where none is cited.
    stand_in: changes the pieces of a run into the mistaken ones.
    """

    id: str
    title: str
    breaks: str
    how: str
    damage: str
    seen_by: tuple[str, ...]
    source: str
    link: str
    example: Example
    stand_in: Callable[[Pieces], None]


MISTAKES: dict[str, Mistake] = {}


def exhibit(
    id: str,
    title: str,
    *,
    breaks: str = "law",
    how: str,
    damage: str,
    seen_by: Sequence[str],
    example: Example | None = None,
) -> Callable[[Callable[[Pieces], None]], Callable[[Pieces], None]]:
    """Put the decorated stand-in on show; without an `example` it is the standard toy."""

    def show(stand_in: Callable[[Pieces], None]) -> Callable[[Pieces], None]:
        toy = Example() if example is None else example
        source, path = SOURCES[id]
        link = GITHUB + path if path else ""
        MISTAKES[id] = Mistake(
            id, title, breaks, how, damage, tuple(seen_by), source, link, toy, stand_in
        )
        return stand_in

    return show


@contextmanager
def installed(
    mistake: str | None,
    target: LanguageModel,
    drafter: Drafter,
    *,
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
    randomness: Randomness | None = None,
) -> Iterator[Pieces]:
    """The pieces of a run with one mistake put in, for use inside the block; None puts in none.

    The core's functions are replaced inside the block, for every run of the process; the objects
    must be taken from the `Pieces`. Raises ValueError for an unknown id.
    """
    if mistake is not None and mistake not in MISTAKES:
        raise ValueError(f"No mistake {mistake!r} on show; there are {', '.join(MISTAKES)}.")
    sampling = Sampling() if sampling is None else sampling
    pieces = Pieces(
        target, drafter, sampling, draft_sampling or sampling,
        Seeded() if randomness is None else randomness,
    )  # fmt: skip
    if mistake is not None:
        MISTAKES[mistake].stand_in(pieces)
    seams = [
        (_DECODE, "verify", pieces.verify),
        (_DECODE, "Ending", pieces.ending),
        (_VERIFY, "emit", pieces.emit),
        (_VERIFY, "residual_weights", pieces.residual_weights),
    ]
    originals = [(module, name, getattr(module, name)) for module, name, _ in seams]
    try:
        for module, name, piece in seams:
            setattr(module, name, piece)
        yield pieces
    finally:
        for module, name, piece in originals:
            setattr(module, name, piece)


def decode(
    mistake: str | None,
    target: LanguageModel,
    drafter: Drafter,
    prompt: Sequence[int],
    *,
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
    randomness: Randomness | None = None,
    **options: object,
) -> Result:
    """`speculative_decode` with one mistake installed; other options are passed on."""
    with installed(
        mistake, target, drafter, sampling=sampling, draft_sampling=draft_sampling,
        randomness=randomness,
    ) as run:  # fmt: skip
        try:
            return speculative_decode(
                run.target, run.drafter, prompt, sampling=run.sampling,
                draft_sampling=run.draft_sampling, randomness=run.randomness, **options,
            )  # fmt: skip
        finally:
            # A mistaken cache must not outlive its run.
            target.rollback(0)
            drafter.rollback(0)


class Relayed:
    """Randomness that passes every choice on; a mistake overrides the one it gets wrong."""

    def __init__(self, inner: Randomness) -> None:
        self.inner = inner

    @property
    def coins(self) -> torch.Tensor | None:
        return self.inner.coins

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        return self.inner.categorical(probs)

    def first_rejection(self, target_prob: torch.Tensor, draft_prob: torch.Tensor) -> torch.Tensor:
        return self.inner.first_rejection(target_prob, draft_prob)
