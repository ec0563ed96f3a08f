"""Prompt look-up: drafts copied from the text itself, exact all the same."""

import pytest
import torch
from laws import WAYS, bias, tiny_llama
from tiny import VOCAB, Changing, pair, prompt, random_table, sentence_of, uncached_logits

from specdec_core import (
    CausalLM,
    LookupDrafter,
    LookupElse,
    ModelDrafter,
    Sampling,
    Seeded,
    TableDrafter,
    autoregressive_decode,
    exact_law,
    largest_difference,
    speculative_decode,
    speculative_rounds,
)

V = 10
TOLERANCE = 1e-12


def drafted(context, gamma=4, **options):
    drafter = LookupDrafter(V, **options)
    return drafter.propose(context, gamma, Sampling(), Seeded(0)).tokens.tolist()


@pytest.mark.parametrize(
    ("context", "options", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 2, 3], {}, [4, 5, 6, 7]),
        ([2, 3, 4, 9, 1, 3, 5, 6, 0, 2, 3], {}, [4, 9, 1, 3]),  # two tokens that match beat one
        ([2, 3, 4, 9, 1, 3, 5, 6, 0, 2, 3], {"longest": 1}, [5, 6, 0, 2]),  # the latest place
        ([1, 2, 3, 9, 3], {"shortest": 2}, []),
        ([1, 2, 3, 4], {}, []),
        ([1], {}, []),
        ([8, 1, 2, 1], {}, [2, 1, 2, 1]),  # past the end of the text the draft goes on with itself
        ([8, 5, 5], {}, [5, 5, 5, 5]),
        ([3, 12, 4, 3], {}, []),  # an id the drafter has no row for is never drafted
        ([3, 6, 12, 4, 3], {}, [6]),
    ],
)
def test_a_draft_is_what_followed_the_last_tokens_before(context, options, expected):
    assert drafted(context, **options) == expected


def test_q_is_a_point_mass_on_each_drafted_token():
    draft = LookupDrafter(V).propose([1, 2, 3, 1], 3, Sampling(0.5), Seeded(0))
    assert draft.tokens.tolist() == [2, 3, 1] and draft.tokens.dtype == torch.int64
    assert torch.equal(draft.probs, torch.eye(V)[[2, 3, 1]])
    nothing = LookupDrafter(V).propose([1, 2], 3, Sampling(), Seeded(0))
    assert nothing.tokens.shape == (0,) and nothing.probs.shape == (0, V)
    assert nothing.tokens.dtype == torch.int64


def test_what_was_noted_of_a_text_is_what_a_fresh_drafter_notes():
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(4, (60,), generator=generator).tolist()
    used = LookupDrafter(V)
    used.propose([9, 8, 7, 9, 8, 7], 4, Sampling(), Seeded(0))
    used.rollback(0)  # a new run
    for end in range(1, len(text)):
        grown = used.propose(text[:end], 4, Sampling(), Seeded(0)).tokens.tolist()
        assert grown == drafted(text[:end]), end
        used.rollback(end)
    used.rollback(20)
    assert used.propose(text[:30], 4, Sampling(), Seeded(0)).tokens.tolist() == drafted(text[:30])


def plain_law(model, tokens):
    return exact_law(
        lambda randomness: (
            autoregressive_decode(
                model, [0, 1, 0], max_new_tokens=tokens, randomness=randomness
            ).tokens
        )
    )


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_law_is_exactly_the_targets(gamma):
    table, drafted_rounds = random_table(3, 3), 0

    def run(randomness):
        nonlocal drafted_rounds
        out = speculative_decode(
            table, LookupDrafter(3), [0, 1, 0], gamma=gamma, max_new_tokens=4,
            randomness=randomness,
        )  # fmt: skip
        drafted_rounds += out.stats.drafted > 0
        return out.tokens

    law = exact_law(run)
    assert drafted_rounds > 10
    assert largest_difference(law, plain_law(table, 4)) < TOLERANCE


def test_greedy_text_of_a_real_model_is_the_plain_text_and_a_loop_is_drafted_whole():
    target = pair()[0]
    text = [5, 6, 7, 5, 6]
    plain = autoregressive_decode(target, text, sampling=Sampling(0.0), max_new_tokens=40)
    fast = speculative_decode(
        target, LookupDrafter(VOCAB), text, sampling=Sampling(0.0),
        max_new_tokens=40,
    )  # fmt: skip
    assert fast.tokens == plain.tokens and fast.stats.accepted > 0


def test_rounds_without_a_match_are_plain_rounds():
    target = pair()[0]
    long = LookupDrafter(VOCAB, longest=8, shortest=8)
    rounds = list(
        speculative_rounds(target, long, [1, 2, 3], max_new_tokens=5, randomness=Seeded(0))
    )
    assert [round.drafted for round in rounds] == [()] * 5


