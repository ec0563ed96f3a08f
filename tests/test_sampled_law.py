"""The bundled pair, its real logits and the real decode loop, against the target's exact law.

Exactly where every outcome can be visited, and by sampling as one would do it elsewhere: with a
false-alarm level stated beforehand, and as many samples as each mistake needs to be caught with
power .99. Seeds are fixed, so a test that passes once passes always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chisquare

from specdec_core import (
    Randomness,
    Sampling,
    autoregressive_decode,
    exact_law,
    largest_difference,
    speculative_decode,
    total_variation,
)
from specdec_core.lab import law_check
from specdec_core.lab.law_check import (
    ELSE,
    LawCheck,
    cells,
    check_law,
    draw,
    likely_law,
    name_rare,
    null_band,
    power,
    rows_of,
    sample,
    sample_models,
    samples_needed,
)
from specdec_core.lab.museum import MISTAKES, Example
from specdec_core.lab.museum.drafting import NoEcho
from specdec_core.pairs import Pair, load_pair

TOLERANCE = 1e-12
LEVEL = 1e-4  # false alarms a test may give, were its seed not fixed
POWER = 0.99
SAMPLES = 20_000
PROMPT = "Once upon a time, there was a"

# The function `verify` hides the module of that name in the package.
core_verify = import_module("specdec_core.verify")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair("storyworld", dtype="float64")


@pytest.fixture(scope="module")
def whole(pair: Pair) -> Example:
    """The pair after the prompt, its whole vocabulary, as tables of its own logits."""
    prompt = pair.encode(PROMPT)
    return Example(
        rows_of(pair.target, prompt), rows_of(pair.drafter.model, prompt), gamma=2, tokens=3
    )


@pytest.fixture(scope="module")
def keyhole(pair: Pair) -> Example:
    """The same logits, cut to the tokens that are likeliest after the prompt."""
    return law_check.keyhole(pair, PROMPT)


def law_of(toy: Example) -> dict[tuple[int, ...], float]:
    """The target's law of three tokens under the toy's top-k, by recursion over its rows."""
    law: dict[tuple[int, ...], float] = {}

    def extend(new: tuple[int, ...], probability: float) -> None:
        if len(new) == toy.tokens:
            law[new] = probability
            return
        row = np.array(toy.target(new))
        if toy.sampling.top_k:
            row[np.argsort(-row)[toy.sampling.top_k :]] = 0
        for token in np.flatnonzero(row):
            extend((*new, int(token)), probability * float(row[token] / row.sum()))

    extend((), 1.0)
    return law


# The check itself.


def test_statistic_is_pearsons() -> None:
    law = {(0,): 0.5, (1,): 0.3, (2,): 0.2}
    counts = {(0,): 40, (1,): 35, (2,): 25}
    check = check_law(counts, law)
    expected = chisquare([40, 35, 25], [50, 30, 20])
    assert check.statistic == pytest.approx(expected.statistic)
    assert check.p_value == pytest.approx(expected.pvalue)
    assert check.total_variation == pytest.approx(0.1)


def test_rare_outputs_share_a_cell() -> None:
    law = {(0,): 0.9, (1,): 0.06, (2,): 0.03, (3,): 0.01}
    assert cells(law, 1000) == [[(0,)], [(1,)], [(2,)], [(3,)]]
    assert cells(law, 200) == [[(0,)], [(1,)], [(2,), (3,)]]
    assert cells(law, 100) == [[(0,)], [(1,), (2,), (3,)]]


def test_an_output_the_law_rules_out_fails_at_once() -> None:
    check = check_law({(0,): 10_000, (2,): 1}, {(0,): 1.0})
    assert (check.impossible, check.p_value) == (1, 0.0)


def test_false_alarms_come_as_often_as_stated() -> None:
    """4,000 right decoders (multinomial draws): 1 in 100 fails at level .01, within 3 sigma."""
    law = {(i,): p for i, p in enumerate(np.random.default_rng(1).dirichlet(np.ones(40)))}
    draws = np.random.default_rng(2).multinomial(SAMPLES, list(law.values()), size=4000)
    checks = [check_law(dict(zip(law, counts.tolist(), strict=True)), law) for counts in draws]
    alarms = sum(not check.passes(0.01) for check in checks)
    assert abs(alarms - 40) < 3 * 40**0.5
    band = null_band(law, SAMPLES, 0.01)
    outside = sum(check.total_variation > band for check in checks)
    assert abs(outside - 40) < 5 * 40**0.5  # the band is itself simulated


def test_draws_from_a_law_stand_for_runs_of_the_decoder(keyhole: Example) -> None:
    """Counts of real runs and of draws from the enumerated law pass the same check."""
    law = keyhole.law("M1")
    for counts in (
        sample(lambda r: keyhole.run(r, "M1").tokens, 2_000, seed=5),
        draw(law, 2_000, 5),
    ):
        assert counts.total() == 2_000
        assert check_law(counts, law).passes(LEVEL)
    assert draw(law, 50, 1) == draw(law, 50, 1) != draw(law, 50, 2)


def test_the_band_of_a_rare_level_is_simulated_often_enough() -> None:
    """At level 1e-4, 200,000 right decoders; the band widens as the level falls."""
    law = {(0,): 0.6, (1,): 0.4}
    bands = [null_band(law, 100, level) for level in (0.05, 0.01, 1e-3, 1e-4)]
    assert bands == sorted(bands) and bands[-1] > bands[0]
    # Two cells: 100 flips differ from 60 by more than 3.9 sigma about once in 10,000.
    assert bands[-1] == pytest.approx(3.89 * (0.24 / 100) ** 0.5, abs=0.012)


# The pair, exactly.


def test_exact_law_of_the_real_pair(whole: Example) -> None:
    """Real logits in float64, whole vocabulary, top-k 3 on both sides: every outcome visited."""
    toy = replace(whole, sampling=Sampling(top_k=3))
    difference = largest_difference(toy.law(), law_of(toy))
    print(f"largest difference {difference:.1e}")
    assert difference <= TOLERANCE


def test_exact_law_with_the_real_caches(pair: Pair) -> None:
    """No table between: transformers' forwards over the rolled-back caches, against plain ones."""
    prompt, sampling = pair.encode(PROMPT), Sampling(top_k=2)

    def speculative(randomness: Randomness) -> Sequence[int]:
        return speculative_decode(
            pair.target, pair.drafter, prompt, gamma=2, sampling=sampling, max_new_tokens=3,
            randomness=randomness,
        ).tokens  # fmt: skip

    def plain(randomness: Randomness) -> Sequence[int]:
        return autoregressive_decode(
            pair.target, prompt, sampling=sampling, max_new_tokens=3, randomness=randomness
        ).tokens

    assert largest_difference(exact_law(speculative), exact_law(plain)) <= TOLERANCE


