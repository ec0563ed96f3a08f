"""Every way one round can go, with its probability as a fraction, found by running the core."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import lcm, prod

from torch import Tensor

from specdec_core.decode import speculative_rounds
from specdec_core.drafters import Drafter
from specdec_core.lab.museum import Example, installed
from specdec_core.lab.museum.drafting import Changed
from specdec_core.lab.museum.pieces import Relayed
from specdec_core.randomness import Enumerated, Randomness
from specdec_core.sampling import Sampling
from specdec_core.trace import Stats
from specdec_core.verify import Draft
from specdec_core.widgets.rows import read_rows

# Rows of p or of q: one for every context, or one for the start and one after each token.
Rows = tuple[tuple[Fraction, ...], ...]

# All rows together have a common denominator of at most 1,000. What the core hands to its
# randomness is an entry of p or q, a difference of two, or (M6) of two ratios: fractions of
# denominator up to a million, at least 1e-12 apart. The float is some 1e-16 off, so the nearest is
# the right one.
LARGEST_DENOMINATOR = 1000
MOST_TOKENS = 3
TOKEN, PLAIN = 1000, 2000


def exact(number: float) -> Fraction:
    """The fraction that a float of the core stands for."""
    return Fraction(number).limit_denominator(LARGEST_DENOMINATOR**2)


class Exact(Enumerated):
    """One enumerated path that also keeps its probability as a fraction."""

    def __init__(self, path: Iterable[int] = ()) -> None:
        super().__init__(path)
        self.fraction = Fraction(1)

    def categorical(self, probs: Tensor) -> Tensor:
        token = super().categorical(probs)
        weights = [exact(weight) for weight in probs.tolist()]
        # No weight at all: a path that only the rounding of floats has opened.
        self.fraction *= weights[int(token)] / (sum(weights) or 1)
        return token

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        index = super().first_rejection(target_prob, draft_prob)
        for i, (p, q) in enumerate(zip(target_prob.tolist(), draft_prob.tolist(), strict=True)):
            keep = min(exact(p) / exact(q), Fraction(1))
            self.fraction *= keep if i < index else 1 - keep
            if i == index:
                break
        return index


@dataclass(frozen=True, order=True)
class Step:
    """One choice. column: where it stands among the choices of a round, from left to right.

    kind: draft, keep, reject, residual, bonus, or plain (a round without a draft).
    token: what was drawn; -1 for a verdict.
    """

    column: int
    kind: str
    token: int = -1


@dataclass(frozen=True)
class Leaf:
    """One way to go: its choices, the tokens it emitted, and its probability."""

    steps: tuple[Step, ...]
    tokens: tuple[int, ...]
    probability: Fraction


class Notes:
    """The choices of a run as steps, written down round by round."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.rounds = 0
        self.drafting = False
        self.start([])

    def start(self, drafted: list[int]) -> None:
        """A round begins with these drafts."""
        self.drafted, self.judged, self.pending = drafted, 0, False
        self.draws: list[Step] = []
        self.verdicts: list[Step] = []

    def judge(self, gamma: int, index: int) -> None:
        """Drafts up to `index` of the next `gamma` are kept, the one at `index` is rejected."""
        for i in range(self.judged, self.judged + min(index + 1, gamma)):
            kind = "keep" if i < self.judged + index else "reject"
            self.verdicts += [Step(10 * i, "draft", self.drafted[i]), Step(10 * i + 1, kind)]
        self.judged += gamma
        self.pending = index < gamma

    def draw(self, token: int) -> None:
        """A token is drawn that is no draft."""
        if self.drafting:
            return
        kind = "residual" if self.pending else "bonus" if self.drafted else "plain"
        self.draws.append(Step(10 * self.judged - 8, kind, token))
        self.pending = False

    def end(self) -> None:
        """The round is over: a draft nobody judged is no step, and the last draw ends it."""
        *inner, last = self.draws
        column = TOKEN if self.drafted else PLAIN + self.rounds
        self.steps += sorted([*self.verdicts, *inner])
        self.steps.append(Step(column, last.kind, last.token))
        self.rounds += 1


class NotedChoices(Relayed):
    """Randomness that notes what the decoder was told."""

    def __init__(self, inner: Randomness, notes: Notes) -> None:
        super().__init__(inner)
        self.notes = notes

    def categorical(self, probs: Tensor) -> Tensor:
        token = super().categorical(probs)
        self.notes.draw(int(token))
        return token

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        index = super().first_rejection(target_prob, draft_prob)
        self.notes.judge(target_prob.shape[-1], int(index))
        return index


