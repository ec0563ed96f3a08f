"""The table of drafters: what is counted, predicted, billed and chosen, each from known numbers."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from specdec_core import (
    EarlyExitModel,
    ModelDrafter,
    Round,
    Seeded,
    Trace,
    load_pair,
    speculative_decode,
)
from specdec_core.lab import drafter_table as table
from specdec_core.lab.speed_model import Costs
from specdec_core.pairs import Pair


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair("storyworld", dtype="float64", max_length=256)


@pytest.fixture(scope="module")
def counted(pair):
    prompts = {"story": pair.encode("Once upon a time"), "code": pair.encode("def plus(")}
    some = {name: pair.drafters[name] for name in ("default", "lookup")}
    return table.count_drafters(pair.target, some, prompts, gamma=2, max_new_tokens=12)


def test_counts_are_those_of_the_runs(pair, counted):
    run = counted["default"]["code"][0]
    again = speculative_decode(
        pair.target, pair.drafter, pair.encode("def plus("), gamma=2, max_new_tokens=12,
        randomness=Seeded(0),
    )  # fmt: skip
    assert run == again.trace
    both = table.pooled([run, run])
    assert (both.accepted, both.rounds) == (2 * again.stats.accepted, 2 * again.stats.rounds)
    assert both.acceptance_rate == again.stats.acceptance_rate


def made_up(*rounds: tuple[int, int]) -> Trace:
    """A run of rounds by (drafted, emitted)."""
    source = {
        "accepted": 0, "token": 0, "target_prob": (), "draft_prob": (), "u": None,
        "residual_mass": 1.0, "zero_residual": False, "target_length": (0, 0),
        "draft_length": (0, 0),
    }  # fmt: skip
    return Trace(
        (1,),
        [Round(drafted=(0,) * n, emitted=(0,) * made, **source) for n, made in rounds],
    )


def test_a_prediction_pays_each_round_for_what_it_drafted():
    """A look-up that drafts nothing pays no c and no v of four: 7 tokens in 1.1 + 1.9 + 1 steps."""
    costs = Costs(0.01, 0.1, {0: 1.0, 4: 1.4})
    run = made_up((0, 1), (4, 6))
    assert table.predict_runs([run], costs, 0.1) == pytest.approx(7 / (1.1 + 1.9 + 1))
    assert table.predict_runs([run, run], costs, 0.1) == pytest.approx(7 / (1.1 + 1.9 + 1))
    with pytest.raises(KeyError):
        table.predict_runs([made_up((3, 1))], costs, 0.1)


def test_a_drafter_is_billed_for_what_is_not_the_targets(pair):
    width, vocab = pair.target.own.norm.shape[0], pair.target.vocab_size
    bills = {name: table.own_bytes(pair.target, one) for name, one in pair.drafters.items()}
    heads = pair.drafters["medusa"].heads
    assert bills["medusa"] == (8 * len(heads) * (width * width + width), 0)
    assert bills["exit"] == (8 * width, 0) and bills["lookup"] == (0, 0)
    for name in ("default", "distilled"):
        network = pair.drafters[name].model
        held = {p.data_ptr(): p.numel() * 8 for p in network.model.parameters()}
        assert bills[name] == (sum(held.values()), network.cache_bytes), name
    assert bills["weak"][0] > 4 * vocab and bills["weak"][1] == 0
    untrained = ModelDrafter(EarlyExitModel(pair.target, 2))
    assert table.own_bytes(pair.target, untrained) == (0, 0)
    itself = ModelDrafter(pair.target.fresh())
    assert table.own_bytes(pair.target, itself) == (0, pair.target.cache_bytes)


def row(name: str, rates: tuple, weights: int, cache: int, c: float, predicted: tuple, measured):
    """A row of two kinds of text, "a" and "b"."""
    both = [dict(zip("ab", pair, strict=True)) for pair in (rates, predicted, measured)]
    return table.DrafterRow(name, both[0], weights, cache, c, *both[1:])


ROWS = [
    row("lookup", (math.nan, 0.5), 0, 0, 0.004, (1.0, 1.5), (0.9, 1.8)),
    row("default", (0.9, 0.8), 109_056, 5, 0.07, (2.0, 2.0), (2.0, 2.2)),
    row("strong", (0.9, 0.8), 0, 0, 0.2, (1.0, 1.0), (2.1, 1.0)),
]


def test_the_fastest_that_you_can_make_is_chosen_or_none():
    like = table.NEEDS["default"]
    assert table.choose(ROWS) == {
        "no training": {"a": ("plain", 1.0), "b": ("lookup", 1.8)},
        like: {"a": ("strong", 2.1), "b": ("default", 2.2)},
        "any of these": {"a": ("strong", 2.1), "b": ("default", 2.2)},
    }
    lines = str(table.decision_table(ROWS)).splitlines()
    assert [re.split(r" {2,}", line) for line in lines] == [
        ["you have", "a", "b"],
        ["no training", "plain 1.00x", "lookup 1.80x"],
        [like, "strong 2.10x", "default 2.20x"],
        ["any of these", "strong 2.10x", "default 2.20x"],
    ]
    starts = [lines[1].index("plain"), lines[2].index("strong"), lines[3].index("strong")]
    assert len(set(starts)) == 1, "columns stand under each other"


def test_speed_ups_of_equal_texts_are_averaged_by_their_time():
    """Half the tokens at 1x and half at 3x take 2/3 of the time: 1.5x, not 2x."""
    assert table.mean_gain({"a": 1.0, "b": 3.0}) == pytest.approx(1.5)


def test_a_table_says_what_the_rows_say():
    shown = table.measured_table(ROWS)
    assert shown.header[2:4] == ("a", "b")
    assert shown.rows[0] == (
        "lookup", "no training", "none", "0.50", "0.004", "0 B", "0 B", "1.20x", "1.20x",
    )  # fmt: skip
    assert shown.rows[1][5:7] == ("109 kB", "5 B")
    hostile = table.measured_table([replace(ROWS[0], name="<b>&")])
    assert "<td>&lt;b&gt;&amp;</td>" in hostile._repr_html_() and "<b>" not in hostile._repr_html_()
    assert hostile.rows[0][1] == ""


def test_each_bundled_drafter_has_its_need(pair):
    assert set(table.NEEDS) == set(pair.drafters)


def test_measured_rows_hold_what_was_counted(pair, counted):
    """Times are not asserted; that each is there, and positive, is."""
    rows = table.measure_drafters(
        pair.target, pair.drafters, counted, gamma=2, max_new_tokens=8, turns=1, repeats=1
    )
    assert [one.name for one in rows] == ["default", "lookup"]
    for one in rows:
        for kind, runs in counted[one.name].items():
            rate = table.pooled(runs).acceptance_rate
            assert one.rates[kind] == pytest.approx(rate, nan_ok=True)
        assert min(*one.predicted.values(), *one.measured.values(), one.c) > 0
    assert rows[0].weights == table.own_bytes(pair.target, pair.drafter)[0]
    with pytest.raises(ValueError, match="gamma must be a whole number of at least 1"):
        table.measure_drafters(pair.target, pair.drafters, counted, gamma=0)
    with pytest.raises(ValueError, match="drafted up to 2 tokens a round, and gamma is 1"):
        table.measure_drafters(pair.target, pair.drafters, counted, gamma=1)


@pytest.mark.parametrize("show", [table.measured_table, table.decision_table, table.choose])
def test_no_rows_are_refused_in_one_sentence(show):
    with pytest.raises(ValueError, match="There is no drafter to show"):
        show([])