# The pair, sampled.


def test_sampled_law_of_the_real_pair(whole: Example) -> None:
    """20,000 continuations of 3 tokens, top-k 4 on both sides, at false-alarm level 1e-4."""
    toy = replace(whole, sampling=Sampling(top_k=4))
    law = law_of(toy)
    check = check_law(sample(lambda r: toy.run(r).tokens, SAMPLES, seed=0), law)
    print(check)
    assert check.passes(LEVEL)
    assert check.total_variation < null_band(law, SAMPLES, 0.001, repeats=10_000)


KEYHOLE_MISTAKES = ("M1", "M2", "M3", "M4", "M5", "M6", "M6b", "M7", "M8", "M10", "M11")
# Those that need a top-k or a processor, and those that read a text that never was: these show
# where a token depends on the ones before it, which the keyhole hides.
OTHER_MISTAKES = ("M9", "M12", "M13", "M18", "M18b", "M18c")


def toy_for(id: str, keyhole: Example, whole: Example) -> Example:
    """The real pair, set up so that this mistake can show."""
    if id == "M12":
        return replace(keyhole, draft_sampling=Sampling(0.5, top_k=2))
    if id == "M13":
        return replace(keyhole, sampling=Sampling(1.5, processors=(NoEcho(),)))
    if id in OTHER_MISTAKES:
        top = {"sampling": Sampling(1.5, top_k=3), "draft_sampling": Sampling(0.5, top_k=3)}
        return replace(whole, **top)
    return keyhole


@pytest.mark.parametrize("id", KEYHOLE_MISTAKES + OTHER_MISTAKES)
def test_sampled_check_fails_each_mistake(keyhole: Example, whole: Example, id: str) -> None:
    """At the number of samples that gives power .99, planned from the exact mistaken law."""
    toy = toy_for(id, keyhole, whole)
    right, wrong = toy.law(), toy.law(id)
    samples = samples_needed(right, wrong, LEVEL, POWER)
    assert samples <= SAMPLES
    check = check_law(sample(lambda r: toy.run(r, id).tokens, samples, seed=1), right)
    print(f"{id}: TV {total_variation(right, wrong):.4f}, N {samples}, p {check.p_value:.1e}")
    assert not check.passes(LEVEL)


