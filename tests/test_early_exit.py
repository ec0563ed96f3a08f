"""Early exit: the target's first layers draft on the target's own cache, and harm nothing in it."""

import copy

import pytest
import torch
from laws import GRAMMAR, TOLERANCE, WAYS, bias, tiny_llama
from tiny import VOCAB, Changing, model, poison, prompt, sentence_of, uncached_logits
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import (
    CausalLM,
    EarlyExitModel,
    LookupDrafter,
    LookupElse,
    ModelDrafter,
    Sampling,
    Seeded,
    TableModel,
    autoregressive_decode,
    speculative_decode,
    speculative_decode_batch,
    speculative_rounds,
)

LAYERS = 3


@pytest.fixture(scope="module")
def small():
    return CausalLM(tiny_llama(LAYERS))


@pytest.fixture
def target():
    """Five layers, so that an exit is often right and often wrong."""
    config = model().config.to_dict() | {"num_hidden_layers": 5, "initializer_range": 0.2}
    torch.manual_seed(3)
    return CausalLM(LlamaForCausalLM(LlamaConfig(**config)).double())


def trained(target):
    """A norm that is not the target's own."""
    torch.manual_seed(8)
    return target.own.norm * (1 + 0.3 * torch.randn_like(target.own.norm))


def exit_of(target, layers=2, norm=None, **options):
    return ModelDrafter(EarlyExitModel(target, layers, norm), **options)


@torch.inference_mode()
def rows_by_hand(target, text, layers, norm):
    """Logits of the exit, by the library's own hidden states and no cache."""
    module = target.model
    ids = torch.tensor([list(text)])
    states = module.model(input_ids=ids, use_cache=False, output_hidden_states=True)
    last = copy.deepcopy(module.model.norm)
    last.weight.copy_(norm)
    return module.lm_head(last(states.hidden_states[layers][0]))


# The law


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_law_is_the_targets(small, way):
    drafter = exit_of(small, 1, trained(small))
    assert bias(small, drafter, 2, **way) < TOLERANCE


