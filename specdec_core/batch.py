"""Many sequences at once: one forward for all, and each accepts, stops and draws on its own.

The texts of a batch differ in length from the first round on, since each keeps as many drafts as it
likes; none waits for another. A text that ends leaves the batch. What a text becomes does not
depend on its neighbours: decoded alone with the same randomness it is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from specdec_core.decode import Result, ending_of, on_device, on_host, result_of
from specdec_core.drafters import ModelDrafter
from specdec_core.models import LanguageModel
from specdec_core.randomness import Randomness, Seeded, inverse_cdf, judge, upload
from specdec_core.request import (
    check_drafter,
    check_gamma,
    check_parts,
    check_request,
    check_stops,
)
from specdec_core.sampling import Sampling
from specdec_core.text import Detokenize, Ending
from specdec_core.texts import texts_of
from specdec_core.threads import Threads
from specdec_core.trace import Round, Trace
from specdec_core.verify import Draft, verify


class Choices(Protocol):
    """`Randomness` for a batch: the choices of one round, each text's from its own source."""

    coins: Tensor | None

    def begin(self, gammas: list[int]) -> None:
        """A new round: how many drafts each text will have judged."""

    def categorical(self, probs: Tensor) -> Tensor:
        """A token for each text from `probs` [B, V], int64 [B]."""

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        """How many drafts each text keeps, int64 [B]; inputs are [B, gamma]."""

    def keep(self, which: list[int]) -> None:
        """Go on with these texts alone."""


class SeededChoices:
    """All texts at once, from one `Seeded` each: what a text draws alone, in the same order."""

    def __init__(self, sources: Sequence[Seeded], device: torch.device) -> None:
        self._sources, self._device = list(sources), device
        self.coins: Tensor | None = None

    def begin(self, gammas: list[int]) -> None:
        widest = max(gammas)
        # A text's drafts, its coins, and the token after them, filled up to the widest.
        u = torch.zeros(len(gammas), 2 * widest + 1, dtype=torch.float64)
        for row, gamma, source in zip(u, gammas, self._sources, strict=True):
            drawn = source.uniforms(2 * gamma + 1)
            row[:gamma], row[widest : widest + gamma] = drawn[:gamma], drawn[gamma : 2 * gamma]
            row[-1] = drawn[-1]
        u = upload(u, torch.float64, self._device)
        self._gammas = upload(gammas, torch.int64, self._device)
        self._tokens = iter([*u[:, :widest].unbind(1), u[:, -1]])
        self.coins = u[:, widest : 2 * widest]

    def categorical(self, probs: Tensor) -> Tensor:
        return inverse_cdf(probs, next(self._tokens))

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        return torch.minimum(judge(self.coins, target_prob, draft_prob), self._gammas)

    def keep(self, which: list[int]) -> None:
        self._sources = [self._sources[i] for i in which]


class EachChoice:
    """One text after the other, from any `Randomness`: scripted, enumerated, or shared by all."""

    coins: Tensor | None = None

    def __init__(self, sources: Sequence[Randomness]) -> None:
        self._sources = list(sources)

    def begin(self, gammas: list[int]) -> None:
        self._gammas, self._drawn = gammas, 0

    def categorical(self, probs: Tensor) -> Tensor:
        step, last = self._drawn, self._drawn == max(self._gammas)
        self._drawn += 1
        drawn = [
            source.categorical(row)
            if last or step < gamma
            else row.new_zeros((), dtype=torch.int64)
            for source, gamma, row in zip(self._sources, self._gammas, probs, strict=True)
        ]
        return torch.stack(drawn)

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        rows = zip(self._sources, self._gammas, target_prob, draft_prob, strict=True)
        kept = [source.first_rejection(p[:gamma], q[:gamma]) for source, gamma, p, q in rows]
        return torch.stack(kept)

    def keep(self, which: list[int]) -> None:
        self._sources = [self._sources[i] for i in which]


@dataclass
class _Run:
    """One text of the batch: its prompt and what was emitted, and the rounds so far."""

    text: list[int]
    ending: Ending
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prompt = tuple(self.text)


