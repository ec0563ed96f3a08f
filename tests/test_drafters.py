"""Drafters: a chain of draws, the q of each draw, a cache that is never wrong, n-gram tables."""

import math

import pytest
import torch
from tiny import (
    VOCAB,
    model,
    noisy,
    pair,
    poison,
    prompt,
    random_table,
    sentence_of,
    uncached_logits,
)
from transformers import RepetitionPenaltyLogitsProcessor

from specdec_core import (
    CausalLM,
    ModelDrafter,
    NGramDrafter,
    NGramTable,
    Sampling,
    Scripted,
    Seeded,
    TableDrafter,
    speculative_decode,
    speculative_rounds,
)
from specdec_core.randomness import inverse_cdf

SAMPLINGS = {
    "plain": Sampling(),
    "greedy": Sampling(0.0),
    "shaped": Sampling(0.7, 9, 0.9),
    "penalty": Sampling(0.8, processors=(RepetitionPenaltyLogitsProcessor(1.5),)),
}
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)


class Watched(Seeded):
    """Seeded, and remembers each distribution with the token drawn from it."""

    def __init__(self, seed):
        super().__init__(seed)
        self.drawn = []

    def categorical(self, probs):
        token = super().categorical(probs)
        self.drawn.append((probs.clone(), token.item()))
        return token


@every_sampling
def test_q_is_the_distribution_each_token_was_drawn_from(sampling):
    drafter, randomness = ModelDrafter(CausalLM(model())), Watched(1)
    draft = drafter.propose(prompt(6), 5, sampling, randomness)
    assert draft.tokens.shape == (5,) and draft.probs.shape == (5, VOCAB)
    for i, (probs, token) in enumerate(randomness.drawn):
        assert torch.equal(draft.probs[i], probs) and draft.tokens[i] == token
        assert draft.probs[i, token] > 0


@every_sampling
def test_a_draft_is_a_chain_each_token_drawn_after_the_ones_before_it(sampling):
    drafter, context = ModelDrafter(CausalLM(model())), prompt(6)
    draft = drafter.propose(context, 5, sampling, Seeded(2))
    text = torch.tensor([*context, *draft.tokens.tolist()])
    logits = uncached_logits(drafter.model, text.tolist())[len(context) - 1 : -1]
    expected = sampling.probs(logits, text[:-1])
    assert torch.allclose(draft.probs, expected, rtol=0, atol=1e-12)


def test_a_draft_of_nothing_is_empty_and_feeds_nothing():
    drafter = ModelDrafter(CausalLM(model()))
    draft = drafter.propose(prompt(6), 0, Sampling(), Seeded(0))
    assert draft.tokens.shape == (0,) and draft.probs.shape == (0, VOCAB)
    assert draft.tokens.dtype == torch.int64 and drafter.length == 0


def test_a_draft_appends_the_missing_rows_and_all_but_its_last_token():
    drafter, context = ModelDrafter(CausalLM(model())), prompt(6)
    draft = drafter.propose(context, 4, Sampling(), Seeded(0))
    assert drafter.length == 6 + 3 and drafter.model.forwards == 4
    drafter.rollback(100)
    assert drafter.length == 9
    drafter.rollback(7)
    context += [draft.tokens[0].item(), 5]
    again = drafter.propose(context, 2, Sampling(), Seeded(1))
    fresh = ModelDrafter(CausalLM(drafter.model.model))
    assert torch.allclose(again.probs, fresh.propose(context, 2, Sampling(), Seeded(1)).probs)


class Changing:
    """A schedule that goes through a list of gammas."""

    def __init__(self, *gammas):
        self.gammas = gammas

    def next(self, stats):
        return self.gammas[stats.rounds % len(self.gammas)]


