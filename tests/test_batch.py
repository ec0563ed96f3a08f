"""Many sequences at once: each becomes what it becomes alone, and the law of all is exact."""

from __future__ import annotations

import pytest
import torch
from tiny import SAMPLINGS, VOCAB, model, noisy, pair, prompt, sentence_of

from specdec_core import (
    CausalLM,
    ModelDrafter,
    Sampling,
    Scripted,
    Seeded,
    TableDrafter,
    TableModel,
    autoregressive_decode,
    autoregressive_decode_batch,
    exact_law,
    largest_difference,
    speculative_decode,
    speculative_decode_batch,
)
from specdec_core.texts import EachText, LlamaTexts, texts_of

PROMPTS = [prompt(length, seed) for seed, length in enumerate((1, 9, 4, 30, 2, 9))]
LIMITS = [40, 7, 1, 25, 2, 40]
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)


def alone(target, drafter, text, limit, seed, **options):
    return speculative_decode(
        target, drafter, text, max_new_tokens=limit, randomness=Seeded(seed), **options
    )


def together(target, drafter, prompts=PROMPTS, limits=LIMITS, **options):
    seeds = [Seeded(seed) for seed in range(len(prompts))]
    return speculative_decode_batch(
        target, drafter, prompts, max_new_tokens=limits, randomness=seeds, **options
    )


def assert_same(batch, single):
    """All that a run returns, but for how many rows of the draft's cache were written again."""
    assert batch.tokens == single.tokens
    assert (batch.finish_reason, batch.text) == (single.finish_reason, single.text)
    for mine, theirs in zip(batch.trace.rounds, single.trace.rounds, strict=True):
        assert (mine.drafted, mine.verdicts) == (theirs.drafted, theirs.verdicts)
        assert mine.u == theirs.u and mine.target_length == theirs.target_length
        assert mine.target_prob == pytest.approx(theirs.target_prob, abs=1e-12)
        assert mine.draft_prob == pytest.approx(theirs.draft_prob, abs=1e-12)
        assert mine.residual_mass == pytest.approx(theirs.residual_mass, abs=1e-12)


@every_sampling
@pytest.mark.parametrize("gamma", [0, 1, 4])
@pytest.mark.parametrize("library", [False, True])
def test_a_text_becomes_what_it_becomes_alone(sampling, gamma, library):
    target = CausalLM(model(), library=library)
    drafter = ModelDrafter(CausalLM(noisy(model()), library=library))
    options = {"gamma": gamma, "sampling": sampling, "stop_tokens": [5, 11]}
    runs = together(target, drafter, **options)
    assert len({len(run.tokens) for run in runs}) > 2
    for seed, (run, text, limit) in enumerate(zip(runs, PROMPTS, LIMITS, strict=True)):
        assert_same(run, alone(target, drafter, text, limit, seed, **options))


@every_sampling
def test_plain_decoding_of_a_batch_is_plain_decoding_of_each(sampling):
    target, _ = pair()
    seeds = [Seeded(seed) for seed in range(len(PROMPTS))]
    runs = autoregressive_decode_batch(
        target, PROMPTS, sampling=sampling, max_new_tokens=LIMITS, randomness=seeds
    )
    for seed, (run, text, limit) in enumerate(zip(runs, PROMPTS, LIMITS, strict=True)):
        single = autoregressive_decode(
            target, text, sampling=sampling, max_new_tokens=limit, randomness=Seeded(seed)
        )
        assert run.tokens == single.tokens and run.finish_reason == single.finish_reason
        assert run.stats.target_forwards == len(run.tokens)


def test_neighbours_change_nothing():
    target, drafter = pair()
    everybody = together(target, drafter)
    seeds = [Seeded(3), Seeded(1)]
    two = speculative_decode_batch(
        target, drafter, [PROMPTS[3], PROMPTS[1]], max_new_tokens=[LIMITS[3], LIMITS[1]],
        randomness=seeds,
    )  # fmt: skip
    assert [run.tokens for run in two] == [everybody[3].tokens, everybody[1].tokens]