def speculative_decode_batch(
    target: LanguageModel,
    drafter: ModelDrafter | None,
    prompts: Sequence[Sequence[int]],
    *,
    gamma: int = 4,
    sampling: Sampling = Sampling(),
    draft_sampling: Sampling | None = None,
    max_new_tokens: int | Sequence[int] = 64,
    stop_tokens: Iterable[int] = (),
    stop_strings: Iterable[str] = (),
    detokenize: Detokenize | None = None,
    randomness: Sequence[Randomness] | None = None,
    rule: str = "token",
    record: str = "full",
) -> list[Result]:
    """`speculative_decode` for B prompts at once, one `Result` each, in their order.

    drafter: a `ModelDrafter`, or None to draft nothing (gamma is then 0).
    max_new_tokens: for all, or one for each prompt. randomness: one source for each prompt;
    default: fresh seeds. The other arguments and the errors are those of `speculative_decode`.

    A model of the Llama family reads all texts in one forward; another reads one after the other.
    The models' own caches are left as they are.
    """
    draft_sampling = sampling if draft_sampling is None else draft_sampling
    check_parts(target=target, sampling=sampling, draft_sampling=draft_sampling)
    limits = _one_each(max_new_tokens, len(prompts), "max_new_tokens")
    sources = [Seeded() for _ in prompts] if randomness is None else list(randomness)
    _one_each(sources, len(prompts), "randomness")
    for source in sources:
        check_parts(randomness=source)
    texts = [check_request(target, p, n) for p, n in zip(prompts, limits, strict=True)]
    stop_tokens, stop_strings = check_stops(target, stop_tokens, stop_strings, detokenize)
    gamma = check_gamma(gamma) if drafter is not None else 0
    if drafter is not None:
        _check_drafter(drafter)
        for text, limit in zip(texts, limits, strict=True):
            check_drafter(target, drafter, len(text), limit)
    runs = [
        _Run(text, ending_of(text, limit, stop_tokens, stop_strings, detokenize))
        for text, limit in zip(texts, limits, strict=True)
    ]
    if runs:
        alike = all(type(source) is Seeded for source in sources)
        choices = SeededChoices(sources, target.device) if alike else EachChoice(sources)
        _Batch(target, drafter, runs, choices, gamma, sampling, draft_sampling, rule).decode()
    return [
        result_of(Trace(run.prompt, run.rounds), record, stop_strings, detokenize) for run in runs
    ]


def autoregressive_decode_batch(
    target: LanguageModel, prompts: Sequence[Sequence[int]], **options: object
) -> list[Result]:
    """`autoregressive_decode` for B prompts at once; options as `speculative_decode_batch`."""
    return speculative_decode_batch(target, None, prompts, **options)


def _one_each(values: object, count: int, what: str) -> list:
    """One value for each prompt."""
    each = list(values) if isinstance(values, Sequence) else [values] * count
    if len(each) != count:
        raise ValueError(f"{what} has {len(each)} entries for {count} prompts: give one for each.")
    return each


def _check_drafter(drafter: object) -> None:
    if not isinstance(drafter, ModelDrafter):
        raise TypeError(
            f"A batch cannot draft with {type(drafter).__name__}: pass a ModelDrafter, such as "
            "pair.drafter."
        )
    if drafter.stop_below is not None:
        raise ValueError(
            "A batch drafts gamma tokens for every text, so it takes no confidence stop: build the "
            "drafter without stop_below."
        )


