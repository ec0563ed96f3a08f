"""A learner's whole speculative loop, judged by its exact law: right, or which mistake it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from specdec_core.decode import autoregressive_decode
from specdec_core.exact import Law, exact_law, marginal, total_variation
from specdec_core.lab.exercises.verdicts import as_wholes, attempted, call, verdict
from specdec_core.lab.museum import MISTAKES, Example, always, by_last, by_parity
from specdec_core.lab.museum.pieces import Relayed
from specdec_core.randomness import Randomness, Seeded
from specdec_core.verify import residual_weights

# Far above the rounding of a float32 probability, far below any mistake.
TOLERANCE = 1e-6


def reference_decode(
    p: Callable[[list[int]], Tensor],
    q: Callable[[list[int]], Tensor],
    gamma: int,
    max_new_tokens: int,
    stop_tokens: Sequence[int],
    randomness: Randomness,
) -> list[int]:
    """A whole speculative loop on tables; p and q give a row [V] for the new tokens so far."""
    text: list[int] = []
    while len(text) < max_new_tokens and not (text and text[-1] in stop_tokens):
        drafted = []
        for _ in range(min(gamma, max_new_tokens - len(text) - 1)):
            drafted.append(int(randomness.categorical(q(text + drafted))))
        befores = [text + drafted[:i] for i in range(len(drafted))]
        kept = int(
            randomness.first_rejection(
                torch.tensor([p(before)[x] for before, x in zip(befores, drafted, strict=True)]),
                torch.tensor([q(before)[x] for before, x in zip(befores, drafted, strict=True)]),
            )
        )
        weights = p(text + drafted[:kept])
        if kept < len(drafted):
            weights = residual_weights(weights, q(text + drafted[:kept]))
        for token in [*drafted[:kept], int(randomness.categorical(weights))]:
            text.append(token)
            if token in stop_tokens or len(text) == max_new_tokens:
                break
    return text


Decoder = Callable[..., Sequence[int]]
Rows = Callable[[list[int]], Tensor]


# --- The reference with one slip in it ------------------------------------------------------------


class Verdicts(Relayed):
    """Randomness that knows the verdict until the last token of the round is drawn.

    kept: how many drafts it kept. full: whether it kept them all.
    """

    kept, full = 0, False

    def categorical(self, probs: Tensor) -> Tensor:
        self.kept, self.full = 0, False
        return super().categorical(probs)

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        index = super().first_rejection(target_prob, draft_prob)
        self.kept, self.full = int(index), int(index) == target_prob.shape[-1]
        return index


class Swapped(Relayed):
    """Randomness that takes p for q."""

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        return super().first_rejection(draft_prob, target_prob)


def _row_zero(p: Rows, q: Rows, *settings: object) -> list[int]:
    verdicts = Verdicts(settings[-1])

    def row(before: list[int]) -> Tensor:
        return q(before[: len(before) - verdicts.kept])

    return reference_decode(p, row, *settings[:-1], verdicts)


def _residual_always(p: Rows, q: Rows, *settings: object) -> list[int]:
    verdicts = Verdicts(settings[-1])

    def row(before: list[int]) -> Tensor:
        return residual_weights(p(before), q(before)) if verdicts.full else p(before)

    return reference_decode(row, q, *settings[:-1], verdicts)


def _swapped(p: Rows, q: Rows, *settings: object) -> list[int]:
    return reference_decode(p, q, *settings[:-1], Swapped(settings[-1]))


SLIPS: dict[str, Decoder] = {
    "the residual takes q's row 0, not the row of the rejected draft": _row_zero,
    "it subtracts q from the bonus row too: after a full accept, draw from p": _residual_always,
    "p and q are swapped in first_rejection: p comes first": _swapped,
}


# --- Toys -----------------------------------------------------------------------------------------

# Each toy sees what the ones before it cannot. The last token of a run is never a draft in the
# core, so laws are compared without it.
TOYS = (
    Example(tokens=3),
    Example(by_last((0.6, 0.4), (0.9, 0.1), (0.2, 0.8)), always(0.5, 0.5), gamma=2, tokens=4),
    Example(
        by_parity((0.5, 0.3, 0.2), (0.1, 0.3, 0.6)), by_parity((0.2, 0.5, 0.3), (0.6, 0.1, 0.3)),
        gamma=2, tokens=3,
    ),
)  # fmt: skip
STOPPING = Example(
    always(0.5, 0.3, 0.2), always(0.4, 0.4, 0.2), gamma=2, tokens=4, stop_tokens=(1, 2)
)
# p = q, and every token matters: nothing may be rejected, and two rounds write six tokens.
COPY = Example(
    by_last((0.5, 0.5), (0.9, 0.1), (0.1, 0.9)), by_last((0.5, 0.5), (0.9, 0.1), (0.1, 0.9)),
    gamma=2, tokens=6,
)  # fmt: skip
JUDGED_IN_COPY = 4
SUSPECTS = ("M1", "M7", "M8", "M11", "M3", "M5", "M6", "M9")
MOST_CALLS = 400
STUCK = (
    "the loop does not end: where nothing was drafted, it writes nothing. This is mistake M20, no "
    "bonus token: each round draws one more token from p after its kept drafts"
)


class Wrong(Exception):
    """What is wrong, in words that follow *wrong because*."""


class Watched(Relayed):
    """Randomness that counts what it is asked, and ends a loop that does not end.

    calls: draws and verdicts. rows: rows of p and q. went_on: whether a draft was judged after a
    rejection in the same round. refused: why a call was refused, or None.
    """

    def __init__(self, inner: Randomness) -> None:
        super().__init__(inner)
        self.calls = self.rows = self.judged = self.rejected = 0
        self.went_on = False
        self.refused: str | None = None
        self._since_rejection: int | None = None
        self._idle = 0

    def limit(self) -> None:
        """Raise RecursionError after more calls than any loop that ends needs."""
        if self.calls + self.rows <= MOST_CALLS:
            return
        # Two verdicts on no draft, and no draw between them: nothing will ever be written again.
        self.refused = STUCK if self._idle > 1 else "the loop does not end"
        raise RecursionError(self.refused)

    def categorical(self, probs: Tensor) -> Tensor:
        self.calls += 1
        self._idle = 0
        self.limit()
        if bool((probs < -TOLERANCE).any()):
            self.refused = "categorical got negative weights: clamp p - q at 0"
            raise ValueError(self.refused)
        if self._since_rejection is not None:
            self._since_rejection += 1
        return super().categorical(probs)

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        self.calls += 1
        self._idle += not len(target_prob)
        self.limit()
        index = super().first_rejection(target_prob, draft_prob)
        positions = target_prob.shape[-1]
        # Between a rejection and the next verdict lie the corrected token and at least one draft.
        if positions and self._since_rejection is not None:
            self.went_on |= self._since_rejection < 2
        rejected = int(index) < positions
        self._since_rejection = 0 if rejected else None
        self.judged += positions
        self.rejected += rejected
        return index


@attempted
def check_my_decode(function: Decoder) -> None:
    """Exercise 3: the exact law of a learner's loop against the target's, on toys."""
    try:
        _check_repeats(function, TOYS[1])
        for toy in (*TOYS, STOPPING):
            _check_law(function, toy)
        _check_speed(function, COPY)
    except Wrong as error:
        verdict(str(error))
    else:
        verdict(None)


def _run(function: Decoder, toy: Example, randomness: Watched) -> list[int]:
    """One run of a learner's loop on a toy."""

    def rows(of: Callable) -> Callable[[Sequence[int]], Tensor]:
        def row(text: Sequence[int]) -> Tensor:
            randomness.rows += 1
            randomness.limit()
            return torch.tensor(of(tuple(int(x) for x in text)), dtype=torch.float64)

        return row

    arguments = toy.gamma, toy.tokens, list(toy.stop_tokens), randomness
    answer, problem = call(function, rows(toy.target), rows(toy.draft), *arguments)
    if problem:
        raise Wrong(f"{randomness.refused or problem} ({_about(toy)})")
    tokens = as_wholes(answer)
    if tokens is None:
        raise Wrong(f"it returns {answer!r}; return the list of new tokens, whole numbers")
    return tokens