@pytest.mark.parametrize("noise", [0.0, 0.3], ids=["full accepts", "some rejected"])
@pytest.mark.parametrize("gamma", [1, 4, Changing(3, 0, 0, 2)], ids=["1", "4", "changing"])
def test_the_draft_cache_holds_exactly_the_committed_text_after_every_round(noise, gamma):
    """Row by row: what the drafter reads next is what one without a cache would read."""
    target, drafter = pair(noise=noise)
    text = prompt(5)
    for i, round in enumerate(
        speculative_rounds(
            target, drafter, text, gamma=gamma, max_new_tokens=40, randomness=Seeded(3)
        )
    ):
        text = text + list(round.emitted)
        assert drafter.length <= len(text) - 1
        if i == 0:
            missing = len(text) - 1
        missing = (1 if round.accepted == round.gamma else 0) if round.gamma else missing
        poison(drafter.model)
        state = drafter.length
        rest = text[drafter.length :]
        logits = drafter.model.forward(rest)
        expected = uncached_logits(drafter.model, text)[-len(rest) :]
        drafter.rollback(state)
        assert torch.allclose(logits, expected, rtol=0, atol=1e-10)


def test_rounds_without_a_draft_leave_rows_missing_and_the_next_draft_feeds_them():
    target, drafter = pair()
    rounds = speculative_rounds(
        target, drafter, prompt(5), gamma=Changing(2, 0, 0, 0, 2), max_new_tokens=30,
        randomness=Seeded(0),
    )  # fmt: skip
    missing = []
    for round in rounds:
        missing.append(round.target_length[1] - round.draft_length[1])
        if len(missing) == 5:
            break
    short = missing[0]
    assert missing[1:4] == [short + 1, short + 2, short + 3] and missing[4] in (0, 1)


def test_ids_beyond_vocab_size_are_never_drafted_and_the_softmax_is_restricted():
    drafter = ModelDrafter(CausalLM(model()), vocab_size=20)
    context = prompt(5, vocab=20)
    draft = drafter.propose(context, 30, Sampling(), Seeded(0))
    assert draft.probs.shape == (30, 20) and draft.tokens.max() < 20
    logits = uncached_logits(drafter.model, context)[-1, :20]
    assert torch.allclose(draft.probs[0], logits.softmax(-1), rtol=0, atol=1e-12)
    assert ModelDrafter(CausalLM(model()), vocab_size=10_000).vocab_size == VOCAB


def test_a_drafter_of_fewer_ids_serves_a_larger_target():
    """The target may emit ids the draft model has no row for; the run goes on."""
    target = random_table(12)
    drafter = TableDrafter(random_table(7, seed=1).function, 7)
    run = speculative_decode(
        target, drafter, [0], gamma=3, max_new_tokens=300, randomness=Seeded(0)
    )
    assert max(run.tokens) > 6
    assert all(max(r.drafted, default=0) < 7 for r in run.trace.rounds)


# n-gram tables

TEXT = [0, 1, 0, 1, 2]


def test_a_bigram_by_hand():
    """p1(1) = (2 - .5 + .5 * 3 / 4) / 5 = .375; after 0 only 1 was seen, twice."""
    table = NGramTable.fit([TEXT], 2, 4)
    assert table.order == 2
    assert table.probs([0])[1].item() == pytest.approx((2 - 0.5 + 0.5 * 1 * 0.375) / 2)
    assert table.probs([0])[2].item() == pytest.approx(0.25 * (1 - 0.5 + 0.375) / 5)
    assert table.probs([])[1].item() == pytest.approx(0.375)
    assert table.probs([3]).tolist() == table.probs([]).tolist()


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_every_distribution_sums_to_one_and_holds_no_zero(order):
    sequences = [prompt(80, seed, vocab=9) for seed in range(3)]
    table = NGramTable.fit(sequences, order, 11)
    for context in [[], [3], [10], [3, 4], *[s[i : i + 6] for s in sequences for i in range(70)]]:
        row = table.probs(context)
        assert row.shape == (11,) and row.dtype == torch.float64 and (row > 0).all()
        assert row.sum().item() == pytest.approx(1.0, abs=1e-12)


