"""What cannot be measured is refused in one sentence, before a model runs."""

from __future__ import annotations

import math

import pytest
import tiny
import torch

from specdec_core.lab import measure, memory, sweep
from specdec_core.lab.speed_model import Costs

TEXT = tiny.prompt(5)
COSTS = Costs(0.01, 0.1, {2: 1.0})


@pytest.fixture(scope="module")
def pair():
    return tiny.pair(max_length=64)


def whole(what: str, least: int = 1) -> str:
    return f"^{what} must be a whole number of at least {least}, not "


def wholes(what: str, least: int = 1) -> str:
    return f"^{what} must be one or more whole numbers of at least {least}, "


costs, batches, bill = measure.measure_costs, measure.batch_times, memory.memory_bill
swept, runs, pace = sweep.sweep_gammas, sweep.timed_runs, sweep.batch_pace

REFUSED = {
    "median of none": (lambda t, d: measure.median_seconds(bool, 0), whole("repeats")),
    "costs, no repeats": (lambda t, d: costs(t, d, TEXT, repeats=0), whole("repeats")),
    "costs, repeats True": (
        lambda t, d: costs(t, d, TEXT, repeats=True), whole("repeats")),
    "costs, gamma -1": (lambda t, d: costs(t, d, TEXT, [2, -1]), wholes("gammas", 0)),
    "costs, gamma 1.5": (lambda t, d: costs(t, d, TEXT, [1.5]), wholes("gammas", 0)),
    "costs, gamma NaN": (
        lambda t, d: costs(t, d, TEXT, [math.nan]), wholes("gammas", 0)),
    "costs, no gamma": (lambda t, d: costs(t, d, TEXT, []), wholes("gammas", 0)),
    "costs, one gamma": (lambda t, d: costs(t, d, TEXT, 4), wholes("gammas", 0)),
    "costs, no text": (lambda t, d: costs(t, d, []), "The prompt is empty"),
    "costs, one token": (lambda t, d: costs(t, d, TEXT[:1]), "two tokens or more"),
    "costs, long text": (lambda t, d: costs(t, d, TEXT * 12), "at most 4 new tokens"),
    "o, no repeats": (
        lambda t, d: measure.measure_overhead(t, TEXT, 0.1, repeats=0), whole("repeats")),
    "o, a step of 0": (lambda t, d: measure.measure_overhead(t, TEXT, 0), "^step must be a number"),
    "o, a step of NaN": (
        lambda t, d: measure.measure_overhead(t, TEXT, math.nan), "^step must be a number above 0"),
    "o, no text": (lambda t, d: measure.measure_overhead(t, [], 0.1), "The prompt is empty"),
    "batch of none": (lambda t, d: batches(t, TEXT, (0,), (1,)), wholes("batches")),
    "no batch": (lambda t, d: batches(t, TEXT, (), (1,)), wholes("batches")),
    "no token of each": (lambda t, d: batches(t, TEXT, (1,), (0,)), wholes("counts")),
    "batch, no repeats": (
        lambda t, d: batches(t, TEXT, (1,), (1,), repeats=0), whole("repeats")),
    "batch of no text": (lambda t, d: batches(t, [], (1,), (1,)), "The prompt is empty"),
    "batch, long text": (
        lambda t, d: batches(t, TEXT * 12, (1,), (9,)), "at most 4 new tokens"),
    "bill, gamma -1": (lambda t, d: bill(t, d, -1), "^gamma must be a whole number"),
    "bill, gamma True": (lambda t, d: bill(t, d, True), "^gamma must be a whole number"),
    "bill, gamma 63": (lambda t, d: bill(t, d, 63), "give a gamma of at most 62, or"),
    "cache of -1": (
        lambda t, d: memory.cache_bytes(t.model.config, -1, torch.float32), whole("length", 0)),
    "no row": (lambda t, d: memory.activation_bytes(t, 0), whole("rows")),
    "counts of no prompt": (lambda t, d: sweep.measure_acceptance(t, d, []), "nothing to count"),
    "counts of no seed": (
        lambda t, d: sweep.measure_acceptance(t, d, [TEXT], seeds=()), "nothing to count"),
    "no rate": (lambda t, d: sweep.predict([], COSTS), "^No draft was judged"),
    "rates of NaN": (lambda t, d: sweep.predict([math.nan], COSTS), "^No draft was judged"),
    "o below 0": (lambda t, d: sweep.predict([0.8], COSTS, -1), "^o must be a number of 0 or more"),
    "sweep, no prompt": (lambda t, d: swept(t, d, []), "give one prompt or more"),
    "sweep, gamma 0": (lambda t, d: swept(t, d, [TEXT], gammas=(0,)), wholes("gammas")),
    "sweep, no seed": (lambda t, d: swept(t, d, [TEXT], seeds=()), wholes("seeds", 0)),
    "sweep, no turn": (lambda t, d: swept(t, d, [TEXT], turns=0), whole("turns")),
    "runs, none": (lambda t, d: runs(t, d, [], (1,)), "nothing to time"),
    "runs, no turn": (lambda t, d: runs(t, d, [(TEXT, 0)], (1,), turns=0), whole("turns")),
    "runs, gamma 0": (lambda t, d: runs(t, d, [(TEXT, 0)], (0,)), wholes("gammas")),
    "pace of none": (lambda t, d: pace(t, d, TEXT, (0, 1)), wholes("batches")),
    "pace, no repeats": (
        lambda t, d: pace(t, d, TEXT, (1,), repeats=0), whole("repeats")),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_measured_is_one_sentence_and_nothing_runs(pair, what):
    ask, says = REFUSED[what]
    target, drafter = pair
    before = target.forwards, drafter.model.forwards
    with pytest.raises(ValueError, match=says) as raised:
        ask(target, drafter)
    said = str(raised.value)
    assert said.endswith(".") and "\n" not in said
    assert (target.forwards, drafter.model.forwards) == before


def test_the_largest_gamma_that_fits_is_billed(pair):
    target, drafter = pair
    assert memory.memory_bill(target, drafter, 62)[-1].allocated > 0
