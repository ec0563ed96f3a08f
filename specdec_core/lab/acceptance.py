"""Acceptance along a text: how likely the target keeps a draft at each position, and where not.

Where the target says p and the draft q, a draft is kept with probability beta = sum min(p, q)
(Leviathan et al. 2023, arXiv 2211.17192, section 3). alpha is its mean over many positions; here
stands every single one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor
from torch.nn.functional import pad

from specdec_core.drafters import (
    Drafter,
    EarlyExitModel,
    LookupElse,
    MedusaDrafter,
    ModelDrafter,
)
from specdec_core.lab.checks import check_whole
from specdec_core.models import LanguageModel
from specdec_core.randomness import Seeded, upload
from specdec_core.request import check_ids
from specdec_core.sampling import Sampling
from specdec_core.trace import Stats, Trace, ratio

TOP = 3  # likeliest tokens kept of each side
ROWS = 64  # of a forward, so that a large vocabulary needs no large memory

Top = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class AcceptanceRecord:
    """The expected acceptance at each position of one text, for one target and one draft.

    tokens: the whole text. start: position of the first token judged; beta[i] is the acceptance of
    a draft for position start + i, after the tokens before it. target_top, draft_top: for each of
    these the likeliest tokens with p and with q; empty where they were not recorded.
    """

    tokens: tuple[int, ...]
    beta: tuple[float, ...]
    start: int = 1
    target_top: tuple[Top, ...] = ()
    draft_top: tuple[Top, ...] = ()

    @property
    def mean(self) -> float:
        """Mean of beta, an estimate of alpha."""
        return ratio(math.fsum(self.beta), len(self.beta))

    def rolling(self, window: int = 10) -> list[float]:
        """For each position the mean of the last `window` betas up to it, fewer at the start."""
        check_whole("window", window, least=1)
        lasts = (self.beta[max(0, i + 1 - window) : i + 1] for i in range(len(self.beta)))
        return [math.fsum(last) / len(last) for last in lasts]


def record_acceptance(
    target: LanguageModel,
    draft: LanguageModel | Drafter,
    text: Sequence[int],
    sampling: Sampling = Sampling(),
    start: int = 1,
) -> AcceptanceRecord:
    """beta at positions `start` to the last of `text`, by the forwards of both models over it.

    draft: a language model, a drafter with one, or any drafter: that is asked for one token at a
        time, and one that proposes nothing there counts as never kept.
    start: at least 1, since the first token follows nothing; the length of the prompt, to judge
        only what came after it.

    Empties both caches. Raises ValueError where the text ends before `start`, does not fit, or has
    an id that the target does not know.
    """
    text = tuple(check_ids(text, target.vocab_size, "The text", "pass pair.encode(text)"))
    if check_whole("start", start, least=1) >= len(text):
        raise ValueError(f"A text of {len(text)} tokens has no position {start} to judge.")
    beta, tops = [], ([], [])
    judged = _model_rows(target, text, start, sampling, target.vocab_size)
    drafted = _draft_rows(draft, text, start, sampling)
    for p, q in zip(judged, drafted, strict=True):
        q = pad(q.to(p.device), (0, p.shape[-1] - q.shape[-1]))
        beta += torch.minimum(p, q).sum(-1).clamp(max=1.0).tolist()
        for side, rows in zip(tops, (p, q), strict=True):
            side += _likeliest(rows)
    return AcceptanceRecord(text, tuple(beta), start, tuple(tops[0]), tuple(tops[1]))


def _blocks(text: Sequence[int], start: int) -> Iterator[tuple[int, int]]:
    """Runs of positions judged together."""
    for first in range(start, len(text), ROWS):
        yield first, min(first + ROWS, len(text))


def _model_rows(
    model: LanguageModel, text: Sequence[int], start: int, sampling: Sampling, columns: int
) -> Iterator[Tensor]:
    """The distributions of each block of positions, [rows, columns], after the tokens before it."""
    readable = ModelDrafter(model).readable(text)
    model.rollback(0)
    if start > 1:
        model.forward(readable[: start - 1], keep=1)
    ids = upload(text, torch.int64, model.device)
    for first, last in _blocks(text, start):
        logits = model.forward(readable[first - 1 : last - 1])[:, :columns]
        yield sampling.probs(logits, ids[: last - 1]).double()
    model.rollback(0)


def _draft_rows(
    draft: LanguageModel | Drafter, text: Sequence[int], start: int, sampling: Sampling
) -> Iterator[Tensor]:
    if isinstance(draft, EarlyExitModel):
        draft = draft.fresh()
    if hasattr(draft, "forward"):
        return _model_rows(draft, text, start, sampling, draft.vocab_size)
    if getattr(type(draft), "propose", None) is ModelDrafter.propose:
        shared = isinstance(draft.model, EarlyExitModel)
        model = draft.model.fresh() if shared else draft.model
        return _model_rows(model, text, start, sampling, draft.vocab_size)
    if isinstance(draft, MedusaDrafter):
        return _head_rows(MedusaDrafter(draft.target.fresh(), draft.heads), text, start, sampling)
    if isinstance(draft, LookupElse):
        return _composite_rows(draft, text, start, sampling)
    return _proposed_rows(draft, text, start, sampling)


def _composite_rows(
    draft: LookupElse, text: Sequence[int], start: int, sampling: Sampling
) -> Iterator[Tensor]:
    """q of the look-up where it finds the last tokens, else the other drafter's."""
    parts = (_draft_rows(part, text, start, sampling) for part in (draft.lookup, draft.other))
    for copied, other in zip(*parts, strict=True):
        copied, other = (
            pad(q.to(other.device), (0, draft.vocab_size - q.shape[-1])) for q in (copied, other)
        )
        yield torch.where(copied.sum(-1, keepdim=True) > 0, copied, other)


