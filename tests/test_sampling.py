"""`Sampling.probs` is what transformers' own warpers give, at every row and every edge."""

import math

import pytest
import torch
from tiny import sentence_of
from transformers import (
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specdec_core import Sampling

VOCAB = 50
SETTINGS = [
    (temperature, top_k, top_p)
    for temperature in (0.3, 1.0, 1.7)
    for top_k in (None, 1, 7, VOCAB, VOCAB + 9)
    for top_p in (None, 1e-6, 0.3, 0.9, 0.999, 1.0)
]


def reference(logits, temperature, top_k=None, top_p=None):
    """The same distribution by transformers' warpers, in the order its `generate` applies them."""
    warpers = LogitsProcessorList()
    if temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(temperature))
    if top_k is not None:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p is not None and top_p < 1.0:
        warpers.append(TopPLogitsWarper(top_p))
    return warpers(None, logits).softmax(-1)


def random_logits(rows=40, dtype=torch.float64):
    return (4 * torch.randn(rows, VOCAB, dtype=torch.float64)).to(dtype)


def tied_logits():
    """Rows with many equal values, also at the border of every top-k."""
    return torch.randint(-3, 3, (40, VOCAB)).double()


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
@pytest.mark.parametrize("make", [random_logits, tied_logits], ids=["random", "ties"])
def test_probs_equal_the_warpers_of_transformers(make, temperature, top_k, top_p):
    logits = make()
    probs = Sampling(temperature, top_k, top_p).probs(logits)
    assert torch.equal(probs, reference(logits, temperature, top_k, top_p))
    assert torch.allclose(probs.sum(-1), torch.ones(len(logits), dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("settings", [(0.0, None, None), (0.7, None, None), (1.0, 5, 0.9)])
def test_half_precision_logits_are_upcast_before_anything_else(dtype, settings):
    logits = random_logits(dtype=dtype)
    probs = Sampling(*settings).probs(logits)
    assert probs.dtype == torch.float32
    assert torch.equal(probs, Sampling(*settings).probs(logits.float()))


def test_float64_logits_give_float64_probs():
    assert Sampling(0.8, 5, 0.9).probs(random_logits()).dtype == torch.float64


def test_every_row_is_shaped_on_its_own():
    logits, sampling = random_logits(), Sampling(0.7, 6, 0.8)
    rows = [sampling.probs(row[None]) for row in logits]
    assert torch.equal(sampling.probs(logits), torch.cat(rows))


def test_no_rows_give_no_rows():
    empty = torch.empty(0, VOCAB, dtype=torch.float64)
    for sampling in (Sampling(), Sampling(0.0), Sampling(0.7, 6, 0.8), penalised()):
        assert sampling.probs(empty, torch.tensor([3])).shape == (0, VOCAB)


def test_temperature_zero_is_one_hot_and_ties_go_to_the_lowest_id():
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0], [0.0, -1.0, 0.0, 5.0]])
    probs = Sampling(0.0).probs(logits)
    assert probs.argmax(-1).tolist() == [1, 0, 3]
    assert torch.equal(probs.sort(-1).values, torch.tensor([[0.0, 0.0, 0.0, 1.0]] * 3))
    wide = torch.zeros(3, 150_000)
    wide[:, [149_999, 77_777, 120_000]] = 1.0
    assert Sampling(0.0).probs(wide).argmax(-1).tolist() == [77_777] * 3


def test_temperature_zero_ignores_top_k_and_top_p():
    logits = random_logits()
    assert torch.equal(Sampling(0.0, 3, 0.2).probs(logits), Sampling(0.0).probs(logits))


def test_a_tiny_top_p_keeps_the_most_likely_token():
    logits = random_logits()
    probs = Sampling(top_p=1e-300).probs(logits)
    assert torch.equal(probs.argmax(-1), logits.argmax(-1))
    assert ((probs > 0).sum(-1) == 1).all()


