"""Prompt look-up: drafts copied from the text itself, exact all the same."""

import pytest
import torch
from tiny import VOCAB, pair, random_table, sentence_of

from specdec_core import (
    LookupDrafter,
    Sampling,
    Seeded,
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
    prompt = [5, 6, 7, 5, 6]
    plain = autoregressive_decode(target, prompt, sampling=Sampling(0.0), max_new_tokens=40)
    fast = speculative_decode(
        target, LookupDrafter(VOCAB), prompt, sampling=Sampling(0.0),
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
