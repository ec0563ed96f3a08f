"""The speed model: its exact numbers, what they were derived from, and a published table."""

from __future__ import annotations

import math

import pytest

from specdec_core import Seeded, speculative_rounds
from specdec_core.drafters import TableDrafter
from specdec_core.lab import museum, speed_model
from specdec_core.lab.speed_model import (
    Costs,
    accepted_fraction,
    alpha_of_fraction,
    best_gamma,
    closed_best_gamma,
    expected_tokens,
    explain_table,
    gain,
    mixture_tokens,
    operations_factor,
    speedup,
    tokens_from_positions,
    weight_reads,
)
from specdec_core.models import TableModel
from specdec_core.trace import Stats

NAN = math.nan


@pytest.mark.parametrize(
    ("alpha", "c", "gamma", "gained"),
    [(0.8, 0.05, 8, 3.09), (0.8, 0.2, 4, 1.87), (0.6, 0.05, 4, 1.92), (0.5, 0.6, 0, 1.0)],
)
def test_the_closed_rule_gives_the_known_best_gamma(alpha, c, gamma, gained):
    assert closed_best_gamma(alpha, c) == gamma
    assert speedup(alpha, gamma, c) == pytest.approx(gained, abs=0.005)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.5, 0.77, 0.9])
@pytest.mark.parametrize("c", [0.02, 0.1, 0.31, 0.6])
def test_the_closed_rule_finds_what_trying_every_gamma_finds(alpha, c):
    costs = Costs(1.0, c, dict.fromkeys(range(1, 120), 1.0))
    assert closed_best_gamma(alpha, c) == best_gamma(alpha, costs)[0]
    assert (closed_best_gamma(alpha, c) > 0) == (alpha > c)


@pytest.mark.parametrize(
    ("alpha", "c", "says"),
    [
        (1.0, 0.1, "At alpha = 1 more drafts always pay"),
        (0.8, 0.0, "c must be a number above 0, not 0.0"),
        (0.8, NAN, "c must be a number above 0, not nan"),
        (-0.1, 0.1, "alpha must be a number from 0 to 1, not -0.1"),
        (NAN, 0.1, "alpha must be a number from 0 to 1, not nan"),
    ],
)
def test_the_closed_rule_refuses_where_more_always_pays(alpha, c, says):
    with pytest.raises(ValueError, match=says):
        closed_best_gamma(alpha, c)


