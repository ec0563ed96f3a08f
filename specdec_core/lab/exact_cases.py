"""The exact law check in small: a handful of tables, what `specdec exact` prints.

The target's law is computed here by walking the table, with none of the decoder's code but the
distribution (`Sampling`), so a mistake in the decoder cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from specdec_core.decode import speculative_decode
from specdec_core.drafters import TableDrafter
from specdec_core.exact import Law, exact_law, largest_difference
from specdec_core.lab.museum import always
from specdec_core.models import TableModel
from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling

TOLERANCE = 1e-12
PROMPT = (0,)

Rows = Callable[[tuple[int, ...]], Sequence[float]]


@dataclass(frozen=True)
class Case:
    """One pair of tables, `prefix -> probabilities`, and how it is decoded."""

    name: str
    target: Rows
    draft: Rows
    vocab: int
    tokens: int = 4
    stop_tokens: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    draft_sampling: Sampling | None = None


def random_rows(vocab: int, seed: int, zeros: bool = False) -> Rows:
    """A distribution of its own after every prefix, the same for the same seed."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        generator = torch.Generator().manual_seed(hash((seed, *prefix)) % 2**31)
        weights = torch.rand(vocab, dtype=torch.float64, generator=generator) + 0.05
        if zeros:
            weights[int(torch.randint(vocab, (), generator=generator))] = 0.0
        return (weights / weights.sum()).tolist()

    return row


CASES = (
    Case("p = (.6, .4), q = (.8, .2) after every prefix", always(0.6, 0.4), always(0.8, 0.2), 2),
    Case("p and q depend on the prefix", random_rows(3, 1), random_rows(3, 2), 3, tokens=3),
    Case("zeros in p and in q", random_rows(3, 3, True), random_rows(3, 4, True), 3),
    Case("token 1 stops the text", random_rows(2, 5), random_rows(2, 6), 2, stop_tokens=(1,)),
    Case("top-k 2 of 4, temperature 0.7", random_rows(4, 7), random_rows(4, 8), 4,
         sampling=Sampling(temperature=0.7, top_k=2)),
    Case("top-p 0.8, the draft at temperature 2", random_rows(3, 9), random_rows(3, 10), 3,
         tokens=3, sampling=Sampling(top_p=0.8), draft_sampling=Sampling(temperature=2.0)),
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One comparison: how many runs it took, how many outputs there are, how far apart they lie."""

    case: Case
    gamma: int
    runs: int
    outputs: int
    difference: float


def speculative_law(case: Case, gamma: int) -> tuple[Law, int]:
    """The exact law of the code that runs, and how many runs it took to see every outcome."""
    target, drafter = TableModel(case.target, case.vocab), TableDrafter(case.draft, case.vocab)
    runs = 0

    def run(randomness: Randomness) -> list[int]:
        nonlocal runs
        runs += 1
        return speculative_decode(
            target, drafter, PROMPT, gamma=gamma, sampling=case.sampling,
            draft_sampling=case.draft_sampling, max_new_tokens=case.tokens,
            stop_tokens=case.stop_tokens, randomness=randomness,
        ).tokens  # fmt: skip

    return exact_law(run), runs


def target_law(case: Case) -> Law:
    """The law of plain sampling from the target: the product of its probabilities."""
    law: Law = {}

    def walk(new: tuple[int, ...], probability: float) -> None:
        if len(new) == case.tokens or (new and new[-1] in case.stop_tokens):
            law[new] = probability
            return
        row = torch.tensor([case.target((*PROMPT, *new))], dtype=torch.float64).log()
        for token, p in enumerate(case.sampling.probs(row)[0].tolist()):
            if p > 0:
                walk((*new, token), probability * p)

    walk((), 1.0)
    return law


def check_cases(gammas: Sequence[int] = (0, 1, 2, 3)) -> Iterator[Finding]:
    """Compare every case at every gamma, one finding at a time."""
    for case in CASES:
        right = target_law(case)
        for gamma in gammas:
            law, runs = speculative_law(case, gamma)
            yield Finding(case, gamma, runs, len(law), largest_difference(law, right))
