"""What the pieces of a round cost, each timed on its own.

One step is one token of plain decoding: a target forward, its distribution, the draw, and the
loop's own work. In its unit, c is one draft step, v(gamma) the verification of gamma drafts, and o
whatever else a round takes. None is fitted to a speed-up: `sweep.py` holds them against whole runs.

All functions raise ValueError, in one sentence, for a text that cannot be read, and for a gamma, a
batch or a number of repeats that cannot be run.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdec_core.decode import autoregressive_decode, speculative_rounds
from specdec_core.drafters import Drafter
from specdec_core.lab.checks import check_above_zero, check_whole, check_wholes
from specdec_core.lab.speed_model import GAMMAS, Costs
from specdec_core.lab.timing import fastest
from specdec_core.models import CausalLM, LanguageModel
from specdec_core.randomness import Randomness, Seeded
from specdec_core.request import check_request
from specdec_core.sampling import Sampling
from specdec_core.texts import texts_of
from specdec_core.threads import Threads
from specdec_core.verify import Draft, verify

TOKENS = 4  # of a loop whose tokens are timed


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Median wall time of `run`, which must wait for its result, after one warm-up."""
    check_whole("repeats", repeats, least=1)
    run()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def draft_network(drafter: Drafter) -> CausalLM | None:
    """The network a drafter runs; None where it drafts from a table."""
    model = getattr(drafter, "model", None)
    return model if isinstance(model, CausalLM) else None


# --- The pieces of a round ------------------------------------------------------------------------


@torch.inference_mode()
def measure_costs(
    target: CausalLM,
    drafter: Drafter,
    text: Sequence[int],
    gammas: Sequence[int] = GAMMAS,
    sampling: Sampling = Sampling(),
    repeats: int = 15,
) -> Costs:
    """Time a draft step, each verification and a token of the plain loop, after `text`.

    All take turns and the fastest turn of each counts, as in `timing.fastest`. A drafter may
    propose fewer tokens than it is asked for; its time is then shared among those. Raises
    ValueError for a text of one token, and where the text and what is written after it do not fit
    the target's cache.
    """
    gammas = check_wholes("gammas", gammas, least=0)
    check_whole("repeats", repeats, least=1)
    longest, draws = max(TOKENS, *gammas), _Draws()
    text, randomness = check_request(target, text, longest), Seeded(0)
    if len(text) < 2:
        raise ValueError(
            "Costs are measured after a text of two tokens or more: give a longer one."
        )
    rows = len(text) - 1

    def plain() -> None:
        draws.begin()
        autoregressive_decode(
            target, text, sampling=sampling, max_new_tokens=TOKENS, randomness=draws
        )

    def propose() -> Draft:
        draft = drafter.propose(text, longest, sampling, randomness)
        draft.tokens.tolist()  # waits for the device
        return draft

    def again() -> None:
        # A drafter may share the target's rows, or read the hidden row of its last forward.
        target.rollback(rows - 1)
        target.forward(text[rows - 1 : rows])
        drafter.rollback(rows)
        drafter.propose(text, 0, sampling, randomness)  # a look-up reads a text once, not each time

    plain()
    drafter.rollback(0)
    again()
    drafted = max(1, len(propose().tokens))
    pieces = {"draft": (again, propose)}
    for gamma in gammas:
        pieces[gamma] = _judging(target, text, gamma, sampling)
    # The plain loop's tokens are timed one by one, in its turn.
    with Threads(target.threads):
        seconds = fastest({"plain": (plain, lambda: None), **pieces}, repeats)
    step = draws.fastest
    return Costs(step, seconds["draft"] / drafted / step, {g: seconds[g] / step for g in gammas})


class _Draws(Seeded):
    """Randomness that notes the shortest time from one draw to the next: one token of a loop."""

    def __init__(self) -> None:
        super().__init__(0)
        self.fastest = math.inf
        self.begin()

    def begin(self) -> None:
        """A new run: its first draw ends no token."""
        self._last = math.inf

    def categorical(self, probs: Tensor) -> Tensor:
        now = time.perf_counter()
        if self._last < now:
            self.fastest = min(self.fastest, now - self._last)
        self._last = now
        return super().categorical(probs)


