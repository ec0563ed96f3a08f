"""The loop, end to end: what is emitted, what the caches hold, where a text ends."""

import math

import pytest
import torch
from tiny import (
    VOCAB,
    Changing,
    every_sampling,
    model,
    pair,
    poison,
    prompt,
    sentence_of,
)
from transformers import NoRepeatNGramLogitsProcessor

from specdec_core import (
    CausalLM,
    Draft,
    ModelDrafter,
    Sampling,
    Seeded,
    TableDrafter,
    TableModel,
    autoregressive_decode,
    speculative_decode,
    speculative_rounds,
)
from specdec_core.storyworld import WEIGHTS

# Greedy decoding is transformers' own


def generated(module, texts, new_tokens):
    """Greedy continuations of `texts`, all of one length, by transformers' `generate`."""
    ids = torch.tensor(texts)
    out = module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    return out[:, ids.shape[1] :].tolist()


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "mistral with a window"])
@pytest.mark.parametrize("growing", [False, True])
def test_greedy_speculation_equals_generate(name, growing):
    target, drafter = pair(name, growing=growing)
    for seed in range(2):
        text = prompt(4 + seed, seed)
        (expected,) = generated(target.model, [text], 40)
        plain = autoregressive_decode(target, text, sampling=Sampling(0.0), max_new_tokens=40)
        assert plain.tokens == expected
        for gamma in (1, 3, 8):
            run = speculative_decode(
                target, drafter, text, gamma=gamma, sampling=Sampling(0.0), max_new_tokens=40
            )
            assert run.tokens == expected, f"gamma {gamma}"


bundled = pytest.mark.skipif(
    not (WEIGHTS / "target" / "model.safetensors").exists(), reason="the pair is not trained yet"
)


@bundled
def test_greedy_speculation_on_the_bundled_pair_equals_generate():
    """50 prompts of 64 tokens in float64; gamma 1 to 8 in turn, one for each prompt."""
    check_bundled(lambda i: (1 + i % 8,))


@bundled
@pytest.mark.slow
def test_greedy_speculation_on_the_bundled_pair_equals_generate_for_every_gamma():
    check_bundled(lambda i: range(1, 9))


def check_bundled(gammas):
    from specdec_core.pairs import load_pair
    from specdec_core.storyworld import texts

    bundle = load_pair("storyworld", dtype="float64")
    prompts = [bundle.encode(written.text)[:12] for written in texts(seed=4711, count=50)]
    continuations = generated(bundle.target.model, prompts, 64)
    for i, (text, expected) in enumerate(zip(prompts, continuations, strict=True)):
        for gamma in gammas(i):
            run = speculative_decode(
                bundle.target, bundle.drafter, text, gamma=gamma, sampling=Sampling(0.0),
                max_new_tokens=64,
            )  # fmt: skip
            assert run.tokens == expected, f"prompt {i}, gamma {gamma}"


# A target as its own draft


@every_sampling
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_in_float64_a_target_accepts_every_draft_of_its_own(sampling, gamma):
    target, drafter = pair(noise=0.0)
    run = speculative_decode(
        target, drafter, prompt(), gamma=gamma, sampling=sampling, max_new_tokens=90,
        randomness=Seeded(1),
    )  # fmt: skip
    assert run.stats.rejected == 0 and run.stats.acceptance_rate == 1.0
    assert run.stats.rounds == math.ceil(90 / (gamma + 1))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_in_float32_a_target_accepts_at_least_9999_of_10000(temperature):
    target, drafter = pair(dtype=torch.float32, noise=0.0)
    accepted = judged = 0
    for seed in range(12):
        stats = speculative_decode(
            target, drafter, prompt(5, seed), gamma=8, sampling=Sampling(temperature),
            max_new_tokens=240, randomness=Seeded(seed), record="stats",
        ).stats  # fmt: skip
        accepted, judged = accepted + stats.accepted, judged + stats.accepted + stats.rejected
    assert judged > 2000 and accepted / judged >= 0.9999


# Cache accounting