def test_stop_strings_end_each_text_on_its_own():
    target, drafter = pair()

    def spell(ids):
        return "".join(f"<{token}>" for token in ids)

    options = {"stop_strings": ["7><", "<20>"], "detokenize": spell}
    runs = together(target, drafter, **options)
    assert {run.finish_reason for run in runs} == {"stop", "length"}
    for seed, (run, text, limit) in enumerate(zip(runs, PROMPTS, LIMITS, strict=True)):
        assert_same(run, alone(target, drafter, text, limit, seed, **options))


def first(prefix):
    return [0.6, 0.4] if len(prefix) % 2 else [0.3, 0.7]


def second(prefix):
    return [0.8, 0.2] if prefix[-1] else [0.4, 0.6]


def test_the_law_of_two_texts_is_the_product_of_their_laws():
    """Both draw from one enumerated source, so every outcome of the batch is visited."""
    target, drafter = TableModel(first, 2), TableDrafter(second, 2)
    prompts, limits = [[0], [1, 1]], [3, 2]

    def both(randomness):
        runs = speculative_decode_batch(
            target, drafter, prompts, gamma=2, max_new_tokens=limits, randomness=[randomness] * 2
        )
        return [token for run in runs for token in run.tokens]

    laws = [
        exact_law(lambda r, p=p, n=n: autoregressive_decode(
            target, p, max_new_tokens=n, randomness=r).tokens)
        for p, n in zip(prompts, limits, strict=True)
    ]  # fmt: skip
    product = {a + b: x * y for a, x in laws[0].items() for b, y in laws[1].items()}
    assert largest_difference(exact_law(both), product) < 1e-12


def test_a_stop_token_ends_one_text_and_not_the_other():
    target, drafter = TableModel(first, 2), TableDrafter(second, 2)

    def pairwise_run(randomness):
        runs = speculative_decode_batch(
            target, drafter, [[0], [0]], gamma=1, max_new_tokens=2, stop_tokens=[1],
            randomness=[randomness] * 2,
        )  # fmt: skip
        return [token for run in runs for token in (*run.tokens, 9)]

    def single_run(randomness):
        return autoregressive_decode(
            target, [0], max_new_tokens=2, stop_tokens=[1], randomness=randomness
        ).tokens

    single = exact_law(single_run)
    product = {(*a, 9, *b, 9): x * y for a, x in single.items() for b, y in single.items()}
    assert largest_difference(exact_law(pairwise_run), product) < 1e-12


def test_a_recorded_batch_can_be_replayed_text_by_text():
    target, drafter = pair()
    runs = together(target, drafter)
    again = speculative_decode_batch(
        target, drafter, PROMPTS, max_new_tokens=LIMITS,
        randomness=[run.trace.replay() for run in runs],
    )  # fmt: skip
    assert [run.tokens for run in again] == [run.tokens for run in runs]


def test_many_uniforms_at_once_are_the_stream_of_one_by_one():
    one, many = Seeded(7), Seeded(7)
    singly = torch.stack([one.uniforms() for _ in range(100)])
    assert torch.equal(torch.cat([many.uniforms(1), many.uniforms(19), many.uniforms(80)]), singly)


def test_rows_past_a_text_are_never_read():
    """A large finite value stands where stale rows are, before every forward."""
    target, drafter = pair()
    expected = together(target, drafter)
    seen = LlamaTexts.forward

    def poisoned(self, tokens):
        for rows in self._rows:
            for i, length in enumerate(self.lengths):
                rows[:, i, :, length:] = 1e6
        return seen(self, tokens)

    LlamaTexts.forward = poisoned
    try:
        runs = together(target, drafter)
    finally:
        LlamaTexts.forward = seen
    assert [run.tokens for run in runs] == [run.tokens for run in expected]


