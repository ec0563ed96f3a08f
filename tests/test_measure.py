"""What is measured: which pieces are timed, on what, and what whole runs are counted as."""

from __future__ import annotations

import pytest
import tiny
import torch

from specdec_core import (
    LookupDrafter,
    ModelDrafter,
    Sampling,
    Seeded,
    load_pair,
    speculative_rounds,
)
from specdec_core.lab import measure, memory, sweep
from specdec_core.lab.speed_model import Costs, expected_tokens
from specdec_core.models import CausalLM


@pytest.fixture(scope="module")
def pair():
    return load_pair("storyworld", max_length=256)


class Recorder:
    """A model that notes (rows before, tokens fed) of each forward of another one."""

    def __init__(self, inner):
        self.inner, self.calls = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def forward(self, tokens, keep=None):
        self.calls.append((self.inner.length, len(tokens)))
        return self.inner.forward(tokens, keep)


def test_each_piece_of_a_round_is_timed_in_its_own_shape(pair):
    target, draft = Recorder(pair.target), Recorder(pair.drafter.model)
    text = pair.encode("Once upon a time, there was a")
    rows = len(text) - 1
    costs = measure.measure_costs(target, ModelDrafter(draft), text, (1, 2, 8), repeats=2)
    assert set(costs.v) == {1, 2, 8}
    loop = {(0, rows), *((rows + i, 1) for i in range(measure.TOKENS))}
    # The newest row is read once more before each draft, which may want its hidden state.
    assert {*target.calls} == loop | {(rows - 1, 1), (rows, 2), (rows, 3), (rows, 9)}
    # A draft chain of 8: the prompt or what it lacks, then one token at a time.
    chain = [(rows, 1), *((rows + i, 1) for i in range(1, 8))]
    assert draft.calls[8:16] == chain
    assert costs.step > 0 < costs.c


def test_drafters_that_read_the_target_find_its_rows(pair):
    """Each proposes all it can in every timed turn: none finds the rows of the plain loop."""
    text = pair.encode("Once upon a time, there was a")
    for name, most in (("exit", 16), ("medusa", 4)):
        drafter, sizes = pair.drafters[name], []

        class Counted:
            def propose(self, *given, drafter=drafter, sizes=sizes):
                draft = drafter.propose(*given)
                sizes.extend([len(draft.tokens)] if given[1] else [])
                return draft

            def rollback(self, length, drafter=drafter):
                drafter.rollback(length)

        measure.measure_costs(pair.target, Counted(), text, (2, 16), repeats=3)
        assert set(sizes) == {most} and len(sizes) >= 4


@pytest.mark.parametrize("longest", [1, 50], ids=["finds something", "finds nothing"])
def test_a_drafter_that_proposes_less_than_asked_is_measured_too(pair, longest):
    text = pair.encode("Once upon a time, there was a fox. Once upon a")
    drafter = LookupDrafter(pair.target.vocab_size, longest, longest)
    target = Recorder(pair.target)
    costs = measure.measure_costs(target, drafter, text, (2, 16), repeats=2)
    assert costs.c > 0
    assert {(len(text) - 1, 3), (len(text) - 1, 17)} <= {*target.calls}


def test_the_loop_is_timed_on_rounds_that_draft_nothing(pair):
    target, text = Recorder(pair.target), pair.encode("Once upon a time")
    rows = len(text) - 1
    overhead = measure.measure_overhead(target, text, step=0.01, repeats=2)
    assert {*target.calls} == {(0, rows), *((rows + i, 1) for i in range(measure.TOKENS))}
    assert 0 <= overhead < 5


def test_a_token_of_a_loop_is_timed_from_draw_to_draw(monkeypatch):
    clock = iter([0.0, 7.0, 7.5, 8.25, 100.0, 100.3])
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    draws, probs = measure._Draws(), torch.tensor([1.0])
    for run in (4, 2):  # what comes before the first draw of a run does not count
        draws.begin()
        for _ in range(run):
            draws.categorical(probs)
    assert draws.fastest == pytest.approx(0.3)


def test_batch_times_know_every_shape(pair):
    times = measure.batch_times(pair.target, [1, 67, 490], (1, 3), (1, 4), repeats=1)
    assert set(times) == {(1, 1), (1, 4), (3, 1), (3, 4)}
    assert min(times.values()) > 0


def test_counts_of_many_runs_are_the_counts_of_each(pair):
    prompts = [pair.encode("Once upon a time"), pair.encode("def plus(")]
    options = {"gamma": 3, "max_new_tokens": 12}
    double = load_pair("storyworld", dtype="float64", max_length=64)
    pooled = sweep.measure_acceptance(
        double.target, double.drafter, prompts, seeds=(3, 4), **options
    )
    rounds = [
        round
        for prompt in prompts
        for seed in (3, 4)
        for round in speculative_rounds(
            double.target, double.drafter, prompt, randomness=Seeded(seed), **options
        )
    ]
    assert pooled.rounds == len(rounds)
    assert pooled.emitted == sum(len(round.emitted) for round in rounds) == 4 * 12
    assert pooled.accepted == sum(round.verdicts.count("accepted") for round in rounds)


