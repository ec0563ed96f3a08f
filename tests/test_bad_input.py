"""Bad input: one sentence that says what is wrong and what to do, and models usable afterwards."""

import math

import pytest
import torch
from tiny import VOCAB, pair, prompt, random_table, sentence_of

from specdec_core import (
    CausalLM,
    Enumerated,
    ModelDrafter,
    Sampling,
    Seeded,
    TableDrafter,
    TableModel,
    autoregressive_decode,
    speculative_decode,
    speculative_rounds,
)


@pytest.fixture(scope="module")
def models():
    return pair(max_length=96)


def speculative(models, text, **options):
    return speculative_decode(*models, text, **options)


def one_round_at_a_time(models, text, **options):
    return list(speculative_rounds(*models, text, **options))


def plain(models, text, **options):
    return autoregressive_decode(models[0], text, **options)


every_decoder = pytest.mark.parametrize("decode", [speculative, one_round_at_a_time, plain])
both_speculative = pytest.mark.parametrize("decode", [speculative, one_round_at_a_time])


def assert_refused(models, decode, says, text=(3, 4, 5), error=ValueError, **options):
    """The error is one sentence; then the same models decode as fresh ones do."""
    with pytest.raises(error, match=says) as caught:
        decode(models, text, **options)
    sentence_of(caught.value)
    settings = {"gamma": 3, "max_new_tokens": 20, "randomness": Seeded(5)}
    after = speculative_decode(*models, prompt(4), **settings)
    settings["randomness"] = Seeded(5)
    target, drafter = models
    fresh = CausalLM(target.model), ModelDrafter(CausalLM(drafter.model.model))
    assert after.tokens == speculative_decode(*fresh, prompt(4), **settings).tokens


@every_decoder
@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ([], ValueError, "^The prompt is empty: give"),
        (
            "Once upon a time",
            TypeError,
            "^The prompt must be a list of token ids: pass pair.encode",
        ),
        (["a", "b"], TypeError, "^The prompt must be a list of token ids"),
        ([1.5, 2], TypeError, "^The prompt must be a list of token ids"),
        (7, TypeError, "^The prompt must be a list of token ids"),
        (None, TypeError, "^The prompt must be a list of token ids"),
        (torch.tensor([[3, 4, 5]]), TypeError, "^The prompt must be a list of token ids.*batch"),
        ({"input_ids": [3]}, TypeError, "^The prompt must be a list of token ids"),
        ([3, VOCAB], ValueError, f"token id {VOCAB}, outside the vocabulary of {VOCAB}"),
        ([-1, 3], ValueError, "token id -1, outside the vocabulary"),
        ([3] * 97, ValueError, "prompt has 97 tokens, and the target can read 96: shorten"),
    ],
)
def test_prompts(models, decode, text, error, says):
    assert_refused(models, decode, says, text, error, max_new_tokens=4)


@every_decoder
@pytest.mark.parametrize("value", [0, -1, 1.5, 3.0, math.nan, math.inf, None, "8", True])
def test_max_new_tokens(models, decode, value):
    says = "^max_new_tokens must be a whole number of at least 1"
    assert_refused(models, decode, says, max_new_tokens=value)


@every_decoder
def test_a_generation_past_the_context_says_how_much_fits(models, decode):
    says = "92 prompt tokens and max_new_tokens=5 run past the target's 96: ask for at most 4"
    assert_refused(models, decode, says, [3] * 92, max_new_tokens=5)
    decode(models, [3] * 92, max_new_tokens=4)


@both_speculative
@pytest.mark.parametrize("value", [-1, 1.5, 2.0, True, False, math.nan, math.inf, None, "4"])
def test_gamma(models, decode, value):
    assert_refused(models, decode, "^gamma must be a whole number of 0 or more", gamma=value)


@both_speculative
@pytest.mark.parametrize("value", [-1, 0.5, None])
def test_gamma_chosen_by_a_schedule(models, decode, value):
    class Bad:
        def next(self, stats):
            return value

    assert_refused(models, decode, "^gamma must be a whole number of 0 or more", gamma=Bad())


@every_decoder
@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"stop_tokens": [VOCAB]}, ValueError, "^stop_tokens has token id"),
        ({"stop_tokens": ["</s>"]}, TypeError, "^stop_tokens must be a list of token ids"),
        ({"stop_tokens": 2}, TypeError, "^stop_tokens must be a list of token ids.*\\[id\\]"),
        ({"stop_strings": ["x"]}, ValueError, "^stop_strings need detokenize: pass"),
        ({"stop_strings": "ab", "detokenize": str}, TypeError, "^stop_strings must be a list"),
        ({"stop_strings": ["a", ""], "detokenize": str}, TypeError, "none empty"),
        ({"stop_strings": [7], "detokenize": str}, TypeError, "^stop_strings must be a list"),
    ],
)
def test_stops(models, decode, options, error, says):
    assert_refused(models, decode, says, error=error, **options)


def test_errors_of_the_request_come_before_the_first_round(models):
    target, drafter = models
    for options in ({"gamma": -1}, {"max_new_tokens": 0}, {"stop_strings": ["x"]}):
        forwards = target.forwards, drafter.model.forwards
        with pytest.raises(ValueError):
            speculative_rounds(target, drafter, [3], **options)
        assert forwards == (target.forwards, drafter.model.forwards)


def test_an_unknown_rule_and_an_unknown_record(models):
    assert_refused(models, speculative, "no rule 'typical'; choose one of: token", rule="typical")
    assert_refused(models, speculative, '^record must be "full" or "stats"', record="all")


