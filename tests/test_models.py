"""One contract for every language model: rows are appended, rolled back, and never read stale."""

import math

import pytest
import torch
from tiny import CONFIGS, CONTEXT, VOCAB, model, poison, prompt, random_table, sentence_of
from tiny import uncached_logits as uncached
from transformers import (
    AutoModelForCausalLM,
    MambaConfig,
    MistralConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from specdec_core import CausalLM, ModelDrafter, Seeded, TableModel, speculative_decode
from specdec_core.cache import GrowingCache, PreallocatedCache
from specdec_core.pairs import load_pair
from specdec_core.storyworld import WEIGHTS

PREALLOCATED = ("llama", "qwen2", "gpt2", "mistral", "mistral with a window")


def builder(name, **fixed):
    return lambda **options: CausalLM(model(name), **fixed, **options)


BUILDERS = {name: builder(name) for name in CONFIGS}
BUILDERS |= {f"{name}, growing": builder(name, growing=True) for name in PREALLOCATED}
BUILDERS |= {f"{n}, library": builder(n, library=True) for n in ("llama", "qwen2", "mistral")}
BUILDERS["llama, eager"] = lambda **kw: CausalLM(eager(model("llama")), library=True, **kw)
BUILDERS["table"] = lambda **_: random_table(VOCAB)
every_model = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
every_real_model = pytest.mark.parametrize(
    "build",
    [b for n, b in BUILDERS.items() if n != "table"],
    ids=[n for n in BUILDERS if n != "table"],
)


def eager(module):
    module.set_attn_implementation("eager")
    return module


def tolerance(language_model):
    """Eager attention takes its softmax in float32 whatever the weights are."""
    is_eager = getattr(language_model, "_own_mask", True) is False
    return 1e-4 if is_eager else 1e-10


def assert_equal_logits(language_model, logits, expected):
    """Largest difference at most the tolerance; a table's -inf must be -inf on both sides."""
    bound = tolerance(language_model)
    torch.testing.assert_close(logits, expected, rtol=0, atol=bound)


@every_model
def test_forward_appends_rows_and_returns_the_logits_of_each(build):
    language_model, text = build(), prompt(12)
    expected = uncached(language_model, text)
    at = 0
    for rows in (1, 4, 1, 6):
        logits = language_model.forward(text[at : at + rows])
        at += rows
        assert logits.shape == (rows, language_model.vocab_size)
        assert language_model.length == at
        assert_equal_logits(language_model, logits, expected[at - rows : at])
    assert language_model.forwards == 4


@every_model
@pytest.mark.parametrize("keep", [1, 2, 6, 99])
def test_keep_returns_the_last_rows_only(build, keep):
    language_model, text = build(), prompt(9)
    expected = uncached(language_model, text)
    language_model.forward(text[:3], keep=keep)
    assert_equal_logits(
        language_model, language_model.forward(text[3:], keep=keep), expected[3:][-keep:]
    )


@every_model
def test_tokens_may_be_a_list_or_a_tensor(build):
    language_model, text = build(), prompt(6)
    first = language_model.forward(text)
    language_model.rollback(0)
    assert torch.equal(language_model.forward(torch.tensor(text)), first)


@every_model
def test_rolling_back_to_the_same_length_changes_nothing(build):
    language_model, text = build(), prompt(8)
    expected = uncached(language_model, text)
    language_model.forward(text[:5])
    language_model.rollback(5)
    assert language_model.length == 5
    assert_equal_logits(language_model, language_model.forward(text[5:]), expected[5:])


@every_model
@pytest.mark.parametrize("length", [-1, 6, 10_000])
def test_rolling_back_past_either_end_gets_one_sentence(build, length):
    language_model = build()
    language_model.forward(prompt(5))
    with pytest.raises(ValueError, match=f"roll back to {length} rows: the cache holds 5") as error:
        language_model.rollback(length)
    sentence_of(error.value)
    assert language_model.length == 5


def random_rounds(language_model, rounds, seed=0, longest=60):
    """Append a few random tokens, compare with no cache at all, roll back some; poison what is
    stale. Yields the text and its logits once a round."""
    generator = torch.Generator().manual_seed(seed)

    def random(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    vocab = language_model.vocab_size
    text = prompt(10, seed, vocab)
    language_model.forward(text)
    for i in range(rounds):
        keep = max(0, min(len(text) - random(0, 7), longest)) if i % 20 else 0
        language_model.rollback(keep)
        poison(language_model)
        new = prompt(random(1, 7), seed + i + 1, vocab)
        text = text[:keep] + new
        yield text, language_model.forward(new), len(new)


@every_model
def test_cached_logits_equal_uncached_ones_after_200_random_rounds(build):
    """Every 20th round rolls back to nothing; rows past the length are NaN before each forward."""
    language_model = build()
    for text, logits, rows in random_rounds(language_model, 200):
        assert language_model.length == len(text)
        assert_equal_logits(language_model, logits, uncached(language_model, text)[-rows:])


@pytest.mark.skipif(not (WEIGHTS / "target").exists(), reason="the pair is not trained yet")
@pytest.mark.parametrize("side", ["target", "draft"])
def test_the_bundled_models_equal_uncached_ones_after_200_random_rounds(side):
    bundle = load_pair("storyworld", dtype="float64")
    language_model = bundle.target if side == "target" else bundle.drafter.model
    for text, logits, rows in random_rounds(language_model, 200):
        assert_equal_logits(language_model, logits, uncached(language_model, text)[-rows:])


def test_a_model_that_reads_a_stale_row_is_found_out():
    """What the poison is for: one row too few rolled back, and the logits are NaN or different."""
    language_model = CausalLM(model())
    language_model.forward(prompt(10))
    language_model.rollback(7)
    poison(language_model)
    language_model._cache.length = 8
    assert language_model.forward(prompt(2)).isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_poison_reaches_no_logits_in_lower_precision(dtype):
    language_model = CausalLM(model(dtype=dtype))
    for text, logits, rows in random_rounds(language_model, 40):
        assert logits.dtype == dtype and not logits.isnan().any()
        difference = (logits.float() - uncached(language_model, text)[-rows:].float()).abs().max()
        assert difference < (1e-4 if dtype == torch.float32 else 0.5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_preallocated_cache_never_moves_and_never_grows(name):
    """2,000 rounds over many generations: the same addresses and the same bytes at the end."""
    language_model = CausalLM(model(name), max_length=96)
    assert isinstance(language_model._cache, PreallocatedCache)
    language_model.forward(prompt(3))

    def storage():
        layers = language_model._cache.layers
        return [
            (x.data_ptr(), x.untyped_storage().nbytes()) for y in layers for x in (y.keys, y.values)
        ]

    before = storage()
    for i in range(2000):
        rows = language_model.length
        language_model.rollback(0 if rows > 85 else max(0, rows - i % 3))
        language_model.forward(prompt(1 + i % 5, i), keep=1)
    assert storage() == before


def test_cache_memory_is_constant_over_2000_rounds_of_speculation():
    shared = model()
    target, draft = CausalLM(shared, max_length=64), CausalLM(shared, max_length=64)
    rounds, sizes = 0, set()
    while rounds < 2000:
        run = speculative_decode(
            target, ModelDrafter(draft), prompt(4, rounds), gamma=1, max_new_tokens=50,
            randomness=Seeded(rounds),
        )  # fmt: skip
        rounds += run.stats.rounds
        sizes.add(
            sum(
                x.nbytes
                for m in (target, draft)
                for y in m._cache.layers
                for x in (y.keys, y.values)
            )
        )
    assert len(sizes) == 1


def test_models_choose_the_cache_that_their_layers_need():
    for name in PREALLOCATED:
        assert isinstance(CausalLM(model(name))._cache, PreallocatedCache), name
    assert isinstance(CausalLM(model("deepseek_v32"))._cache, GrowingCache)
    assert isinstance(CausalLM(model("llama"), growing=True)._cache, GrowingCache)


@pytest.mark.parametrize("growing", [False, True])
def test_a_window_as_long_as_the_cache_is_used_to_its_last_row(growing):
    language_model = CausalLM(model("mistral with a window"), growing=growing)
    text = prompt(CONTEXT)
    expected = uncached(language_model, text)
    language_model.forward(text[:-3])
    language_model.forward(text[-3:])
    language_model.rollback(CONTEXT - 2)
    assert_equal_logits(language_model, language_model.forward(text[-2:]), expected[-2:])


@every_real_model
def test_a_text_past_the_capacity_gets_one_sentence_and_changes_nothing(build):
    language_model, text = build(max_length=16), prompt(20)
    language_model.forward(text[:14])
    with pytest.raises(ValueError, match="17 tokens do not fit the cache of 16") as error:
        language_model.forward(text[14:17])
    sentence_of(error.value)
    assert language_model.length == 14
    logits = language_model.forward(text[14:16])
    assert_equal_logits(language_model, logits, uncached(language_model, text[:16])[14:])


def test_the_capacity_is_the_context_unless_the_caller_says_less():
    assert CausalLM(model()).max_length == CONTEXT
    assert CausalLM(model(), max_length=20).max_length == 20
    with pytest.raises(ValueError, match="max_length 300 is past the model's context of 256") as e:
        CausalLM(model(), max_length=300)
    sentence_of(e.value)


@pytest.mark.parametrize("length", [0, -4, 2.5, True])
def test_a_capacity_that_is_no_length_gets_one_sentence(length):
    with pytest.raises(ValueError, match="max_length must be a whole number") as error:
        CausalLM(model(), max_length=length)
    sentence_of(error.value)


def mamba():
    return AutoModelForCausalLM.from_config(
        MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, state_size=4)
    )


def short_window():
    sizes = dict(model("mistral").config.to_dict(), sliding_window=32)
    return AutoModelForCausalLM.from_config(MistralConfig(**sizes))


def encoder_decoder():
    sizes = {
        "vocab_size": VOCAB,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 16,
        "num_layers": 1,
        "num_heads": 2,
    }
    return T5ForConditionalGeneration(T5Config(**sizes))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (mamba, "^MambaForCausalLM keeps a recurrent state, which cannot roll back"),
        (short_window, "^MistralForCausalLM attends through a sliding window of 32 tokens"),
        (encoder_decoder, "^T5ForConditionalGeneration is an encoder-decoder"),
    ],
    ids=["recurrent", "window", "encoder-decoder"],
)
@pytest.mark.parametrize("growing", [None, True])
def test_a_model_that_cannot_roll_back_is_refused_by_name(build, says, growing):
    with pytest.raises(ValueError, match=says) as error:
        CausalLM(build(), growing=growing)
    sentence_of(error.value)


