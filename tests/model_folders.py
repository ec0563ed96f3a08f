"""Model folders as they lie on a disk: tiny random models with tokenizers made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

SPECIAL = ("<unk>", "<s>", "</s>")
WORDS = (*SPECIAL, *(f"w{i}" for i in range(57)))  # 60 tokens
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} <turn>{% endfor %}"
    "{% if add_generation_prompt %} assistant{% endif %}"
)


def make_tokenizer(
    words: Sequence[str] = WORDS, lowercase: bool = False, template: str | None = None
) -> PreTrainedTokenizerFast:
    """Whole words as tokens, ids in the order of `words`; `<s>` is put before every text."""
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", ids["<s>"])]
    )
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    extra = [word for word in words if word.startswith("<") and word not in SPECIAL]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        additional_special_tokens=extra,
    )  # fmt: skip
    fast.chat_template = template
    return fast


def llama_config(rows: int, **options: object) -> LlamaConfig:
    sizes = {
        "vocab_size": rows, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
        "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return LlamaConfig(**(sizes | options))


def save_folder(
    folder: Path,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerFast | None = None,
    seed: int = 0,
) -> PreTrainedModel:
    """Save a random model of `config`, with a tokenizer of 60 words unless told otherwise."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    (tokenizer or make_tokenizer()).save_pretrained(folder)
    return model


def one_sentence(error: BaseException | str) -> str:
    """The text of an error, once it is known to be one line that ends like a sentence."""
    text = str(error)
    assert text and "\n" not in text and text.rstrip('"').endswith("."), text
    return text