def _head_rows(
    drafter: MedusaDrafter, text: Sequence[int], start: int, sampling: Sampling
) -> Iterator[Tensor]:
    """q of the first head at each position; its target, which nobody else reads, goes along."""
    for first, last in _blocks(text, start):
        rows = []
        for position in range(first, last):
            if position > 1:
                drafter.target.forward(text[drafter.target.length : position - 1])
            rows.append(_first_q(drafter, text[:position], sampling))
        yield torch.stack(rows)


def _proposed_rows(
    drafter: Drafter, text: Sequence[int], start: int, sampling: Sampling
) -> Iterator[Tensor]:
    """q of the first draft at each position, zeros where the drafter proposes nothing."""
    drafter.rollback(0)
    for first, last in _blocks(text, start):
        rows = []
        for position in range(first, last):
            rows.append(_first_q(drafter, text[:position], sampling))
            drafter.rollback(position)  # the text goes on with its own token
        yield torch.stack(rows)
    drafter.rollback(0)


def _first_q(drafter: Drafter, text: Sequence[int], sampling: Sampling) -> Tensor:
    """q of the first draft after `text`; zeros where nothing is proposed."""
    q = drafter.propose(text, 1, sampling, Seeded(0)).probs
    return q[0].double().cpu() if len(q) else torch.zeros(drafter.vocab_size).double()


def _likeliest(rows: Tensor) -> list[Top]:
    """For each row its likeliest tokens with their probabilities, without those of none."""
    best = rows.topk(min(TOP, rows.shape[-1]), dim=-1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        tuple((token, value) for token, value in zip(*both, strict=True) if value > 0)
        for both in pairs
    ]


@dataclass(frozen=True)
class Rate:
    """Acceptance over some drafts: kept of judged. For a record, kept is the sum of its betas."""

    kept: float
    judged: int

    @property
    def value(self) -> float:
        """kept / judged; NaN where nothing was judged."""
        return ratio(self.kept, self.judged)


def by_depth(counts: Iterable[Stats]) -> list[Rate]:
    """Acceptance of the 1st, 2nd, ... draft of a round, given that it was judged, over all runs.

    counts: the `stats` of each run, whatever drafted in it. Where a drafter has a head for each
    position, this is its acceptance by head.
    """
    counts = list(counts)
    kept = zip_longest(*(one.accepted_at for one in counts), fillvalue=0)
    judged = zip_longest(*(one.judged_at for one in counts), fillvalue=0)
    return [Rate(sum(a), sum(n)) for a, n in zip(kept, judged, strict=True)]


def by_position(runs: Iterable[Trace | AcceptanceRecord], width: int = 1) -> list[Rate]:
    """Acceptance of the 1st, 2nd, ... `width` positions after the prompt, over all runs.

    Of a trace, the drafts judged there count; of a record, the betas from its `start` on. Raises
    ValueError for a width below 1.
    """
    check_whole("width", width, least=1)
    found: list[list[float]] = []
    for run in runs:
        judged = enumerate(run.beta) if isinstance(run, AcceptanceRecord) else _verdicts(run)
        for position, kept in judged:
            found += [[] for _ in range(position // width + 1 - len(found))]
            found[position // width].append(kept)
    return [Rate(math.fsum(kept), len(kept)) for kept in found]


def _verdicts(trace: Trace) -> Iterator[tuple[int, float]]:
    """Position after the prompt and verdict, 1 or 0, of each judged draft."""
    position = 0
    for round in trace.rounds:
        for i, verdict in enumerate(round.verdicts):
            if verdict in ("accepted", "rejected"):
                yield position + i, float(verdict == "accepted")
        position += len(round.emitted)
