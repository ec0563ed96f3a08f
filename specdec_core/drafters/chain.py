"""Drafts as a chain: a model draws each token after the ones before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec_core.drafters.protocol import no_draft
from specdec_core.models import LanguageModel, TableModel
from specdec_core.ngram import NGramTable
from specdec_core.randomness import Randomness, upload
from specdec_core.sampling import Sampling, is_number
from specdec_core.verify import Draft


class ModelDrafter:
    """Drafts with a language model: a chain, each token drawn after the ones before it.

    vocab_size: draw only ids below this (the target's vocabulary size, where the draft's is
        padded further); q is zero elsewhere, by restricting the softmax.
    stop_below: a confidence stop, in (0, 1]: a token drawn with q below it is the last draft of its
        round. None drafts gamma tokens in every round.

    The unsure token stays in the draft. Whether more tokens follow it depends only on tokens that
    are judged before they would be, so the law is the target's. To drop it instead would bias the
    law: a token would then be drafted only where q of it is high, which q does not say (p = (.2,
    .3, .5), q = (.5, .3, .2), threshold .25: the first token is wrong by .1 in total variation).
    To compare, the host waits for q of each token as it is drawn: on CUDA one wait a drafted token.

    Raises ValueError where `stop_below` is not in (0, 1].
    """

    def __init__(
        self,
        model: LanguageModel,
        vocab_size: int | None = None,
        stop_below: float | None = None,
    ) -> None:
        if stop_below is not None and not (is_number(stop_below) and 0 < stop_below <= 1):
            raise ValueError(f"stop_below must lie in (0, 1], not {stop_below!r}.")
        self.model, self.stop_below = model, stop_below
        self.vocab_size = min(vocab_size or model.vocab_size, model.vocab_size)
        self.max_length = model.max_length

    @property
    def length(self) -> int:
        return self.model.length

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        device = self.model.device
        text = upload(context, torch.int64, device) if sampling.processors else None
        # Whatever the cache lacks goes into the first forward: one token as a rule, two after a
        # full accept, the whole prompt at the start.
        feed: Sequence[int] | Tensor = self.readable(context[self.model.length :])
        tokens, rows = [], []
        for _ in range(gamma):
            logits = self.model.forward(feed, keep=1)
            if self.vocab_size < self.model.vocab_size:
                logits = logits[:, : self.vocab_size]
            probs = sampling.probs(logits, text)
            feed = randomness.categorical(probs[0]).reshape(1)
            if text is not None:
                text = torch.cat([text, feed])
            tokens.append(feed)
            rows.append(probs)
            if self.stop_below is not None and probs[0, feed].item() < self.stop_below:
                break
        if not rows:
            return no_draft(self.vocab_size, device)
        return Draft(torch.cat(tokens), torch.cat(rows))

    def readable(self, tokens: Sequence[int]) -> Sequence[int]:
        """Ids as this model can read them: a target padded further may emit an id past its rows.

        Any row will do for those; a wrong guess costs acceptance and never changes the law.
        """
        last = self.model.vocab_size - 1
        return [min(token, last) for token in tokens]

    def rollback(self, length: int) -> None:
        self.model.rollback(min(length, self.model.length))


class TableDrafter(ModelDrafter):
    """Drafts from a function `prefix -> probabilities [vocab_size]`, for exact examples."""

    def __init__(
        self, function: Callable[[tuple[int, ...]], Sequence[float] | Tensor], vocab_size: int
    ) -> None:
        super().__init__(TableModel(function, vocab_size))


class NGramDrafter(TableDrafter):
    """Drafts from an n-gram table: no network, a dense q, and modest acceptance."""

    def __init__(self, table: NGramTable) -> None:
        super().__init__(table.probs, table.vocab_size)
        self.table = table
