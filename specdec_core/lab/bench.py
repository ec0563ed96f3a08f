"""Speed, measured fairly: every row in one run, interleaved, with medians and spread.

All methods continue the same prompts with the same sampling; tokens are counted by one counter, up
to and including the stop token. Run it with `python -m specdec_core.lab.bench`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from transformers import GenerationConfig

from specdec_core.decode import autoregressive_decode, speculative_decode
from specdec_core.drafters import ModelDrafter
from specdec_core.lab.measure import draft_network
from specdec_core.models import CausalLM
from specdec_core.pairs import Pair, load_pair
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.trace import Trace

PROMPTS = {
    "story": "Once upon a time, there was a",
    "recipe": "Recipe: soup with",
    "code": "def add(",
}


@dataclass
class Row:
    """One method: tokens and seconds of each repeat."""

    name: str
    run: Callable[[int], int]
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def measure(self, seed: int) -> None:
        """One repeat; `run` takes a seed and returns how many tokens it made."""
        started = time.perf_counter()
        self.tokens.append(self.run(seed))
        self.seconds.append(time.perf_counter() - started)

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repeat."""
        return [n / s for n, s in zip(self.tokens, self.seconds, strict=True)]


def count_tokens(tokens: list[int], stop_tokens: tuple[int, ...]) -> int:
    """Tokens up to and including the first stop token: the one counter for every method."""
    ends = [i + 1 for i, token in enumerate(tokens) if token in stop_tokens]
    return min(ends, default=len(tokens))


def interleave(rows: list[Row], repeats: int) -> None:
    """Measure all rows once a repeat, each repeat with its own seed, after one unmeasured one."""
    for row in rows:
        row.run(0)
    for repeat in range(repeats):
        for row in rows[repeat % len(rows) :] + rows[: repeat % len(rows)]:
            row.measure(repeat + 1)


def library_row(
    name: str, pair: Pair, prompt: list[int], options: dict, assistant: CausalLM | None = None
) -> Row:
    """A row that calls transformers' own `generate`, with `assistant` where one is given."""
    ids = torch.tensor([prompt], device=pair.target.device)
    extra = {} if assistant is None else {"assistant_model": assistant.model}

    def run(seed: int) -> int:
        torch.manual_seed(seed)
        out = pair.target.model.generate(
            ids, attention_mask=torch.ones_like(ids), **extra,
            generation_config=GenerationConfig(**options),
        )  # fmt: skip
        return count_tokens(out[0, len(prompt) :].tolist(), tuple(pair.stop_tokens))

    return Row(name, run)


def set_up_assistant(assistant: CausalLM, gamma: int) -> None:
    """The same gamma each round: no confidence threshold, no schedule."""
    config = assistant.model.generation_config
    config.num_assistant_tokens = gamma
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0


def make_rows(pair: Pair, prompt: list[int], gamma: int, temperature: float, length: int):
    """All methods of the comparison on one prompt."""
    sampling = Sampling(temperature=temperature)
    ours = {"sampling": sampling, "max_new_tokens": length, "stop_tokens": pair.stop_tokens}
    greedy = {"do_sample": False} if temperature == 0 else {
        "do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0,
    }  # fmt: skip
    stop = list(pair.stop_tokens)
    options = {**greedy, "max_new_tokens": length, "eos_token_id": stop, "pad_token_id": stop[0]}

    def plain(seed: int) -> int:
        out = autoregressive_decode(pair.target, prompt, randomness=Seeded(seed), **ours)
        return len(out.tokens)

    def speculative(drafter) -> Callable[[int], int]:
        def run(seed: int) -> int:
            out = speculative_decode(
                pair.target, drafter, prompt, gamma=gamma, randomness=Seeded(seed), **ours
            )
            return len(out.tokens)

        return run

    rows = [Row("plain", plain), library_row("transformers generate", pair, prompt, options)]
    for name, drafter in pair.drafters.items():
        rows.append(Row(f"speculative, {name}", speculative(drafter)))
        assistant = draft_network(drafter)
        if assistant is not None:
            set_up_assistant(assistant, gamma)
            label = f"transformers assisted, {name}"
            rows.append(library_row(label, pair, prompt, options, assistant))
    return rows


def bare_forwards(pair: Pair, drafter: ModelDrafter, trace: Trace) -> float:
    """Seconds of the forwards of a recorded run, same shapes and cache lengths, nothing else."""
    target, draft = pair.target, drafter.model
    text = list(trace.prompt)
    started = time.perf_counter()
    target.rollback(0)
    draft.rollback(0)
    target.forward(text[:-1], keep=1)
    for round in trace.rounds:
        target.rollback(round.target_length[0])
        draft.rollback(round.draft_length[0])
        feed = text[round.draft_length[0] :]
        for token in round.drafted:
            draft.forward(feed, keep=1)
            feed = [token]
        target.forward([text[-1], *round.drafted])
        text += round.emitted
    return time.perf_counter() - started


def loop_efficiency(pair: Pair, drafter: ModelDrafter, prompt: list[int], gamma: int,
                    length: int, repeats: int) -> list[float]:  # fmt: skip
    """Bare forwards over wall time, one value a repeat, both timed back to back."""
    values = []
    for seed in range(repeats + 1):
        started = time.perf_counter()
        out = speculative_decode(
            pair.target, drafter, prompt, gamma=gamma, max_new_tokens=length,
            stop_tokens=pair.stop_tokens, randomness=Seeded(seed),
        )  # fmt: skip
        wall = time.perf_counter() - started
        values.append(bare_forwards(pair, drafter, out.trace) / wall)
    return values[1:]


def report(kind: str, rows: list[Row]) -> dict:
    """Print one table, ratios to our plain decoding in the same repeat; returns its numbers."""
    print(f"\n{kind}: tokens per second, and how many times plain (median, min to max)")
    base, table = rows[0].rates, {}
    for row in rows:
        ratios = [rate / b for rate, b in zip(row.rates, base, strict=True)]
        middle = statistics.median(ratios)
        speed = statistics.median(row.rates)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"  {row.name:34} {speed:8.0f}   {middle:5.2f}x  ({spread})")
        table[row.name] = {"tokens_per_second": row.rates, "times_plain": ratios}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare decoding methods in one run.")
    parser.add_argument("--pair", default="storyworld")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-new-tokens", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="also write all numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pair = load_pair(options.pair)
    numbers = {}
    for kind, text in PROMPTS.items():
        prompt = pair.encode(text)
        rows = make_rows(pair, prompt, options.gamma, options.temperature, options.max_new_tokens)
        interleave(rows, options.repeats)
        numbers[kind] = report(kind, rows)
    for name, drafter in pair.drafters.items():
        if draft_network(drafter) is not None:
            values = loop_efficiency(
                pair, drafter, pair.encode(PROMPTS["story"]), options.gamma,
                options.max_new_tokens, options.repeats,
            )  # fmt: skip
            print(f"loop efficiency, {name}: {statistics.median(values):.3f} "
                  f"({min(values):.3f} to {max(values):.3f})")  # fmt: skip
            numbers[f"loop_efficiency_{name}"] = values
    if options.json:
        with open(options.json, "w") as file:
            json.dump(numbers, file, indent=1)


if __name__ == "__main__":
    main()
