"""Time without trained weights: random models of any shape, and verdicts set by a coin.

How long a round takes depends on the shapes and on how many drafts are kept, not on what the
weights say. So a coin keeps each draft with the probability asked for, and a pair can be timed that
nobody has trained. The text means nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
)

from specdec_core.drafters import ModelDrafter
from specdec_core.lab.bench.plan import Subject
from specdec_core.lab.memory import cache_bytes, weight_bytes
from specdec_core.loading import parse_device, parse_dtype
from specdec_core.models import CausalLM
from specdec_core.randomness import Seeded
from specdec_core.storyworld import WEIGHTS

ROPE = {"rope_type": "default", "rope_theta": 1e6}
QWEN = {"max_position_embeddings": 32768, "rope_parameters": ROPE, "rms_norm_eps": 1e-6}
# Sizes as in the configs of Qwen2.5-7B and Qwen2.5-0.5B; their vocabularies differ by padding.
QWEN_7B = dict(
    QWEN, vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
    num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False,
)  # fmt: skip
QWEN_HALF_B = dict(
    QWEN, vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
    num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True,
)  # fmt: skip
SMALL = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip
SHAPES = ("7b/0.5b", "storyworld", "small")
# Weights from here on, in bytes, make a CPU take about a second and more for each token.
SLOW_ON_A_CPU = 4e9
MAX_LENGTH, PROMPT_LENGTH = 1024, 32


class CoinVerdicts(Seeded):
    """Keeps each draft with probability `acceptance`, whatever p and q say; draws as `Seeded`.

    Only for timing: the law of the text is not the target's.
    """

    def __init__(self, acceptance: float, seed: int | None = None) -> None:
        super().__init__(seed)
        self.acceptance = acceptance

    def first_rejection(self, target_prob: Tensor, draft_prob: Tensor) -> Tensor:
        alpha = torch.full_like(target_prob, self.acceptance, dtype=torch.float64)
        return super().first_rejection(alpha, torch.ones_like(alpha))


def configs(shape: str) -> tuple[PretrainedConfig, PretrainedConfig]:
    """Configs of target and draft. Raises ValueError for a shape that is not there."""
    if shape == "7b/0.5b":
        return Qwen2Config(**QWEN_7B), Qwen2Config(**QWEN_HALF_B)
    if shape == "storyworld":
        return tuple(_config_of(WEIGHTS / part) for part in ("target", "default"))
    if shape == "small":
        return LlamaConfig(**SMALL, num_hidden_layers=4), LlamaConfig(**SMALL, num_hidden_layers=1)
    raise ValueError(f"There is no shape {shape!r}: choose {', '.join(SHAPES)}.")


def _config_of(folder: Path) -> PretrainedConfig:
    return AutoConfig.from_pretrained(folder, local_files_only=True)


def random_pair(
    shape: str, device: str | torch.device, dtype: str | torch.dtype, max_length: int
) -> tuple[CausalLM, ModelDrafter]:
    """Target and drafter of a shape with random weights, made on the device.

    max_length: rows of both caches. Raises ValueError, before anything is allocated, where the
    device has less memory than weights and caches need.
    """
    device, dtype = parse_device(device), parse_dtype(dtype)
    pair = configs(shape)
    _check_memory(shape, needed_bytes(pair, dtype, max_length), device, dtype)
    target, draft = (_random_model(config, device, dtype, max_length) for config in pair)
    return target, ModelDrafter(draft, vocab_size=target.vocab_size)


def _random_model(
    config: PretrainedConfig, device: torch.device, dtype: torch.dtype, max_length: int
) -> CausalLM:
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.generation_config.eos_token_id = None  # else transformers would stop at some random id
    return CausalLM(model, max_length=max_length)


def needed_bytes(pair: tuple[PretrainedConfig, ...], dtype: torch.dtype, max_length: int) -> int:
    """Weights and caches of both models, as the memory bill predicts them."""
    return sum(
        weight_bytes(config, dtype) + cache_bytes(config, max_length, dtype) for config in pair
    )


def coin_subject(
    shape: str, acceptance: float, device: str, dtype: str, max_length: int | None = None
) -> Subject:
    """Random models of a shape whose drafts a coin keeps, with prompts of random tokens."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"--acceptance must lie in 0 to 1, not {acceptance}.")
    target, drafter = random_pair(shape, device, dtype, max_length or MAX_LENGTH)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(target.vocab_size, (4, PROMPT_LENGTH), generator=generator).tolist()
    notes = [
        f"random weights of the shape {shape}; a coin keeps each draft with probability "
        f"{acceptance:g}",
        "peers that judge drafts themselves cannot follow a coin, so they are left out",
    ]
    slow = slow_warning(shape, target.device, target.dtype)
    return Subject(
        f"{shape}, random weights", target, {"draft": drafter}, {"random text": prompts},
        randomness=lambda seed: CoinVerdicts(acceptance, seed), coin=acceptance,
        notes=notes + [slow] * (slow is not None),
    )  # fmt: skip


def slow_warning(shape: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """A sentence where a run is possible but hopeless: large weights, read for each token, on a
    CPU."""
    weights = weight_bytes(configs(shape)[0], dtype)
    if device.type != "cpu" or weights < SLOW_ON_A_CPU:
        return None
    return (
        f"Each token reads {weights / 1e9:.0f} GB of weights: on a CPU expect seconds a token, "
        "and lower --repeats and --max-new-tokens."
    )


def _check_memory(shape: str, needed: int, device: torch.device, dtype: torch.dtype) -> None:
    free = free_bytes(device)
    if free is not None and needed > free:
        name = str(dtype).removeprefix("torch.")
        raise ValueError(
            f"The {shape} pair needs about {needed / 1e9:.1f} GB in {name}, and {device} has "
            f"{free / 1e9:.1f} GB free: use a smaller dtype, another device or another shape."
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that is free on a device; None where this system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None
