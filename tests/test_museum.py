"""Every mistake of the museum does exactly the damage it is said to do, and a check sees it.

The numbers on the right are worked out by hand or by a few lines of arithmetic here; the laws on
the left are those of the decoder that ran, by enumeration.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import (
    CausalLM,
    Draft,
    ModelDrafter,
    Randomness,
    Sampling,
    Scripted,
    Seeded,
    exact_law,
    largest_difference,
    marginal,
    total_variation,
    verify,
)
from specdec_core import decode as decode_module
from specdec_core.lab import museum
from specdec_core.lab.museum import MISTAKES, mean
from specdec_core.lab.museum.checks import accepted, first_round_length, wrong_rows
from specdec_core.lab.museum.sources import SOURCES, UNCITED
from specdec_core.lab.museum.verdicts import EPSILON

TOLERANCE = 1e-12
EXACT = [id for id, mistake in MISTAKES.items() if mistake.breaks in ("acceptance", "speed")]


def pairs(*probabilities: float) -> dict[tuple[int, ...], float]:
    """A law of two tokens out of 0 and 1, in the order 00, 01, 10, 11."""
    return dict(zip(product((0, 1), repeat=2), probabilities, strict=True))


def single(*probabilities: float) -> dict[tuple[int, ...], float]:
    return {(token,): probability for token, probability in enumerate(probabilities)}


def to_bfloat16(x: float) -> float:
    """Nearest number with 8 significant bits, ties to even."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 256) / 256, exponent)


def half_precision_law(p: float, q: float) -> dict[tuple[int, ...], float]:
    """M15's first token, two ids, p < q for the first: accepted by as many of the 256 coins."""
    p16, q16 = to_bfloat16(p), to_bfloat16(q)
    kept = sum(to_bfloat16(k / 256 * q16) < p16 for k in range(256)) / 256
    return single(q * kept, 1 - q * kept)


# After 0 the mistaken bonus row still bans the prompt's 2 instead of 0; after a rejection the next
# round begins with a right row. First token: p (5, 3, 0)/8, q (2, 5, 0)/7.
BAN_ONCE = {
    (0, 0): 2 / 7 * 5 / 8,
    (0, 1): 2 / 7 * 3 / 8 + 19 / 56 * 3 / 5,
    (0, 2): 19 / 56 * 2 / 5,
    (1, 0): 3 / 8 * 5 / 8,
    (1, 1): 3 / 8 * 3 / 8,
}
P3 = (0.5, 0.3, 0.2)

# id -> the law of the first tokens of its example.
DAMAGE = {
    "M1": single(0.72, 0.28),
    "M2": single(0.75, 0.25),
    "M3": single(0.6 + 0.2 / (1 + math.exp(0.2)), 0.2 + 0.2 / (1 + math.exp(-0.2))),
    "M4": single(0.29, 0.30, 0.41),
    "M5": single(1.0),
    "M6": pairs(0.36, 0.24, 0.16, 0.24),
    "M6b": pairs(0.44, 0.16, 0.16, 0.24),
    "M7": pairs(0.56, 0.04, 0.40, 0.0),
    "M8": pairs(0.48, 0.12, 0.28, 0.12),
    "M9": pairs(0.47, 0.13, 0.08, 0.32),
    "M10": single(0.36, 0.64),
    "M11": single(0.5, 0.5),
    "M12": single(8 / 15, 7 / 15),
    "M13": BAN_ONCE,
    "M14": single(0.48 / (0.8 + EPSILON), 1 - 0.48 / (0.8 + EPSILON)),
    "M15": half_precision_law(0.7, 0.9),
    "M17": {(a, b, c): P3[a] * P3[b] * P3[c] for a, b, c in product(range(3), repeat=3)},
    "M18": pairs(0.49, 0.31, 0.06, 0.14),
    "M18b": pairs(0.64, 0.16, 0.11, 0.09),
    "M18c": pairs(0.49, 0.31, 0.06, 0.14),
}
# id -> total variation from the right law of as many tokens, as the catalogue states it.
STATED = {
    "M1": 0.12, "M2": 0.15, "M3": 0.0900, "M4": 0.21, "M5": 0.4, "M6": 0.08, "M6b": 0.16,
    "M7": 0.36, "M8": 0.16, "M9": 0.07, "M10": 0.24, "M11": 0.1, "M12": 0.092, "M13": 0.319,
    "M14": 0.0, "M15": 0.0004, "M17": 0.75, "M18": 0.15, "M18b": 0.05, "M18c": 0.15,
}  # fmt: skip


def test_all_mistakes_are_on_show() -> None:
    assert {f"M{i}" for i in range(1, 24)} <= set(MISTAKES)
    assert set(DAMAGE) | {"M16", "M23b"} | set(EXACT) == set(MISTAKES)


