"""The law of speculative decoding is the target's, on random tables, to 1e-12.

Every case is decoded once for each outcome of its random choices (`exact_law`), so nothing here is
sampled. The reference is computed without the core: a recursion over the table, with transformers'
own warpers where a distribution is shaped. A case differs in kind of table, gamma, length, ending,
sampling of either side, processors, or schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count, product

import numpy as np
import pytest
import torch
from transformers import (
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specdec_core import (
    Sampling,
    TableDrafter,
    TableModel,
    autoregressive_decode,
    exact_law,
    largest_difference,
    speculative_decode,
)
from specdec_core.trace import Stats

TOLERANCE = 1e-12
PIECES = ("a", "b", "ab", "ba")  # text of the toy tokens, so that stop strings cross their borders
KINDS = (
    "dense", "zeros in p", "zeros in q", "zeros in both", "disjoint",
    "equal", "nearly equal", "one-hot p", "one-hot q", "one-hot both", "mixed",
)  # fmt: skip


# The tables: p and q are functions of the whole prefix.


def random_rows(kind: str, vocab: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One row of p and one of q, float64 [vocab], of the given kind."""
    p, q = rng.dirichlet(np.ones(vocab), size=2)
    one, other = np.eye(vocab)[rng.integers(vocab, size=2)]
    mask = rng.random((2, vocab)) < 0.5
    mask[[0, 1], rng.integers(vocab, size=2)] = True
    if kind == "mixed":
        return random_rows(KINDS[rng.integers(len(KINDS) - 1)], vocab, rng)
    if kind in ("zeros in p", "zeros in both"):
        p = p * mask[0] / (p * mask[0]).sum()
    if kind in ("zeros in q", "zeros in both"):
        q = q * mask[1] / (q * mask[1]).sum()
    if kind == "disjoint":
        split = np.arange(vocab) < rng.integers(1, vocab)
        p, q = p * split / (p * split).sum(), q * ~split / (q * ~split).sum()
    if kind == "nearly equal":
        q = p * (1 + 1e-9 * rng.standard_normal(vocab))
        q = q / q.sum()
    p = one if kind in ("one-hot p", "one-hot both") else p
    q = other if kind in ("one-hot q", "one-hot both") else q
    return p, p if kind == "equal" else q


Table = Callable[[tuple[int, ...]], np.ndarray]


