"""Every drafter before the bundled target, with its real caches: exactly, and by sampling.

Exactly, and then the drawing of a rejected token's place from p (M1) is seen too. By sampling, at a
false-alarm level stated beforehand. Norms and heads are untrained here: what a draft is worth never
changes the law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from unittest import mock

import pytest
import torch

from specdec_core import (
    EarlyExitModel,
    LookupDrafter,
    LookupElse,
    MedusaDrafter,
    MedusaHeads,
    ModelDrafter,
    Randomness,
    Sampling,
    ShortHead,
    autoregressive_decode,
    exact_law,
    largest_difference,
    speculative_decode,
)
from specdec_core.exact import Law
from specdec_core.lab.law_check import check_law, sample
from specdec_core.models import CausalLM
from specdec_core.pairs import Pair, load_pair

TOLERANCE = 1e-12
LEVEL = 1e-4
SAMPLES = 300
PROMPT = (
    "Once upon a time, there was a goat named Nora. "
    "She loved to climb every day. She loved to climb every"
)
SAMPLING = Sampling(top_k=2)

# The function `verify` hides the module of that name in the package.
core_verify = import_module("specdec_core.verify")


def early_exit(pair: Pair) -> ModelDrafter:
    return ModelDrafter(EarlyExitModel(pair.target, 4))


def confidence_stop(pair: Pair) -> ModelDrafter:
    return ModelDrafter(pair.drafter.model, pair.target.vocab_size, stop_below=0.5)


def medusa(pair: Pair) -> MedusaDrafter:
    width = pair.target.own.norm.shape[0]
    torch.manual_seed(0)
    weight = 0.02 * torch.randn(3, width, width, dtype=torch.float64)
    return MedusaDrafter(pair.target, MedusaHeads(weight, torch.zeros(3, width).double()))


def lookup(pair: Pair) -> LookupDrafter:
    return LookupDrafter(pair.target.vocab_size)


def lookup_else_early_exit(pair: Pair) -> LookupElse:
    return LookupElse(LookupDrafter(pair.target.vocab_size, 2, 2), early_exit(pair))


def short_head(pair: Pair) -> ModelDrafter:
    """The draft model with a head for every other id."""
    module = load_pair("storyworld", dtype="float64").drafter.model.model
    ids = torch.arange(0, pair.target.vocab_size, 2)
    module.lm_head = ShortHead(module.lm_head.weight.detach()[ids], ids, pair.target.vocab_size)
    return ModelDrafter(CausalLM(module))


DRAFTERS = (early_exit, confidence_stop, medusa, lookup, lookup_else_early_exit, short_head)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair("storyworld", dtype="float64")


@pytest.fixture(scope="module")
def right(pair: Pair) -> Law:
    prompt = pair.encode(PROMPT)

    def plain(randomness: Randomness) -> Sequence[int]:
        return autoregressive_decode(
            pair.target, prompt, sampling=SAMPLING, max_new_tokens=3, randomness=randomness
        ).tokens

    return exact_law(plain)


def decoder(pair: Pair, drafter: object) -> Callable[[Randomness], Sequence[int]]:
    prompt = pair.encode(PROMPT)

    def run(randomness: Randomness) -> Sequence[int]:
        out = speculative_decode(
            pair.target, drafter, prompt, gamma=2, sampling=SAMPLING, max_new_tokens=3,
            randomness=randomness,
        )  # fmt: skip
        assert out.stats.drafted
        return out.tokens

    return run


@pytest.mark.parametrize("build", DRAFTERS, ids=lambda build: build.__name__)
def test_the_law_before_the_bundled_target(
    pair: Pair, right: Law, build: Callable[[Pair], object]
) -> None:
    run = decoder(pair, build(pair))
    assert largest_difference(exact_law(run), right) < TOLERANCE
    if build is medusa:  # untrained heads guess what p rules out: the residual is p itself
        return
    with mock.patch.object(core_verify, "residual_weights", lambda p, q: p):
        assert largest_difference(exact_law(run), right) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("build", DRAFTERS, ids=lambda build: build.__name__)
def test_texts_drawn_before_the_bundled_target(
    pair: Pair, right: Law, build: Callable[[Pair], object]
) -> None:
    check = check_law(sample(decoder(pair, build(pair)), SAMPLES, seed=0), right)
    assert check.passes(LEVEL)
