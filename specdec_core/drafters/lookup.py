"""Drafts by look-up: what followed the last few tokens when they stood in the text before.

Alone, or with another drafter for the rounds in which they never did.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec_core.drafters.protocol import Drafter
from specdec_core.models import LanguageModel
from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling, is_whole
from specdec_core.verify import Draft


class LookupDrafter:
    """Drafts what followed the last few tokens when they stood in the text before: no network.

    longest, shortest: how many last tokens to look for, the most first. Where they never stood,
        nothing is drafted. The latest place counts, and a draft that reaches the end of the text
        goes on with itself, so that a loop is copied as one.

    q is a point mass, whatever the sampling: a draft is kept with the target's own probability of
    it. The places of all n-grams are kept, so a look-up costs the same however long the text is.
    Source: prompt look-up decoding, Saxena 2023 (github.com/apoorvumang/prompt-lookup-decoding).
    Raises ValueError unless 1 <= shortest <= longest.
    """

    max_length: int | None = None
    length = 0

    def __init__(self, vocab_size: int, longest: int = 3, shortest: int = 1) -> None:
        if not (is_whole(longest) and is_whole(shortest) and 1 <= shortest <= longest):
            raise ValueError(
                "A look-up needs whole numbers 1 <= shortest <= longest, "
                f"not shortest={shortest!r} and longest={longest!r}."
            )
        self.vocab_size = vocab_size
        self.sizes = range(longest, shortest - 1, -1)
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        self._read(context)
        text = self._text
        found = (self._after.get(tuple(text[-n:])) for n in self.sizes if n < len(text))
        place = next((place for place in found if place is not None), None)
        drafted: list[int] = []
        while place is not None and len(drafted) < gamma:
            ahead = place + len(drafted) - len(text)
            token = drafted[ahead] if ahead >= 0 else text[ahead]
            if token >= self.vocab_size:
                break
            drafted.append(token)
        tokens = torch.tensor(drafted, dtype=torch.int64)
        probs = torch.zeros(len(drafted), self.vocab_size)
        return Draft(tokens, probs.scatter_(1, tokens[:, None], 1.0))

    def _read(self, context: Sequence[int]) -> None:
        """Note what follows each n-gram, for the part of the text that is new."""
        known = len(self._text)
        self._text += context[known:]
        for place in range(max(known, 1), len(self._text)):
            for n in self.sizes:
                if n <= place:
                    self._after[tuple(self._text[place - n : place])] = place

    def rollback(self, length: int) -> None:
        if length < len(self._text):
            self._text, self._after = [], {}


class LookupElse:
    """Drafts by look-up where the last tokens stood in the text before, else by another drafter.

    lookup: a short match is often chance, and its draft then takes the place of a better one, so
        ask for a longer match than for look-up alone, such as LookupDrafter(vocab, 3, 2).
    other: who drafts in the other rounds. What it did not see meanwhile it feeds itself, in the
        first forward of its next draft.
    limit: most tokens the other drafts in a round; None for gamma. A copied draft costs nothing
        and may be long, one of a model costs a forward a token.

    Which of the two drafts, and how many, depends on the text so far alone, so the law stays the
    target's. Raises ValueError for a limit that is no whole number of at least 1.
    """

    def __init__(self, lookup: LookupDrafter, other: Drafter, limit: int | None = None) -> None:
        if limit is not None and not (is_whole(limit) and limit >= 1):
            raise ValueError(f"limit must be a whole number of at least 1, not {limit!r}.")
        self.lookup, self.other, self.limit = lookup, other, limit
        self.vocab_size = max(lookup.vocab_size, other.vocab_size)
        self.max_length = other.max_length

    @property
    def model(self) -> LanguageModel | None:
        """The other drafter's model, where it has one."""
        return getattr(self.other, "model", None)

    @property
    def length(self) -> int:
        return self.other.length

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        copied = self.lookup.propose(context, gamma, sampling, randomness)
        if len(copied.tokens):
            return copied
        fewer = gamma if self.limit is None else min(gamma, self.limit)
        return self.other.propose(context, fewer, sampling, randomness)

    def rollback(self, length: int) -> None:
        self.lookup.rollback(length)
        self.other.rollback(length)