def followed(target, drafter, text, **options):
    """The rounds of a run, each checked against the accounting of the theory page.

    Rows past the lengths are poisoned after every round.
    """
    committed = list(text)
    for round in speculative_rounds(target, drafter, text, **options):
        gamma, n = round.gamma, round.accepted
        target_before, target_after = round.target_length
        draft_before, draft_after = round.draft_length
        assert target_before == len(committed) - 1
        committed += round.emitted
        assert target_after == target.length == len(committed) - 1
        assert draft_after == drafter.length <= target_after
        assert target_after == target_before + len(round.emitted)
        if len(round.emitted) == n + 1:
            assert target_before + gamma + 1 - target_after == gamma - n
            if gamma:
                assert target_before + gamma - draft_after == max(0, gamma - n - 1)
                assert target_after - draft_after == (1 if n == gamma else 0)
            else:
                assert draft_after == draft_before
        poison(target)
        poison(drafter.model)
        yield round


@every_sampling
@pytest.mark.parametrize("noise", [0.0, 0.3], ids=["full accepts", "some rejected"])
@pytest.mark.parametrize("gamma", [0, 1, 4, Changing(4, 0, 0, 1)], ids=["0", "1", "4", "changing"])
def test_both_caches_hold_what_the_theory_says_after_every_round(sampling, noise, gamma):
    target, drafter = pair(noise=noise)
    options = {"gamma": gamma, "sampling": sampling, "max_new_tokens": 50}
    rounds = list(followed(target, drafter, prompt(), randomness=Seeded(2), **options))
    clean = speculative_decode(*pair(noise=noise), prompt(), randomness=Seeded(2), **options)
    assert [t for r in rounds for t in r.emitted] == clean.tokens
    assert target.forwards == len(rounds) + 1


def test_a_prompt_of_one_token_needs_no_prefill():
    target, drafter = pair()
    rounds = list(followed(target, drafter, [7], gamma=3, max_new_tokens=20, randomness=Seeded(0)))
    assert target.forwards == len(rounds)
    assert rounds[0].target_length[0] == 0


def test_a_cut_round_keeps_the_rows_of_what_was_emitted():
    """Every token in turn as the stop token, so that stops fall on all places of a round."""
    places = set()
    for stop in range(VOCAB):
        target, drafter = pair(noise=0.1)
        rounds = list(
            followed(
                target, drafter, prompt(), gamma=4, max_new_tokens=30, stop_tokens=[stop],
                randomness=Seeded(3),
            )
        )  # fmt: skip
        if rounds[-1].finish_reason == "stop":
            places.add(len(rounds[-1].emitted))
    assert {1, 2, 3} <= places


# Where a text ends


def letters(ids):
    return "".join(chr(ord("a") + i) for i in ids)


def certain(*sequence, vocab=12):
    """A table that writes `sequence` and goes on with zeros; with itself as draft all is kept."""
    written = list(sequence)

    def row(prefix):
        at = len(prefix) - 1
        return torch.eye(vocab, dtype=torch.float64)[written[at] if at < len(written) else 0]

    return row


def scripted_pair(*sequence):

    return TableModel(certain(*sequence), 12), TableDrafter(certain(*sequence), 12)


