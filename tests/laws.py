"""The law of a real model small enough to enumerate, and of any drafter in front of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from tiny import SIZES, uncached_logits
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, Sampling, exact_law, largest_difference, speculative_decode
from specdec_core.exact import Law

TOLERANCE = 1e-12
VOCAB = 3
PROMPT = (0, 2, 1, 0)
TOKENS = 3


class NotTwice:
    """A grammar in small: no token twice in a row. Reads the prefix, so it must see each one."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.scatter(-1, input_ids[:, -1:], -torch.inf)


PLAIN = Sampling()
GRAMMAR = Sampling(processors=(NotTwice(),))
# name -> how to decode: what shapes either side, what ends the text, and how it begins.
WAYS: dict[str, dict] = {
    "plain": {},
    "one token to start from": {"prompt": (1,)},
    "a stop": {"stop_tokens": (1,)},
    "top-k of the draft": {"draft_sampling": Sampling(1.0, top_k=2)},
    "top-k of the target": {"sampling": Sampling(0.7, top_k=2), "draft_sampling": Sampling()},
    "a grammar": {"sampling": GRAMMAR, "prompt": (1,)},
    "a grammar of the draft": {"sampling": Sampling(), "draft_sampling": GRAMMAR},
    "a grammar of the target": {"sampling": GRAMMAR, "draft_sampling": Sampling(1.3)},
}


def tiny_llama(layers: int = 3, vocab: int = VOCAB, seed: int = 0) -> LlamaForCausalLM:
    """A random model in float64 whose every weight does something."""
    torch.manual_seed(seed)
    sizes = {**SIZES, "hidden_size": 16, "num_hidden_layers": layers, "vocab_size": vocab}
    module = LlamaForCausalLM(LlamaConfig(**{**sizes, "max_position_embeddings": 32})).double()
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return module.eval()


def law_by_hand(
    target: CausalLM, prompt: Sequence[int], tokens: int, sampling: Sampling, stops: Sequence[int]
) -> Law:
    """The target's law by recursion over the library's own forward, with no cache."""

    @cache
    def row(text: tuple[int, ...]) -> list[float]:
        logits = uncached_logits(target, text)[-1:]
        return sampling.probs(logits, torch.tensor(text))[0].tolist()

    law: Law = {}

    def grow(new: tuple[int, ...], reach: float) -> None:
        if len(new) == tokens or (new and new[-1] in stops):
            law[new] = reach
            return
        for token, p in enumerate(row((*prompt, *new))):
            if p > 0:
                grow((*new, token), reach * p)

    grow((), 1.0)
    return law


def bias(
    target: CausalLM,
    drafter: object,
    gamma: object,
    prompt: Sequence[int] = PROMPT,
    tokens: int = TOKENS,
    sampling: Sampling = PLAIN,
    stop_tokens: Sequence[int] = (),
    check: Callable[[object], None] = lambda result: None,
    **options: object,
) -> float:
    """Largest difference between the decoder's law, path by path, and the target's.

    check: is shown the result of every path.
    """

    def run(randomness: object) -> list[int]:
        out = speculative_decode(
            target, drafter, prompt, gamma=gamma, sampling=sampling, max_new_tokens=tokens,
            stop_tokens=stop_tokens, randomness=randomness, **options,
        )  # fmt: skip
        check(out)
        return out.tokens

    expected = law_by_hand(target, prompt, tokens, sampling, stop_tokens)
    return largest_difference(exact_law(run), expected)
