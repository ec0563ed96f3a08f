"""What one forward costs, and how often it is paid: the measurements of chapter 01.

All times are wall-clock seconds; each run waits for its result, so a GPU is timed as a CPU is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from specdec_core.models import CausalLM, LanguageModel

COUNTS = (*range(1, 13), 16, 24, 32, 48, 64, 96, 128, 192, 256)


def greedy_without_cache(model: LanguageModel, prompt: Sequence[int], new_tokens: int) -> list[int]:
    """`new_tokens` most likely tokens; every forward reads the whole text again."""
    text = list(prompt)
    for _ in range(new_tokens):
        model.rollback(0)
        logits = model.forward(text, keep=1)
        text.append(int(logits[-1].argmax()))
    return text[len(prompt) :]


def greedy_with_cache(model: LanguageModel, prompt: Sequence[int], new_tokens: int) -> list[int]:
    """`new_tokens` most likely tokens; each forward reads only what the cache lacks."""
    model.rollback(0)
    tokens, unread = [], list(prompt)
    for _ in range(new_tokens):
        logits = model.forward(unread, keep=1)
        tokens.append(int(logits[-1].argmax()))
        unread = tokens[-1:]
    return tokens


def rows_fed(prompt_length: int, new_tokens: int, cached: bool) -> int:
    """Tokens a model reads, over all forwards, to write `new_tokens` after a prompt."""
    if cached:
        return prompt_length + new_tokens - 1
    return sum(prompt_length + written for written in range(new_tokens))


def fastest(
    runs: Mapping[object, tuple[Callable[[], object], Callable[[], object]]], repeats: int
) -> dict[object, float]:
    """Seconds of each run in its fastest turn; a run is (set up, what is timed).

    Other work on the machine can only add time, so the fastest turn says most about the run itself
    (as timeit's documentation advises). The runs take turns, so that none has the quiet minutes,
    forwards and backwards, so that none always follows one that empties the processor's cache.
    """
    seconds = dict.fromkeys(runs, math.inf)
    for turn in range(repeats):
        for name, (set_up, timed) in list(runs.items())[:: -1 if turn % 2 else 1]:
            set_up()
            started = time.perf_counter()
            timed()
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    return seconds


def forward_times(
    model: LanguageModel,
    text: Sequence[int],
    start: int,
    counts: Sequence[int] = COUNTS,
    repeats: int = 7,
) -> dict[int, float]:
    """Seconds of one forward over n tokens, for each n, with `start` rows in the cache before it.

    text: at least start + n tokens. All n rows of logits are computed, as a check of n needs them.
    """
    text = list(text)
    model.rollback(0)
    if start:
        model.forward(text[:start], keep=1)
    return fastest(
        {
            n: (
                lambda: model.rollback(start),
                lambda n=n: model.forward(text[start : start + n])[-1, -1].item(),
            )
            for n in counts
        },
        repeats,
    )


def next_token_times(
    model: LanguageModel, text: Sequence[int], lengths: Sequence[int], repeats: int = 5
) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds to compute what follows the first n tokens, for each n: with a cache, and without.

    With a cache, all but the last of the n tokens are in it already.
    """
    text, runs = list(text), {}
    for n in lengths:
        runs[n, "without"] = (
            lambda: model.rollback(0),
            lambda n=n: model.forward(text[:n], keep=1)[-1, -1].item(),
        )
        runs[n, "with"] = (  # in its turn, n rows or more of the text are there
            lambda n=n: model.rollback(n - 1),
            lambda n=n: model.forward(text[n - 1 : n], keep=1)[-1, -1].item(),
        )
    taken = fastest(runs, repeats)
    return tuple({n: taken[n, cache] for n in lengths} for cache in ("with", "without"))


def most_tokens(times: Mapping[int, float], limit: float = 2.0) -> int:
    """The largest n whose forward takes at most `limit` times as long as a forward over one."""
    return max(n for n, seconds in times.items() if seconds <= limit * times[1])


def disturbed(times: Mapping[int, float], share: float = 0.8) -> bool:
    """Whether a longer forward took less than `share` of the time of a shorter one.

    Reading more cannot be quicker, so other work must have slowed the shorter one down.
    """
    seconds = [times[n] for n in sorted(times)]
    return any(b < share * a for i, a in enumerate(seconds) for b in seconds[i + 1 :])


def machine_speed(size: int = 768, megabytes: int = 64) -> tuple[float, float]:
    """What the CPU can do with torch's threads as set: bytes read, float32 FLOPs, each a second.

    Bytes by a sum over more memory than a cache holds; operations by a product of two matrices.
    """
    memory = torch.ones(megabytes * 250_000)
    square = torch.ones(size, size)
    runs = {
        "read": (bool, lambda: memory.sum().item()),
        "multiply": (bool, lambda: square @ square),
    }
    taken = fastest(runs, repeats=5)
    return memory.nbytes / taken["read"], 2 * size**3 / taken["multiply"]


def flops_per_token(model: CausalLM) -> int:
    """Operations to push one token through every weight: a multiply and an add each.

    Attention over the cache comes on top, and grows with the text.
    """
    return 2 * sum(weight.numel() for weight in model.model.parameters())