def test_every_mistake_says_where_it_was_met() -> None:
    assert set(SOURCES) == set(MISTAKES)
    for id, mistake in MISTAKES.items():
        words, path = SOURCES[id]
        assert mistake.source == words
        assert mistake.link == (f"https://github.com/{path}" if path else "")
        assert bool(path) != words.endswith(UNCITED)


@pytest.mark.parametrize("id", DAMAGE)
def test_damage_is_exactly_as_stated(id: str) -> None:
    """The mistaken law, to 1e-12, and its distance from the right one, to the digits stated."""
    example, damage = MISTAKES[id].example, DAMAGE[id]
    length = max(len(tokens) for tokens in damage)
    wrong = marginal(example.law(id), length)
    assert largest_difference(wrong, damage) < TOLERANCE
    right = marginal(example.law(), length)
    assert total_variation(wrong, right) == pytest.approx(STATED[id], abs=5e-4)


@pytest.mark.parametrize("id", MISTAKES)
def test_the_checks_that_see_it(id: str) -> None:
    """Exactly the checks named in the catalogue see the mistake, and at least one does."""
    assert museum.seen_by(id) == MISTAKES[id].seen_by
    assert MISTAKES[id].seen_by


def test_first_token_tests_are_blind_to_half_of_the_law_breakers() -> None:
    law_breakers = {id for id, mistake in MISTAKES.items() if mistake.breaks == "law"}
    blind = {id for id in law_breakers if "first token" not in MISTAKES[id].seen_by}
    assert blind == {"M6", "M6b", "M7", "M8", "M9", "M13", "M18", "M18b", "M18c"}
    assert all("whole text" in MISTAKES[id].seen_by for id in law_breakers)


@pytest.mark.parametrize("id", MISTAKES)
def test_without_the_mistake_the_example_is_right(id: str) -> None:
    """Nothing is left behind: after a mistaken run the core's law is the table's again."""
    example = MISTAKES[id].example
    try:
        example.law(id)
    except ValueError:
        assert MISTAKES[id].breaks == "crash"
    right = example.law()
    first = Sampling(example.sampling.temperature, example.sampling.top_k).probs(
        torch.tensor([example.target(())], dtype=torch.float64).log()
    )[0]
    if example.sampling.processors:
        first = torch.tensor([5 / 8, 3 / 8, 0])
    assert largest_difference(marginal(right, 1), single(*first.tolist())) < TOLERANCE
    assert mean(example, None, wrong_rows) == 0


@pytest.mark.parametrize("id", EXACT)
def test_harmless_ones_leave_the_law_alone(id: str) -> None:
    example = MISTAKES[id].example
    assert largest_difference(example.law(id), example.law()) < TOLERANCE


@pytest.mark.parametrize(
    ("id", "wrong", "right"),
    [
        ("M19", 1.814, 1.904),
        ("M19b", 1.9, 2.0),
        ("M21", 1.6, 2.0),
        ("M22", 0.56, 0.8),
        ("M23", 0.4, 1.0),
    ],
)
def test_harmless_ones_cost_acceptance(id: str, wrong: float, right: float) -> None:
    """Expected number of accepted drafts in a run."""
    example = MISTAKES[id].example
    assert mean(example, id, accepted) == pytest.approx(wrong, abs=TOLERANCE)
    assert mean(example, None, accepted) == pytest.approx(right, abs=TOLERANCE)


def test_no_bonus_costs_a_token_a_round() -> None:
    example = MISTAKES["M20"].example
    assert mean(example, "M20", first_round_length) == pytest.approx(2, abs=TOLERANCE)
    assert mean(example, None, first_round_length) == pytest.approx(3, abs=TOLERANCE)


def test_wrongly_recorded_q_makes_acceptance_look_better() -> None:
    """M12: 1 instead of .908 for the one draft of the first round."""
    example = MISTAKES["M12"].example
    assert mean(example, "M12", accepted) == pytest.approx(1, abs=TOLERANCE)
    assert mean(example, None, accepted) == pytest.approx(8 / 15 + 3 / 8, abs=TOLERANCE)


def test_padded_vocabulary_is_no_reason_to_refuse() -> None:
    """M23b: with q = 0 past the draft's vocabulary the law is the target's, and .8 is accepted."""
    example = MISTAKES["M23b"].example
    with pytest.raises(ValueError, match="3 and 2 ids"):
        example.law("M23b")
    assert largest_difference(marginal(example.law(), 1), single(*P3)) < TOLERANCE
    assert mean(example, None, accepted) == pytest.approx(0.8, abs=TOLERANCE)


def test_wrong_numbering_is_harmless_to_the_law_wherever_the_text_leads() -> None:
    """M23 where every token matters, so that the draft also misreads the text."""
    example = replace(MISTAKES["M19"].example, tokens=4)
    assert largest_difference(example.law("M23"), example.law()) < TOLERANCE
    assert mean(example, "M23", accepted) < mean(example, None, accepted)


