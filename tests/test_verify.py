"""The token rule: by hand, by enumeration, over a batch, and where numbers are extreme."""

import math

import pytest
import torch
from tiny import sentence_of

from specdec_core import Draft, Enumerated, Scripted, Seeded, verify
from specdec_core.randomness import inverse_cdf, judge
from specdec_core.verify import residual_weights

LARGEST = math.nextafter(1.0, 0.0)


def distribution(*shape, generator=None, zeros=0.0):
    weights = torch.rand(*shape, dtype=torch.float64, generator=generator) ** 3
    weights[..., :-1][torch.rand(*shape, generator=generator)[..., :-1] < zeros] = 0
    return weights / weights.sum(-1, keepdim=True)


def draft_of(tokens, *rows, dtype=torch.float64):
    return Draft(torch.tensor(tokens), torch.tensor(rows, dtype=dtype))


def outcomes(target_probs, draft):
    """(accepted, token) -> probability, over every choice of one verification."""
    path, law = [], {}
    while path is not None:
        enumerated = Enumerated(path)
        verdict = verify(target_probs, draft, enumerated)
        key = verdict.accepted.item(), verdict.token.item()
        law[key] = law.get(key, 0.0) + enumerated.probability
        path = enumerated.next_path()
    return law


P = torch.tensor([[0.6, 0.4], [0.3, 0.7]], dtype=torch.float64)
Q = [0.8, 0.2]


def test_the_example_of_the_theory_page():
    """p = (.6, .4), q = (.8, .2): accept .75 and 1, residual (0, 1); the bonus comes from p."""
    first = outcomes(P, draft_of([0], Q))
    assert first == pytest.approx({(0, 1): 0.25, (1, 0): 0.75 * 0.3, (1, 1): 0.75 * 0.7})
    assert outcomes(P, draft_of([1], Q)) == pytest.approx({(1, 0): 0.3, (1, 1): 0.7})
    residual = residual_weights(P[0], torch.tensor(Q, dtype=torch.float64))
    assert (residual / residual.sum()).tolist() == [0.0, 1.0]


def test_the_coin_decides_at_three_quarters():
    for coin, accepted in ((0.0, 1), (0.75 - 1e-12, 1), (0.75 + 1e-12, 0), (LARGEST, 0)):
        verdict = verify(P, draft_of([0], Q), Scripted([1], [coin]))
        assert verdict.accepted == accepted
        assert verdict.coins.tolist() == [coin]
        assert verdict.target_prob.tolist() == [0.6] and verdict.draft_prob.tolist() == [0.8]
        assert verdict.residual_mass.item() == pytest.approx(1.0 if accepted else 0.2)
        assert not verdict.zero_residual


def test_gamma_zero_draws_one_token_from_p():
    nothing = Draft(torch.empty(0, dtype=torch.int64), torch.empty(0, 2))
    assert outcomes(P[:1], nothing) == pytest.approx({(0, 0): 0.6, (0, 1): 0.4})


def test_a_one_hot_pair_is_greedy_matching():
    one_hot = torch.eye(3, dtype=torch.float64)
    p = one_hot[[2, 0, 1]]
    assert outcomes(p, draft_of([2, 0], *one_hot[[2, 0]].tolist())) == {(2, 1): 1.0}
    assert outcomes(p, draft_of([2, 1], *one_hot[[2, 1]].tolist())) == {(1, 0): 1.0}


def test_nothing_after_a_rejection_counts():
    p = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert outcomes(p, draft_of([0, 0], [1.0, 0.0], [1.0, 0.0])) == {(0, 1): 1.0}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("vocab", [2, 3, 7])
def test_acceptance_is_exactly_the_sum_of_min_p_q_and_the_first_token_has_law_p(vocab, seed):
    generator = torch.Generator().manual_seed(seed)
    p = distribution(2, vocab, generator=generator, zeros=0.3)
    q = distribution(vocab, generator=generator, zeros=0.3)
    accepted, law = 0.0, torch.zeros(vocab, dtype=torch.float64)
    for x in range(vocab):
        if q[x] > 0:
            for (n, token), probability in outcomes(p, Draft(torch.tensor([x]), q[None])).items():
                accepted += q[x].item() * probability * n
                law[x if n else token] += q[x] * probability
    assert accepted == pytest.approx(torch.minimum(p[0], q).sum().item(), abs=1e-14)
    assert torch.allclose(law, p[0], rtol=0, atol=1e-14)


def test_the_corrected_token_comes_from_the_normalised_residual():
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=torch.float64)
    law = outcomes(p, draft_of([1], [0.2, 0.5, 0.3]))
    assert law == pytest.approx(
        {(0, 0): 0.4, (1, 0): 0.6 * 0.1, (1, 1): 0.6 * 0.2, (1, 2): 0.6 * 0.7}
    )


class Columns:
    """Uniforms given beforehand, one tensor a call; each row of a batch has its own."""

    def __init__(self, coins, u):
        self.given, self.u, self.coins = coins, u, None

    def first_rejection(self, target_prob, draft_prob):
        self.coins = self.given
        return judge(self.given, target_prob, draft_prob)

    def categorical(self, probs):
        return inverse_cdf(probs, self.u)