def _judging(
    target: LanguageModel, text: list[int], gamma: int, sampling: Sampling
) -> tuple[Callable[[], object], Callable[[], object]]:
    """(set up, timed): the verification of gamma drafts after `text`."""
    draft, randomness = _some_draft(target, gamma), Seeded(0)
    return (
        lambda: target.rollback(len(text) - 1),
        lambda: _judge(target, text[-1:], draft, sampling, randomness),
    )


def _judge(
    target: LanguageModel,
    newest: list[int],
    draft: Draft,
    sampling: Sampling,
    randomness: Randomness,
) -> None:
    fed = torch.cat([draft.tokens.new_tensor(newest), draft.tokens])
    verify(sampling.probs(target.forward(fed)), draft, randomness).token.item()


def _some_draft(target: LanguageModel, gamma: int) -> Draft:
    """A draft of the right shape; what a verification costs does not depend on what is in it."""
    tokens = torch.arange(gamma, device=target.device) % target.vocab_size
    probs = torch.full((gamma, target.vocab_size), 1 / target.vocab_size, device=target.device)
    return Draft(tokens, probs)


class _NoDrafts:
    """A drafter that proposes nothing."""

    max_length, length = None, 0

    def __init__(self, target: LanguageModel) -> None:
        self.vocab_size = target.vocab_size
        self._draft = _some_draft(target, 0)

    def propose(self, *_: object) -> Draft:
        return self._draft

    def rollback(self, length: int) -> None: ...


@torch.inference_mode()
def measure_overhead(
    target: CausalLM,
    text: Sequence[int],
    step: float,
    sampling: Sampling = Sampling(),
    repeats: int = 15,
) -> float:
    """o: what a round takes beyond drafting and verifying, in steps of `step` seconds.

    Rounds that draft nothing, after `text`, less the verification of no drafts. What is left, the
    loop's own work, hardly depends on gamma.
    """
    check_above_zero("step", step)
    check_whole("repeats", repeats, least=1)
    text, nothing, draws = check_request(target, text, TOKENS), _NoDrafts(target), _Draws()

    def rounds() -> None:
        draws.begin()
        for _ in speculative_rounds(
            target, nothing, text, gamma=0, sampling=sampling, max_new_tokens=TOKENS,
            randomness=draws,
        ):  # fmt: skip
            pass

    rounds()
    with Threads(target.threads):
        bare = fastest(
            {"rounds": (rounds, lambda: None), "bare": _judging(target, text, 0, sampling)}, repeats
        )["bare"]
    return max(0.0, draws.fastest - bare) / step


@torch.inference_mode()
def batch_times(
    target: LanguageModel,
    text: Sequence[int],
    batches: Sequence[int],
    counts: Sequence[int],
    repeats: int = 7,
) -> dict[tuple[int, int], float]:
    """Seconds of a forward over n tokens of each of B texts, by (B, n), after all rows of `text`.

    The time at (B, gamma + 1) over the time at (B, 1) is v(gamma, B) without p, verdict and draw.
    """
    batches = check_wholes("batches", batches, least=1)
    counts = check_wholes("counts", counts, least=1)
    check_whole("repeats", repeats, least=1)
    text, runs = check_request(target, text, max(counts)), {}
    for batch in batches:
        texts = texts_of(target, len(text) + max(counts))
        texts.prefill([text] * batch)
        for count in counts:
            tokens = torch.tensor([text[:1] * count] * batch, device=target.device)
            runs[batch, count] = (
                lambda texts=texts, batch=batch: texts.rollback([len(text)] * batch),
                lambda texts=texts, tokens=tokens: texts.forward(tokens)[0, -1, -1].item(),
            )
    with Threads(target.threads):
        return fastest(runs, repeats)