def test_timed_runs_leave_out_the_first_round_and_those_cut_short(pair, monkeypatch):
    prompt = pair.encode("Once upon a time")
    clock = iter(range(10**6))
    monkeypatch.setattr(sweep.time, "perf_counter", lambda: float(next(clock)))
    runs = [(prompt, 1), (prompt, 2)]
    taken = sweep.timed_runs(pair.target, pair.drafter, runs, (4,), turns=2, max_new_tokens=24)
    assert taken[0].tokens == taken[0].rounds == 2 * 23
    whole = []
    for prompt, seed in runs:
        rounds = speculative_rounds(
            pair.target, pair.drafter, prompt, max_new_tokens=24, randomness=Seeded(seed)
        )
        whole += [round for round in list(rounds)[1:] if round.gamma == 4]
    assert taken[4].rounds == len(whole) > 4
    assert taken[4].tokens == sum(len(round.emitted) for round in whole)
    assert taken[4].seconds == len(whole)  # a tick of this clock for each


def test_texts_too_short_to_be_timed_are_refused(pair):
    with pytest.raises(ValueError, match="gamma 9 is timed: raise max_new_tokens"):
        sweep.timed_runs(pair.target, pair.drafter, [([1], 0)], (9,), turns=1, max_new_tokens=4)


def test_a_prediction_from_the_acceptance_by_depth():
    costs = Costs(0.01, 0.1, {1: 1.0, 4: 1.2, 6: 1.4})
    found = sweep.predict([0.8] * 4, costs, o=0.2)
    for gamma, (tokens, gained) in found.items():  # 6: the last depth stands for the rest
        assert tokens == pytest.approx(expected_tokens(0.8, gamma))
        assert gained == pytest.approx(tokens / (0.1 * gamma + costs.v[gamma] + 0.2))
    never_judged = [*[0.8] * 4, float("nan")]  # as Stats.per_position says it
    assert sweep.predict(never_judged, costs, o=0.2) == found


def test_a_sweep_sets_prediction_beside_measurement(pair):
    rows = sweep.sweep_gammas(
        pair.target, pair.drafter, [pair.encode("Once upon a time")], gammas=(1, 3),
        seeds=(0,), turns=1, max_new_tokens=12,
    )  # fmt: skip
    assert [row.gamma for row in rows] == [1, 3]
    for row in rows:
        assert 1 <= row.tokens <= row.gamma + 1
        assert 1 <= row.tokens_predicted <= row.gamma + 1
        assert row.error == pytest.approx(row.predicted / row.measured - 1)


def test_pace_of_batches(pair):
    pace = sweep.batch_pace(
        pair.target, pair.drafter, pair.encode("def"), (1, 2), max_new_tokens=6, repeats=1
    )
    assert set(pace) == {1, 2}
    assert min(min(both) for both in pace.values()) > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_weights_and_caches_are_billed_to_the_byte(dtype):
    pair = load_pair("storyworld", dtype=dtype, max_length=128)
    *exact, activations = memory.memory_bill(pair.target, pair.drafter, gamma=4)
    assert [line.what for line in exact] == [
        "target weights", "target cache of 128 tokens", "draft weights", "draft cache of 128 tokens"
    ]  # fmt: skip
    for line in exact:
        assert line.predicted == line.allocated > 0
    assert activations.predicted == pytest.approx(activations.allocated, rel=0.25)
    assert pair.target.length == 0


def test_the_bill_of_a_target_that_drafts_for_itself_and_of_a_table(pair):
    twin = ModelDrafter(CausalLM(pair.target.model, max_length=256))
    names = [line.what for line in memory.memory_bill(pair.target, twin, gamma=2)]
    assert "draft weights" not in names
    assert "draft cache of 256 tokens" in names
    names = [line.what for line in memory.memory_bill(pair.target, pair.drafters["weak"], 2)]
    assert not [name for name in names if name.startswith("draft")]


@pytest.mark.parametrize("rows", [2, 9])
def test_activations_are_predicted_for_other_shapes(rows):
    target = tiny.pair()[0]
    target.forward([0], keep=1)
    peak = memory.peak_bytes(lambda: memory._verify_once(target, rows))
    assert memory.activation_bytes(target, rows) == pytest.approx(peak, rel=0.6)


def test_the_peak_counts_what_lives_at_once():
    def run():
        first = torch.zeros(1000)
        second = first + 1  # both live
        del first
        third = second.view(10, 100) * 1  # a view holds nothing of its own
        return second, third

    assert memory.peak_bytes(run) == 2 * 4000
    assert memory.peak_bytes(lambda: torch.zeros(8).add_(1)) == 32


def test_sampling_of_a_step_is_part_of_its_cost(pair):
    text = pair.encode("Once upon a time")
    seen = []

    class Noted(Sampling):
        def probs(self, logits, tokens=None):
            seen.append(tuple(logits.shape))
            return super().probs(logits, tokens)

    measure.measure_costs(pair.target, pair.drafter, text, (2,), Noted(), repeats=1)
    assert (1, pair.target.vocab_size) in seen
    assert (3, pair.target.vocab_size) in seen
