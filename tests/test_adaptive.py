"""Adaptive gamma against fixed ones: the replay is the run, and the table is put together right."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from tiny import model, pair, prompt

from specdec_core import (
    AdaptiveGamma,
    CausalLM,
    EarlyExitModel,
    ModelDrafter,
    Sampling,
    Seeded,
    TableDrafter,
    TableModel,
    autoregressive_decode,
    speculative_decode,
)
from specdec_core.lab.adaptive import (
    ALL,
    ScheduleRow,
    against_fixed,
    compare_schedules,
    kept_probabilities,
    measure_round_costs,
    replay,
)

COSTS = {gamma: 1.0 + 0.2 * gamma for gamma in range(7)}


def test_a_replay_follows_the_verdicts_it_is_given():
    # All kept, twice; one kept; none kept; then two tokens are left, and the last is no draft.
    kept = [1, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1]
    assert replay(kept, 2) == [2, 2, 2, 2, 1]
    assert replay(kept, 0) == [0] * len(kept)
    assert replay([1] * 12, 3) == [3, 3, 3]
    assert replay([0] * 4, 3) == [3, 2, 1, 0]


def test_what_is_kept_where_the_draft_knows_fewer_ids_or_is_part_of_the_target():
    narrow = TableDrafter(lambda text: (0.5, 0.5), 2)
    table = TableModel(lambda text: (0.6, 0.2, 0.2), 3)
    kept = kept_probabilities(table, narrow, [0, 1, 2, 0], 1)
    assert kept == pytest.approx([1.0, 0.0, 0.5 / 0.6])
    target = CausalLM(model())
    whole = ModelDrafter(EarlyExitModel(target, 2))
    assert kept_probabilities(target, whole, prompt(8), 2) == pytest.approx([1.0] * 6)


def test_a_replay_shows_a_schedule_what_a_run_would():
    seen = []
    schedule = SimpleNamespace(next=lambda stats: seen.append((stats.emitted, stats.accepted)) or 2)
    replay([1, 1, 0, 1, 0, 0, 1], schedule)
    assert seen == [(0, 0), (3, 2), (5, 3), (6, 3)]


def rows_of(seed: int) -> Callable[[tuple[int, ...]], np.ndarray]:
    """A distribution for every last two tokens."""
    rows = np.random.default_rng(seed).dirichlet(np.ones(3), size=(3, 3))
    return lambda prefix: rows[prefix[-2:]] if len(prefix) > 1 else rows[0, prefix[0]]


@pytest.mark.parametrize("gamma", [3, "adaptive"])
@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_replays_take_as_many_rounds_as_runs(gamma, temperature):
    """Means of 150 texts either way: equal ones differ by 4 standard errors with probability .0001.
    Where every draft were kept with .2 more, they differ."""
    schedule = AdaptiveGamma(COSTS) if gamma == "adaptive" else gamma
    target, drafter = TableModel(rows_of(1), 3), TableDrafter(rows_of(2), 3)
    sampling, text = Sampling(temperature), [0, 1]
    options = {"sampling": sampling, "max_new_tokens": 24}
    runs, replays, wrong = [], [], []
    for seed in range(150):
        out = speculative_decode(
            target, drafter, text, gamma=schedule, randomness=Seeded(seed), **options
        )
        runs.append(out.stats.rounds)
        plain = autoregressive_decode(target, text, randomness=Seeded(1000 + seed), **options)
        kept = kept_probabilities(target, drafter, [*text, *plain.tokens], len(text), sampling)
        assert len(kept) == 24
        replays.append(len(replay(kept, schedule, seed)))
        wrong.append(len(replay([min(1.0, k + 0.2) for k in kept], schedule, seed)))
    error = math.sqrt((statistics.variance(runs) + statistics.variance(replays)) / 150)
    assert abs(statistics.mean(runs) - statistics.mean(replays)) < 4 * error
    assert abs(statistics.mean(runs) - statistics.mean(wrong)) > 4 * error


@pytest.fixture(scope="module")
def rows() -> list[ScheduleRow]:
    target, drafter = pair()
    return compare_schedules(
        SimpleNamespace(target=target, stop_tokens=(2,)), drafter,
        {"one": [prompt(4)], "other": [prompt(5, 1), prompt(6, 2)]}, [1, 4], COSTS,
        samplings={"other": Sampling(0.5)}, texts=3, runs=1, turns=2, max_new_tokens=20,
    )  # fmt: skip


def test_every_kind_and_choice_has_a_row(rows):
    assert [(row.kind, row.gamma) for row in rows] == [
        (kind, gamma) for kind in ("one", "other", ALL) for gamma in (1, 4, None)
    ]
    for row in rows:
        assert row.timed > 0 and row.counted > 0
    # All choices replay the same texts, and the row of all is the sum.
    for kind in ("one", "other"):
        assert len({row.tokens for row in rows if row.kind == kind}) == 1
    for one, other, both in zip(rows[:3], rows[3:6], rows[6:], strict=True):
        assert both.tokens == one.tokens + other.tokens
        assert both.rounds == one.rounds + other.rounds
        steps = one.tokens / one.counted + other.tokens / other.counted
        assert both.counted == pytest.approx(both.tokens / steps)
        lowest, highest = sorted([one.timed, other.timed])
        assert lowest < both.timed < highest


def test_a_fixed_gamma_is_paid_for_at_its_cost(rows):
    row = rows[0]
    plain = row.rounds - row.drafted  # where one token was left, nothing could be drafted
    assert row.tokens / row.counted == pytest.approx(row.drafted * 1.2 + plain * 1.0)


def test_the_adaptive_pace_is_held_against_the_best():
    paces = {("a", 1): 2.0, ("a", 4): 4.0, ("a", None): 3.0,
             ("b", 1): 1.0, ("b", 4): 0.5, ("b", None): 1.0,
             (ALL, 1): 1.3, (ALL, 4): 0.9, (ALL, None): 1.5}  # fmt: skip
    rows = [ScheduleRow(kind, g, 1, 1, 1, pace, 10 - pace) for (kind, g), pace in paces.items()]
    assert against_fixed(rows) == {
        "a": (4, 0.75, 1.5), "b": (1, 1.0, 1.0), ALL: (1, pytest.approx(1.5 / 1.3), 1.5 / 1.3),
    }  # fmt: skip
    assert against_fixed(rows, "timed")["a"] == (1, 7 / 8, 7 / 6)


def test_costs_cover_every_gamma():
    target, drafter = pair()
    costs = measure_round_costs(target, drafter, prompt(9), most=3, repeats=2)
    assert list(costs) == [0, 1, 2, 3] and all(cost > 0 for cost in costs.values())


def test_bad_input_gets_one_sentence():
    target, drafter = pair()
    subject = SimpleNamespace(target=target, stop_tokens=())
    for prompts, gammas, costs, words in (
        ({}, [1], COSTS, "There is nothing to write"),
        ({"one": []}, [1], COSTS, "There is nothing to write"),
        ({"one": [[1]]}, [1, 4], {0: 1.0, 1: 1.2, 2: 1.3, 4: 1.5}, "costs lack gamma 3"),
        ({"one": [[1]]}, [], COSTS, "gammas must be one or more whole numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            compare_schedules(subject, drafter, prompts, gammas, costs)
    with pytest.raises(ValueError, match="texts must be a whole number"):
        compare_schedules(subject, drafter, {"one": [[1]]}, [1], COSTS, texts=0)