@pytest.mark.parametrize("gamma", [0, 1, 4])
@pytest.mark.parametrize("smaller", [0, 3])
def test_a_batch_equals_a_loop_over_its_rows(gamma, smaller):
    batch, vocab = 64, 9
    p = distribution(batch, gamma + 1, vocab, zeros=0.2)
    q = (p[:, :gamma] + 0.1 * distribution(batch, gamma, vocab))[..., : vocab - smaller]
    q = q / q.sum(-1, keepdim=True)
    tokens = inverse_cdf(q, torch.rand(batch, gamma, dtype=torch.float64))
    coins = torch.rand(batch, gamma, dtype=torch.float64)
    u = torch.rand(batch, dtype=torch.float64)
    together = verify(p, Draft(tokens, q), Columns(coins, u))
    alone = [verify(p[i], Draft(tokens[i], q[i]), Columns(coins[i], u[i])) for i in range(batch)]
    for name, whole in together._asdict().items():
        assert torch.equal(whole, torch.stack([getattr(row, name) for row in alone])), name
    assert len(set(together.accepted.tolist())) == gamma + 1


def test_a_draft_vocabulary_may_be_smaller_than_the_targets():
    """q is zero beyond its own vocabulary: the ids there come out with their p all the same."""
    p = torch.tensor([[0.3, 0.2, 0.4, 0.1]] * 2, dtype=torch.float64)
    q = torch.tensor([0.5, 0.5], dtype=torch.float64)
    law = torch.zeros(4, dtype=torch.float64)
    for x in range(2):
        for (n, token), probability in outcomes(p, Draft(torch.tensor([x]), q[None])).items():
            law[x if n else token] += 0.5 * probability
    assert torch.allclose(law, p[0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_zero_residual_falls_back_to_p_and_is_counted(dtype):
    """Only rounding can reject where p = q; a p that sums to less than q stands for that here."""
    q = torch.tensor([0.25, 0.75], dtype=dtype)
    p = torch.stack([q * (1 - 4 * torch.finfo(dtype).eps), q.flip(0)])
    verdict = verify(p, Draft(torch.tensor([0]), q[None]), Scripted([1], [LARGEST]))
    assert verdict.accepted == 0 and verdict.token == 1
    assert verdict.zero_residual and verdict.residual_mass == 0
    tokens = {
        verify(p, Draft(torch.tensor([0]), q[None]), Columns(coin, u)).token.item()
        for coin in [torch.tensor([LARGEST], dtype=torch.float64)]
        for u in torch.linspace(0, LARGEST, 9, dtype=torch.float64)
    }
    assert tokens == {0, 1}, "the fall-back must be a draw from p"


def test_equal_p_and_q_accept_with_every_coin():
    p = distribution(5, 30)
    coins = torch.full((4,), LARGEST, dtype=torch.float64)
    tokens = p[:4].argmin(-1)
    verdict = verify(p, Draft(tokens, p[:4]), Columns(coins, torch.tensor(0.5).double()))
    assert verdict.accepted == 4 and not verdict.zero_residual


@pytest.mark.parametrize("tiny", [1e-300, 5e-324])
def test_a_tiny_q_neither_overflows_nor_divides(tiny):
    q = torch.tensor([[tiny, 1 - tiny]], dtype=torch.float64)
    p = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    verdict = verify(p, Draft(torch.tensor([0]), q), Scripted([0], [LARGEST]))
    assert verdict.accepted == 1 and verdict.residual_mass == 1
    zero = torch.tensor([[0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    verdict = verify(zero, Draft(torch.tensor([0]), q), Columns(torch.zeros(1), torch.tensor(0.3)))
    assert verdict.accepted == 0 and verdict.token == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision_draws_no_token_the_target_excludes(dtype):
    for _ in range(100):
        p, q = distribution(4, 40, zeros=0.5).to(dtype), distribution(3, 40, zeros=0.5).to(dtype)
        tokens = inverse_cdf(q, torch.rand(3, dtype=torch.float64))
        coins = torch.rand(3, dtype=torch.float64)
        verdict = verify(p, Draft(tokens, q), Columns(coins, torch.tensor(LARGEST).double()))
        n = verdict.accepted.item()
        assert p[n, verdict.token] > 0
        assert all(p[i, tokens[i]] > 0 for i in range(n))


def test_coins_are_compared_in_float64():
    """A coin that float32 rounds to 1 still accepts p = q (1 - 2^-30)."""
    q = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    p = q.repeat(2, 1) * (1 - 2.0**-30)
    coin = torch.tensor([1 - 2.0**-29], dtype=torch.float64)
    assert coin.float() == 1
    verdict = verify(p, Draft(torch.tensor([0]), q), Columns(coin, torch.tensor(0.5).double()))
    assert verdict.accepted == 1


@pytest.mark.parametrize("side", ["target", "draft"])
def test_nan_on_either_side_shows_in_the_residual_mass(side):
    p, q = distribution(3, 5), distribution(2, 5)
    (p if side == "target" else q)[1] = math.nan
    coins = torch.zeros(2, dtype=torch.float64)
    verdict = verify(p, Draft(torch.tensor([4, 4]), q), Columns(coins, torch.tensor(0.5).double()))
    assert verdict.accepted == 1 and verdict.residual_mass.isnan()


def test_seeded_gives_the_same_verdict_again():
    p, q = distribution(5, 30), distribution(4, 30)
    tokens = inverse_cdf(q, torch.rand(4, dtype=torch.float64))
    first, again = (verify(p, Draft(tokens, q), Seeded(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_an_unknown_rule_gets_one_sentence_that_names_the_known():
    with pytest.raises(ValueError, match=r"no rule 'typical'.*token") as error:
        verify(P, draft_of([0], Q), Seeded(0), "typical")
    sentence_of(error.value)