def test_only_the_last_order_minus_one_tokens_count():
    table = NGramTable.fit([prompt(200, vocab=6)], 3, 6)
    assert torch.equal(table.probs([5, 5, 5, 3, 4]), table.probs([3, 4]))
    assert not torch.equal(table.probs([3, 4]), table.probs([4]))
    unigram = NGramTable.fit([prompt(200, vocab=6)], 1, 6)
    assert torch.equal(unigram.probs([3, 4]), unigram.probs([]))


def test_no_ngram_crosses_the_border_of_a_sequence():
    apart, joined = NGramTable.fit([[0, 1], [2, 3]], 2, 4), NGramTable.fit([[0, 1, 2, 3]], 2, 4)
    assert torch.equal(apart.probs([1]), apart.probs([]))
    assert not torch.equal(joined.probs([1]), joined.probs([]))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_table_survives_its_tensors(order):
    table = NGramTable.fit([prompt(100, vocab=8), []], order, 8)
    tensors = table.to_tensors()
    assert all(t.dtype == torch.int32 for t in tensors.values())
    again = NGramTable.from_tensors(tensors)
    assert again.order == order and again.vocab_size == 8
    for context in ([], [3], [3, 4], [7, 7], [5, 3, 4]):
        assert torch.equal(again.probs(context), table.probs(context))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([[0]], 0, 4), "order must be at least 1, not 0"),
        (([[0, 4]], 2, 4), "outside the vocabulary of 4"),
        (([[-1]], 2, 4), "outside the vocabulary of 4"),
    ],
)
def test_counting_what_cannot_be_counted_gets_one_sentence(arguments, says):
    with pytest.raises(ValueError, match=says) as error:
        NGramTable.fit(*arguments)
    sentence_of(error.value)


def test_an_ngram_drafter_drafts_from_its_table():
    table = NGramTable.fit([prompt(300, vocab=8)], 3, 8)
    drafter = NGramDrafter(table)
    draft = drafter.propose([3, 4], 3, Sampling(), Scripted([5, 6, 7]))
    rows = [table.probs([3, 4]), table.probs([4, 5]), table.probs([5, 6])]
    assert torch.allclose(draft.probs, torch.stack(rows), rtol=0, atol=1e-15)
    assert drafter.vocab_size == 8 and drafter.max_length is None


def test_the_mean_acceptance_of_a_draft_is_the_sum_of_min_p_q():
    """1,000 contexts; the mean differs from the expectation by at most 5 standard errors."""
    target, drafter = random_table(6), TableDrafter(random_table(6, 1).function, 6)
    accepted, expected = [], []
    for seed in range(1000):
        run = speculative_decode(
            target, drafter, [seed % 6, seed // 6 % 6, seed // 36 % 6, seed // 216], gamma=1,
            max_new_tokens=2, randomness=Seeded(seed),
        )  # fmt: skip
        prefix = run.trace.prompt
        p, q = target.function(prefix), drafter.model.function(prefix)
        accepted.append(float(run.trace.rounds[0].accepted))
        expected.append(torch.minimum(p, q).sum().item())
    error = math.sqrt(sum(a * (1 - a) for a in expected)) / 1000
    assert abs(sum(accepted) - sum(expected)) / 1000 < 5 * error


def test_the_noisy_copy_is_a_draft_that_is_often_right_and_often_wrong():
    """What the other tests rely on: all verdicts occur."""
    target = model()
    run = speculative_decode(
        CausalLM(target), ModelDrafter(CausalLM(noisy(target))), prompt(), gamma=4,
        max_new_tokens=150, randomness=Seeded(0),
    )  # fmt: skip
    assert {r.accepted for r in run.trace.rounds} >= {0, 1, 2}
    assert 0.2 < run.stats.acceptance_rate < 0.9
    assert inverse_cdf(torch.tensor([0.0, 1.0]), torch.tensor(0.5).double()) == 1