def _check_repeats(function: Decoder, toy: Example) -> None:
    """Raise `Wrong` where the same choices give another text."""
    for seed in range(8):
        first, second = (_run(function, toy, Watched(Seeded(seed))) for _ in range(2))
        if first != second:
            raise Wrong(
                "the same choices gave another run: all chance must come from `randomness`, and "
                f"nothing may be left over from an earlier run ({first}, then {second})"
            )


def _law(function: Decoder, toy: Example) -> Law:
    """The exact law of a learner's loop."""
    chosen = 0

    def run(randomness: Randomness) -> list[int]:
        nonlocal chosen
        watched = Watched(randomness)
        tokens = _run(function, toy, watched)
        chosen += watched.calls
        if watched.went_on:
            raise Wrong(f"this is {_named('M9')}: the drafts after it were made for another text")
        return tokens

    try:
        law = exact_law(run, max_runs=20_000)
    except ValueError as error:
        raise Wrong(f"its runs cannot be counted: {error}") from None
    if not chosen:
        raise Wrong("it makes no choice through `randomness`, so its law cannot be enumerated")
    return law


@cache
def _right_law(toy: Example) -> Law:
    target, _ = toy.models()
    return exact_law(
        lambda randomness: autoregressive_decode(
            target, toy.prompt, max_new_tokens=toy.tokens, stop_tokens=toy.stop_tokens,
            randomness=randomness,
        ).tokens
    )  # fmt: skip


