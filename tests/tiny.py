"""Tiny random models and drafts, and what several test files do with them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    DeepseekV32Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    NoRepeatNGramLogitsProcessor,
    PreTrainedModel,
    Qwen2Config,
    RepetitionPenaltyLogitsProcessor,
)

from specdec_core import CausalLM, ModelDrafter, Sampling, TableModel
from specdec_core.cache import PreallocatedCache

VOCAB = 48
CONTEXT = 256
# Weights this large make peaked, varied distributions, which small random models lack otherwise.
COMMON = {"vocab_size": VOCAB, "initializer_range": 0.4, "bos_token_id": 1, "eos_token_id": 2}
SIZES = dict(
    COMMON,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=CONTEXT,
    pad_token_id=0,
)
GPT2_SIZES = dict(COMMON, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT)
DEEPSEEK_SIZES = dict(
    SIZES,
    num_key_value_heads=4,
    moe_intermediate_size=16,
    n_routed_experts=4,
    n_shared_experts=1,
    num_experts_per_tok=2,
    n_group=1,
    topk_group=1,
    mlp_layer_types=["dense", "dense"],
    kv_lora_rank=8,
    q_lora_rank=8,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=8,
    index_head_dim=16,
    index_n_heads=2,
    index_topk=CONTEXT,
)
# What each is there for: grouped heads, biases, learned positions, no window, a window, and an
# indexed attention whose cache cannot be preallocated.
CONFIGS = {
    "llama": lambda: LlamaConfig(**SIZES),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "gpt2": lambda: GPT2Config(**GPT2_SIZES),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=None),
    "mistral with a window": lambda: MistralConfig(**SIZES, sliding_window=CONTEXT),
    "deepseek_v32": lambda: DeepseekV32Config(**DEEPSEEK_SIZES),
}


def model(name: str = "llama", dtype: torch.dtype = torch.float64, seed: int = 0):
    """A tiny random transformers model; one name and seed give the same weights every time."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIGS[name]()).to(dtype).eval()


def noisy(original: PreTrainedModel, noise: float = 0.3, seed: int = 1) -> PreTrainedModel:
    """A copy with every weight changed a little: a draft that is often right and often wrong."""
    torch.manual_seed(seed)
    other = copy.deepcopy(original)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1 + noise * torch.randn_like(weight))
    return other


def pair(name: str = "llama", dtype: torch.dtype = torch.float64, noise: float = 0.3, **options):
    """A target and a drafter that agree in part; noise 0 gives the target as its own draft."""
    target = model(name, dtype)
    return CausalLM(target, **options), ModelDrafter(CausalLM(noisy(target, noise), **options))


def prompt(length: int = 5, seed: int = 0, vocab: int = VOCAB) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab, (length,), generator=generator).tolist()


def random_table(vocab: int, seed: int = 0) -> TableModel:
    """A table whose distribution depends on the whole prefix."""

    def row(prefix: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((seed, prefix)) % 2**32)
        return torch.randn(vocab, dtype=torch.float64, generator=generator).mul(2).softmax(-1)

    return TableModel(row, vocab)


@torch.inference_mode()
def uncached_logits(reference: CausalLM | TableModel, text: Sequence[int]) -> Tensor:
    """Logits [len(text), V] of one forward over the whole text, with no cache."""
    if isinstance(reference, TableModel):
        return TableModel(reference.function, reference.vocab_size).forward(text)
    ids = torch.tensor([list(text)], device=reference.device)
    return reference.model(input_ids=ids, use_cache=False).logits[0]


@torch.inference_mode()
def poison(language_model: CausalLM | TableModel) -> None:
    """Write NaN into every cache row past `length`, so that whoever reads one is found out."""
    cache = getattr(language_model, "_cache", None)
    for layer in cache.layers if isinstance(cache, PreallocatedCache) else ():
        if layer.is_initialized:
            layer.keys[:, :, language_model.length :] = torch.nan
            layer.values[:, :, language_model.length :] = torch.nan


def sentence_of(error: BaseException) -> str:
    """The message of an error, once it is known to be one sentence that a reader can use."""
    text = str(error)
    assert text.endswith(".") and "\n" not in text and ". " not in text.replace("e.g. ", ""), text
    assert (
        text[0].isupper() or text[0].isdigit() or text.split()[0].rstrip(":") in KNOWN_FIRST_WORDS
    ), text
    return text


# Sentences may begin with the name of an argument.
KNOWN_FIRST_WORDS = (
    "gamma", "limit", "max_new_tokens", "max_length", "order", "record", "stop_strings",
    "stop_tokens", "temperature", "top_k", "top_p",
)  # fmt: skip


SAMPLINGS = {
    "plain": Sampling(),
    "cold": Sampling(0.3),
    "greedy": Sampling(0.0),
    "top-k, top-p": Sampling(0.8, 9, 0.9),
    "processors": Sampling(
        0.9, processors=(RepetitionPenaltyLogitsProcessor(1.4), NoRepeatNGramLogitsProcessor(3))
    ),
}
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)


class Changing:
    """A schedule that goes through a list of gammas and keeps what it was shown."""

    def __init__(self, *gammas):
        self.gammas, self.seen = gammas, []

    def next(self, stats):
        self.seen.append((stats.rounds, stats.emitted))
        return self.gammas[stats.rounds % len(self.gammas)]