def test_a_drafter_with_more_ids_than_the_target():
    with pytest.raises(ValueError, match=r"vocabulary of 6 is larger.*vocab_size=5") as error:
        speculative_decode(random_table(5), TableDrafter(lambda prefix: [1 / 6] * 6, 6), [0])
    sentence_of(error.value)


def test_a_drafter_with_a_shorter_context_than_the_text(models):
    target, drafter = models
    short = ModelDrafter(CausalLM(drafter.model.model, max_length=16))
    with pytest.raises(
        ValueError, match="run past the draft's 16: ask for at most 13 new"
    ) as error:
        speculative_decode(target, short, [3, 4, 5], max_new_tokens=20)
    sentence_of(error.value)


def test_one_object_as_target_and_as_draft_is_refused_since_it_has_one_cache(models):
    with pytest.raises(ValueError, match="share one cache: wrap the model a second") as error:
        speculative_decode(models[0], ModelDrafter(models[0]), [3])
    sentence_of(error.value)


class Broken:
    """Makes the logits of a model bad from its forward number `start` on."""

    def __init__(self, language_model, value, start):
        self.model, self.value, self.left = language_model, value, start

    def forward(self, *arguments, **options):
        logits = type(self.model).forward(self.model, *arguments, **options)
        self.left -= 1
        return torch.full_like(logits, self.value) if self.left < 0 else logits

    def __enter__(self):
        self.model.forward = self.forward

    def __exit__(self, *_):
        del self.model.forward


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("start", [1, 4])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.0), Sampling(0.7, 5, 0.9)])
@pytest.mark.parametrize("side", ["target", "draft"])
def test_nan_or_infinite_logits(models, value, start, sampling, side):
    broken = models[0] if side == "target" else models[1].model

    def run(models, text, **options):
        with Broken(broken, value, start):
            return speculative_decode(
                *models, text, sampling=sampling, max_new_tokens=40, **options
            )

    assert_refused(models, run, f"^The {side}'s logits after .* are NaN or infinite; check")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_or_infinite_logits_in_plain_decoding(models, value):
    def run(models, text):
        with Broken(models[0], value, 3):
            return autoregressive_decode(models[0], text, max_new_tokens=40)

    assert_refused(models, run, "^The target's logits after .* are NaN or infinite; check")


def test_a_nan_in_one_row_counts_only_where_it_is_judged():
    """A table that is broken after token 1: runs that never get there are unaffected."""

    def row(prefix):
        return [math.nan] * 2 if 1 in prefix else [1.0, 0.0]

    target = TableModel(row, 2)
    assert (
        speculative_decode(
            target, TableDrafter(lambda prefix: [0.5, 0.5], 2), [0], max_new_tokens=20
        ).tokens
        == [0] * 20
    )
    with pytest.raises(ValueError, match=r"^The target's logits after 1 tokens are NaN"):
        speculative_decode(target, TableDrafter(lambda prefix: [0.5, 0.5], 2), [1])
    with pytest.raises(ValueError, match="every probability is zero or NaN"):
        autoregressive_decode(target, [1], randomness=Enumerated())


def test_numbers_from_numpy_and_tensors_are_as_good_as_ints(models):
    numpy = pytest.importorskip("numpy")
    expected = speculative_decode(
        *models, [3, 4], gamma=2, max_new_tokens=9, stop_tokens=[7], randomness=Seeded(0)
    )
    for text in (numpy.array([3, 4]), torch.tensor([3, 4]), (3, 4)):
        run = speculative_decode(
            *models, text, gamma=numpy.int64(2), max_new_tokens=numpy.int32(9),
            stop_tokens=torch.tensor([7]), randomness=Seeded(0),
        )  # fmt: skip
        assert run.tokens == expected.tokens and run.trace == expected.trace


WRONG_PARTS = [
    ({"sampling": 0.8}, "sampling cannot be float: pass Sampling"),
    ({"draft_sampling": {"temperature": 1}}, "draft_sampling cannot be dict: pass Sampling"),
    ({"randomness": 0}, "randomness cannot be int: pass Seeded"),
    ({"randomness": Seeded}, "randomness cannot be the class Seeded: pass Seeded"),
]


@pytest.mark.parametrize(("options", "said"), WRONG_PARTS)
def test_an_object_of_the_wrong_kind_is_named(models, options, said):
    with pytest.raises(TypeError, match=f"^{said}"):
        speculative_decode(*models, [3, 4], **options)


def test_models_of_the_wrong_kind_are_named(models):
    target = models[0]
    with pytest.raises(TypeError, match=r"^target cannot be LlamaForCausalLM: pass pair\.target"):
        autoregressive_decode(target.model, [3, 4])
    for wrong in (target, "default"):
        with pytest.raises(TypeError, match=r"^drafter cannot be .*: pass pair\.drafter"):
            speculative_decode(target, wrong, [3, 4])


@pytest.mark.parametrize("seed", [1.5, "a", 2**80])
def test_seeds_that_are_no_seeds(seed):
    with pytest.raises(ValueError, match=r"^seed must be a whole number between"):
        Seeded(seed)


@pytest.mark.parametrize("temperature", [1e-300, 1e-7])
def test_a_temperature_too_small_to_divide_by(temperature):
    with pytest.raises(
        ValueError, match=r"^temperature must be 0 \(greedy\), or finite and at least"
    ):
        Sampling(temperature)


@pytest.mark.parametrize("processors", [None, lambda ids, scores: scores, [3]])
def test_processors_that_are_none(processors):
    with pytest.raises(TypeError, match=r"^processors must be a list of LogitsProcessor"):
        Sampling(processors=processors)


def test_a_prompt_may_be_read_only_once(models):
    once = speculative_decode(*models, iter([3, 4]), max_new_tokens=5, randomness=Seeded(0))
    assert once.trace.prompt == (3, 4)