REFUSED = {
    "alpha NaN": (lambda: expected_tokens(NAN, 2), "alpha must be a number from 0 to 1"),
    "alpha above 1": (lambda: speedup(1.01, 2, 0.1), "alpha must be a number from 0 to 1"),
    "alpha True": (lambda: weight_reads(True, 2), "alpha must be a number from 0 to 1"),
    "gamma -1": (lambda: expected_tokens(0.5, -1), "gamma must be a whole number of at least 0"),
    "gamma True": (lambda: expected_tokens(0.5, True), "gamma must be a whole number"),
    "gamma 1.5": (lambda: gain(2.0, 1.5, 0.1, 1.0), "gamma must be a whole number"),
    "no drafts": (lambda: accepted_fraction(0.5, 0), "gamma must be a whole number of at least 1"),
    "a rate of 1.2": (lambda: tokens_from_positions([0.8, 1.2]), "number from 0 to 1, not 1.2"),
    "a rate of NaN": (lambda: tokens_from_positions([NAN]), "number from 0 to 1, not nan"),
    "tokens NaN": (lambda: gain(NAN, 2, 0.1, 1.0), "tokens must be a number of 0 or more"),
    "c below 0": (lambda: gain(2.0, 2, -0.1, 1.0), "c must be a number of 0 or more, not -0.1"),
    "v of 0": (lambda: gain(2.0, 2, 0.0, 0.0), "v must be a number above 0, not 0.0"),
    "o infinite": (lambda: gain(2.0, 2, 0.1, 1.0, math.inf), "o must be a number of 0 or more"),
    "c_hat NaN": (lambda: operations_factor(0.5, 2, NAN), "c_hat must be a number of 0 or more"),
    "no v": (lambda: Costs(1.0, 0.1, {}), "v is empty: give the cost"),
    "v NaN": (lambda: Costs(1.0, 0.1, {2: NAN}), "v at gamma 2 must be a number above 0, not nan"),
    "a step of 0": (lambda: Costs(0.0, 0.1, {2: 1.0}), "step must be a number above 0, not 0.0"),
    "c NaN": (lambda: Costs(1.0, NAN, {2: 1.0}), "c must be a number of 0 or more, not nan"),
    "best of NaN": (lambda: best_gamma(NAN, Costs(1.0, 0.1, {2: 1.0})), "alpha must be a number"),
    "shares": (lambda: mixture_tokens({0.5: 0.5, 0.6: 0.4}, 2), "add up to 1, not 0.9"),
    "no shares": (lambda: mixture_tokens({}, 2), "add up to 1, not 0"),
    "a share below 0": (lambda: mixture_tokens({0.5: 1.5, 0.6: -0.5}, 2), "A share of the rounds"),
    "no table": (lambda: explain_table([]), "There is no line to explain"),
    "a line of 0": (lambda: speed_model.Reported(2, 0.5, 0.0), "speedup must be a number above 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_numbers_that_cannot_be_are_one_sentence(what):
    ask, says = REFUSED[what]
    with pytest.raises(ValueError, match=says) as raised:
        ask()
    said = str(raised.value)
    assert said.endswith(".") and "\n" not in said


def test_tokens_a_round_are_those_of_the_walked_code():
    for gamma in (1, 2):
        toy = museum.Example(
            museum.always(0.6, 0.4), draft=museum.always(0.8, 0.2), gamma=gamma, tokens=gamma + 1
        )
        kept = museum.mean(toy, None, lambda result: result.trace.rounds[0].accepted)
        assert 1 + kept == pytest.approx(expected_tokens(0.8, gamma), abs=1e-12)


def test_tokens_a_round_where_everything_or_nothing_is_kept():
    assert expected_tokens(1.0, 6) == 7
    assert expected_tokens(0.0, 6) == expected_tokens(0.7, 0) == 1


def test_accepted_of_drafted_is_not_alpha_and_falls_with_gamma():
    assert accepted_fraction(0.8, 5) == pytest.approx(0.538, abs=5e-4)
    falling = [accepted_fraction(0.8, gamma) for gamma in range(1, 9)]
    assert falling[0] == pytest.approx(0.8)
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.35, 0.87, 1.0])
@pytest.mark.parametrize("gamma", [1, 4, 10])
def test_alpha_is_read_back_from_accepted_of_drafted(alpha, gamma):
    assert alpha_of_fraction(accepted_fraction(alpha, gamma), gamma) == pytest.approx(
        alpha, abs=1e-9
    )


@pytest.mark.parametrize(
    ("fraction", "gamma", "says"),
    [
        (1.1, 4, "accepted / drafted must be a number from 0 to 1, not 1.1"),
        (-0.1, 4, "accepted / drafted must be a number from 0 to 1, not -0.1"),
        (NAN, 4, "accepted / drafted must be a number from 0 to 1, not nan"),
        (0.5, 0, "gamma must be a whole number of at least 1, not 0"),
    ],
)
def test_no_alpha_for_counts_that_cannot_be(fraction, gamma, says):
    with pytest.raises(ValueError, match=says):
        alpha_of_fraction(fraction, gamma)


def test_contexts_that_differ_give_more_than_their_mean():
    assert mixture_tokens({0.95: 0.5, 0.35: 0.5}, 5) == pytest.approx(3.42, abs=0.005)
    assert expected_tokens(0.65, 5) == pytest.approx(2.64, abs=0.005)