def test_ties_with_the_kth_token_all_stay():
    probs = Sampling(top_k=2).probs(torch.tensor([[3.0, 1.0, 1.0, 0.0]]))
    assert (probs > 0).tolist() == [[True, True, True, False]]


def penalised(temperature=1.0):
    return Sampling(temperature, processors=(RepetitionPenaltyLogitsProcessor(1.8),))


@pytest.mark.parametrize(
    "processors",
    [
        (RepetitionPenaltyLogitsProcessor(1.8),),
        (NoRepeatNGramLogitsProcessor(2),),
        (RepetitionPenaltyLogitsProcessor(1.3), NoRepeatNGramLogitsProcessor(2)),
    ],
    ids=["penalty", "no repeat", "both"],
)
def test_processors_see_the_prefix_of_each_row_and_come_first(processors):
    rows, tokens = 5, torch.tensor([4, 9, 4, 9, 7, 4, 9, 4, 4])
    logits = random_logits(rows)
    probs = Sampling(0.7, 20, 0.95, processors).probs(logits, tokens)
    for i in range(rows):
        scores = logits[i : i + 1]
        prefix = tokens[: len(tokens) - rows + 1 + i]
        for processor in processors:
            scores = processor(prefix[None], scores)
        assert torch.equal(probs[i : i + 1], reference(scores, 0.7, 20, 0.95)), f"row {i}"


def test_a_processor_is_shown_each_drafted_prefix_once_in_order():
    seen = []

    def spy(prefix, scores):
        seen.append(prefix.tolist())
        return scores

    Sampling(processors=[spy]).probs(random_logits(3), torch.tensor([5, 6, 7, 8]))
    assert seen == [[[5, 6]], [[5, 6, 7]], [[5, 6, 7, 8]]]


def test_processors_without_the_tokens_are_an_error():
    with pytest.raises(ValueError, match="pass `tokens`") as error:
        penalised().probs(random_logits(2))
    sentence_of(error.value)


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.0), Sampling(0.5, 3), Sampling(1, 3, 0.9)]
)
@pytest.mark.parametrize(
    "bad",
    [
        [math.nan, 1.0, 2.0, 3.0, 0.0],
        [1.0, math.inf, 2.0, 3.0, 0.0],
        [math.inf, math.inf, 2.0, -math.inf, 0.0],
        [-math.inf] * 5,
    ],
    ids=["nan", "inf", "two inf", "all -inf"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_that_is_no_distribution_comes_out_as_nan_and_leaves_the_others(dtype, bad, sampling):
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0], bad, [2.0, 1.0, 0.0, -math.inf, 0.0]])
    probs = sampling.probs(logits.to(dtype))
    assert probs[1].isnan().all()
    assert torch.equal(probs[[0, 2]], sampling.probs(logits[[0, 2]].to(dtype)))
    assert not probs[[0, 2]].isnan().any()


def test_tokens_at_minus_infinity_have_probability_exactly_zero():
    logits = random_logits()
    logits[:, 3:30] = -math.inf
    for sampling in (Sampling(), Sampling(0.0), Sampling(0.4, 40, 0.99)):
        assert (sampling.probs(logits)[:, 3:30] == 0).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", x) for x in (-0.1, -math.inf, math.inf, math.nan, None, "hot", True)]
    + [("top_p", x) for x in (0, 0.0, -0.5, 1.01, math.nan, math.inf, "0.9", True)]
    + [("top_k", x) for x in (0, -3, 2.5, 5.0, math.nan, math.inf, "5", True)],
)
def test_values_out_of_range_get_one_sentence(field, value):
    with pytest.raises(ValueError, match=f"^{field} must .*{value}") as error:
        Sampling(**{field: value})
    sentence_of(error.value)


@pytest.mark.parametrize(
    "values", [(0,), (2, 1, 1), (1.0, None, 1e-9), (torch.tensor(0.5).item(),)]
)
def test_values_at_the_limits_are_accepted(values):
    Sampling(*values).probs(random_logits(2))
