"""Schedules: the law stays, the gamma that pays is found, a run begins anew, warm-up is plain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from specdec_core import (
    AdaptiveGamma,
    Draft,
    Seeded,
    Stats,
    TableDrafter,
    TableModel,
    WarmUp,
    exact_law,
    largest_difference,
    marginal,
    speculative_decode,
    speculative_rounds,
    total_variation,
)

COSTS = {0: 1.0, 1: 1.2, 2: 1.3, 3: 1.5}
P, Q = (0.2, 0.3, 0.5), (0.5, 0.3, 0.2)


# The law


def random_rows(seed: int, vocab: int = 3) -> Callable[[tuple[int, ...]], np.ndarray]:
    """A distribution for each prefix, the same ones for the same seed."""

    def row(prefix: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng([seed, *prefix]).dirichlet(np.ones(vocab))

    return row


def law_of_table(p: Callable, length: int, stops: Sequence[int]) -> dict[tuple[int, ...], float]:
    """The law of `length` tokens after (0,), by the table alone."""
    law = {(): 1.0}
    for _ in range(length):
        grown = {}
        for text, mass in law.items():
            if text and text[-1] in stops:
                grown[text] = mass
                continue
            for token, part in enumerate(p((0, *text))):
                grown[(*text, token)] = mass * part
        law = grown
    return law


def law_error(schedule, p, q, length, stops=(), drafter=TableDrafter) -> tuple[float, set[int]]:
    """Largest difference from the table's law, and every gamma that was drafted."""
    drafted, vocab = set(), len(p((0,)))

    def run(randomness) -> list[int]:
        out = speculative_decode(
            TableModel(p, vocab), drafter(q, vocab), [0], gamma=schedule, max_new_tokens=length,
            stop_tokens=stops, randomness=randomness,
        )  # fmt: skip
        drafted.update(round.gamma for round in out.trace.rounds)
        return out.tokens

    return largest_difference(exact_law(run), law_of_table(p, length, stops)), drafted


def schedules() -> dict[str, object]:
    """Each changes its mind within a few tokens."""
    quick = {"expected": 0.6, "memory": 2, "probe": 1}
    return {
        "adaptive": AdaptiveGamma(COSTS, **quick),
        "warm-up, then 2": WarmUp(2, 2),
        "warm-up, then adaptive": WarmUp(AdaptiveGamma(COSTS, **quick), 1),
        "twice warmed up": WarmUp(WarmUp(AdaptiveGamma({2: 1.1}, **quick), 1), 2),
    }


@pytest.mark.parametrize("stops", [(), (1,)])
@pytest.mark.parametrize("name", schedules())
def test_no_schedule_changes_the_law(name, stops):
    for seed in range(3):
        p, q = random_rows(seed, 2), random_rows(seed + 9, 2)
        error, drafted = law_error(schedules()[name], p, q, 5, stops)
        assert error < 1e-12
        assert 0 in drafted and len(drafted) >= 2


class Peeking(TableDrafter):
    """Ends a draft before its first unlikely token: the length depends on the draft itself."""

    def propose(self, *request) -> Draft:
        draft = super().propose(*request)
        kept = 0
        while kept < len(draft.tokens) and draft.probs[kept, draft.tokens[kept]] >= 0.25:
            kept += 1
        return Draft(draft.tokens[:kept], draft.probs[:kept])


def test_a_choice_that_peeks_at_the_draft_is_caught():
    for gamma in (1, AdaptiveGamma(COSTS)):
        error, _ = law_error(gamma, lambda _: P, lambda _: Q, 3, drafter=Peeking)
        assert error > 0.01
        assert law_error(gamma, lambda _: P, lambda _: Q, 3)[0] < 1e-12


def test_the_bias_of_peeking_is_a_tenth():
    law = exact_law(
        lambda randomness: speculative_decode(
            TableModel(lambda _: P, 3), Peeking(lambda _: Q, 3), [0], gamma=1, max_new_tokens=2,
            randomness=randomness,
        ).tokens
    )  # fmt: skip
    assert total_variation(marginal(law, 1), {(i,): p for i, p in enumerate(P)}) == (
        pytest.approx(0.1, abs=1e-12)
    )


# The gamma that pays


def counted(accepted: int, rejected: int, rounds: int = 1) -> Stats:
    return Stats(rounds=rounds, accepted=accepted, rejected=rejected)


def after(accepted: int, rejected: int, costs: dict[int, float], **options: object) -> int:
    """The choice after one round with so many verdicts."""
    schedule = AdaptiveGamma(costs, **options)
    schedule.next(Stats())
    return schedule.next(counted(accepted, rejected))


@pytest.mark.parametrize("kept, lost", [*itertools.product([0, 1, 4, 19], repeat=2)])
def test_the_choice_is_the_best_by_integration(kept, lost):
    """N averaged over the Beta distribution of alpha by a fine grid; v falls and rises again."""
    costs = {0: 1.0, 1: 1.6, 2: 1.5, 3: 2.3, 4: 1.8, 8: 2.5, 12: 3.6}
    alpha = (np.arange(200_000) + 0.5) / 200_000
    stays = (1 - 1 / 40) ** (kept + lost)
    weight = alpha ** (3.2 * stays + kept - 1) * (1 - alpha) ** (0.8 * stays + lost - 1)
    weight /= weight.sum()
    pace = {
        gamma: (weight * sum(alpha**i for i in range(gamma + 1))).sum() / cost
        for gamma, cost in costs.items()
    }
    assert after(kept, lost, costs) == max(pace, key=pace.get)