@pytest.mark.parametrize("sizes", [(0, 0), (2, 3), (3, 0), (2.5, 1), (True, True)])
def test_sizes_that_cannot_be_looked_up_get_one_sentence(sizes):
    with pytest.raises(ValueError) as error:
        LookupDrafter(V, *sizes)
    assert sentence_of(error.value).startswith("A look-up needs whole numbers")


# Look-up, else another drafter


def test_a_match_is_copied_and_the_other_drafts_where_there_is_none():
    """The other's q is dense, a copy's is a point mass; gamma 0 asks neither."""
    other = TableDrafter(random_table(V).function, V)
    both = LookupElse(LookupDrafter(V, 2, 2), other)
    copied = both.propose([1, 2, 3, 1, 2], 3, Sampling(), Seeded(0))
    assert copied.tokens.tolist() == [3, 1, 2]
    assert torch.equal(copied.probs, torch.eye(V)[[3, 1, 2]])
    assert other.length == both.length == 0
    text = [1, 2, 3, 1, 2, 4]
    drawn = both.propose(text, 3, Sampling(), Seeded(0))
    alone = TableDrafter(random_table(V).function, V).propose(text, 3, Sampling(), Seeded(0))
    assert torch.equal(drawn.tokens, alone.tokens) and torch.equal(drawn.probs, alone.probs)
    assert other.length == both.length == 8
    both.rollback(7)
    assert both.length == 7
    assert both.propose([1, 2, 1, 2], 0, Sampling(), Seeded(0)).tokens.shape == (0,)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_law_of_both_is_the_targets(way):
    """The first round copies what followed (0, 2); after a rejection the other drafts."""
    target, sources = CausalLM(tiny_llama(2)), set()
    both = LookupElse(LookupDrafter(3, 2, 2), ModelDrafter(CausalLM(tiny_llama(1, seed=1))))

    def check(out):
        sources.update(round.draft_prob[0] == 1.0 for round in out.trace.rounds if round.drafted)

    text = {"prompt": (0, 2, 1, 0, 2)}
    assert bias(target, both, 2, check=check, **{**way, **text}) < TOLERANCE
    assert sources == {True, False}


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("gamma", [0, 1, 3, Changing(2, 0, 1)], ids=["0", "1", "3", "changing"])
def test_the_law_of_both_is_the_targets_at_every_gamma(gamma, limit):
    target = CausalLM(tiny_llama(2))
    both = LookupElse(LookupDrafter(2), ModelDrafter(CausalLM(tiny_llama(1, seed=1))), limit)
    assert bias(target, both, gamma) < TOLERANCE


def test_a_copy_may_be_longer_than_what_the_other_drafts():
    both = LookupElse(LookupDrafter(V, 2, 2), TableDrafter(random_table(V).function, V), limit=2)
    copied = both.propose([1, 2, 3, 4, 1, 2], 4, Sampling(), Seeded(0))
    assert copied.tokens.tolist() == [3, 4, 1, 2]
    both.rollback(0)
    assert len(both.propose([1, 2, 3, 1, 2, 4], 4, Sampling(), Seeded(0)).tokens) == 2
    with pytest.raises(ValueError, match="limit must be a whole number") as error:
        LookupElse(LookupDrafter(V), both.other, 0)
    sentence_of(error.value)


def test_the_other_catches_up_after_rounds_that_were_copied():
    """After every round: the other's rows are the committed text's, whoever drafted."""
    target, other = pair()
    both, text = LookupElse(LookupDrafter(VOCAB, 2, 2), other), prompt(6) * 2
    missing, forwards, copies = 11, 0, 0
    for round in speculative_rounds(
        target, both, text, gamma=3, sampling=Sampling(0.3), max_new_tokens=80,
        randomness=Seeded(1),
    ):  # fmt: skip
        text = text + list(round.emitted)
        if other.model.forwards == forwards:  # copied, or nothing drafted
            copies, missing = copies + 1, missing + len(round.emitted)
        else:
            missing = int(round.accepted == round.gamma)
        assert both.length == other.length == len(text) - 1 - missing
        rest, state = text[other.length :], other.length
        logits = other.model.forward(rest)
        expected = uncached_logits(other.model, text)[-len(rest) :]
        other.rollback(state)
        forwards = other.model.forwards
        assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
    assert copies > 3 and forwards > copies


def test_what_both_can_read_and_draft():
    target, other = pair(max_length=40)
    both = LookupElse(LookupDrafter(VOCAB + 5), other)
    assert both.max_length == 40 and both.vocab_size == VOCAB + 5 and both.model is other.model
    with pytest.raises(ValueError, match="build the drafter with vocab_size") as error:
        speculative_decode(target, both, prompt(5), max_new_tokens=5)
    sentence_of(error.value)
    shared = LookupElse(LookupDrafter(VOCAB), ModelDrafter(target))
    with pytest.raises(ValueError, match="share one cache"):
        speculative_decode(target, shared, prompt(5), max_new_tokens=5)
    assert LookupElse(LookupDrafter(VOCAB), LookupDrafter(VOCAB, 1)).model is None
