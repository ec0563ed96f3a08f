"""Which draft for your case: every drafter of a pair on the same texts, counted, priced and timed.

Counts come from runs whose seeds the timed runs do not share, so a speed-up is predicted before it
is measured. From both follows the answer: what is fastest for each kind of text among the drafts
you can afford to make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from specdec_core.decode import autoregressive_decode, speculative_decode
from specdec_core.drafters import (
    Drafter,
    EarlyExitModel,
    MedusaDrafter,
    NGramDrafter,
)
from specdec_core.lab.checks import check_whole
from specdec_core.lab.measure import draft_network, measure_costs, measure_overhead
from specdec_core.lab.memory import model_bill
from specdec_core.lab.speed_model import Costs
from specdec_core.lab.timing import fastest
from specdec_core.models import CausalLM
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.trace import Stats, Trace

Traces = Mapping[str, Sequence[Trace]]  # kind of text -> runs

# What the bundled drafters ask of whoever makes them; the order is that of the decision table.
NEEDS = {
    "lookup": "no training",
    "weak": "texts to count",
    "exit": "the target's own texts, one norm",
    "medusa": "the target's own texts, small heads",
    "distilled": "the target's own texts, a network",
    "default": "texts like the target's, a network",
    "strong": "texts like the target's, a network",
    "mismatched": "other texts, a network",
}


@dataclass(frozen=True)
class DrafterRow:
    """One drafter, measured.

    rates: acceptance_rate by kind of text; NaN where nothing was drafted. weights, cache: bytes
    that it takes beyond the target. c: a draft step in plain steps. predicted, measured: speed-up
    over plain decoding by kind of text, prefill included.
    """

    name: str
    rates: dict[str, float]
    weights: int
    cache: int
    c: float
    predicted: dict[str, float]
    measured: dict[str, float]


def count_drafters(
    target: CausalLM,
    drafters: Mapping[str, Drafter],
    prompts: Mapping[str, Sequence[int]],
    gamma: int = 4,
    seeds: Sequence[int] = (0,),
    max_new_tokens: int = 60,
    sampling: Sampling = Sampling(),
) -> dict[str, dict[str, list[Trace]]]:
    """name -> kind of text -> the runs of that drafter: one for each seed."""
    return {
        name: {
            kind: [
                speculative_decode(
                    target, drafter, prompt, gamma=gamma, sampling=sampling,
                    max_new_tokens=max_new_tokens, randomness=Seeded(seed),
                ).trace
                for seed in seeds
            ]
            for kind, prompt in prompts.items()
        }
        for name, drafter in drafters.items()
    }  # fmt: skip


def pooled(runs: Sequence[Trace]) -> Stats:
    """The counts of several runs together."""
    stats = Stats()
    for run in runs:
        for round in run.rounds:
            stats.add(round)
    return stats


def measure_drafters(
    target: CausalLM,
    drafters: Mapping[str, Drafter],
    counted: Mapping[str, Traces],
    gamma: int = 4,
    seed: int = 100,
    max_new_tokens: int = 40,
    sampling: Sampling = Sampling(),
    turns: int = 2,
    repeats: int = 7,
) -> list[DrafterRow]:
    """A row for each drafter that was `counted` at the same gamma.

    Costs are measured after the first counted text; all drafters and plain decoding then write one
    text of each kind with an unseen seed, in turns, and the fastest turn of each counts. Raises
    ValueError for runs counted at a greater gamma.
    """
    check_whole("gamma", gamma, least=1)
    most = max(_longest(runs) for by_kind in counted.values() for runs in by_kind.values())
    if most > gamma:
        raise ValueError(
            f"The counted runs drafted up to {most} tokens a round, and gamma is {gamma}: pass the "
            "gamma they were counted at."
        )
    kinds = {kind: runs[0].prompt for kind, runs in next(iter(counted.values())).items()}
    first = next(iter(next(iter(counted.values())).values()))[0]
    text = [*first.prompt, *first.tokens]
    options = {"sampling": sampling, "max_new_tokens": max_new_tokens}
    runs = {
        (name, kind): (bool, _run(target, drafters.get(name), prompt, gamma, seed, options))
        for kind, prompt in kinds.items()
        for name in ("plain", *counted)
    }
    seconds = fastest(runs, turns)
    costs = {
        name: measure_costs(target, drafters[name], text, range(gamma + 1), sampling, repeats)
        for name in counted
    }
    # v is the target's alone: what all calls agree on is taken for each.
    v = {g: median(cost.v[g] for cost in costs.values()) for g in range(gamma + 1)}
    step = min(cost.step for cost in costs.values())
    o = measure_overhead(target, text, step, sampling, repeats)
    return [
        DrafterRow(
            name,
            {kind: pooled(some).acceptance_rate for kind, some in by_kind.items()},
            *own_bytes(target, drafters[name]),
            costs[name].c,
            {
                kind: predict_runs(some, Costs(step, costs[name].c, v), o)
                for kind, some in by_kind.items()
            },
            {kind: seconds["plain", kind] / seconds[name, kind] for kind in kinds},
        )
        for name, by_kind in counted.items()
    ]


def _longest(runs: Sequence[Trace]) -> int:
    """Most tokens drafted in a round of these runs."""
    return max(round.gamma for run in runs for round in run.rounds)


def _run(
    target: CausalLM,
    drafter: Drafter | None,
    prompt: Sequence[int],
    gamma: int,
    seed: int,
    options: Mapping[str, object],
) -> Callable[[], object]:
    """One whole run, ready to be timed; plain where there is no drafter."""
    if drafter is None:
        return lambda: autoregressive_decode(target, prompt, randomness=Seeded(seed), **options)
    return lambda: speculative_decode(
        target, drafter, prompt, gamma=gamma, randomness=Seeded(seed), **options
    )


def predict_runs(runs: Sequence[Trace], costs: Costs, o: float) -> float:
    """The speed-up of these runs at these costs: tokens over the steps their rounds would take.

    A round of n drafts takes n c + v(n) + o, for n that it really drafted: a look-up often drafts
    nothing. A run's prefill counts as one step more on one side, and as a token's on the other.
    Raises KeyError where v of such a round was not measured.
    """
    rounds = [round for run in runs for round in run.rounds]
    steps = sum(round.gamma * costs.c + costs.v[round.gamma] + o for round in rounds)
    return sum(len(round.emitted) for round in rounds) / (steps + len(runs))


def own_bytes(target: CausalLM, drafter: Drafter) -> tuple[int, int]:
    """Weights and cache, in bytes, that a drafter takes beyond the target's own.

    A table counts as the tensors it is saved as. What a look-up notes of the text is not counted.
    """
    network = draft_network(drafter)
    if network is not None:
        weights, cache = model_bill("draft", network, beside=target)
        return weights.predicted, cache.predicted
    held = []
    if isinstance(drafter, MedusaDrafter):
        held = [drafter.heads.weight, drafter.heads.bias]
    elif isinstance(drafter, NGramDrafter):
        held = drafter.table.to_tensors().values()
    elif isinstance(getattr(drafter, "model", None), EarlyExitModel):
        norm = drafter.model.norm
        held = [] if norm is target.own.norm else [norm]
    return sum(tensor.numel() * tensor.itemsize for tensor in held), 0


# --- The tables -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A header and rows of text, shown as HTML in a notebook and in columns elsewhere."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        head, *body = (
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line)
            for tag, line in [("th", self.header), *(("td", row) for row in self.rows)]
        )
        lines = "".join(f"<tr>{line}</tr>" for line in body)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def measured_table(rows: Sequence[DrafterRow]) -> Table:
    """Every drafter with its acceptance, cost, memory, and speed-up predicted and measured.

    Raises ValueError where there is no row.
    """
    _check_rows(rows)
    kinds = list(rows[0].rates)
    header = ("draft", "needs", *kinds, "c", "weights", "cache", "predicted", "measured")
    return Table(
        header,
        tuple(
            (
                row.name,
                NEEDS.get(row.name, ""),
                *(_rate(row.rates[kind]) for kind in kinds),
                f"{row.c:.3f}",
                _size(row.weights),
                _size(row.cache),
                f"{mean_gain(row.predicted):.2f}x",
                f"{mean_gain(row.measured):.2f}x",
            )
            for row in rows
        ),
    )


def mean_gain(gains: Mapping[str, float]) -> float:
    """One speed-up for all kinds, each with as many tokens: the harmonic mean."""
    return len(gains) / math.fsum(1 / gain for gain in gains.values())


def choose(rows: Sequence[DrafterRow]) -> dict[str, dict[str, tuple[str, float]]]:
    """What you can make -> kind of text -> the fastest such draft as measured, and its speed-up.

    ("plain", 1.0) where none of them gains. The last line, "any of these", has no limit. Raises
    ValueError where there is no row.
    """
    _check_rows(rows)
    needs = {need: [row for row in rows if NEEDS.get(row.name) == need] for need in _in_order(rows)}
    return {
        need: {kind: _fastest(some, kind) for kind in rows[0].measured}
        for need, some in {**needs, "any of these": rows}.items()
    }


def decision_table(rows: Sequence[DrafterRow]) -> Table:
    """`choose`, as a table: a line for what you can make, a column for each kind of text."""
    chosen = choose(rows)
    return Table(
        ("you have", *rows[0].measured),
        tuple(
            (need, *(f"{name} {gain:.2f}x" for name, gain in by_kind.values()))
            for need, by_kind in chosen.items()
        ),
    )


def _check_rows(rows: Sequence[DrafterRow]) -> None:
    if not rows:
        raise ValueError("There is no drafter to show: pass the rows of measure_drafters.")


def _in_order(rows: Sequence[DrafterRow]) -> list[str]:
    names = {row.name for row in rows}
    return list(dict.fromkeys(need for name, need in NEEDS.items() if name in names))


def _fastest(rows: Sequence[DrafterRow], kind: str) -> tuple[str, float]:
    found = [(row.name, row.measured[kind]) for row in rows]
    return max([("plain", 1.0), *found], key=lambda pair: pair[1])


def _rate(rate: float) -> str:
    return "none" if math.isnan(rate) else f"{rate:.2f}"


def _size(count: int) -> str:
    return f"{count / 1000:,.0f} kB" if count >= 1000 else f"{count} B"
