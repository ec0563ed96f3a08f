"""Our forward of the Llama family computes what transformers computes, on the same weights."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from tiny import CONTEXT, SIZES, model, pair, prompt
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from specdec_core import (
    CausalLM,
    ModelDrafter,
    Sampling,
    Seeded,
    autoregressive_decode,
    load_pair,
    speculative_decode,
)
from specdec_core.graphs import GraphedForward
from specdec_core.llama import fuse, supports

LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
ROPES = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.0},
    "llama3": LLAMA3,
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}
CONFIGS = {
    "grouped heads": LlamaConfig(**SIZES),
    "a head for each key": LlamaConfig(**{**SIZES, "num_key_value_heads": 4}),
    "one key for all heads": LlamaConfig(**{**SIZES, "num_key_value_heads": 1}),
    "heads wider than the model": LlamaConfig(**SIZES, head_dim=24),
    "biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "tied head": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
} | {
    f"{name} rope": LlamaConfig(**SIZES, rope_parameters={"rope_theta": 10_000.0, **rope})
    for name, rope in ROPES.items()
}  # fmt: skip


def build(config, dtype=torch.float64):
    """A random model whose norms and biases are no ones and zeros."""
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(copy.deepcopy(config)).to(dtype).eval()
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return module


def pieces(length=60):
    """Where a text is cut: prefill, one row, several, all sizes of a round."""
    cuts = [0, 10, 11, 12, 17, 19, 30, 31, length]
    return list(pairwise(cuts))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_logits_equal_the_librarys_in_float64(config):
    module, text = build(config), prompt(60)
    ours, theirs = CausalLM(module), CausalLM(module, library=True)
    assert ours.fast and not theirs.fast
    for start, end in pieces():
        keep = 2 if end - start > 5 else None
        mine = ours.forward(text[start:end], keep=keep)
        reference = theirs.forward(text[start:end], keep=keep)
        torch.testing.assert_close(mine, reference, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours._cache.layers[1].keys, theirs._cache.layers[1].keys)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_forward_of_fixed_shapes_equals_the_other_whatever_lies_past_the_length(config):
    """What a CUDA graph records: all rows of the cache, those past the length behind a mask."""
    ours, text = CausalLM(build(config)), prompt(60)
    ours.forward(text[:40])
    for layer in ours.own.layers:
        layer.rows[:, :, 40:] = 1e3
    graphed = GraphedForward(ours.own)
    graphed._length.fill_(40)
    with torch.inference_mode():
        for count in (1, 2, 5):
            ids = torch.tensor(text[40 : 40 + count])
            fixed = graphed.fixed(ids[None])[0]
            torch.testing.assert_close(fixed, ours.own(ids, 40), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 2e-6), (torch.bfloat16, 0.04), (torch.float16, 0.005)]
)
@pytest.mark.parametrize("name", ["grouped heads", "biases"])
def test_lower_precision_differs_by_rounding_only(name, dtype, bound):
    """bound: largest difference over the largest logit, about 5 units in the last place."""
    module, text = build(CONFIGS[name], dtype), prompt(60)
    ours, theirs = CausalLM(module), CausalLM(module, library=True)
    for start, end in pieces():
        mine, reference = (lm.forward(text[start:end]).float() for lm in (ours, theirs))
        assert (mine - reference).abs().max() <= bound * reference.abs().max()


def test_the_bundled_pair_is_equal_to_the_last_bit_in_float32():
    bundle = load_pair("storyworld")
    text = bundle.encode("Once upon a time , there was a")
    for ours in (bundle.target, bundle.drafter.model):
        theirs = CausalLM(ours.model, library=True)
        for lm in (ours, theirs):
            lm.forward(text[:3])
        for rows in (text[3:4], text[4:], text[:1]):
            assert torch.equal(ours.forward(rows), theirs.forward(rows))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.0), Sampling(0.8, 9, 0.9)])
def test_decoding_gives_the_tokens_of_the_librarys_forward(sampling):
    (ours, draft), module = pair(), model()
    theirs = CausalLM(module, library=True)
    slow = ModelDrafter(CausalLM(draft.model.model, library=True))
    for seed in range(3):
        options = {"sampling": sampling, "max_new_tokens": 40}
        runs = [
            speculative_decode(t, d, prompt(8), gamma=4, randomness=Seeded(seed), **options)
            for t, d in ((ours, draft), (theirs, slow))
        ]
        assert runs[0].tokens == runs[1].tokens
        assert [r.verdicts for r in runs[0].trace.rounds] == [
            r.verdicts for r in runs[1].trace.rounds
        ]
        plain = [
            autoregressive_decode(t, prompt(8), randomness=Seeded(seed), **options).tokens
            for t in (ours, theirs)
        ]
        assert plain[0] == plain[1]


class Scaled(nn.Linear):
    """A projection that does more than its weight says."""

    def forward(self, x):
        return 2 * super().forward(x)


def changed(change, **config):
    module = AutoModelForCausalLM.from_config(LlamaConfig(**{**SIZES, **config})).eval()
    change(module)
    return module


def scaled(module):
    module.model.layers[1].mlp.up_proj = Scaled(SIZES["hidden_size"], SIZES["intermediate_size"])


def dynamic():
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    return changed(lambda module: None, rope_parameters=rope)


UNSUPPORTED = {
    "another activation": lambda: changed(lambda module: None, hidden_act="gelu"),
    "a rope that grows with the text": dynamic,
    "a window": lambda: model("mistral with a window"),
    "another family": lambda: model("gpt2"),
    "a projection of another class": lambda: changed(scaled),
    "a hook": lambda: changed(lambda m: m.model.norm.register_forward_hook(lambda *_: None)),
    "two dtypes": lambda: changed(lambda module: module.lm_head.double()),
}


@pytest.mark.parametrize("make", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_we_do_not_compute_is_left_to_the_library(make):
    assert not supports(make())


def test_growing_or_library_leaves_it_to_the_library():
    module = model()
    assert CausalLM(module).fast
    assert not CausalLM(module, growing=True).fast
    assert not CausalLM(module, library=True).fast


def test_the_weights_are_shared_with_the_module_and_between_caches(tmp_path):
    module = build(CONFIGS["biases"])
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    first, second = CausalLM(module), CausalLM(module)
    for a, b in zip(first.own.layers, second.own.layers, strict=True):
        for mine, other in ((a.qkv, b.qkv), (a.gate_up, b.gate_up)):
            assert mine.weight.data_ptr() == other.weight.data_ptr()
            assert mine.bias.data_ptr() == other.bias.data_ptr()
    attention = module.model.layers[0].self_attn
    assert first.own.layers[0].qkv.weight.data_ptr() == attention.q_proj.weight.data_ptr()
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, before[name]), name
    with torch.no_grad():
        attention.v_proj.weight.mul_(2)
    assert torch.equal(
        CausalLM(module).forward(prompt(5)), second.forward(prompt(5))
    )  # a change in place reaches both
    module.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert all(torch.equal(w, again.state_dict()[n]) for n, w in module.state_dict().items())


def test_fusing_parts_that_lie_apart_joins_them_anew():
    a, b, c = (nn.Linear(3, 2) for _ in range(3))
    fuse(a, b)
    whole = fuse(b, c).weight.t()
    assert torch.equal(whole, torch.cat([b.weight, c.weight]))
    assert torch.equal(fuse(a, c).weight.t(), torch.cat([a.weight, c.weight]))


def test_a_full_cache_and_an_empty_input_are_taken():
    module = build(CONFIGS["grouped heads"])
    ours, theirs = CausalLM(module), CausalLM(module, library=True)
    text = prompt(CONTEXT)
    for lm in (ours, theirs):
        lm.forward(text[:-3])
    assert torch.allclose(ours.forward(text[-3:]), theirs.forward(text[-3:]), rtol=0, atol=1e-12)
    assert ours.length == CONTEXT
    assert ours.forward([]).shape == (0, ours.vocab_size)
