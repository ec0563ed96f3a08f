"""Verdicts by a coin: models that nobody has trained, kept as often as asked."""

from __future__ import annotations

import math

import pytest
import tiny
import torch
from bench_subject import LENGTH, plan

from specdec_core.lab.bench import coin, sections
from specdec_core.lab.bench.ours import speculative_row
from specdec_core.threads import Threads


@pytest.fixture(autouse=True)
def _one_thread():
    with Threads(1):
        yield


# Five standard deviations: a right coin fails this once in 1.7 million seeds, and these are fixed.
SIGMAS = 5


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.87, 1.0])
def test_a_coin_keeps_drafts_as_often_as_asked_whatever_p_and_q(acceptance):
    count = 40_000
    for p, q in ((0.0, 1.0), (1.0, 0.1)):
        ends = coin.CoinVerdicts(acceptance, seed=4).first_rejection(
            torch.full((count, 3), p), torch.full((count, 3), q)
        )
        for depth in range(3):
            judged = ends[ends >= depth]
            kept = (judged > depth).double().mean().item() if len(judged) else acceptance
            sigma = math.sqrt(acceptance * (1 - acceptance) / max(1, len(judged)))
            assert abs(kept - acceptance) <= SIGMAS * sigma


def test_a_coin_decides_a_whole_run():
    tested = coin.coin_subject("small", 0.6, "cpu", "float32", 600)
    row = speculative_row("coin", tested.target, tested.drafters["draft"], 4,
                          tested.work(plan(max_new_tokens=500)))  # fmt: skip
    row.measure(1)
    sigma = math.sqrt(0.6 * 0.4 / row.judged)
    assert row.tokens == [500] and row.judged > 200
    assert abs(row.accepted / row.judged - 0.6) <= SIGMAS * sigma


def test_peers_that_judge_drafts_themselves_are_left_out_and_that_is_said():
    tested = coin.coin_subject("small", 0.6, "cpu", "float32", 64)
    rows = sections.method_rows(tested, plan(), tested.work(plan()))
    assert [row.name for row in rows] == ["plain", "speculative, draft", "transformers generate"]
    assert tested.target.model.generation_config.eos_token_id is None
    for row in rows:  # no random token may end a text
        row.measure(0)
        assert row.tokens == [LENGTH], row.name
    assert any("left out" in note for note in tested.notes)
    assert "skipped" in sections.batches(tested, plan(), print)


def test_a_shape_that_does_not_fit_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(coin, "free_bytes", lambda device: 20 * 10**9)
    monkeypatch.setattr(coin, "_random_model", lambda *_: pytest.fail("allocated"))
    with pytest.raises(
        ValueError, match=r"7b/0.5b pair needs about 32\.\d GB in float32"
    ) as raised:
        coin.random_pair("7b/0.5b", "cpu", "float32", 1024)
    tiny.sentence_of(raised.value)
    monkeypatch.setattr(coin, "free_bytes", lambda device: None)
    with pytest.raises(pytest.fail.Exception, match="allocated"):
        coin.random_pair("7b/0.5b", "cpu", "float32", 1024)


def test_the_large_shape_is_the_published_one():
    target, draft = coin.configs("7b/0.5b")
    assert coin.weight_bytes(target, torch.bfloat16) == 2 * 7_615_616_512
    assert coin.weight_bytes(draft, torch.bfloat16) == 2 * 494_032_768
    assert "seconds a token" in coin.slow_warning("7b/0.5b", torch.device("cpu"), torch.bfloat16)
    assert coin.slow_warning("small", torch.device("cpu"), torch.float32) is None
    assert (coin.free_bytes(torch.device("cpu")) or 1) > 0
