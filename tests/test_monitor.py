"""The acceptance monitor: its rule by hand, its false alarms and its power by seeded simulation."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import pytest

from specdec_core import (
    AcceptanceMonitor,
    Round,
    Seeded,
    TableDrafter,
    TableModel,
    speculative_rounds,
)


def round_of(gamma: int, accepted: int, emitted: int | None = None) -> Round:
    """A round by its counts alone."""
    emitted = accepted + 1 if emitted is None else emitted
    return Round(
        drafted=(0,) * gamma, accepted=accepted, token=0, emitted=(0,) * emitted, target_prob=(),
        draft_prob=(), u=None, residual_mass=1.0, zero_residual=False, target_length=(0, 0),
        draft_length=(0, 0),
    )  # fmt: skip


def rounds_at(rate: float, seed: int, gamma: int = 4) -> Iterator[Round]:
    """Endless rounds whose drafts are each kept with probability `rate`."""
    rng = random.Random(seed)
    while True:
        kept = itertools.takewhile(lambda _: rng.random() < rate, range(gamma))
        yield round_of(gamma, len(list(kept)))


def judged(round: Round) -> int:
    return min(round.accepted + 1, round.gamma)


def until_alarm(monitor: AcceptanceMonitor, rate: float, seed: int, most: int) -> float:
    """Judged drafts up to the alarm; infinite where none comes within `most`."""
    count = 0
    for round in rounds_at(rate, seed):
        if count + judged(round) > most:
            return math.inf
        count += judged(round)
        monitor.add(round)
        if monitor.alarm:
            return count


# What it shows


def test_the_window_holds_the_latest_verdicts_by_position():
    monitor = AcceptanceMonitor(0.5, window=5)
    assert math.isnan(monitor.rate) and monitor.per_position == []
    monitor.add(round_of(3, 0))  # its one verdict falls out of the window
    monitor.add(round_of(3, 3))
    monitor.add(round_of(2, 1))
    assert monitor.judged_at == [2, 2, 1]
    assert monitor.per_position == [1.0, 0.5, 1.0]
    assert monitor.rate == 0.8


def test_only_judged_drafts_inside_the_text_count():
    monitor = AcceptanceMonitor(0.5)
    monitor.add(round_of(0, 0))
    monitor.add(round_of(4, 1))  # two drafts were never judged
    monitor.add(round_of(4, 4, emitted=2))  # a stop token was the second
    assert monitor.judged_at == [2, 2] and monitor.rate == 0.75


def test_the_evidence_is_the_best_stretch_of_verdicts():
    """The largest sum over any stretch that ends now, by trying all, and the first alarm by it."""
    monitor = AcceptanceMonitor(0.8, drop=0.2, between_false_alarms=30)
    steps, alarmed = [], False
    for round in itertools.islice(rounds_at(0.68, seed=5), 60):
        for i in range(judged(round)):
            kept = i < round.accepted
            steps.append(math.log(0.6 / 0.8) if kept else math.log(0.4 / 0.2))
            best = max(0.0, *(sum(steps[k:]) for k in range(len(steps))))
            alarmed = alarmed or best >= math.log(30)
        monitor.add(round)
        assert monitor.evidence == pytest.approx(best)
        assert bool(monitor.alarm) == alarmed
    assert alarmed


def test_an_alarm_stays_until_it_is_reset():
    monitor = AcceptanceMonitor(0.9, between_false_alarms=100)
    for _ in range(20):
        monitor.add(round_of(4, 0))
    alarm = monitor.alarm
    assert alarm.startswith("Acceptance fell: 0.00 over the last")
    assert "0.90 was expected" in alarm and alarm.endswith(".") and ". " not in alarm
    for _ in range(50):
        monitor.add(round_of(4, 4))
    assert monitor.alarm == alarm and "ALARM" in repr(monitor)
    monitor.reset()
    assert monitor.alarm is None and monitor.evidence == 0 and math.isnan(monitor.rate)
    assert monitor.baseline == 0.9


def test_it_reads_as_a_line():
    monitor = AcceptanceMonitor(0.8)
    assert repr(monitor) == (
        "AcceptanceMonitor(nothing judged; 0.800 expected; evidence 0.0 of 9.2)"
    )
    monitor.add(round_of(2, 1))
    assert "0.500 over 2 judged drafts, by position 1.00 0.00" in repr(monitor)
    assert "expected rate not learned" in repr(AcceptanceMonitor())


# What it promises


@pytest.mark.parametrize("rate, drop", [(0.85, 0.1), (0.6, 0.2), (0.9, 0.05), (0.08, 0.1)])
def test_false_alarms_are_no_more_than_promised(rate, drop):
    """P(alarm within 200 judged drafts) <= 200 / 1000. At that bound, 300 runs exceed 82 alarms
    with probability .001."""
    alarms = sum(
        until_alarm(AcceptanceMonitor(rate, drop=drop, between_false_alarms=1000), rate, seed, 200)
        < math.inf
        for seed in range(300)
    )
    assert alarms <= 82
    # The same check sees a baseline that is too high.
    high = sum(
        until_alarm(
            AcceptanceMonitor(min(rate + 0.3, 0.99), drop=drop, between_false_alarms=1000),
            rate, seed, 200,
        ) < math.inf
        for seed in range(100)
    )  # fmt: skip
    assert high > 82


@pytest.mark.parametrize("baseline, rate", [(0.85, 0.75), (0.85, 0.6), (0.6, 0.4), (0.95, 0.7)])
def test_every_fall_is_found_after_about_the_stated_delay(baseline, rate):
    monitors = [AcceptanceMonitor(baseline) for _ in range(100)]
    expected = monitors[0].delay(rate)
    delays = [until_alarm(m, rate, seed, 5000) for seed, m in enumerate(monitors)]
    assert max(delays) < 4 * expected
    # The spread of one delay is below half its mean, so that of the mean of 100 below .05 of it.
    assert sum(delays) / 100 == pytest.approx(expected, rel=0.2)


def test_a_small_fall_need_not_be_found():
    monitor = AcceptanceMonitor(0.85, drop=0.1)
    assert monitor.delay(0.85) == monitor.delay(0.9) == math.inf
    assert monitor.delay(0.0) < monitor.delay(0.5) < monitor.delay(0.75) < math.inf


# A baseline that is learned


def test_a_learned_baseline_is_seldom_above_the_true_rate():
    """Two standard errors leave 2.3 %; of 200 monitors more than 15 with probability < .0001."""
    above = []
    for seed in range(200):
        monitor = AcceptanceMonitor(learn=400)
        for round in rounds_at(0.85, seed):
            monitor.add(round)
            if monitor.baseline is not None:
                break
        above.append(monitor.baseline > 0.85)
        assert 0.72 < monitor.baseline < 0.9 and monitor.alarm is None
    assert 0 < sum(above) <= 15


@pytest.mark.parametrize("kept", [0, 4])
def test_a_baseline_can_be_learned_where_all_or_none_is_kept(kept):
    monitor = AcceptanceMonitor(learn=40)
    for _ in range(50):
        monitor.add(round_of(4, kept))
    assert 0 < monitor.baseline < 1 and monitor.alarm is None
    for _ in range(30):
        monitor.add(round_of(4, 0))
    assert bool(monitor.alarm) == (kept == 4)


def test_it_watches_runs_live_and_finds_the_draft_that_stopped_fitting():
    """Over several runs; from the sixth on the draft is another one."""
    p, fits, other = (0.5, 0.3, 0.2), (0.4, 0.4, 0.2), (0.1, 0.2, 0.7)
    monitor, heard = AcceptanceMonitor(learn=100, between_false_alarms=1000), None
    for run in range(12):
        q = fits if run < 6 else other
        for round in speculative_rounds(
            TableModel(lambda _: p, 3), TableDrafter(lambda _, q=q: q, 3), [0], gamma=3,
            max_new_tokens=80, randomness=Seeded(run),
        ):  # fmt: skip
            monitor.add(round)
        heard = run if monitor.alarm and heard is None else heard
    # sum min(p, q): .9, then .5.
    assert heard in (6, 7)
    assert monitor.rate == pytest.approx(0.5, abs=0.12)


# Bad input


@pytest.mark.parametrize(
    "options, words",
    [
        ({"baseline": 1.0}, "baseline must lie between 0 and 1"),
        ({"baseline": "0.8"}, "baseline must lie between 0 and 1"),
        ({"baseline": 0.8, "drop": 0}, "drop must lie between 0 and 1"),
        ({"between_false_alarms": 1}, "between_false_alarms must be a whole number"),
        ({"learn": 0}, "learn must be a whole number"),
        ({"window": 2.5}, "window must be a whole number"),
    ],
)
def test_bad_input_gets_one_sentence(options, words):
    with pytest.raises(ValueError) as caught:
        AcceptanceMonitor(**options)
    text = str(caught.value)
    assert words in text and text.endswith(".") and ". " not in text


def test_there_is_no_delay_before_a_baseline():
    with pytest.raises(ValueError, match="There is no baseline yet"):
        AcceptanceMonitor().delay(0.5)
    with pytest.raises(ValueError, match="rate must lie between 0 and 1"):
        AcceptanceMonitor(0.5).delay(1.5)
