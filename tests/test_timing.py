"""What chapter 01 measures: loops, counts, and runs that are timed as they say."""

from __future__ import annotations

import itertools

import pytest
import tiny

from specdec_core import Sampling, autoregressive_decode
from specdec_core.lab import exercises, timing


@pytest.fixture(scope="module")
def target():
    return tiny.pair()[0]


class Recorder:
    """A model that notes (rows before, tokens fed) of each forward of another one."""

    def __init__(self, inner):
        self.inner, self.calls = inner, []

    def forward(self, tokens, keep=None):
        self.calls.append((self.inner.length, len(tokens), keep))
        return self.inner.forward(tokens, keep)

    def rollback(self, length):
        self.inner.rollback(length)


def test_the_cache_changes_no_token_and_spares_reading(target):
    prompt = tiny.prompt(5)
    texts = []
    for cached, loop in ((True, timing.greedy_with_cache), (False, timing.greedy_without_cache)):
        model = Recorder(target)
        texts.append(loop(model, prompt, 7))
        assert len(model.calls) == 7
        assert sum(fed for _, fed, _ in model.calls) == timing.rows_fed(5, 7, cached)
    assert texts[0] == texts[1]
    greedy = Sampling(temperature=0)
    plain = autoregressive_decode(target, prompt, sampling=greedy, max_new_tokens=7)
    assert texts[0] == plain.tokens


def test_rows_by_hand():
    assert timing.rows_fed(5, 3, cached=True) == 5 + 1 + 1
    assert timing.rows_fed(5, 3, cached=False) == 5 + 6 + 7


def test_forwards_are_timed_after_the_same_rows_and_with_all_their_logits(target):
    model = Recorder(target)
    times = timing.forward_times(model, tiny.prompt(20), start=6, counts=(1, 4, 9), repeats=2)
    assert list(times) == [1, 4, 9] and min(times.values()) > 0
    assert model.calls == [(0, 6, 1), *[(6, n, None) for n in (1, 4, 9, 9, 4, 1)]]


def test_a_forward_may_start_from_an_empty_cache(target):
    model = Recorder(target)
    timing.forward_times(model, tiny.prompt(20), start=0, counts=(8,), repeats=1)
    assert model.calls == [(0, 8, None)]


def test_the_next_token_is_timed_with_a_full_cache_and_with_none(target):
    model = Recorder(target)
    kept, again = timing.next_token_times(model, tiny.prompt(20), (1, 12), repeats=2)
    assert list(kept) == list(again) == [1, 12]
    assert model.calls == [
        *[(0, 1, 1), (0, 1, 1), (0, 12, 1), (11, 1, 1)],
        *[(11, 1, 1), (0, 12, 1), (0, 1, 1), (0, 1, 1)],
    ]


def test_the_fastest_turn_counts_and_setting_up_does_not(monkeypatch):
    clock = itertools.count()
    ticks = iter([0, 5, 10, 13, 20, 24])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    seconds = timing.fastest({"run": (lambda: next(clock), lambda: None)}, repeats=3)
    assert seconds == {"run": 3} and next(clock) == 3


def test_the_end_of_the_flat_part():
    times = {1: 1.0, 2: 1.2, 4: 2.0, 8: 3.9}
    assert timing.most_tokens(times) == 4
    assert timing.most_tokens(times, limit=1.5) == 2


def test_a_disturbed_clock_is_noticed():
    assert not timing.disturbed({1: 1.0, 2: 0.9, 4: 1.5})
    assert timing.disturbed({1: 2.0, 2: 2.1, 8: 1.02, 16: 3.0})
    assert timing.disturbed({8: 1.02, 1: 2.0})
    assert not timing.disturbed({1: 1.0, 2: 0.9}, share=0.9)


def test_the_machine_has_a_speed():
    read, multiply = timing.machine_speed(size=64, megabytes=1)
    assert read > 0 and multiply > 0


def test_operations_a_token_are_two_a_weight(target):
    weights = sum(p.numel() for p in target.model.parameters())
    assert timing.flops_per_token(target) == 2 * weights


def test_a_loop_that_reads_the_prompt_in_two_forwards_is_right_too(capsys):
    def loop(model, prompt, new_tokens):
        model.rollback(0)
        model.forward(prompt[:-1])
        text = list(prompt)
        for _ in range(new_tokens):
            text.append(model.forward(text[-1:])[-1].argmax())
        return text[len(prompt) :]

    exercises.check_greedy_loop(loop)
    assert capsys.readouterr().out.strip() == "right"