def test_a_refused_model_is_called_by_the_name_it_was_loaded_under():
    module = mamba()
    module.config.name_or_path = "state-spaces/mamba-130m-hf"
    with pytest.raises(ValueError, match=r"^state-spaces/mamba-130m-hf keeps a recurrent state"):
        CausalLM(module)


def test_a_short_window_is_served_as_far_as_it_reaches():
    assert CausalLM(short_window(), max_length=32).max_length == 32


class Interrupted:
    """Raises KeyboardInterrupt from within the decoder layer `at`, at its `call`-th call."""

    def __init__(self, language_model, at, call=1):
        module = language_model.model
        layers = module.transformer.h if hasattr(module, "transformer") else module.model.layers
        self.run, self.left = language_model.own, call
        if language_model.fast:
            self.left, self.attend = (call - 1) * len(layers) + at + 1, self.run._attend
            self.run._attend = self.attended
        else:
            self.hook = layers[at].register_forward_hook(self)

    def __call__(self, *_):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def attended(self, *arguments):
        self()
        return self.attend(*arguments)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if hasattr(self, "hook"):
            self.hook.remove()
        else:
            del self.run._attend


@every_real_model
@pytest.mark.parametrize("layer", [0, 1])
def test_an_interrupt_inside_a_forward_leaves_the_model_as_it_was(build, layer):
    language_model, text = build(), prompt(12)
    expected = uncached(language_model, text)
    language_model.forward(text[:7])
    with Interrupted(language_model, layer), pytest.raises(KeyboardInterrupt):
        language_model.forward(text[7:11])
    assert language_model.length == 7
    poison(language_model)
    assert_equal_logits(language_model, language_model.forward(text[7:]), expected[7:])