def test_tokens_from_positions_hold_where_contexts_differ_and_one_alpha_does_not():
    assert tokens_from_positions([0.8] * 5) == pytest.approx(expected_tokens(0.8, 5))
    assert tokens_from_positions([]) == 1
    # After a prompt of 0 every draft is kept, after a prompt of 1 every other one.
    target = TableModel(lambda prefix: [0.5, 0.5], 2)
    drafter = TableDrafter(lambda prefix: [1.0, 0.0] if prefix[0] else [0.5, 0.5], 2)
    stats, alphas = Stats(), []
    for seed in range(60):
        for round in speculative_rounds(
            target, drafter, [seed % 2], gamma=4, max_new_tokens=31, randomness=Seeded(seed)
        ):
            if round.gamma == 4:  # not the last, which may draft less
                stats.add(round)
                alphas.append(0.5 if seed % 2 else 1.0)
    counted = stats.block_efficiency
    assert tokens_from_positions(stats.per_position) == pytest.approx(counted)
    # The mean over rounds says too little, N being convex; accepted / judged says too much, since
    # more is judged where more is kept.
    assert expected_tokens(sum(alphas) / len(alphas), 4) < counted - 0.1
    assert expected_tokens(stats.acceptance_rate, 4) > counted + 0.1


def test_gain_is_tokens_over_the_steps_of_a_round():
    assert gain(3.0, 4, 0.1, 1.2, 0.4) == pytest.approx(3.0 / 2.0)
    assert gain(1.0, 0, 0.1, 1.2, 0.4) == 1.0
    assert speedup(0.8, 5, 0.1, 1.5, 0.1) == pytest.approx(expected_tokens(0.8, 5) / 2.1)
    assert speedup(1.0, 4, 1.0) == 1.0  # the target as its own draft


def test_best_gamma_passes_a_dip_of_v_and_knows_when_none_gains():
    costs = Costs(1.0, 0.06, {1: 1.0, 2: 1.9, 4: 1.2, 8: 1.7})
    gains = [speedup(0.85, gamma, 0.06, v) for gamma, v in costs.v.items()]
    assert gains[1] < gains[0] < gains[2]
    assert best_gamma(0.85, costs)[0] == 4
    assert best_gamma(0.3, Costs(1.0, 0.6, {1: 1.0, 4: 1.0})) == (0, 1.0)


def test_operations_rise_and_weight_reads_fall():
    alpha, gamma, c_hat = 0.8, 5, 0.05
    closed = (1 - alpha) * (gamma * c_hat + gamma + 1) / (1 - alpha ** (gamma + 1))
    assert operations_factor(alpha, gamma, c_hat) == pytest.approx(closed)
    assert operations_factor(alpha, gamma, c_hat) > 1 > weight_reads(alpha, gamma)
    assert weight_reads(alpha, gamma) == pytest.approx(1 / expected_tokens(alpha, gamma))


def test_one_alpha_one_c_and_one_overhead_explain_the_published_table():
    fit = explain_table()
    assert (fit.alpha, fit.c, fit.o) == pytest.approx((0.87, 0.142, 0.24), abs=0.011)
    assert fit.worst() < 0.09
    assert speed_model.Fit(0.87, 0.142, 0.24).worst() < 0.09
    without = explain_table(overhead=False)
    assert without.o == 0
    assert without.worst() > 0.15
    assert abs(without.errors()[2][1]) > 0.15  # the speed-up at gamma 2


def test_the_published_latencies_imply_one_plain_step():
    plain = [row.milliseconds * row.speedup for row in speed_model.PUBLISHED]
    assert sum(plain) / len(plain) == pytest.approx(45, abs=0.5)
    assert max(plain) - min(plain) < 2.6


def test_a_table_made_by_the_model_is_explained_by_its_own_numbers():
    table = [
        speed_model.Reported(g, accepted_fraction(0.7, g), speedup(0.7, g, 0.2, 1.0, 0.1))
        for g in (1, 3, 5, 8)
    ]
    fit = explain_table(table)
    assert (fit.alpha, fit.c, fit.o) == (0.7, 0.2, 0.1)
    assert fit.worst(table) < 1e-9