@pytest.mark.parametrize("gamma", [0, 1, 3, Changing(2, 0, 1)], ids=["0", "1", "3", "changing"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_law_is_the_targets_at_every_gamma_and_depth(small, gamma, layers):
    assert bias(small, exit_of(small, layers), gamma) < TOLERANCE


@pytest.mark.parametrize("sampling", [Sampling(), GRAMMAR], ids=["plain", "grammar"])
def test_a_confidence_stop_leaves_the_law(small, sampling):
    lengths = set()
    drafter = exit_of(small, 1, stop_below=0.4)
    found = bias(
        small, drafter, 3, sampling=sampling,
        check=lambda out: lengths.update(round.gamma for round in out.trace.rounds),
    )  # fmt: skip
    assert found < TOLERANCE and lengths >= {1, 2}


# The rows


def test_its_logits_are_those_of_the_first_layers_of_the_library(target):
    text, norm = prompt(12), trained(target)
    early = EarlyExitModel(target, 3, norm)
    expected = rows_by_hand(target, text, 3, norm)
    assert torch.allclose(early.forward(text[:7]), expected[:7], rtol=0, atol=1e-12)
    last = early.forward(torch.tensor(text[7:]), keep=2)
    assert torch.allclose(last, expected[-2:], rtol=0, atol=1e-12)
    assert early.length == 12 and early.forwards == 2 and target.length == target.forwards == 0
    early.rollback(9)
    assert torch.allclose(early.forward(text[9:]), expected[9:], rtol=0, atol=1e-12)


def test_all_layers_with_the_targets_own_norm_are_the_target(target):
    run = speculative_decode(
        target, exit_of(target, 5), prompt(6), max_new_tokens=60, randomness=Seeded(0)
    )
    assert run.stats.rejected == 0 and run.stats.accepted > 40


class Poisoned(CausalLM):
    """A target whose rows past its length are NaN whenever it reads; it keeps what it returned."""

    def forward(self, tokens, keep=None):
        self.seen = getattr(self, "seen", [])
        poison(self)
        fed = tokens.tolist() if isinstance(tokens, torch.Tensor) else list(tokens)
        logits = super().forward(tokens, keep)
        self.seen.append((self.length - len(fed), fed, keep, logits.clone()))
        return logits


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.0)], ids=["sampled", "greedy"])
def test_verification_reads_no_row_that_the_draft_wrote(target, sampling):
    """Every forward of the target, repeated alone: equal to the last bit."""
    watched = Poisoned(target.model)
    run = speculative_decode(
        watched, exit_of(watched, 2, trained(target)), prompt(6), gamma=Changing(4, 2, 0, 1),
        sampling=sampling, max_new_tokens=60, randomness=Seeded(1),
    )  # fmt: skip
    assert {round.accepted for round in run.trace.rounds} >= {0, 1}
    alone = CausalLM(target.model)
    for start, fed, keep, logits in watched.seen:
        alone.rollback(start)
        assert torch.equal(alone.forward(fed, keep), logits)
    text = [*prompt(6), *run.tokens]
    watched.rollback(len(text) - 1)
    rest = watched.forward(text[-1:])
    assert torch.allclose(rest, uncached_logits(target, text)[-1:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("gamma", [1, 4, Changing(3, 0, 0, 2)], ids=["1", "4", "changing"])
def test_it_never_has_to_catch_up_and_reads_the_committed_text(target, gamma):
    """After every round: its rows are the target's, and what it reads next is right."""
    drafter, norm, text = exit_of(target, 3, trained(target)), trained(target), prompt(5)
    verdicts, before = set(), 0
    for round in speculative_rounds(
        target, drafter, text, gamma=gamma, max_new_tokens=40, randomness=Seeded(3)
    ):
        text = text + list(round.emitted)
        verdicts.add(round.accepted)
        assert drafter.length == target.length == len(text) - 1
        assert drafter.model.forwards - before == round.gamma
        before = drafter.model.forwards
        if round.gamma:
            poison(target)
            other = EarlyExitModel(target, 3, norm)
            assert other.length == len(text) - 1
            logits = other.forward(text[-1:])
            expected = rows_by_hand(target, text, 3, norm)[-1:]
            assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
    assert verdicts >= {0, 1}


def test_its_own_rows_count_until_the_target_reads_or_rolls_back(target):
    early, text = EarlyExitModel(target, 2), prompt(12)
    target.forward(text[:4])
    assert early.length == 4
    early.forward(text[4:7])
    assert early.length == 7
    early.rollback(6)
    assert early.length == 6
    target.forward(text[4:5])
    assert early.length == 5
    early.forward(text[5:7])
    target.rollback(3)
    assert early.length == 3
    expected = rows_by_hand(target, text, 2, target.own.norm)
    assert torch.allclose(early.forward(text[3:9]), expected[3:9], rtol=0, atol=1e-12)


def test_runs_that_stop_midway_or_come_between_leave_no_trace(target):
    """The same text, whatever the same target and drafter did before."""
    drafter, text = exit_of(target, 2), prompt(9)

    def decode():
        return speculative_decode(
            target, drafter, text, max_new_tokens=30, randomness=Seeded(5)
        ).trace

    first = decode()
    for _ in range(2):  # left after two rounds
        rounds = speculative_rounds(target, drafter, prompt(30, seed=1), randomness=Seeded(0))
        next(rounds), next(rounds)
    assert decode() == first
    autoregressive_decode(target, prompt(20, seed=2), max_new_tokens=20, randomness=Seeded(0))
    assert decode() == first
    target.rollback(5)
    drafter.propose(text[:6], 4, Sampling(), Seeded(0))  # a round that no verification ended
    assert drafter.length == 9
    assert decode() == first
    stops = (first.tokens[7],)
    cut = speculative_decode(
        target, drafter, text, max_new_tokens=30, stop_tokens=stops, randomness=Seeded(5)
    )
    assert cut.finish_reason == "stop" and cut.tokens == first.tokens[: len(cut.tokens)]
    assert drafter.length == target.length == len(text) + len(cut.tokens) - 1
    assert decode() == first


def test_rows_the_target_reads_are_never_overwritten(target):
    early = EarlyExitModel(target, 2)
    target.forward(prompt(8))
    early.rollback(5)
    assert early.length == 5
    with pytest.raises(ValueError, match="overwrite the target's, which holds 8") as error:
        early.forward([4])
    sentence_of(error.value)
    with pytest.raises(ValueError, match="holds 5"):
        early.rollback(6)
    target.rollback(5)
    assert early.forward([4]).shape == (1, VOCAB)


def test_the_cache_may_be_filled_to_its_end_and_no_further(target):
    target = CausalLM(target.model, max_length=20)
    run = speculative_decode(
        target, exit_of(target, 2), prompt(5), gamma=6, max_new_tokens=15, randomness=Seeded(0)
    )
    assert len(run.tokens) == 15
    early = EarlyExitModel(target, 2)
    target.rollback(5)
    with pytest.raises(ValueError, match="21 tokens do not fit the target's cache of 20") as error:
        early.forward(prompt(16))
    sentence_of(error.value)
    assert early.length == 5


def test_a_fresh_one_belongs_to_a_fresh_target_and_runs_on_its_own(target):
    early, text = EarlyExitModel(target, 2, trained(target)), prompt(7)
    target.forward(text)
    other = early.fresh()
    assert other.length == 0 and other.target is not target
    assert torch.equal(other.norm, early.norm)
    expected = rows_by_hand(target, text, 2, other.norm)
    assert torch.allclose(other.forward(text), expected, rtol=0, atol=1e-12)
    assert target.length == 7


def test_a_batch_drafts_with_it_as_each_text_alone(target):
    drafter, prompts = exit_of(target, 2), [prompt(4), prompt(9, seed=1), prompt(1, seed=2)]
    options = {"gamma": 3, "max_new_tokens": 20}
    batch = speculative_decode_batch(
        target, drafter, prompts, randomness=[Seeded(i) for i in range(3)], **options
    )
    for i, (text, found) in enumerate(zip(prompts, batch, strict=True)):
        alone = speculative_decode(target, drafter, text, randomness=Seeded(i), **options)
        assert found.tokens == alone.tokens


def test_lookups_between_its_drafts_leave_nothing_to_catch_up(target):
    early = exit_of(target, 2)
    both = LookupElse(LookupDrafter(VOCAB, 2, 2), early)
    sources = []
    for round in speculative_rounds(
        target, both, prompt(6) * 2, sampling=Sampling(0.3), max_new_tokens=60,
        randomness=Seeded(2),
    ):  # fmt: skip
        sources.append(early.model.forwards)
        assert both.length == target.length == round.target_length[1]
    assert len(set(sources)) > 3 and len(set(sources)) < len(sources)


# What cannot be


@pytest.mark.parametrize("layers", [0, 6, -1, 2.0, True, None])
def test_layers_the_target_has_not(target, layers):
    with pytest.raises(ValueError, match="from 1 to 5, not") as error:
        EarlyExitModel(target, layers)
    sentence_of(error.value)


@pytest.mark.parametrize("norm", [torch.ones(31).double(), torch.ones(32), torch.ones(1, 32)])
def test_a_norm_that_does_not_fit(target, norm):
    with pytest.raises(ValueError, match=r"the target needs \[32\] float64 on cpu") as error:
        EarlyExitModel(target, 2, norm)
    sentence_of(error.value)


@pytest.mark.parametrize("name", ["gpt2", "mistral with a window"])
def test_a_target_without_our_forward(name):
    with pytest.raises(ValueError, match="no early exit") as error:
        EarlyExitModel(CausalLM(model(name)), 1)
    sentence_of(error.value)
    with pytest.raises(ValueError, match="TableModel does not run by our own forward"):
        EarlyExitModel(TableModel(lambda text: (0.5, 0.5), 2), 1)
