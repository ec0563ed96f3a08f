"""What a run leaves behind: counts over its rounds, and a trace that replays."""

import math

import pytest
import torch
from tiny import (
    Changing,
    every_sampling,
    model,
    pair,
    prompt,
    random_table,
)

from specdec_core import (
    CausalLM,
    Round,
    Scripted,
    Seeded,
    Stats,
    TableDrafter,
    TableModel,
    Trace,
    autoregressive_decode,
    exact_law,
    speculative_decode,
    speculative_rounds,
)

# What is recorded


def test_record_stats_counts_the_same_and_keeps_no_trace():
    options = {"gamma": 3, "max_new_tokens": 40}
    full = speculative_decode(*pair(), prompt(), randomness=Seeded(4), **options)
    lean = speculative_decode(*pair(), prompt(), randomness=Seeded(4), record="stats", **options)
    assert lean.trace is None and lean.tokens == full.tokens and lean.stats == full.stats


@every_sampling
def test_rounds_one_at_a_time_are_the_rounds_of_the_whole_run(sampling):
    options = {"gamma": 3, "sampling": sampling, "max_new_tokens": 40, "stop_tokens": [5]}
    whole = speculative_decode(*pair(), prompt(), randomness=Seeded(4), **options)
    assert list(speculative_rounds(*pair(), prompt(), randomness=Seeded(4), **options)) == (
        whole.trace.rounds
    )


def test_stats_by_hand_on_a_scripted_run():
    """Three kept and a bonus; one kept, one lost; one token left, nothing drafted for it."""
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)

    target = TableModel(lambda prefix: half if len(prefix) < 6 else [0.25, 0.75], 2)
    drafter = TableDrafter(lambda prefix: half, 2)
    script = Scripted([0, 0, 0, 1, 0, 0, 1, 1], [0, 0.9, 0.9, 0.9, 0.6])
    run = speculative_decode(target, drafter, [0], gamma=3, max_new_tokens=7, randomness=script)
    # Round 1 keeps 3 and adds a bonus; round 2 drafts 2 (7 - 4 - 1), keeps 1, corrects 1.
    first, second = run.trace.rounds[:2]
    assert first.emitted == (0, 0, 0, 1) and first.origins == ("draft",) * 3 + ("bonus",)
    assert first.residual_mass == 1.0
    assert second.verdicts == ("accepted", "rejected") and second.u == (0.9, 0.6)
    assert second.residual_mass == pytest.approx(0.25) and second.origins == ("draft", "corrected")
    stats = run.stats
    assert (stats.rounds, stats.drafted, stats.accepted, stats.rejected) == (3, 5, 4, 1)
    assert (stats.emitted, stats.target_forwards, stats.zero_residuals) == (7, 3, 0)
    assert stats.acceptance_rate == 4 / 5 and stats.accepted_fraction == 4 / 5
    assert stats.block_efficiency == 7 / 3
    assert stats.per_position == [1.0, 0.5, 1.0]


def test_stats_of_nothing_are_nan_and_not_an_error():
    stats = Stats()
    assert math.isnan(stats.acceptance_rate) and math.isnan(stats.accepted_fraction)
    assert math.isnan(stats.block_efficiency) and stats.per_position == []


def test_drafts_after_a_rejection_are_unjudged_and_lower_only_the_accepted_fraction():
    round = Round(
        drafted=(1, 2, 3, 4), accepted=1, token=9, emitted=(1, 9), target_prob=(0.5,) * 4,
        draft_prob=(0.5,) * 4, u=(0.0,) * 4, residual_mass=0.5, zero_residual=True,
        target_length=(4, 6), draft_length=(4, 6),
    )  # fmt: skip
    stats = Stats()
    stats.add(round)
    assert round.verdicts == ("accepted", "rejected", "unjudged", "unjudged")
    assert stats.acceptance_rate == 0.5 and stats.accepted_fraction == 0.25
    assert stats.zero_residuals == 1 and stats.per_position[:2] == [1.0, 0.0]
    assert all(math.isnan(x) for x in stats.per_position[2:])


# Traces


def same_run(a, b):
    return a.tokens == b.tokens and [r.verdicts for r in a.rounds] == [r.verdicts for r in b.rounds]


@every_sampling
@pytest.mark.parametrize("gamma", [0, 3, Changing(3, 0, 1)], ids=["0", "3", "changing"])
def test_a_trace_survives_json_and_replays(sampling, gamma):
    options = {"gamma": gamma, "sampling": sampling, "max_new_tokens": 40, "stop_tokens": [5]}
    trace = speculative_decode(*pair(), prompt(), randomness=Seeded(6), **options).trace
    again = Trace.from_json(trace.to_json())
    assert again == trace
    replayed = speculative_decode(*pair(), prompt(), randomness=again.replay(), **options)
    assert replayed.trace == trace
    rounds = list(speculative_rounds(*pair(), prompt(), randomness=trace.replay(), **options))
    assert rounds == trace.rounds


def test_a_plain_run_replays():
    target = CausalLM(model())
    trace = autoregressive_decode(target, prompt(), max_new_tokens=20, randomness=Seeded(1)).trace
    assert trace.prompt == tuple(prompt())
    replayed = autoregressive_decode(target, prompt(), max_new_tokens=20, randomness=trace.replay())
    assert replayed.trace == trace


def test_every_path_of_an_enumerated_run_replays():
    target, draft = random_table(3), random_table(3, seed=1).function
    traces = []

    def run(randomness):
        result = speculative_decode(
            target, TableDrafter(draft, 3), [0], gamma=2, max_new_tokens=3, randomness=randomness
        )
        traces.append(result.trace)
        return result.tokens

    exact_law(run)
    assert len(traces) > 100
    for trace in traces[::7]:
        assert all(r.u is None for r in trace.rounds if r.gamma)
        again = Trace.from_json(trace.to_json())
        assert again == trace
        replayed = speculative_decode(
            target, TableDrafter(draft, 3), [0], gamma=2, max_new_tokens=3,
            randomness=again.replay(),
        )  # fmt: skip
        assert same_run(replayed.trace, trace)
