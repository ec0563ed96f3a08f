"""Medusa heads: several next tokens from one hidden row, each with the q it was drawn from."""

import pytest
import torch
from laws import GRAMMAR, TOLERANCE, WAYS, bias, tiny_llama
from tiny import (
    VOCAB,
    Changing,
    every_sampling,
    model,
    prompt,
    sentence_of,
    uncached_logits,
)

from specdec_core import (
    CausalLM,
    LookupDrafter,
    LookupElse,
    MedusaDrafter,
    MedusaHeads,
    Sampling,
    Seeded,
    autoregressive_decode,
    speculative_decode,
    speculative_decode_batch,
    speculative_rounds,
)


def random_heads(width=32, heads=3, dtype=torch.float64, scale=0.3):
    torch.manual_seed(7)
    weight = scale * torch.randn(heads, width, width, dtype=dtype)
    return MedusaHeads(weight, torch.randn(heads, width, dtype=dtype))


@pytest.fixture(scope="module")
def small():
    return CausalLM(tiny_llama(2))


@pytest.fixture
def target():
    return CausalLM(model())


@torch.inference_mode()
def logits_by_hand(target, heads, text):
    """Logits [K, V] of every head after `text`, by the library's hidden states and no cache.

    The row is that of the token before the newest: it predicted the newest.
    """
    ids = torch.tensor([list(text[:-1])])
    row = target.model.model(input_ids=ids, use_cache=False).last_hidden_state[0, -1]
    rows = []
    for weight, shift in zip(heads.weight, heads.bias, strict=True):
        block = torch.stack([out @ row for out in weight]) + shift
        rows.append(row + block * torch.sigmoid(block))
    return target.model.lm_head(torch.stack(rows))


class Checked(MedusaDrafter):
    """Every draft's q is held against what the text so far asks for."""

    drafts = 0

    def propose(self, context, gamma, sampling, randomness):
        draft = super().propose(context, gamma, sampling, randomness)
        expected = min(gamma, len(self.heads)) if len(context) > 1 else 0
        assert draft.tokens.shape == (expected,) and draft.tokens.dtype == torch.int64
        assert draft.probs.shape == (expected, self.vocab_size)
        if not expected:
            return draft
        self.drafts += 1
        text = [*context, *draft.tokens.tolist()]
        for i, logits in enumerate(logits_by_hand(self.target, self.heads, context)[:expected]):
            q = sampling.probs(logits[None], torch.tensor(text[: len(context) + i]))[0]
            assert torch.allclose(draft.probs[i], q, rtol=0, atol=1e-10)
            assert draft.probs[i, draft.tokens[i]] > 0
        return draft


# The law


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_law_is_the_targets(small, way):
    assert bias(small, MedusaDrafter(small, random_heads(16)), 2, **way) < TOLERANCE


@pytest.mark.parametrize("gamma", [0, 1, 3, Changing(2, 0, 1)], ids=["0", "1", "3", "changing"])
@pytest.mark.parametrize("sampling", [Sampling(), GRAMMAR], ids=["plain", "grammar"])
def test_the_law_is_the_targets_at_every_gamma(small, gamma, sampling):
    tokens = 4 if sampling is GRAMMAR else 3
    drafter = MedusaDrafter(small, random_heads(16))
    assert bias(small, drafter, gamma, tokens=tokens, sampling=sampling) < TOLERANCE


# The rows


def test_a_head_is_a_residual_block():
    heads, row = random_heads(4, 2), torch.randn(4, dtype=torch.float64)
    for i, found in enumerate(heads.hidden(row)):
        block = heads.weight[i] @ row + heads.bias[i]
        assert torch.allclose(found, row + torch.nn.functional.silu(block), rtol=0, atol=1e-14)
    many = torch.randn(5, 6, 4, dtype=torch.float64)
    assert heads.hidden(many).shape == (5, 6, 2, 4)
    assert torch.allclose(heads.hidden(many)[2, 3], heads.hidden(many[2, 3]), rtol=0, atol=1e-14)
    assert torch.allclose(heads.hidden(row, 1), heads.hidden(row)[:1], rtol=0, atol=1e-14)


def test_heads_of_zeros_predict_what_the_row_itself_predicts(target):
    """The row of the token before the newest, whose prediction is the newest: q of all is p."""
    nothing = MedusaHeads(torch.zeros(2, 32, 32).double(), torch.zeros(2, 32).double())
    text = prompt(8)
    target.forward(text[:-1])
    draft = MedusaDrafter(target, nothing).propose(text, 2, Sampling(), Seeded(0))
    p = uncached_logits(target, text[:-1])[-1].softmax(-1)
    assert torch.allclose(draft.probs, p.expand(2, -1), rtol=0, atol=1e-12)