def test_all_texts_share_each_forward_and_leave_when_they_end():
    target, drafter = pair(noise=0)
    widths, many = [], LlamaTexts.forward

    def counted(self, tokens):
        widths.append(tuple(tokens.shape))
        return many(self, tokens)

    LlamaTexts.forward = counted
    try:
        runs = together(target, drafter, gamma=3)
    finally:
        LlamaTexts.forward = many
    rounds = max(run.stats.rounds for run in runs)
    verifications = [shape for shape in widths if shape[1] > 2]
    assert verifications[0] == (6, 4) and verifications[-1][0] < 6
    assert len(verifications) <= rounds
    assert all(run.stats.rejected == 0 for run in runs)


def test_texts_near_the_end_of_the_cache_draft_past_it():
    target = CausalLM(model(), max_length=20)
    drafter = ModelDrafter(CausalLM(noisy(model()), max_length=20))
    prompts, limits = [prompt(18), prompt(3)], [2, 17]
    runs = together(target, drafter, prompts, limits, gamma=6)
    for seed, run in enumerate(runs):
        assert_same(run, alone(target, drafter, prompts[seed], limits[seed], seed, gamma=6))


def test_what_a_model_is_run_by():
    assert isinstance(texts_of(CausalLM(model()), 9), LlamaTexts)
    assert isinstance(texts_of(CausalLM(model(), library=True), 9), EachText)
    assert isinstance(texts_of(CausalLM(model("gpt2")), 9), EachText)


def test_another_family_and_a_growing_cache_run_one_by_one():
    target = CausalLM(model("gpt2"))
    drafter = ModelDrafter(CausalLM(noisy(model("gpt2")), growing=True))
    runs = together(target, drafter)
    for seed, run in enumerate(runs):
        assert_same(run, alone(target, drafter, PROMPTS[seed], LIMITS[seed], seed))


def test_no_prompts_give_no_results_and_no_drafter_no_drafts():
    target, drafter = pair()
    assert speculative_decode_batch(target, drafter, []) == []
    [run] = speculative_decode_batch(target, None, [[3]], max_new_tokens=4)
    assert run.stats.drafted == 0 and len(run.tokens) == 4


def test_the_models_own_caches_are_left_alone():
    target, drafter = pair()
    target.forward(prompt(7))
    together(target, drafter)
    assert target.length == 7 and drafter.length == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_new_tokens": [3]}, "max_new_tokens has 1 entries for 2 prompts"),
        ({"randomness": [Seeded(0)]}, "randomness has 1 entries for 2 prompts"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number"),
        ({"gamma": -1}, "gamma must be a whole number"),
        ({"prompts": [[3], []]}, "The prompt is empty"),
        ({"prompts": [[3], [VOCAB]]}, f"token id {VOCAB}"),
        ({"drafter": object()}, "A batch cannot draft with object"),
        ({"sampling": 1}, "sampling cannot be int"),
        ({"randomness": [1, 2]}, "randomness cannot be int"),
    ],
)
def test_bad_input_gets_one_sentence(change, says):
    target, drafter = pair()
    options = {"drafter": drafter, "prompts": [[3], [4]], "max_new_tokens": 3} | change
    with pytest.raises((ValueError, TypeError), match=says) as error:
        speculative_decode_batch(target, **options)
    assert str(error.value).endswith(".")


def test_a_script_that_runs_out_says_so():
    target, drafter = pair()
    with pytest.raises(ValueError, match="script") as error:
        speculative_decode_batch(target, drafter, [[3]], randomness=[Scripted([5])])
    sentence_of(error.value)


def test_a_model_whose_logits_are_no_numbers_is_named():
    target, drafter = pair()
    with torch.no_grad():
        target.model.lm_head.weight[5] = torch.nan
    with pytest.raises(ValueError, match="The target's logits") as error:
        together(target, drafter)
    sentence_of(error.value)


def test_sampling_may_differ_between_the_two_sides():
    target, drafter = pair()
    options = {"sampling": Sampling(0.7), "draft_sampling": Sampling(1.5, 9)}
    runs = together(target, drafter, **options)
    for seed, (run, text, limit) in enumerate(zip(runs, PROMPTS, LIMITS, strict=True)):
        assert_same(run, alone(target, drafter, text, limit, seed, **options))
