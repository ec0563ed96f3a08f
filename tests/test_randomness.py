"""Every random choice: its law, the uniforms it consumes, and what it refuses."""

import math

import pytest
import torch
from tiny import sentence_of

from specdec_core import Enumerated, Scripted, Seeded, TableModel, exact_law
from specdec_core.randomness import inverse_cdf, judge, upload

LARGEST = math.nextafter(1.0, 0.0)
UNIFORMS = torch.tensor([0.0, 5e-324, 1e-17, 0.25, 0.5, 1 - 1e-12, LARGEST], dtype=torch.float64)
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


# Inverse CDF


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zeros", ["none", "start", "end", "both", "half", "all but one"])
def test_a_token_of_probability_zero_is_never_drawn(dtype, zeros):
    vocab = 150_000
    probs = torch.rand(vocab, dtype=torch.float64)
    if zeros in ("start", "both"):
        probs[: vocab // 3] = 0
    if zeros in ("end", "both"):
        probs[-vocab // 3 :] = 0
    if zeros == "half":
        probs[torch.rand(vocab) < 0.5] = 0
        probs[-1] = 0
    if zeros == "all but one":
        probs = torch.zeros(vocab, dtype=torch.float64)
        probs[70_001] = 1
    probs = (probs / probs.sum()).to(dtype)
    for row in (probs, probs * 3.7, probs.softmax(-1) * (probs > 0)):
        drawn = inverse_cdf(row.expand(len(UNIFORMS), -1), UNIFORMS)
        assert (row[drawn] > 0).all()


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float64, scale) for scale in (1.0, 1e-300, 1e-310, 5e-324, 1e300)]
    + [(torch.float32, scale) for scale in (1.0, 1e-38, 1.5e-45, 1e38)],
)
def test_weights_of_any_scale_never_draw_a_zero(dtype, scale):
    weights = torch.tensor([0, scale, 0, scale, 0], dtype=dtype)
    assert set(inverse_cdf(weights.expand(len(UNIFORMS), -1), UNIFORMS).tolist()) <= {1, 3}
    assert inverse_cdf(weights, torch.tensor(0.0, dtype=torch.float64)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_peaked_tail_keeps_the_last_uniform_inside(dtype):
    # The sum no longer moves after the first token: the tokens behind it must not be skipped to.
    probs = torch.zeros(150_000, dtype=dtype)
    probs[0], probs[1:100_000] = 1.0, torch.finfo(dtype).smallest_normal
    assert (probs[inverse_cdf(probs.expand(len(UNIFORMS), -1), UNIFORMS)] > 0).all()


def test_inverse_cdf_by_hand():
    probs = torch.tensor([0.25, 0.0, 0.5, 0.25], dtype=torch.float64)
    points = [0.0, 0.2499, 0.25, 0.7499, 0.75, LARGEST]
    drawn = inverse_cdf(probs.expand(6, -1), torch.tensor(points, dtype=torch.float64))
    assert drawn.tolist() == [0, 0, 2, 2, 3, 3]


def test_weights_need_not_sum_to_one():
    weights = torch.tensor([[3.0, 1.0], [0.003, 0.001]])
    u = torch.tensor([0.74, 0.76], dtype=torch.float64)
    assert inverse_cdf(weights[[0, 0, 1, 1]], u.repeat(2)).tolist() == [0, 1, 0, 1]


def test_judge_compares_products_so_that_any_q_will_do():
    p = torch.tensor([0.3, 1e-310, 0.0, 0.5], dtype=torch.float64)
    q = torch.tensor([0.6, 1e-300, 1e-300, 5e-324], dtype=torch.float64)

    def kept(i, u):
        return judge(torch.tensor([u], dtype=torch.float64), p[i : i + 1], q[i : i + 1]).item() == 1

    assert kept(0, 0.499) and not kept(0, 0.5)
    assert kept(1, 0.0) and kept(1, 9e-11) and not kept(1, 2e-10)
    assert not kept(2, 0.0)
    assert kept(3, LARGEST)


def test_judge_stops_at_the_first_failure():
    p = torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.5, 0.5, 0.5]])
    u = torch.zeros(3, 3, dtype=torch.float64)
    assert judge(u, p, torch.full((3, 3), 0.5)).tolist() == [1, 0, 3]
    assert judge(u[:, :0], p[:, :0], p[:, :0]).tolist() == [0, 0, 0]