@pytest.mark.parametrize("gamma", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("at", range(8))
def test_a_stop_token_ends_the_text_wherever_it_falls(gamma, at):
    sequence = [1, 2, 3, 4, 5, 6, 7, 8]
    run = speculative_decode(
        *scripted_pair(*sequence), [0], gamma=gamma, max_new_tokens=20,
        stop_tokens=[sequence[at], 11],
    )  # fmt: skip
    assert run.tokens == sequence[: at + 1]
    assert run.finish_reason == run.trace.rounds[-1].finish_reason == "stop"
    assert all(r.finish_reason is None for r in run.trace.rounds[:-1])
    assert run.stats.emitted == len(run.tokens)


def test_the_first_of_several_stop_tokens_counts_and_no_bonus_follows():
    run = speculative_decode(
        *scripted_pair(1, 2, 3, 4, 5), [0], gamma=4, max_new_tokens=20, stop_tokens={4, 2, 3}
    )
    assert run.tokens == [1, 2]
    (only,) = run.trace.rounds
    assert only.emitted == (1, 2) and only.origins == ("draft", "draft")
    assert only.verdicts == ("accepted", "accepted", "unused", "unused")
    assert run.stats.accepted == 2 and run.stats.rejected == 0 and run.stats.drafted == 4


def test_a_stop_token_in_the_prompt_ends_nothing():
    run = speculative_decode(*scripted_pair(1, 2, 3), [5], max_new_tokens=3, stop_tokens=[5])
    assert run.tokens == [1, 2, 3] and run.finish_reason == "length"


def test_a_stop_token_as_the_last_that_fits_counts_as_a_stop():
    run = speculative_decode(*scripted_pair(1, 2, 3), [0], max_new_tokens=3, stop_tokens=[3])
    assert run.tokens == [1, 2, 3] and run.finish_reason == "stop"


@pytest.mark.parametrize("gamma", [0, 1, 3, 8, 50])
@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("noise", [0.0, 0.3], ids=["full accepts", "some rejected"])
def test_max_new_tokens_is_met_and_never_exceeded(gamma, max_new_tokens, noise):
    target, drafter = pair(noise=noise, max_length=5 + max_new_tokens)
    run = speculative_decode(
        target, drafter, prompt(5), gamma=gamma, max_new_tokens=max_new_tokens,
        randomness=Seeded(0),
    )  # fmt: skip
    assert len(run.tokens) == max_new_tokens and run.finish_reason == "length"
    left = max_new_tokens
    for round in run.trace.rounds:
        assert round.gamma == min(gamma, left - 1)
        left -= len(round.emitted)


@pytest.mark.parametrize("gamma", [0, 1, 3, 6])
@pytest.mark.parametrize(
    ("stops", "tokens", "text"),
    [
        (["cd"], [1, 2, 3], "b"),
        (["bcde"], [1, 2, 3, 4], ""),
        (["g", "de"], [1, 2, 3, 4], "bc"),
        (["de", "cdef", "f"], [1, 2, 3, 4], "bc"),
        (["zz"], [1, 2, 3, 4, 5, 6, 7], "bcdefgh"),
        (["gx", "ha"], [1, 2, 3, 4, 5, 6, 7], "bcdefgh"),
        (["ab"], [1, 2, 3, 4, 5, 6, 7], "bcdefgh"),
    ],
)
def test_stop_strings_cross_token_borders_and_the_text_is_cut_before_them(
    gamma, stops, tokens, text
):
    options = {"max_new_tokens": 7, "stop_strings": stops, "detokenize": letters}
    target, drafter = scripted_pair(1, 2, 3, 4, 5, 6, 7)
    run = speculative_decode(target, drafter, [0], gamma=gamma, **options)
    plain = autoregressive_decode(target, [0], **options)
    for result in (run, plain):
        assert result.tokens == tokens and result.text == text
        assert result.finish_reason == ("stop" if len(tokens) < 7 else "length")


def test_the_text_is_the_decoded_tokens_and_none_without_detokenize():
    target, drafter = scripted_pair(1, 2, 3)
    assert speculative_decode(target, drafter, [0], max_new_tokens=3).text is None
    run = speculative_decode(target, drafter, [0], max_new_tokens=3, detokenize=letters)
    assert run.text == "bcd"


# Schedules, processors, seeds, interleaving


def test_a_schedule_sees_the_counts_so_far_and_sets_gamma():
    schedule = Changing(2, 0, 5)
    run = speculative_decode(
        *pair(), prompt(), gamma=schedule, max_new_tokens=40, randomness=Seeded(0)
    )
    emitted = 0
    for i, round in enumerate(run.trace.rounds):
        assert schedule.seen[i] == (i, emitted)
        assert round.gamma == min(schedule.gammas[i % 3], 40 - emitted - 1)
        emitted += len(round.emitted)


def test_processors_see_prompt_emitted_and_drafted_tokens_on_both_sides():
    seen = {"target": [], "draft": []}

    def spy(side):
        def process(prefix, scores):
            seen[side].append(prefix[0].tolist())
            return scores

        return Sampling(processors=(process,))

    text = prompt()
    run = speculative_decode(
        *pair(), text, gamma=2, sampling=spy("target"), draft_sampling=spy("draft"),
        max_new_tokens=20, randomness=Seeded(0),
    )  # fmt: skip
    committed, expected = list(text), {"target": [], "draft": []}
    for round in run.trace.rounds:
        prefixes = [committed + list(round.drafted[:i]) for i in range(round.gamma + 1)]
        expected["target"] += prefixes
        expected["draft"] += prefixes[: round.gamma]
        committed += round.emitted
    assert seen == expected


def test_no_repeat_ngram_holds_over_a_whole_speculative_run():
    sampling = Sampling(0.5, processors=(NoRepeatNGramLogitsProcessor(2),))
    text = prompt()
    run = speculative_decode(
        *pair(), text, gamma=4, sampling=sampling, max_new_tokens=100, randomness=Seeded(0)
    )
    pairs = list(zip(text + run.tokens, (text + run.tokens)[1:], strict=False))
    assert len(set(pairs)) == len(pairs)


def test_one_seed_gives_one_run_and_models_may_be_used_again():
    target, drafter = pair()
    runs = [
        speculative_decode(target, drafter, prompt(), max_new_tokens=30, randomness=Seeded(s))
        for s in (0, 1, 0)
    ]
    assert runs[0].trace == runs[2].trace and runs[0].tokens != runs[1].tokens


def other_plain(target, drafter):
    autoregressive_decode(target, [3], max_new_tokens=1)


def other_speculative(target, drafter):
    next(speculative_rounds(target, drafter, [3, 4, 5], max_new_tokens=9))


def other_with_the_drafter(target, drafter):
    next(speculative_rounds(CausalLM(target.model), drafter, [3], max_new_tokens=2))


def hand_made_rollback(target, drafter):
    target.rollback(1)


@pytest.mark.parametrize(
    "other", [other_plain, other_speculative, other_with_the_drafter, hand_made_rollback]
)
def test_two_runs_at_once_on_the_same_models_get_one_sentence(other):
    target, drafter = pair()
    rounds = speculative_rounds(target, drafter, prompt(), gamma=2, max_new_tokens=30)
    next(rounds)
    other(target, drafter)
    with pytest.raises(RuntimeError, match="finish one run before you start the next") as error:
        next(rounds)
    sentence_of(error.value)


def test_a_run_left_half_way_does_not_touch_the_next():
    target, drafter = pair()
    abandoned = speculative_rounds(target, drafter, prompt(9), max_new_tokens=30)
    next(abandoned)
    abandoned.close()
    run = speculative_decode(target, drafter, prompt(), max_new_tokens=30, randomness=Seeded(0))
    fresh = speculative_decode(*pair(), prompt(), max_new_tokens=30, randomness=Seeded(0))
    assert run.trace == fresh.trace


def test_the_draft_may_be_a_drafter_without_a_cache_of_its_own():
    """Anything that obeys the protocol will do: here one that always proposes the same tokens."""

    class Fixed:
        vocab_size, max_length, length = VOCAB, None, 0

        def propose(self, context, gamma, sampling, randomness):
            tokens = torch.full((gamma,), 4)
            return Draft(tokens, torch.eye(VOCAB)[tokens])

        def rollback(self, length):
            pass

    target = CausalLM(model())
    run = speculative_decode(target, Fixed(), prompt(), max_new_tokens=40, randomness=Seeded(0))
    assert len(run.tokens) == 40 and isinstance(target, CausalLM)
    greedy = {"sampling": Sampling(0.0), "max_new_tokens": 30}
    assert (
        speculative_decode(target, Fixed(), prompt(), **greedy).tokens
        == autoregressive_decode(target, prompt(), **greedy).tokens
        == speculative_decode(
            target, ModelDrafter(CausalLM(target.model)), prompt(), **greedy
        ).tokens
    )
