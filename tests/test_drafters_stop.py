"""The confidence stop: the unsure token is kept, so the law is the target's; dropped, it is not."""

import pytest
import torch
from tiny import model, pair, prompt, random_table, sentence_of

from specdec_core import (
    CausalLM,
    Draft,
    ModelDrafter,
    Sampling,
    Seeded,
    TableModel,
    autoregressive_decode,
    exact_law,
    largest_difference,
    marginal,
    speculative_decode,
    speculative_decode_batch,
    speculative_rounds,
    total_variation,
)
from specdec_core.drafters.protocol import no_draft

P, Q, THRESHOLD = (0.2, 0.3, 0.5), (0.5, 0.3, 0.2), 0.25
TOLERANCE = 1e-12


class Dropping(ModelDrafter):
    """The mistake: the unsure token is dropped, and q says nothing of it."""

    def propose(self, context, gamma, sampling, randomness):
        tokens, rows = super().propose(context, gamma, sampling, randomness)
        if len(tokens) and rows[-1, tokens[-1]] < self.stop_below:
            return Draft(tokens[:-1], rows[:-1])
        return Draft(tokens, rows)


def law(target, drafter, gamma, tokens=3, **options):
    def run(randomness):
        return speculative_decode(
            target, drafter, [0], gamma=gamma, max_new_tokens=tokens, randomness=randomness,
            **options,
        ).tokens  # fmt: skip

    return exact_law(run)


def plain_law(target, tokens=3, **options):
    def run(randomness):
        return autoregressive_decode(
            target, [0], max_new_tokens=tokens, randomness=randomness, **options
        ).tokens

    return exact_law(run)


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_keeping_the_unsure_token_is_exact_and_dropping_it_is_wrong_by_a_tenth(gamma):
    target, draft = TableModel(lambda prefix: P, 3), TableModel(lambda prefix: Q, 3)
    right = {(x,): p for x, p in enumerate(P)}
    kept = law(target, ModelDrafter(draft, stop_below=THRESHOLD), gamma)
    assert total_variation(marginal(kept, 1), right) < TOLERANCE
    assert largest_difference(kept, plain_law(target)) < TOLERANCE
    dropped = law(target, Dropping(draft, stop_below=THRESHOLD), gamma)
    assert total_variation(marginal(dropped, 1), right) == pytest.approx(0.10, abs=TOLERANCE)


@pytest.mark.parametrize("stop_below", [0.3, 0.6, 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stop_tokens": [1]},
        {"draft_sampling": Sampling(1.0, top_k=2)},
        {"sampling": Sampling(0.0)},
    ],
    ids=["plain", "a stop", "top-k of the draft", "greedy"],
)
def test_the_law_is_the_targets_on_tables_of_the_whole_prefix(stop_below, options):
    target, draft = random_table(3), random_table(3, seed=1)
    found = law(target, ModelDrafter(draft, stop_below=stop_below), 3, 4, **options)
    shared = {name: value for name, value in options.items() if name != "draft_sampling"}
    assert largest_difference(found, plain_law(target, 4, **shared)) < TOLERANCE


def test_the_draft_ends_with_its_first_unsure_token():
    drafter, ends = ModelDrafter(random_table(6), stop_below=0.2), set()
    endless = ModelDrafter(random_table(6))
    for seed in range(60):
        draft = drafter.propose([seed % 6], 5, Sampling(), Seeded(seed))
        drafter.rollback(0)
        q = draft.probs.gather(1, draft.tokens[:, None])[:, 0]
        assert (q[:-1] >= 0.2).all() and (q[-1] < 0.2 or len(q) == 5)
        whole = endless.propose([seed % 6], 5, Sampling(), Seeded(seed))
        endless.rollback(0)
        assert torch.equal(whole.tokens[: len(q)], draft.tokens)
        ends.add(len(q))
    assert ends == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("gamma", [1, 4])
def test_both_caches_hold_the_committed_text_after_every_round(gamma):
    target, drafter = pair()
    drafter = ModelDrafter(drafter.model, stop_below=0.3)
    text, lengths, missing = prompt(5), set(), 4
    for round in speculative_rounds(
        target, drafter, text, gamma=gamma, max_new_tokens=40, randomness=Seeded(3)
    ):
        text = text + list(round.emitted)
        lengths.add(round.gamma)
        missing = int(round.accepted == round.gamma) if round.gamma else missing + 1
        assert target.length == len(text) - 1 and drafter.length == len(text) - 1 - missing
    assert lengths >= ({1, 2, 3} if gamma == 4 else {1})


def test_a_draft_of_nothing_is_still_nothing():
    draft = ModelDrafter(CausalLM(model()), stop_below=0.5).propose([3], 0, Sampling(), Seeded(0))
    nothing = no_draft(48)
    assert torch.equal(draft.tokens, nothing.tokens) and draft.probs.shape == nothing.probs.shape


@pytest.mark.parametrize("stop_below", [0, -0.1, 1.5, float("nan"), "0.3"])
def test_a_threshold_that_is_none_gets_one_sentence(stop_below):
    with pytest.raises(ValueError, match=r"stop_below must lie in \(0, 1\]") as error:
        ModelDrafter(random_table(3), stop_below=stop_below)
    assert str(error.value).endswith(".")


def test_a_batch_refuses_it():
    target, drafter = pair()
    drafter = ModelDrafter(drafter.model, stop_below=0.3)
    with pytest.raises(ValueError, match="takes no confidence stop") as error:
        speculative_decode_batch(target, drafter, [prompt(5)])
    sentence_of(error.value)