class NotedDrafter(Changed):
    """A drafter that notes what it proposed."""

    def __init__(self, inner: Drafter, notes: Notes) -> None:
        super().__init__(inner)
        self.notes = notes

    def propose(
        self, context: Sequence[int], gamma: int, sampling: Sampling, randomness: Randomness
    ) -> Draft:
        self.notes.drafting = True
        draft = super().propose(context, gamma, sampling, randomness)
        self.notes.drafting = False
        self.notes.start(draft.tokens.tolist())
        return draft


@dataclass(frozen=True)
class DraftOnce:
    """A schedule: one round with a draft, then plain draws from the target."""

    gamma: int

    def next(self, stats: Stats) -> int:
        return 0 if stats.rounds else self.gamma


def row_after(rows: Rows, tokens: Sequence[int]) -> tuple[Fraction, ...]:
    """The row that holds after these new tokens."""
    return rows[1 + tokens[-1]] if tokens and len(rows) > 1 else rows[0]


@cache
def leaves(p: Rows, q: Rows, gamma: int, compare: int, mistake: str | None) -> tuple[Leaf, ...]:
    """All ways one round can go, most of them a path of the code, from left to right.

    compare: a block of fewer tokens is completed by plain draws from the target.
    mistake: an exhibit of the museum, installed while the code runs; None for none.

    Paths that differ only in drafts that were never judged are one leaf: their masses add up.
    """
    masses: dict[tuple[tuple[Step, ...], tuple[int, ...]], Fraction] = defaultdict(Fraction)
    toy = Example(
        target=lambda new: [float(x) for x in row_after(p, new)],
        draft=lambda new: [float(x) for x in row_after(q, new)],
        gamma=gamma,
    )
    path: list[int] | None = []
    while path is not None:
        choices = Exact(path)
        masses[_walk(toy, compare, mistake, choices)] += choices.fraction
        path = choices.next_path()
    return tuple(Leaf(*way, mass) for way, mass in sorted(masses.items()) if mass)


def _walk(
    toy: Example, compare: int, mistake: str | None, choices: Exact
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """One path: the steps noted, and the tokens emitted."""
    notes, tokens = Notes(), []
    with installed(mistake, *toy.models(), randomness=choices) as run:
        rounds = speculative_rounds(
            run.target, NotedDrafter(run.drafter, notes), toy.prompt, gamma=DraftOnce(toy.gamma),
            max_new_tokens=toy.gamma + 1, randomness=NotedChoices(run.randomness, notes),
        )  # fmt: skip
        while len(tokens) < compare:
            tokens += next(rounds).emitted
            notes.end()
    return tuple(notes.steps), tuple(tokens)


@dataclass(frozen=True)
class Group:
    """The leaves whose text begins with `tokens`, and the target's p of each of those."""

    tokens: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    factors: tuple[Fraction, ...]

    @property
    def key(self) -> str:
        return " ".join(map(str, self.tokens))

    @property
    def total(self) -> Fraction:
        return sum((leaf.probability for leaf in self.leaves), Fraction(0))

    @property
    def target(self) -> Fraction:
        return prod(self.factors, start=Fraction(1))

    @property
    def verdict(self) -> str:
        return "✓ equal" if self.total == self.target else "✗ differs"


def grouped(ways: Sequence[Leaf], target: Rows, compare: int) -> list[Group]:
    """The leaves by their first `compare` tokens, beside what the target gives those."""
    groups = []
    for tokens in product(range(len(target[0])), repeat=compare):
        factors = tuple(row_after(target, tokens[:i])[token] for i, token in enumerate(tokens))
        found = tuple(leaf for leaf in ways if leaf.tokens[:compare] == tokens)
        if found or all(factors):
            groups.append(Group(tokens, found, factors))
    return groups


@cache
def context_rows(line: str, name: str) -> Rows:
    """The rows that `line` gives: one for every context, or one for the start and each token."""
    rows = read_rows(line, name, MOST_TOKENS)
    vocab = len(rows[0])
    if len(rows) not in (1, vocab + 1):
        raise ValueError(
            f"{name} needs one row of {vocab} numbers for every context, or {vocab + 1} rows with "
            "| between: the first token, then one after each token."
        )
    return rows


def check_denominators(target: Rows, draft: Rows) -> None:
    """Raise ValueError where fractions are too fine to be told apart after the core's floats."""
    if lcm(*(x.denominator for row in (*target, *draft) for x in row)) > LARGEST_DENOMINATOR:
        raise ValueError(
            "p and q together may have three decimals, or fractions of one common denominator "
            f"up to {LARGEST_DENOMINATOR}; each row adds up to exactly 1."
        )