def test_more_acceptance_never_means_shorter_drafts():
    costs = {gamma: 1.2 + 0.15 * gamma for gamma in range(1, 13)}
    chosen = [after(kept, 20 - kept, costs) for kept in range(21)]
    assert chosen == sorted(chosen)
    assert chosen[0] == 0 and chosen[-1] >= 8 and len(set(chosen)) >= 6


def test_old_verdicts_fade():
    schedule = AdaptiveGamma(COSTS, memory=10)
    schedule.next(Stats())
    schedule.next(counted(0, 100, 1))
    assert schedule.acceptance < 0.05
    schedule.next(counted(30, 100, 2))
    # Of 4 drafts expected at .8 hardly anything is left; of the 100 rejected, (1 - 1/10)^30.
    judged = (4 * 0.9**100 + 100) * 0.9**30 + 30
    assert schedule.acceptance == pytest.approx((3.2 * 0.9**130 + 30) / judged)
    assert schedule.acceptance > 0.86


def gammas(run) -> list[int]:
    """gamma of each round but the last few, which are cut to what is left."""
    return [round.gamma for round in run.trace.rounds][:-4]


def decode(schedule, p, q, tokens=200):
    return speculative_decode(
        TableModel(p, 3), TableDrafter(q, 3), [0], gamma=schedule, max_new_tokens=tokens,
        randomness=Seeded(0),
    )  # fmt: skip


def one_hot(token: int) -> Callable:
    return lambda _: np.eye(3)[token]


def test_a_draft_that_is_always_right_gets_the_longest_rounds():
    assert set(gammas(decode(AdaptiveGamma(COSTS), one_hot(1), one_hot(1)))[3:]) == {3}


def test_a_draft_that_is_always_wrong_gets_probes_alone():
    chosen = gammas(decode(AdaptiveGamma(COSTS, probe=9), one_hot(1), one_hot(2)))
    settled = chosen[chosen.index(0) :]
    assert settled == [1 if i % 10 == 9 else 0 for i in range(len(settled))]
    assert len(settled) > 150 and chosen.index(0) < 20


def test_a_probe_drafts_what_costs_least():
    chosen = gammas(decode(AdaptiveGamma({1: 1.9, 2: 1.2, 3: 1.4}), one_hot(1), one_hot(2)))
    assert set(chosen[20:]) == {0, 2}


def test_drafting_comes_back_when_the_draft_fits_again():
    def draft(prefix: tuple[int, ...]) -> np.ndarray:
        return np.eye(3)[2 if len(prefix) < 100 else 1]

    run = decode(AdaptiveGamma(COSTS, probe=9), one_hot(1), draft, 400)
    assert gammas(run)[50:60].count(0) == 9
    assert set(gammas(run)[-20:]) == {3}


# Runs


@pytest.mark.parametrize("name", schedules())
def test_a_schedule_begins_anew_with_each_run(name):
    """After a run of another kind, and after one that was given up, choices are those of a fresh
    object."""
    used, fresh = schedules()[name], schedules()[name]
    decode(used, one_hot(1), one_hot(2), 60)
    for _ in itertools.islice(
        speculative_rounds(
            TableModel(one_hot(1), 3), TableDrafter(one_hot(2), 3), [0], gamma=used,
            max_new_tokens=40,
        ),
        9,
    ):  # fmt: skip
        pass
    p, q = random_rows(3), random_rows(4)
    runs = [decode(schedule, p, q, 60) for schedule in (used, fresh)]
    assert gammas(runs[0]) == gammas(runs[1])
    assert runs[0].tokens == runs[1].tokens


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_warm_up_drafts_nothing_for_so_many_tokens(tokens):
    run = decode(WarmUp(3, tokens), random_rows(1), random_rows(1), 30)
    chosen = [round.gamma for round in run.trace.rounds]
    assert chosen[: tokens + 1] == [0] * tokens + [3]
    assert 0 not in chosen[tokens:-1]


# Bad input


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: AdaptiveGamma([1.0, 1.2]), "costs must map each gamma"),
        (lambda: AdaptiveGamma({}), "costs name no gamma above 0"),
        (lambda: AdaptiveGamma({0: 1.0}), "costs name no gamma above 0"),
        (lambda: AdaptiveGamma({1.5: 1.0}), "gamma must be a whole number"),
        (lambda: AdaptiveGamma({1: 0.0}), "cost of gamma 1 must be a number above 0"),
        (lambda: AdaptiveGamma({1: float("nan")}), "cost of gamma 1 must be a number above 0"),
        (lambda: AdaptiveGamma({1: "1.3"}), "cost of gamma 1 must be a number above 0"),
        (lambda: AdaptiveGamma(COSTS, expected=1.0), "expected must lie between"),
        (lambda: AdaptiveGamma(COSTS, expected="x"), "expected must lie between"),
        (lambda: AdaptiveGamma(COSTS, memory=0), "memory must be a whole number"),
        (lambda: AdaptiveGamma(COSTS, probe=0), "probe must be a whole number"),
        (lambda: WarmUp(2, -1), "tokens must be a whole number"),
        (lambda: WarmUp(-1, 2), "gamma must be a whole number"),
    ],
)
def test_bad_input_gets_one_sentence(make, words):
    with pytest.raises(ValueError) as caught:
        make()
    text = str(caught.value)
    assert words in text and text.endswith(".") and ". " not in text and "\n" not in text
