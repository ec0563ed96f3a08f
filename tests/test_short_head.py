"""A head with rows for some ids: -inf for the others, and exact all the same."""

import pytest
import torch
from laws import TOLERANCE, WAYS, bias, tiny_llama
from tiny import VOCAB, every_sampling, model, noisy, prompt, sentence_of

from specdec_core import (
    CausalLM,
    ModelDrafter,
    Sampling,
    Seeded,
    ShortHead,
    speculative_decode,
)

IDS = [3, 40, 7, 8, 9, 21, 30]


def shortened(module, ids):
    """The same model with rows for these ids alone in its output head."""
    module = noisy(module, 0.0)
    ids = torch.tensor(ids)
    weight = module.lm_head.weight.detach()[ids]
    module.lm_head = ShortHead(weight, ids, module.config.vocab_size)
    return module


@pytest.mark.parametrize("library", [False, True], ids=["our forward", "the library's"])
def test_logits_are_the_whole_heads_for_its_ids_and_minus_infinity_elsewhere(library):
    whole = CausalLM(model())
    short = CausalLM(shortened(model(), IDS), library=library)
    assert short.fast is not library and short.vocab_size == VOCAB
    text = prompt(9)
    for start, end in ((0, 6), (6, 7), (7, 9)):
        found, expected = short.forward(text[start:end]), whole.forward(text[start:end])
        assert found.shape == expected.shape
        assert torch.allclose(found[:, IDS], expected[:, IDS], rtol=0, atol=1e-12)
        others = [i for i in range(VOCAB) if i not in IDS]
        assert (found[:, others] == -torch.inf).all()


@every_sampling
def test_no_other_id_is_ever_drafted(sampling):
    drafter = ModelDrafter(CausalLM(shortened(model(), IDS)))
    draft = drafter.propose(prompt(6), 60, sampling, Seeded(0))
    assert set(draft.tokens.tolist()) <= set(IDS) and not draft.probs.isnan().any()
    assert torch.allclose(draft.probs[:, IDS].sum(-1), torch.ones(60).double())


def test_more_may_be_asked_for_than_it_has_rows():
    probs = ModelDrafter(CausalLM(shortened(model(), IDS))).propose(
        prompt(6), 1, Sampling(1.0, top_k=20), Seeded(0)
    ).probs  # fmt: skip
    assert (probs > 0).sum() == len(IDS)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_law_is_the_targets_also_where_the_head_has_no_row(way):
    """Ids 0 and 2 of 3; a draft that has one alone, and one that may not repeat it, are cases."""
    target = CausalLM(tiny_llama(2))
    draft = CausalLM(shortened(tiny_llama(1, seed=1), [2, 0]))
    assert bias(target, ModelDrafter(draft), 2, **way) < TOLERANCE


def test_a_run_goes_on_after_ids_that_the_head_lacks():
    target = CausalLM(model())
    drafter = ModelDrafter(CausalLM(shortened(model(), range(0, VOCAB, 2))))
    run = speculative_decode(target, drafter, prompt(5), max_new_tokens=80, randomness=Seeded(0))
    assert any(token % 2 for token in run.tokens) and run.stats.accepted > 10
    assert all(token % 2 == 0 for round in run.trace.rounds for token in round.drafted)


@pytest.mark.parametrize(
    "ids",
    [
        torch.tensor([0, 1]),
        torch.tensor([0, 1, 1]),
        torch.tensor([0, 1, 9]),
        torch.tensor([0, 1, -1]),
        torch.tensor([0, 1, 2], dtype=torch.int32),
        torch.tensor([[0, 1, 2]]),
    ],
)
def test_ids_that_do_not_name_its_rows_get_one_sentence(ids):
    with pytest.raises(ValueError, match="one int64 id below 9 for each row") as error:
        ShortHead(torch.zeros(3, 4), ids, 9)
    sentence_of(error.value)


def test_a_head_of_no_rows_gets_one_sentence():
    with pytest.raises(ValueError, match="A short head needs"):
        ShortHead(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), 9)