class _Batch:
    """The texts that still run, and the rows of both models for them."""

    def __init__(
        self, target: LanguageModel, drafter: ModelDrafter | None, runs: list[_Run],
        choices: Choices, gamma: int, sampling: Sampling, draft_sampling: Sampling, rule: str,
    ) -> None:  # fmt: skip
        # Texts with fewer drafts than the widest have rows past their end until they roll back.
        capacity = max(len(run.text) + run.ending.remaining for run in runs) + gamma
        self.runs, self.choices, self.gamma, self.rule = list(runs), choices, gamma, rule
        self.sampling, self.draft_sampling = sampling, draft_sampling
        self.device, self.vocab_size = target.device, target.vocab_size
        self.threads = Threads(target.threads)
        self.target = texts_of(target, capacity)
        self.draft = texts_of(drafter.model, capacity) if gamma else None
        self.drafter = drafter

    @torch.inference_mode()
    def decode(self) -> None:
        prompts = [run.text[:-1] for run in self.runs]
        with self.threads:
            self.target.prefill(prompts)
            if self.draft:
                self.draft.prefill([self.drafter.readable(prompt) for prompt in prompts])
            while self.runs:
                self._round()

    def _round(self) -> None:
        runs = self.runs
        # The last token of a run is never a draft, as when it is decoded alone.
        gammas = [min(self.gamma, run.ending.remaining - 1) for run in runs]
        self.choices.begin(gammas)
        before = self.target.lengths, self._draft_lengths()
        draft = self._propose(gammas)
        newest = upload([run.text[-1:] for run in runs], torch.int64, self.device)
        logits = self.target.forward(torch.cat([newest, draft.tokens], 1))
        p = self._probs(self.sampling, logits, draft.tokens)
        verdict = verify(p, draft, self.choices, self.rule)
        values = on_device(draft, verdict).tolist()
        width, coins = draft.tokens.shape[1], verdict.coins is not None
        seen = [
            on_host(row, gamma, width, coins, run.text)
            for row, gamma, run in zip(values, gammas, runs, strict=True)
        ]
        emitted = [
            run.ending.keep([*s["drafted"][: s["accepted"]], s["token"]])
            for run, s in zip(runs, seen, strict=True)
        ]
        for run, new in zip(runs, emitted, strict=True):
            run.text += new
        self._roll_back()
        after = self.target.lengths, self._draft_lengths()
        for i, run in enumerate(runs):
            run.rounds.append(Round(
                **seen[i], emitted=tuple(emitted[i]), target_length=(before[0][i], after[0][i]),
                draft_length=(before[1][i], after[1][i]), finish_reason=run.ending.reason,
            ))  # fmt: skip
        self._let_go()

    def _draft_lengths(self) -> list[int]:
        return self.draft.lengths if self.draft else [0] * len(self.runs)

    def _propose(self, gammas: list[int]) -> Draft:
        """Drafts [B, widest] and q [B, widest, V]; q is zero past a text's own gamma, so that its
        next token is drawn from p there."""
        widest, count = max(gammas), len(self.runs)
        tokens = torch.empty(count, 0, dtype=torch.int64, device=self.device)
        if not widest:
            return Draft(tokens, torch.empty(count, 0, self.vocab_size, device=self.device))
        device, rows = self.drafter.model.device, []
        feed = upload(self._missing(), torch.int64, device)
        for _ in range(widest):
            logits = self.draft.forward(feed)[:, -1:, : self.drafter.vocab_size]
            q = self._probs(self.draft_sampling, logits, tokens).to(self.device)
            drawn = self.choices.categorical(q[:, 0])[:, None]
            rows.append(q)
            tokens = torch.cat([tokens, drawn], 1)
            feed = drawn.to(device)
        own = torch.arange(widest, device=self.device) < upload(
            [[gamma] for gamma in gammas], torch.int64, self.device
        )
        return Draft(tokens, torch.cat(rows, 1) * own[..., None])

    def _missing(self) -> list[list[int]]:
        """What the draft's rows lack of each text. All texts feed as many tokens as the one that
        lacks most; what another has already is written once more."""
        lacking = max(
            len(run.text) - length
            for run, length in zip(self.runs, self.draft.lengths, strict=True)
        )
        self.draft.rollback([len(run.text) - lacking for run in self.runs])
        return [self.drafter.readable(run.text[-lacking:]) for run in self.runs]

    def _probs(self, sampling: Sampling, logits: Tensor, drafted: Tensor) -> Tensor:
        """Distributions [B, n, V] of logits that follow each text and its drafts so far."""
        if not sampling.processors:
            return sampling.probs(logits)
        device = logits.device
        rows = [
            sampling.probs(row, torch.cat([upload(run.text, torch.int64, device), new.to(device)]))
            for row, run, new in zip(logits, self.runs, drafted, strict=True)
        ]
        return torch.stack(rows)

    def _roll_back(self) -> None:
        lengths = [len(run.text) - 1 for run in self.runs]
        self.target.rollback(lengths)
        if self.draft:
            own = self.draft.lengths
            self.draft.rollback([min(a, b) for a, b in zip(lengths, own, strict=True)])

    def _let_go(self) -> None:
        """Texts that ended leave."""
        going = [i for i, run in enumerate(self.runs) if run.ending.reason is None]
        if len(going) == len(self.runs):
            return
        self.runs = [self.runs[i] for i in going]
        for part in (self.target, self.draft, self.choices):
            if going and part is not None:
                part.keep(going)
