"""On CUDA: the tokens of the CPU for the same seed, low precision, one wait of the host a round."""

import pytest
import torch
from tiny import model, noisy, prompt

import specdec_core.decode as decode_module
from specdec_core import (
    CausalLM,
    ModelDrafter,
    NGramDrafter,
    NGramTable,
    Sampling,
    Seeded,
    autoregressive_decode,
    load_pair,
    speculative_decode,
)

pytestmark = pytest.mark.gpu
SAMPLINGS = [Sampling(), Sampling(0.0), Sampling(0.7, 9, 0.9)]


def models(device, dtype=torch.float64, growing=None):
    target = model(dtype=dtype)
    draft = noisy(target)
    return (
        CausalLM(target.to(device), growing=growing),
        ModelDrafter(CausalLM(draft.to(device), growing=growing)),
    )


def run(device, sampling, seed=0, **options):
    return speculative_decode(
        *models(device, **options), prompt(8), gamma=4, sampling=sampling, max_new_tokens=60,
        randomness=Seeded(seed),
    )  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("growing", [False, True])
def test_one_seed_gives_the_tokens_of_the_cpu_in_float64(sampling, growing):
    for seed in range(3):
        there, here = (run(d, sampling, seed, growing=growing) for d in ("cuda", "cpu"))
        assert there.tokens == here.tokens
        assert [r.verdicts for r in there.trace.rounds] == [r.verdicts for r in here.trace.rounds]


def test_plain_decoding_gives_the_tokens_of_the_cpu_in_float64():
    def plain(device):
        return autoregressive_decode(models(device)[0], prompt(8), randomness=Seeded(1)).tokens

    assert plain("cuda") == plain("cpu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_and_judges_in_float32(dtype):
    result = run("cuda", Sampling(0.8, 20, 0.95), dtype=dtype)
    assert len(result.tokens) == 60 and 0 < result.stats.acceptance_rate <= 1


def test_a_drafter_on_the_cpu_serves_a_target_on_the_gpu():
    table = NGramTable.fit([prompt(300)], 2, 48)
    result = speculative_decode(
        models("cuda")[0], NGramDrafter(table), prompt(8), randomness=Seeded(0)
    )
    assert len(result.tokens) == 64


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_host_waits_for_the_device_once_a_round(sampling, monkeypatch):
    """Any other synchronisation raises; the one read in `_read` is let through and counted."""
    target, drafter = models("cuda", torch.bfloat16)
    options = {"gamma": 4, "sampling": sampling, "max_new_tokens": 40}
    speculative_decode(target, drafter, prompt(8), randomness=Seeded(0), **options)  # allocates
    reads, read = 0, decode_module._read

    def counted(*arguments):
        nonlocal reads
        reads += 1
        torch.cuda.set_sync_debug_mode("default")
        try:
            return read(*arguments)
        finally:
            torch.cuda.set_sync_debug_mode("error")

    monkeypatch.setattr(decode_module, "_read", counted)
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = speculative_decode(target, drafter, prompt(8), randomness=Seeded(1), **options)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert reads == result.stats.rounds


def test_small_forwards_are_graphs_that_compute_what_the_plain_forward_computes():
    target = CausalLM(model(dtype=torch.float64).to("cuda"))
    text = prompt(40)
    target.forward(text[:20])
    for count in (1, 5, 1, 5, 17):
        target.rollback(20)
        found = target.forward(text[20 : 20 + count])
        hidden = target.own(torch.tensor(text[20 : 20 + count], device="cuda"), 20)
        expected = target.own.head(hidden)
        torch.testing.assert_close(target.hidden, hidden, rtol=0, atol=1e-10)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert all(target._fast.graphs[count] for count in (1, 5, 17))
    before = target.forward(text[:1])
    kept = before.clone()
    target.forward(text[1:2])
    assert torch.equal(before, kept)  # a replay does not write into what was handed out


def test_a_draft_on_another_device_gives_the_same_tokens():
    def tokens(**devices):
        both = load_pair("storyworld", dtype="float64", **devices)
        assert both.drafter.model.device.type == devices.get("draft_device", "cuda")
        return speculative_decode(
            both.target, both.drafter, both.encode("Once upon a time"), randomness=Seeded(1)
        ).tokens

    assert tokens(device="cuda", draft_device="cpu") == tokens(device="cuda")