def test_upload_takes_lists_and_tensors_and_changes_the_type():
    assert torch.equal(upload([1, 2], torch.int64, "cpu"), torch.tensor([1, 2]))
    tensor = torch.tensor([0.5], dtype=torch.float64)
    assert upload(tensor, torch.float64, tensor.device) is tensor


# Seeded


def test_seeded_draws_follow_the_law():
    """chi-square with 5 degrees of freedom at a false-alarm level of 1e-6 (35.89).

    At 200,000 draws a shift of .005 in one probability is found with power above .99.
    """
    probs = torch.tensor([0.4, 0.0, 0.3, 0.15, 0.1, 0.04, 0.01])
    draws = 200_000
    drawn = Seeded(7).categorical(probs.expand(draws, -1))
    counts = torch.bincount(drawn, minlength=7).double()
    assert counts[1] == 0
    expected = probs.double()[probs > 0] * draws
    assert ((counts[probs > 0] - expected) ** 2 / expected).sum() < 35.89


def test_seeded_verdicts_follow_the_law():
    """chi-square with 3 degrees of freedom at a false-alarm level of 1e-6 (30.66)."""
    p, q = torch.tensor([0.3, 0.9, 0.2]), torch.tensor([0.6, 0.3, 0.8])
    draws = 200_000
    first = Seeded(8).first_rejection(p.expand(draws, -1), q.expand(draws, -1))
    counts = torch.bincount(first, minlength=4).double()
    assert counts[1] == 0
    expected = torch.tensor([0.5, 0.375, 0.125], dtype=torch.float64) * draws
    assert ((counts[[0, 2, 3]] - expected) ** 2 / expected).sum() < 30.66


def test_one_seed_gives_one_result_and_each_run_its_own():
    probs = torch.rand(1000)

    def draws(randomness):
        return [randomness.categorical(probs).item() for _ in range(50)]

    assert draws(Seeded(3)) == draws(Seeded(3)) != draws(Seeded(4))
    assert draws(Seeded()) != draws(Seeded())
    unseeded = Seeded()
    assert draws(unseeded) == draws(Seeded(unseeded.seed))


def test_every_bit_of_a_seed_counts():
    """torch's generator alone reads 32 of the 64."""
    seeds = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**63, 2**64 - 1, -2, -(2**62)]
    streams = {tuple(Seeded(seed).uniforms(4).tolist()) for seed in seeds}
    assert len(streams) == len(seeds)
    alone = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    assert torch.equal(Seeded(7).uniforms(4), alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_seeded_uniforms_are_float64_one_a_token_and_one_a_position_in_order(dtype):
    u = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(11))
    probs = torch.rand(9).to(dtype)
    p, q = torch.full((3,), 0.4).to(dtype), torch.full((3,), 0.9).to(dtype)
    seeded = Seeded(11)
    assert seeded.categorical(probs) == inverse_cdf(probs, u[0])
    assert seeded.first_rejection(p, q) == judge(u[1:4], p, q)
    assert torch.equal(seeded.coins, u[1:4])
    assert seeded.categorical(probs) == inverse_cdf(probs, u[4])
    assert seeded.first_rejection(p[:0], q[:0]) == 0
    assert seeded.categorical(probs) == inverse_cdf(probs, u[5])