@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("side", ["target", "draft"])
@pytest.mark.parametrize("call", [1, 2, 9, 10])
def test_a_run_after_an_interrupted_run_equals_a_fresh_one(growing, side, call):
    shared, other = model(), model(seed=1)

    def run(target, draft, seed):
        return speculative_decode(
            target, ModelDrafter(draft), prompt(6, seed), gamma=3, max_new_tokens=30,
            randomness=Seeded(seed),
        ).trace  # fmt: skip

    used = CausalLM(shared, growing=growing), CausalLM(other, growing=growing)
    run(*used, 1)
    broken = Interrupted(used[side == "draft"], 1, call)
    with broken, pytest.raises(KeyboardInterrupt):
        run(*used, 2)
    fresh = CausalLM(shared, growing=growing), CausalLM(other, growing=growing)
    again, expected = run(*used, 3), run(*fresh, 3)
    assert again.tokens == expected.tokens
    assert [r.verdicts for r in again.rounds] == [r.verdicts for r in expected.rounds]


def test_a_table_gives_the_logarithms_of_its_rows():
    table = TableModel(lambda prefix: [0.25, 0.75] if len(prefix) % 2 else [1.0, 0.0], 2)
    logits = table.forward([0, 1, 1])
    assert logits.dtype == torch.float64
    assert logits.exp().tolist() == [[0.25, 0.75], [1.0, 0.0], [0.25, 0.75]]
    assert logits[1, 1] == -math.inf


def test_a_table_of_the_wrong_width_gets_one_sentence():
    table = TableModel(lambda prefix: [0.5, 0.5], 3)
    with pytest.raises(ValueError, match=r"gives \(2,\) numbers after \(0,\), not 3") as error:
        table.forward([0])
    sentence_of(error.value)