def _about(toy: Example) -> str:
    stops = f", stop_tokens {list(toy.stop_tokens)}" if toy.stop_tokens else ""
    return (
        f"p = {toy.target(())} and q = {toy.draft(())} at the start, gamma {toy.gamma}, "
        f"max_new_tokens {toy.tokens}{stops}"
    )


def _named(mistake: str) -> str:
    title = MISTAKES[mistake].title
    return f"mistake {mistake}: {title[0].lower()}{title[1:]}"


def _check_law(function: Decoder, toy: Example) -> None:
    """Raise `Wrong` unless the law of the tokens is the target's."""
    law = _law(function, toy)
    _check_lengths(law, toy)
    apart = total_variation(law, _right_law(toy))
    if apart < TOLERANCE:
        return
    where = f"(total variation {apart:.3f}; {_about(toy)})"
    # The slips come first: their laws are quicker to enumerate.
    for reason, slip in SLIPS.items():
        if _explains(_slipped_law(slip, toy), law, toy):
            raise Wrong(f"{reason} {where}")
    for name in SUSPECTS:
        if _explains(_mistaken_law(name, toy), law, toy):
            raise Wrong(f"this is {_named(name)} {where}")
    raise Wrong(f"its law is off: total variation {apart:.3f} ({_about(toy)})")


def _explains(suspect: Law, seen: Law, toy: Example) -> bool:
    """Whether a suspect's law is wrong on this toy, and the one seen."""
    laws = (marginal(law, toy.tokens - 1) for law in (suspect, seen, _right_law(toy)))
    suspect, seen, right = laws
    return (
        total_variation(suspect, seen) < TOLERANCE and total_variation(suspect, right) > TOLERANCE
    )


@cache
def _mistaken_law(name: str, toy: Example) -> Law:
    return toy.law(name)


@cache
def _slipped_law(slip: Decoder, toy: Example) -> Law:
    def rows(of: Callable) -> Rows:
        return lambda text: torch.tensor(of(tuple(text)), dtype=torch.float64)

    settings = toy.gamma, toy.tokens, toy.stop_tokens
    return exact_law(lambda coins: slip(rows(toy.target), rows(toy.draft), *settings, coins))


def _check_lengths(law: Law, toy: Example) -> None:
    """Raise `Wrong` for a text that ends too late, or too early."""
    for tokens in law:
        stops = [i for i, token in enumerate(tokens) if token in toy.stop_tokens]
        where = f"({list(tokens)}; {_about(toy)})"
        if stops and stops[0] < len(tokens) - 1:
            raise Wrong(f"this is mistake M17: text goes on after a stop token {where}")
        if len(tokens) > toy.tokens:
            raise Wrong(f"this is mistake M17: it writes past max_new_tokens {where}")
        if not stops and len(tokens) < toy.tokens:
            lost = " or throws the stop token away" if toy.stop_tokens else ""
            raise Wrong(f"it ends before max_new_tokens{lost} {where}")


def _check_speed(function: Decoder, toy: Example) -> None:
    """Raise `Wrong` where the law is right and the work is not."""
    for seed in range(8):
        watched = Watched(Seeded(seed))
        _run(function, toy, watched)
        _explain_work(watched)


def _explain_work(watched: Watched) -> None:
    if not watched.judged:
        raise Wrong("its law is right, but no draft was judged with randomness.first_rejection")
    if watched.rejected:
        raise Wrong(
            "its law is right, but a draft was rejected where p = q: each draft must be drawn "
            "after the ones before it, not all from one context (mistake M21)"
        )
    if watched.judged > JUDGED_IN_COPY:
        raise Wrong(
            "this is mistake M20: no bonus token. The law is right, but a round of 2 kept drafts "
            "writes 2 tokens instead of 3"
        )
    if watched.judged < JUDGED_IN_COPY:
        raise Wrong("its law is right, but it drafts fewer tokens a round than gamma")
