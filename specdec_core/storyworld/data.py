"""Grammar text as token ids: fresh rows for training, whole documents for evaluation."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from .grammar import Text, sample
from .tokenizer import START, STOP, vocabulary


def token_ids() -> dict[str, int]:
    return {token: i for i, token in enumerate(vocabulary())}


def encode(text: Text, ids: dict[str, int]) -> list[int]:
    """Ids of one document, from the start token to the stop token."""
    return [ids[START], *(ids[word] for word in text.tokens), ids[STOP]]


def batches(
    seed: int, rows: int, length: int, skip: int = 0, kind: str | None = None
) -> Iterator[np.ndarray]:
    """Endless fresh batches, int64 [rows, length + 1]; document follows document in a row.

    kind: of the texts; None for all.

    Every row starts at the start of a document, as prompts do. Each batch has a seed of its own,
    so training resumes after `skip` batches with the very text it would have seen.
    """
    ids = token_ids()
    number = skip
    while True:
        rng = random.Random(f"{seed}/{number}")
        batch = np.empty((rows, length + 1), dtype=np.int64)
        for row in batch:
            flat: list[int] = []
            while len(flat) <= length:
                flat += encode(sample(rng, kind), ids)
            row[:] = flat[: length + 1]
        yield batch
        number += 1