@cache
def random_tables(kind: str, vocab: int, seed: int) -> tuple[Table, Table]:
    """p and q as functions of the prefix; the same arguments give the same tables anywhere."""

    @cache
    def rows(prefix: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        return random_rows(kind, vocab, np.random.default_rng([seed, len(prefix), *prefix]))

    return lambda prefix: rows(prefix)[0], lambda prefix: rows(prefix)[1]


# The cases.


class ByThePast:
    """A schedule that reads what happened: longer drafts after acceptance, none now and then."""

    def next(self, stats: Stats) -> int:
        return 0 if stats.rounds % 3 == 2 else 1 + min(2, stats.accepted)


class NotTwice:
    """A grammar in small: no token twice in a row. Reads the prefix, so it must see each one."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.scatter(-1, input_ids[:, -1:], -torch.inf)


@dataclass(frozen=True)
class Case:
    """One table and one way to decode it."""

    vocab: int
    gamma: int | ByThePast
    tokens: int
    kind: str = "dense"
    seed: int = field(default_factory=count().__next__)
    prompt: tuple[int, ...] = (0, 1)
    stop_tokens: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    draft_sampling: Sampling | None = None
    draft_vocab: int | None = None

    def run(self, randomness: object, plain: bool = False) -> list[int]:
        """Decode with the core; the tokens, then 0 for a stop or 1 for the length."""
        p, q = random_tables(self.kind, self.vocab, self.seed)
        options = {
            "sampling": self.sampling,
            "max_new_tokens": self.tokens,
            "stop_tokens": self.stop_tokens,
            "stop_strings": self.stop_strings,
            "detokenize": spell if self.stop_strings else None,
            "randomness": randomness,
        }
        target = TableModel(p, self.vocab)
        if plain:
            out = autoregressive_decode(target, self.prompt, **options)
        else:
            out = speculative_decode(
                target, self._drafter(q), self.prompt, gamma=self.gamma,
                draft_sampling=self.draft_sampling, **options,
            )  # fmt: skip
        if self.stop_strings:
            assert out.text == cut(spell(out.tokens), self.stop_strings)
        return [*out.tokens, ["stop", "length"].index(out.finish_reason)]

    def _drafter(self, q: Table) -> TableDrafter:
        if self.draft_vocab is None:
            return TableDrafter(q, self.vocab)
        small = random_tables("dense", self.draft_vocab, self.seed + 1)[1]
        return TableDrafter(small, self.draft_vocab)

    def reference(self) -> dict[tuple[int, ...], float]:
        """The target's law, by recursion over the table; nothing of the core decides here."""
        p, _ = random_tables(self.kind, self.vocab, self.seed)
        law: dict[tuple[int, ...], float] = {}

        def extend(new: tuple[int, ...], probability: float) -> None:
            stopped = bool(new) and (
                new[-1] in self.stop_tokens or any(s in spell(new) for s in self.stop_strings)
            )
            if stopped or len(new) == self.tokens:
                law[*new, 0 if stopped else 1] = probability
                return
            prefix = self.prompt + new
            for token, part in enumerate(shape(p(prefix), self.sampling, prefix)):
                if part > 0:
                    extend((*new, token), probability * float(part))

        extend((), 1.0)
        return law


def spell(tokens: Sequence[int]) -> str:
    return "".join(PIECES[token] for token in tokens)


def cut(text: str, stop_strings: Sequence[str]) -> str:
    return text[: min((text.find(s) for s in stop_strings if s in text), default=len(text))]


def shape(row: np.ndarray, sampling: Sampling, prefix: tuple[int, ...]) -> np.ndarray:
    """`row` as it is sampled from, by transformers' own processors and warpers."""
    scores, ids = torch.as_tensor(row).log()[None], torch.tensor([prefix])
    steps = list(sampling.processors)
    if sampling.temperature not in (0, 1):
        steps.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k is not None:
        steps.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p is not None:
        steps.append(TopPLogitsWarper(sampling.top_p))
    for step in steps:
        scores = step(ids, scores)
    shaped = np.exp(scores[0].numpy() - scores.max().item())
    if sampling.temperature == 0:
        shaped = np.eye(len(row))[int(np.argmax(shaped))]
    return shaped / shaped.sum()


def plain_cases() -> Iterator[Case]:
    """All kinds of tables, gamma 0 to 3, the longest length that is still enumerable."""
    for kind, gamma in product(KINDS, range(4)):
        yield Case(2, gamma, gamma + 2, kind)
        yield Case(3, gamma, 3, kind)
        yield Case(4, gamma, 3, kind, prompt=(3,))


def length_cases() -> Iterator[Case]:
    """Runs shorter than a draft: the draft must shrink and nothing may come out past the end."""
    for tokens, kind in product((1, 2), ("dense", "mixed")):
        yield Case(2, 3, tokens, kind)
        yield Case(4, 2, tokens, kind, prompt=(2, 0, 3, 1))


def stop_cases() -> Iterator[Case]:
    """One stop id or several, anywhere in the block, likely or not; or all of them."""
    for stop_tokens, gamma in product([(0,), (1,), (0, 1)], range(4)):
        yield Case(2, gamma, gamma + 2, stop_tokens=stop_tokens)
    for stop_tokens, kind in product([(0,), (1, 2), (3, 0)], ("dense", "zeros in both", "mixed")):
        yield Case(4, 2, 3, kind, stop_tokens=stop_tokens)


def stop_string_cases() -> Iterator[Case]:
    """Strings that begin in one token and end in another, and a stop token beside them."""
    for stops, gamma in product([("bb",), ("aba", "bab"), ("aa", "b")], (1, 2, 3)):
        yield Case(2, gamma, gamma + 2, stop_strings=stops)
        yield Case(3, gamma, 3, stop_strings=stops)
    yield Case(4, 2, 3, stop_strings=("abba",), stop_tokens=(1,))


def sampling_cases() -> Iterator[Case]:
    """Temperature, top-k and top-p: on both sides, and different on either side."""
    kinds = [
        Sampling(temperature=0),
        Sampling(temperature=0.5),
        Sampling(temperature=2.5, top_k=2),
        Sampling(top_k=1),
        Sampling(top_p=0.7),
        Sampling(temperature=0.7, top_k=3, top_p=0.8),
        Sampling(),
    ]
    for target, draft in product(kinds, [None, *kinds]):
        yield Case(3, 2, 3, "mixed", sampling=target, draft_sampling=draft)
    for both in kinds:
        yield Case(4, 2, 3, sampling=both)
        yield Case(2, 3, 5, sampling=both, draft_sampling=Sampling(temperature=1.5))


def processor_cases() -> Iterator[Case]:
    """Processors that read the prefix, on the target, on the draft, or on both."""
    repetition = RepetitionPenaltyLogitsProcessor(1.7)
    sets = [(), (repetition,), (NoRepeatNGramLogitsProcessor(2),), (NotTwice(), repetition)]
    for target, draft in product(sets, sets):
        sides = {
            "sampling": Sampling(temperature=0.8, processors=target),
            "draft_sampling": Sampling(top_k=2, processors=draft),
        }
        yield Case(3, 2, 3, prompt=(0, 2, 1), **sides)
    for processors in sets[1:]:
        yield Case(4, 2, 3, sampling=Sampling(processors=processors), stop_tokens=(2,))
        yield Case(3, 3, 3, sampling=Sampling(temperature=0, processors=processors))


def schedule_cases() -> Iterator[Case]:
    """gamma that depends on the past."""
    for kind in ("dense", "mixed", "equal", "zeros in q"):
        yield Case(2, ByThePast(), 5, kind)
        yield Case(3, ByThePast(), 3, kind, stop_tokens=(2,))


def vocabulary_cases() -> Iterator[Case]:
    """A draft that knows fewer ids than the target: q is zero beyond them."""
    for gamma, stops in product((1, 2), ((), (3,))):
        yield Case(4, gamma, 3, draft_vocab=3, prompt=(1,), stop_tokens=stops)
        yield Case(3, gamma, 3, "mixed", draft_vocab=2, prompt=(1,))


# Each group with the most decoder runs it may need; together they stay below 100,000.
GROUPS = {
    "plain": (list(plain_cases()), 20_000),
    "length": (list(length_cases()), 1_000),
    "stop": (list(stop_cases()), 5_000),
    "stop_string": (list(stop_string_cases()), 6_000),
    "sampling": (list(sampling_cases()), 10_000),
    "processor": (list(processor_cases()), 4_000),
    "schedule": (list(schedule_cases()), 5_000),
    "vocabulary": (list(vocabulary_cases()), 3_000),
}


def compare(cases: Sequence[Case], most_runs: int) -> tuple[float, int]:
    """Largest difference of any case's laws from the target's, and how many runs that took."""
    worst, runs = 0.0, 0

    def counted(case: Case, plain: bool) -> Callable[[object], list[int]]:
        def run(randomness: object) -> list[int]:
            nonlocal runs
            runs += 1
            return case.run(randomness, plain)

        return run

    for case in cases:
        reference = case.reference()
        assert abs(sum(reference.values()) - 1) < TOLERANCE
        for plain in (True, False):
            law = exact_law(counted(case, plain), max_runs=most_runs - runs)
            difference = largest_difference(law, reference)
            assert difference <= TOLERANCE, f"{'plain' if plain else 'speculative'}: {case}"
            worst = max(worst, difference)
    return worst, runs


def test_there_are_enough_tables_and_not_too_many_runs() -> None:
    assert sum(len(cases) for cases, _ in GROUPS.values()) >= 200
    assert sum(most_runs for _, most_runs in GROUPS.values()) <= 100_000


@pytest.mark.parametrize("group", GROUPS)
def test_the_law_is_the_targets(group: str) -> None:
    """Speculative and plain decoding both have the law that the table itself gives."""
    cases, most_runs = GROUPS[group]
    worst, runs = compare(cases, most_runs)
    print(f"{group}: {len(cases)} tables, {runs} runs, largest difference {worst:.1e}")


def random_case(rng: np.random.Generator) -> Case:
    """Anything goes with anything."""

    def sampling() -> Sampling:
        return Sampling(
            temperature=float(rng.choice([0, 0.4, 1, 1, 2])),
            top_k=[None, None, 1, 2, 3][rng.integers(5)],
            top_p=[None, None, 0.6, 0.9][rng.integers(4)],
            processors=[(), (), (RepetitionPenaltyLogitsProcessor(1.4),), (NotTwice(),)][
                rng.integers(4)
            ],
        )

    vocab = int(rng.integers(2, 5))
    both = sampling()
    return Case(
        vocab,
        [0, 1, 2, 3, 4, ByThePast()][rng.integers(6)],
        int(rng.integers(1, {2: 6, 3: 5, 4: 4}[vocab])),
        # A processor that bans a token must leave one with positive probability.
        "dense" if both.processors else KINDS[rng.integers(len(KINDS))],
        prompt=tuple(rng.integers(vocab, size=rng.integers(1, 4)).tolist()),
        stop_tokens=tuple(rng.integers(vocab, size=rng.integers(3)).tolist()),
        stop_strings=[(), ("bb",), ("aba", "bab")][rng.integers(3)],
        sampling=both,
        draft_sampling=Sampling(temperature=float(rng.choice([0, 0.5, 1]))),
    )


@pytest.mark.slow
def test_the_law_is_the_targets_in_a_wider_sweep() -> None:
    """1,500 tables with all options at random, and longer runs at gamma 4 and 5."""
    rng = np.random.default_rng(2)
    compare([random_case(rng) for _ in range(1500)], 2_000_000)
    compare([Case(2, gamma, 6, kind) for gamma, kind in product((4, 5), KINDS)], 500_000)
    compare([Case(3, gamma, 4, kind) for gamma, kind in product((2, 3), KINDS)], 500_000)
