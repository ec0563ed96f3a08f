"""Every drafter bundled for the storyworld target leaves its law as it is.

Exactly, by visiting every outcome of the real decode loop over the real weights; and by sampling
as one would do it elsewhere, at a stated level and with a stated power.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from unittest import mock

import pytest

from specdec_core import (
    LookupDrafter,
    LookupElse,
    ModelDrafter,
    Randomness,
    Result,
    Sampling,
    Seeded,
    autoregressive_decode,
    exact_law,
    largest_difference,
    load_pair,
    speculative_decode,
)
from specdec_core.exact import Law
from specdec_core.lab.law_check import check_law, sample, samples_needed
from specdec_core.pairs import Pair

# The function `verify` hides the module of that name in the package.
core_verify = import_module("specdec_core.verify")

TOLERANCE = 1e-12
LEVEL, POWER = 1e-4, 0.99  # false alarms, were the seed not fixed; mistakes caught
MOST = 400  # samples a check may need
STORY, RECIPE, CODE = "Once upon a time, there was a", "Recipe: soup with", "def add("
# Where the draft is judged both ways, and look-up finds words that stood there before.
PROMPTS = {
    "distilled": STORY + " dragon. The",
    "mismatched": RECIPE,
    "lookup": "def add(a, b):\n    total = a + b\n    return total\n\ndef add(",
    "exit": STORY + " fox named Tim. One day,",
    "medusa": CODE,
    "look-up, else distilled": "def add(a, b):\n    total = a + b\n    return total\n\ndef add(",
    "distilled, until it is unsure": STORY + " dragon. The",
}
# Far apart, so that drafts are rejected often however well the draft fits, and mistakes show.
WARM, COLD = Sampling(2.0, top_k=2), Sampling(0.1, top_k=2)
# These two are never right when they are so sure.
COOL = dict.fromkeys(("mismatched", "medusa"), Sampling(0.3, top_k=2))


@pytest.fixture(scope="module")
def pair() -> Pair:
    """With two drafters more, made of those that are bundled."""
    pair = load_pair("storyworld", dtype="float64")
    distilled, vocab = pair.drafters["distilled"], pair.target.vocab_size
    both = LookupElse(LookupDrafter(vocab, 3, 2), distilled)
    stopping = ModelDrafter(distilled.model, vocab, stop_below=0.9)
    pair.drafters |= {
        "look-up, else distilled": both, "distilled, until it is unsure": stopping,
    }  # fmt: skip
    return pair


def writer(pair: Pair, name: str, tokens: int, stats: Counter) -> Callable:
    """Randomness -> the tokens written after the drafter's prompt."""
    prompt = pair.encode(PROMPTS[name])

    def write(randomness: Randomness) -> Sequence[int]:
        run = speculative_decode(
            pair.target, pair.drafters[name], prompt, gamma=2, sampling=WARM,
            draft_sampling=COOL.get(name, COLD), max_new_tokens=tokens, randomness=randomness,
        )  # fmt: skip
        stats.update(accepted=run.stats.accepted, rejected=run.stats.rejected)
        return run.tokens

    return write


def plain_law(pair: Pair, name: str, tokens: int) -> Law:
    """The target's law after the drafter's prompt, by plain decoding with every choice visited."""
    return exact_law(
        lambda randomness: autoregressive_decode(
            pair.target, pair.encode(PROMPTS[name]), sampling=WARM, max_new_tokens=tokens,
            randomness=randomness,
        ).tokens
    )  # fmt: skip


def mistaken():
    """M1 of the museum, resampling from p after a rejection, put into the core."""
    return mock.patch.object(core_verify, "residual_weights", lambda p, q: p)


@pytest.mark.parametrize("name", PROMPTS)
def test_exact_law(pair: Pair, name: str) -> None:
    stats: Counter = Counter()
    law = exact_law(writer(pair, name, 3, stats))
    assert largest_difference(law, plain_law(pair, name, 3)) <= TOLERANCE
    assert stats["accepted"] and stats["rejected"], "this drafter had no say"


@pytest.mark.parametrize("name", PROMPTS)
def test_sampled_law(pair: Pair, name: str) -> None:
    """Two tokens, as many samples as M1 needs to be caught with power .99."""
    right, write = plain_law(pair, name, 2), writer(pair, name, 2, Counter())
    with mistaken():
        wrong = exact_law(write)
    samples = samples_needed(right, wrong, LEVEL, POWER)
    assert samples <= MOST
    assert check_law(sample(write, samples, seed=7), right).passes(LEVEL)
    if name == "medusa":
        with mistaken():
            assert not check_law(sample(write, samples, seed=7), right).passes(LEVEL)


@pytest.fixture(scope="module")
def fast() -> Pair:
    return load_pair("storyworld")


def decode(pair: Pair, target, name: str, text: str, **options) -> Result:
    return speculative_decode(
        target, pair.drafters[name], pair.encode(text), gamma=4, max_new_tokens=100,
        randomness=Seeded(2), stop_tokens=pair.stop_tokens, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "least", "most"),
    [
        ("distilled", STORY, 0.88, 1.0), ("distilled", RECIPE, 0.90, 1.0),
        ("distilled", CODE, 0.93, 1.0), ("exit", STORY, 0.90, 1.0),
        ("mismatched", STORY, 0.0, 0.15), ("mismatched", RECIPE, 0.75, 1.0),
        ("medusa", CODE, 0.4, 1.0), ("medusa", STORY, 0.2, 0.9),
    ],
)  # fmt: skip
def test_acceptance_in_decoding(fast: Pair, name: str, text: str, least: float, most: float):
    """About 100 judged drafts each, with room for their scatter around the card's rates."""
    assert least <= decode(fast, fast.target, name, text).stats.acceptance_rate <= most


def test_a_distilled_draft_drafts_for_another_target(fast: Pair) -> None:
    """`strong` as the target: a worse fit, and its own greedy text all the same."""
    other, greedy = fast.drafters["strong"].model.fresh(), Sampling(temperature=0)
    plain = autoregressive_decode(
        other, fast.encode(STORY), sampling=greedy, max_new_tokens=100,
        stop_tokens=fast.stop_tokens,
    )  # fmt: skip
    drafted = decode(fast, other, "distilled", STORY, sampling=greedy)
    assert drafted.tokens == plain.tokens
