"""Mistakes in where a text ends and in what the caches hold (M17 to M19)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import Tensor

from specdec_core.drafters import ModelDrafter
from specdec_core.lab.museum.pieces import Example, Pieces, always, by_parity, exhibit
from specdec_core.models import LanguageModel
from specdec_core.text import Ending, TextStream


class CarelessEnding(Ending):
    """Looks at the end of a block only, knows one stop id, and lets every block through whole."""

    def __init__(
        self, max_new_tokens: int, stop_tokens: Iterable[int], stream: TextStream | None
    ) -> None:
        super().__init__(max_new_tokens, list(stop_tokens)[:1], stream)
        self.left = max_new_tokens
        self.remaining = math.inf  # so that drafts are not cut to what still fits

    def keep(self, tokens: Sequence[int]) -> list[int]:
        self.left -= len(tokens)
        if self._stops(tokens[-1]):
            self.reason = "stop"
        elif self.left <= 0:
            self.reason = "length"
        return list(tokens)


@exhibit(
    "M17",
    "Careless about the end",
    breaks="text",
    how="Only the newest token is compared, and only with the first stop id; whole blocks are "
    "emitted, past the stop and past max_new_tokens.",
    damage="Stop ids 1 and 2, p = q = (.5, .3, .2), gamma 2, max_new_tokens 3: with probability "
    ".75 there is text after the end.",
    seen_by=("two tokens", "whole text", "accepted length", "end of text"),
    example=Example(
        always(0.5, 0.3, 0.2), always(0.5, 0.3, 0.2), gamma=2, tokens=3, stop_tokens=(1, 2)
    ),
)
def careless_ending(run: Pieces) -> None:
    run.ending = CarelessEnding


class Passed:
    """A language model that passes everything on; a mistake overrides `rollback`."""

    def __init__(self, inner: LanguageModel) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        return self.inner.forward(tokens, keep)

    def rollback(self, length: int) -> None:
        self.inner.rollback(length)


class NeverBack(Passed):
    """Forgets nothing until the next run begins."""

    def rollback(self, length: int) -> None:
        if length == 0:
            self.inner.rollback(0)


class OffByRows(Passed):
    """Keeps some rows more, or fewer, than it is told to."""

    def __init__(self, inner: LanguageModel, extra: int) -> None:
        super().__init__(inner)
        self.extra = extra

    def rollback(self, length: int) -> None:
        if length > 0:
            length = max(0, min(length + self.extra, self.inner.length))
        self.inner.rollback(length)


REMEMBERING = by_parity((0.8, 0.2), (0.3, 0.7))
STALE = Example(REMEMBERING, always(0.5, 0.5), tokens=3)
SEEN = ("two tokens", "whole text", "accepted length", "cache rows")


@exhibit(
    "M18",
    "Target cache not rolled back",
    how="The rows of rejected drafts stay, and the next token is read after them.",
    damage="The first token is right; two tokens have total variation .15. Memory grows by every "
    "rejected draft.",
    seen_by=SEEN,
    example=STALE,
)
def never_rolled_back(run: Pieces) -> None:
    run.target = NeverBack(run.target)


@exhibit(
    "M18b",
    "Target cache rolled back one row too far",
    how="`length - 1` where `length` was meant: one token of the text is missing from the cache.",
    damage="The first token is right; two tokens have total variation .05.",
    seen_by=SEEN,
    example=Example(REMEMBERING, always(0.9, 0.1), tokens=3),
)
def one_row_too_few(run: Pieces) -> None:
    run.target = OffByRows(run.target, -1)


@exhibit(
    "M18c",
    "Target cache rolled back one row too little",
    how="`length + 1` where `length` was meant: the row of the rejected draft stays.",
    damage="The first token is right; two tokens have total variation .15.",
    seen_by=SEEN,
    example=STALE,
)
def one_row_too_many(run: Pieces) -> None:
    run.target = OffByRows(run.target, 1)


class WrongRows(Passed):
    """A draft model that believes its cache has `length` rows; `inner.length` is the truth."""

    def __init__(self, inner: LanguageModel) -> None:
        super().__init__(inner)
        self.length = inner.length

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        self.length += len(tokens)
        return self.inner.forward(tokens, keep)

    def rollback(self, length: int) -> None:
        """Set the belief, and leave the rows as they are until the next run begins."""
        self.length = length
        if length == 0:
            self.inner.rollback(0)


class ShortByRows(WrongRows):
    """Feeds the newest token only, so the row that a full accept leaves open is never filled."""

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        self.length += len(tokens)
        return self.inner.forward(tokens[-1:] if self.inner.length else tokens, keep)

    def rollback(self, length: int) -> None:
        self.inner.rollback(max(0, self.inner.length - (self.length - length)))
        self.length = length


class CacheBlindDrafter(ModelDrafter):
    """A model's drafter that works by what the model believes and reports the true rows."""

    @property
    def length(self) -> int:
        return self.model.inner.length


@exhibit(
    "M19",
    "Draft cache not rolled back",
    breaks="acceptance",
    how="The rows of rejected drafts stay in the draft's cache.",
    damage="The law is right: q is recorded as drawn. The draft reads a text that never was, and "
    "of 4 tokens 1.814 are accepted drafts instead of 1.904.",
    seen_by=("accepted length", "cache rows"),
    example=Example(REMEMBERING, by_parity((0.6, 0.4), (0.3, 0.7)), gamma=2, tokens=4),
)
def draft_never_rolled_back(run: Pieces) -> None:
    run.drafter = CacheBlindDrafter(WrongRows(run.drafter.model), run.drafter.vocab_size)


@exhibit(
    "M19b",
    "Draft cache short by a row",
    breaks="acceptance",
    how="After a full accept only the newest token is fed; the last draft never is.",
    damage="The law is right. A draft that is the target itself is no longer always accepted: "
    "of 2 drafts 1.9.",
    seen_by=("accepted length",),
    example=Example(REMEMBERING, REMEMBERING, gamma=1, tokens=4),
)
def draft_short_by_a_row(run: Pieces) -> None:
    run.drafter = CacheBlindDrafter(ShortByRows(run.drafter.model), run.drafter.vocab_size)
