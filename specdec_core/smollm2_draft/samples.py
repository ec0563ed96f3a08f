"""Conversations that SmolLM2 writes itself: what its draft learns from.

Each shard is one batch, drawn from seeds of its own, so an interrupted run goes on where it was. A
draft meets the texts of every temperature, and those of a low one look unlike those of a high one.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from specdec_core.batch import autoregressive_decode_batch
from specdec_core.pairs import Pair
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.storyworld.training import save_whole

from .prompts import KINDS, request

BATCH = 96  # conversations in a shard
NEW_TOKENS = 220  # at most, in each
TEMPERATURES = (1.0, 0.0, 0.6)  # of the shards, in turn


def write_samples(pair: Pair, folder: Path, shards: int) -> None:
    """Shards 0 to `shards` - 1 in `folder`, as far as they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in tqdm(range(shards), unit="shard", desc="conversations"):
        path = shard_path(folder, number)
        if path.exists():
            continue
        save_whole(_shard(pair, number), path)


def temperature(path: Path) -> float:
    """At which the conversations of a shard were written."""
    return _temperature(int(path.stem.rpartition("-")[2]))


def _temperature(number: int) -> float:
    return TEMPERATURES[number % len(TEMPERATURES)]


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"conversations-{number:04}.safetensors"


def _shard(pair: Pair, number: int) -> dict[str, Tensor]:
    """tokens int32 [sum of lengths], lengths int32 [BATCH], answers int32 [BATCH]."""
    rng = random.Random(number)
    prompts = [pair.encode(request(rng, KINDS[i % len(KINDS)]), chat=True) for i in range(BATCH)]
    results = autoregressive_decode_batch(
        pair.target, prompts, sampling=Sampling(_temperature(number)),
        max_new_tokens=NEW_TOKENS, stop_tokens=pair.stop_tokens,
        randomness=[Seeded(number * BATCH + i) for i in range(BATCH)], record="stats",
    )  # fmt: skip
    texts = [[*prompt, *out.tokens] for prompt, out in zip(prompts, results, strict=True)]
    return {
        "tokens": torch.tensor([token for text in texts for token in text], dtype=torch.int32),
        "lengths": torch.tensor([len(text) for text in texts], dtype=torch.int32),
        "answers": torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int32),
    }