@every_sampling
@pytest.mark.parametrize("gamma", [1, 2, 5, Changing(3, 0, 2)], ids=["1", "2", "5", "changing"])
def test_every_draft_of_a_run_comes_from_the_row_before_its_newest_token(target, sampling, gamma):
    drafter = Checked(target, random_heads(scale=0.1))
    rounds = speculative_rounds(
        target, drafter, prompt(5), gamma=gamma, sampling=sampling, max_new_tokens=25,
        randomness=Seeded(1),
    )  # fmt: skip
    for round in rounds:
        assert target.length == round.target_length[1] and drafter.length == 0
    assert drafter.drafts > 5


def test_all_verdicts_occur_and_no_more_is_drafted_than_there_are_heads(target):
    heads = random_heads(scale=0.02)
    heads.bias.zero_()
    run = speculative_decode(
        target, Checked(target, heads), prompt(5), gamma=9, max_new_tokens=240,
        randomness=Seeded(2), sampling=Sampling(2.0),
    )  # fmt: skip
    assert {round.accepted for round in run.trace.rounds} >= {0, 1, 2}
    assert max(round.gamma for round in run.trace.rounds) == 3


def test_a_prompt_of_one_token_has_no_row_and_drafts_from_the_second_round_on(target):
    """Also after another run, whose last row is still there."""
    drafter = Checked(target, random_heads())
    for _ in range(2):
        run = speculative_decode(
            target, drafter, [5], gamma=2, max_new_tokens=12, randomness=Seeded(0)
        )
        gammas = [round.gamma for round in run.trace.rounds]
        assert gammas[0] == 0 and gammas[1] == 2


def test_runs_that_stop_midway_or_come_between_leave_no_trace(target):
    drafter, text = Checked(target, random_heads()), prompt(9)

    def decode():
        return speculative_decode(
            target, drafter, text, max_new_tokens=20, randomness=Seeded(5)
        ).trace

    first = decode()
    rounds = speculative_rounds(target, drafter, prompt(30, seed=1), randomness=Seeded(0))
    next(rounds), next(rounds)
    assert decode() == first
    autoregressive_decode(target, prompt(20, seed=2), max_new_tokens=20, randomness=Seeded(0))
    assert decode() == first


def test_it_drafts_where_a_lookup_finds_nothing(target):
    drafter = Checked(target, random_heads())
    both = LookupElse(LookupDrafter(VOCAB, 2, 2), drafter)
    run = speculative_decode(
        target, both, prompt(6) * 2, sampling=Sampling(0.3), max_new_tokens=60, randomness=Seeded(2)
    )
    copied = [round for round in run.trace.rounds if set(round.draft_prob) == {1.0}]
    assert drafter.drafts > 3 and len(copied) > 3


def test_heads_survive_their_tensors():
    heads = random_heads()
    again = MedusaHeads.from_tensors(heads.to_tensors())
    assert len(again) == 3 and set(heads.to_tensors()) == {"weight", "bias"}
    assert torch.equal(again.weight, heads.weight) and torch.equal(again.bias, heads.bias)


# What cannot be


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        (torch.zeros(2, 4, 5), torch.zeros(2, 4)),
        (torch.zeros(4, 4), torch.zeros(4)),
        (torch.zeros(2, 4, 4), torch.zeros(3, 4)),
        (torch.zeros(2, 4, 4), torch.zeros(2, 4).double()),
        (torch.zeros(0, 4, 4), torch.zeros(0, 4)),
    ],
)
def test_weights_that_are_no_heads(weight, bias):
    with pytest.raises(ValueError, match="Medusa heads need") as error:
        MedusaHeads(weight, bias)
    sentence_of(error.value)


def test_heads_of_another_model(target):
    for heads in (random_heads(16), random_heads(dtype=torch.float32)):
        with pytest.raises(ValueError, match=r"the target is 32 in torch\.float64") as error:
            MedusaDrafter(target, heads)
        sentence_of(error.value)
    with pytest.raises(ValueError, match="does not run by our own forward") as error:
        MedusaDrafter(CausalLM(model("gpt2")), random_heads())
    sentence_of(error.value)


def test_decoding_another_target_than_the_heads_read(target):
    drafter = MedusaDrafter(CausalLM(target.model), random_heads())
    with pytest.raises(ValueError, match="the very target they were built with") as error:
        speculative_decode(target, drafter, prompt(5), max_new_tokens=5)
    sentence_of(error.value)


def test_a_batch_refuses_them(target):
    with pytest.raises(TypeError, match="cannot draft with MedusaDrafter"):
        speculative_decode_batch(target, MedusaDrafter(target, random_heads()), [prompt(5)])