def test_the_global_generator_is_neither_read_nor_moved():
    before = torch.random.get_rng_state()
    first = Seeded(5).categorical(torch.rand(100, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(999)
    assert first == Seeded(5).categorical(
        torch.rand(100, generator=torch.Generator().manual_seed(0))
    )


# Scripted


def test_scripted_returns_its_tokens_and_compares_its_coins():
    scripted = Scripted([2, 0], [0.1, 0.9, 0.2])
    probs, p, q = torch.tensor([0.5, 0.0, 0.5]), torch.tensor([0.5, 0.5]), torch.ones(2)
    assert scripted.categorical(probs) == 2
    assert scripted.first_rejection(p, q) == 1
    assert scripted.coins.tolist() == [0.1, 0.9]
    assert scripted.categorical(probs) == 0
    assert scripted.first_rejection(p[:1], q[:1]) == 1
    assert scripted.first_rejection(p[:0], q[:0]) == 0


@pytest.mark.parametrize(
    ("choose", "says"),
    [
        (lambda s: [s.categorical(torch.ones(3)) for _ in range(3)], "no more tokens"),
        (lambda s: s.first_rejection(torch.ones(3), torch.ones(3)), "no more coins"),
        (lambda s: s.categorical(torch.tensor([0.5, 0.5, 0.0])), "token 2, which has probability"),
        (lambda s: s.categorical(torch.tensor([0.5, 0.5])), "token 2, which has probability"),
        (lambda s: s.categorical(torch.full((3,), math.nan)), "token 2, which has probability"),
    ],
    ids=["tokens", "coins", "zero", "outside", "nan"],
)
def test_a_script_that_does_not_fit_gets_one_sentence(choose, says):
    with pytest.raises(ValueError, match=says) as error:
        choose(Scripted([2, 1], [0.5, 0.5]))
    sentence_of(error.value)


# Enumerated


def visit(choose):
    """(what `choose` returned, its probability) on every path."""
    path, seen = [], []
    while path is not None:
        enumerated = Enumerated(path)
        seen.append((choose(enumerated), enumerated.probability))
        path = enumerated.next_path()
    return seen


def test_enumeration_visits_every_token_of_positive_probability_once():
    seen = visit(lambda r: r.categorical(torch.tensor([0.2, 0.0, 0.5, 0.3])).item())
    assert [token for token, _ in seen] == [0, 2, 3]
    assert [probability for _, probability in seen] == pytest.approx([0.2, 0.5, 0.3])


def test_enumeration_normalises_weights():
    seen = visit(lambda r: r.categorical(torch.tensor([0.02, 0.06])).item())
    assert [probability for _, probability in seen] == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("gamma", [0, 1, 2, 5])
def test_a_verdict_branches_at_most_gamma_plus_one_ways(gamma):
    p, q = torch.rand(gamma, dtype=torch.float64), torch.rand(gamma, dtype=torch.float64)
    accept = (p / q).clamp(max=1)
    seen = dict(visit(lambda r: r.first_rejection(p, q).item()))
    reach = 1.0
    for i in range(gamma):
        assert seen.get(i, 0.0) == pytest.approx(reach * (1 - accept[i].item()))
        reach *= accept[i].item()
    assert seen.get(gamma, 0.0) == pytest.approx(reach)
    assert len(seen) <= gamma + 1
    assert math.fsum(seen.values()) == pytest.approx(1.0, abs=1e-15)


def test_a_verdict_that_is_certain_does_not_branch():
    p, q = torch.tensor([0.9, 0.0, 0.5]), torch.tensor([0.9, 0.3, 0.1])
    assert visit(lambda r: r.first_rejection(p, q).item()) == [(1, 1.0)]


def test_enumeration_accepts_with_the_probability_that_seeded_accepts():
    p, q = torch.tensor([0.35]), torch.tensor([0.5])
    accepted = dict(visit(lambda r: r.first_rejection(p, q).item()))[1]
    u = torch.linspace(0, 1, 100_001, dtype=torch.float64)[:-1, None]
    kept = judge(u, p.expand(100_000, -1), q.expand(100_000, -1)).double().mean()
    assert kept.item() == pytest.approx(accepted, abs=2e-5)


def test_enumeration_of_a_tree_sums_to_one_and_visits_all():
    probs = torch.tensor([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], dtype=torch.float64)

    def choose(randomness):
        first = randomness.categorical(probs[0]).item()
        return first, randomness.categorical(probs[first]).item()

    seen = dict(visit(choose))
    assert set(seen) == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)}
    assert math.fsum(seen.values()) == pytest.approx(1.0, abs=1e-15)
    assert seen[1, 0] == pytest.approx(0.4)


@pytest.mark.parametrize("side", ["p", "q"])
def test_enumeration_rejects_at_nan_as_seeded_does(side):
    p, q = torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0.5, 0.5, 0.5])
    (p if side == "p" else q)[1] = math.nan
    assert visit(lambda r: r.first_rejection(p, q).item()) == [(1, 1.0)]
    assert Seeded(0).first_rejection(p, q) == 1


@pytest.mark.parametrize("weights", [[0.0, 0.0], [math.nan, math.nan]])
def test_enumeration_of_nothing_gets_one_sentence(weights):
    with pytest.raises(ValueError, match="zero or NaN") as error:
        Enumerated().categorical(torch.tensor(weights))
    sentence_of(error.value)


def test_exact_law_stops_where_there_are_too_many_paths():
    model = TableModel(lambda prefix: [0.5, 0.5], 2)

    def run(randomness):
        model.rollback(0)
        probs = model.forward([0]).exp()[0]
        return [randomness.categorical(probs).item() for _ in range(5)]

    assert exact_law(run, max_runs=32) == dict.fromkeys(exact_law(run), 1 / 32)
    with pytest.raises(ValueError, match="More than 31 paths") as error:
        exact_law(run, max_runs=31)
    sentence_of(error.value)
