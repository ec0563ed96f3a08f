"""Conversations that SmolLM2 writes itself, at temperature 1: what its draft learns from.

Each shard is one batch, drawn from seeds of its own, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from specdec_core.batch import autoregressive_decode_batch
from specdec_core.pairs import Pair
from specdec_core.randomness import Seeded

from .prompts import KINDS, request

BATCH = 96  # conversations in a shard
NEW_TOKENS = 220  # at most, in each


class Conversation(NamedTuple):
    """tokens: int64 [n], the request in its chat template and the answer. answer: where it begins."""

    tokens: Tensor
    answer: int


def write_samples(pair: Pair, folder: Path, shards: int) -> None:
    """Shards 0 to `shards` - 1 in `folder`, as far as they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in tqdm(range(shards), unit="shard", desc="conversations"):
        path = shard_path(folder, number)
        if path.exists():
            continue
        unfinished = path.with_suffix(".unfinished")
        save_file(_shard(pair, number), unfinished)
        unfinished.replace(path)


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"conversations-{number:04}.safetensors"


def _shard(pair: Pair, number: int) -> dict[str, Tensor]:
    """tokens int32 [sum of lengths], lengths int32 [BATCH], answers int32 [BATCH]."""
    rng = random.Random(number)
    prompts = [pair.encode(request(rng, KINDS[i % len(KINDS)]), chat=True) for i in range(BATCH)]
    results = autoregressive_decode_batch(
        pair.target, prompts, max_new_tokens=NEW_TOKENS, stop_tokens=pair.stop_tokens,
        randomness=[Seeded(number * BATCH + i) for i in range(BATCH)], record="stats",
    )  # fmt: skip
    texts = [[*prompt, *out.tokens] for prompt, out in zip(prompts, results, strict=True)]
    return {
        "tokens": torch.tensor([token for text in texts for token in text], dtype=torch.int32),
        "lengths": torch.tensor([len(text) for text in texts], dtype=torch.int32),
        "answers": torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int32),
    }


def read_samples(folder: Path) -> Iterator[Conversation]:
    """Every conversation in `folder`, shard by shard."""
    for path in sorted(folder.glob("conversations-*.safetensors")):
        shard = load_file(path)
        texts = shard["tokens"].long().split(shard["lengths"].tolist())
        for text, answer in zip(texts, shard["answers"].tolist(), strict=True):
            yield Conversation(text, answer)