def test_right_decoder_passes_where_the_mistakes_fail(keyhole: Example) -> None:
    check = check_law(sample(lambda r: keyhole.run(r).tokens, 2_000, seed=2), keyhole.law())
    assert check.passes(LEVEL)


def test_planned_power_is_the_real_one(keyhole: Example) -> None:
    """500 repeats of the check on draws from a mistaken law: about 99 in 100 fail."""
    for id in ("M1", "M6"):
        right, wrong = keyhole.law(), keyhole.law(id)
        samples = samples_needed(right, wrong, LEVEL, POWER)
        assert power(right, wrong, samples, LEVEL) >= POWER
        draws = np.random.default_rng(3).multinomial(samples, list(wrong.values()), size=500)
        caught = sum(
            not check_law(dict(zip(wrong, counts.tolist(), strict=True)), right).passes(LEVEL)
            for counts in draws
        )
        assert caught >= 480


def test_some_mistakes_only_the_exact_law_sees(keyhole: Example) -> None:
    """Epsilon and half precision need more samples than one draws; M19 does no damage at all."""
    right = keyhole.law()
    for id, too_few in (("M14", 10**9), ("M15", SAMPLES)):
        wrong = keyhole.law(id)
        assert samples_needed(right, wrong, LEVEL, POWER) > too_few
        assert total_variation(right, wrong) > TOLERANCE
    with pytest.raises(ValueError, match="too close"):
        samples_needed(right, keyhole.law("M19"), LEVEL, POWER)


def test_every_law_breaker_of_the_museum_is_accounted_for() -> None:
    law_breakers = {id for id, mistake in MISTAKES.items() if mistake.breaks == "law"}
    assert law_breakers == {*KEYHOLE_MISTAKES, *OTHER_MISTAKES, "M14", "M15"}


# The models themselves, in float32, many texts at a time.


@pytest.fixture(scope="module")
def fast() -> Pair:
    return load_pair("storyworld")


def test_the_named_part_of_the_law_is_the_law(pair: Pair) -> None:
    prompt = pair.encode(PROMPT)
    toy = Example(rows_of(pair.target, prompt), tokens=2, sampling=Sampling(top_k=5))
    whole_law = law_of(toy)
    named = likely_law(pair.target, prompt, tokens=2, least=0.01, sampling=toy.sampling)
    rest = named.pop(ELSE)
    assert set(named) == {text for text, p in whole_law.items() if p >= 0.01}
    assert all(p == pytest.approx(whole_law[text], abs=1e-12) for text, p in named.items())
    assert rest == pytest.approx(sum(p for p in whole_law.values() if p < 0.01), abs=1e-12)


def test_counts_depend_on_neither_width_nor_workers(fast: Pair) -> None:
    prompt = fast.encode(PROMPT)
    options = {"samples": 60, "seed": 5}
    one = sample_models(fast.target, fast.drafter, prompt, width=60, workers=1, **options)
    two = sample_models(fast.target, fast.drafter, prompt, width=25, workers=2, **options)
    other = sample_models(fast.target, fast.drafter, prompt, samples=60, seed=6)
    assert one == two != other and one.total() == 60


def models_check(pair: Pair, samples: int, sampling: Sampling) -> LawCheck:
    prompt = pair.encode(PROMPT)
    law = likely_law(pair.target, prompt, least=5 / samples, sampling=sampling)
    counts = sample_models(
        pair.target, pair.drafter, prompt, samples=samples, seed=4, sampling=sampling
    )
    return check_law(name_rare(counts, law), law)


def test_sampled_law_of_the_models_themselves(fast: Pair) -> None:
    """4,000 texts of 3 tokens, top-k 4; with M1 put into the core a quarter of them fails."""
    sampling = Sampling(top_k=4)
    assert models_check(fast, 4_000, sampling).passes(LEVEL)
    with mock.patch.object(core_verify, "residual_weights", lambda p, q: p):
        assert not models_check(fast, 1_000, sampling).passes(LEVEL)


@pytest.mark.slow
def test_sampled_law_of_a_hundred_thousand_texts(fast: Pair) -> None:
    """100,000 texts of 3 tokens over the whole vocabulary, none of it cut away."""
    check = models_check(fast, 100_000, Sampling())
    print(check)
    assert check.degrees > 1_000 and check.passes(LEVEL)