def test_epsilon_does_damage_of_its_own_size() -> None:
    example = MISTAKES["M14"].example
    assert museum.distance(example, "M14") == pytest.approx(0.75 * EPSILON, rel=1e-5)


def test_zero_residual_is_counted_where_the_mistake_breaks_off() -> None:
    """M16: p = q but for the last bit. The core draws from p and says so; 0 / 0 is NaN."""
    example = MISTAKES["M16"].example
    with pytest.raises(ValueError, match="NaN"):
        example.law("M16")
    counted = exact_law(lambda randomness: [example.run(randomness).stats.zero_residuals])
    assert 0 < counted[1,] < 1e-15
    assert largest_difference(marginal(example.law(), 1), single(0.6, 0.4)) < TOLERANCE

    p = torch.tensor([[0.6, 0.4], [0.6, 0.4]], dtype=torch.float64)
    q = torch.tensor([[math.nextafter(0.6, 1), 0.4]], dtype=torch.float64)
    verdict = verify(p, Draft(torch.tensor([0]), q), Scripted([1], [math.nextafter(1, 0)]))
    assert (verdict.accepted, verdict.token, verdict.zero_residual) == (0, 1, True)


def test_careless_ending_runs_past_max_new_tokens() -> None:
    """M17, its other half: no stop token at all, and 3 tokens where 2 were asked for."""
    example = replace(MISTAKES["M17"].example, stop_tokens=(), tokens=2)
    assert {len(tokens) for tokens in example.law("M17")} == {3}
    assert {len(tokens) for tokens in example.law()} == {2}


@pytest.mark.parametrize("id", [id for id in MISTAKES if id != "M23b"])  # it has no text
def test_a_mistake_can_be_sampled_as_well_as_enumerated(id: str) -> None:
    """With seeded randomness: it runs, and one seed gives one text."""
    example = MISTAKES[id].example
    texts = [[example.run(Seeded(seed), id).tokens for seed in range(20)] for _ in range(2)]
    assert texts[0] == texts[1]


def test_everything_is_put_back_after_an_error() -> None:
    example = MISTAKES["M5"].example
    verdict, ending = decode_module.verify, decode_module.Ending
    with pytest.raises(RuntimeError), museum.installed("M5", *example.models()):
        assert decode_module.verify is not verdict
        raise RuntimeError
    assert (decode_module.verify, decode_module.Ending) == (verdict, ending)
    with pytest.raises(ValueError, match="No mistake 'M99'"):
        museum.decode("M99", *example.models(), [0])


# The cache mistakes on a real transformer, where a stale row is a key and a value.


def tiny_llama(seed: int) -> CausalLM:
    """Random weights, two tokens, float64."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=2, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        initializer_range=0.5, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return CausalLM(LlamaForCausalLM(config).double())


@pytest.fixture(scope="module")
def transformers_pair() -> tuple[CausalLM, ModelDrafter]:
    return tiny_llama(0), ModelDrafter(tiny_llama(1))


@pytest.mark.parametrize(
    ("id", "gamma", "breaks"),
    [
        ("M18", 2, True),
        ("M18b", 2, True),
        ("M18c", 2, True),
        ("M19", 2, False),
        ("M19b", 1, False),
    ],
)
def test_cache_mistakes_on_a_transformer(
    transformers_pair: tuple, id: str, gamma: int, breaks: bool
) -> None:
    """A wrong target cache breaks the law, a wrong draft cache does not; both change acceptance."""

    def run(mistake: str | None, randomness: Randomness) -> list[int]:
        out = museum.decode(
            mistake, *transformers_pair, [0, 1], gamma=gamma, max_new_tokens=4,
            randomness=randomness,
        )  # fmt: skip
        return [*out.tokens, out.stats.accepted]

    wrong, right = (exact_law(lambda r, m=mistake: run(m, r)) for mistake in (id, None))
    difference = total_variation(marginal(wrong, 4), marginal(right, 4))
    assert difference > 1e-3 if breaks else difference < TOLERANCE
    assert total_variation(wrong, right) > 1e-3


def test_memory_grows_when_the_target_is_not_rolled_back(transformers_pair: tuple) -> None:
    """M18: one row for every rejected draft stays; without the mistake none does."""
    for mistake in (None, "M18"):
        out = museum.decode(
            mistake, *transformers_pair, [0, 1], gamma=2, max_new_tokens=24, randomness=Seeded(3)
        )
        surplus = out.trace.rounds[-1].target_length[1] - (2 + len(out.tokens) - 1)
        refused = sum(r.gamma - min(r.accepted, len(r.emitted)) for r in out.trace.rounds)
        assert refused > 5
        assert surplus == (refused if mistake else 0)
