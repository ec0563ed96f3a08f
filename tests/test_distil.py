"""Distillation: what is taught, that it is learnt, and that the live one is what it promises."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import kl_div

from specdec_core import (
    CausalLM,
    ModelDrafter,
    Sampling,
    Seeded,
    autoregressive_decode,
    load_pair,
)
from specdec_core.lab import live_distillation as live
from specdec_core.pairs import Pair
from specdec_core.storyworld import distil, heads
from specdec_core.storyworld.training import Checkpoint, Stage, rate_at, train_stage

START = [1]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair("storyworld")


@pytest.fixture(scope="module")
def texts(pair: Pair) -> torch.Tensor:
    return live.teacher_texts(pair.target, pair.drafter, START, 24, 40, seed=3)


# The lesson.


def test_the_texts_are_the_targets_own(pair, texts):
    """Each is what plain decoding with its seed writes; a piece made later is the same text."""
    assert texts.shape == (24, 40) and (texts[:, 0] == START[0]).all()
    plain = live.teacher_texts(pair.target, None, START, 2, 12, seed=3, first=5)
    alone = autoregressive_decode(
        pair.target, START, max_new_tokens=11, randomness=Seeded((3 << 32) + 6)
    )
    assert plain[1].tolist() == [*START, *alone.tokens]
    again = live.teacher_texts(pair.target, pair.drafter, START, 4, 40, seed=3, first=20)
    assert again.tolist() == texts[20:].tolist()


def test_the_teacher_is_the_target(pair, texts):
    """Hidden rows through its head are the distributions that decoding draws from."""
    hidden = live.hidden_rows(pair.target, texts[:2])
    target = pair.target.fresh()
    logits = target.forward(texts[1])
    taught = live.teacher_probs(pair.target, hidden)[1]
    assert (taught - logits.softmax(-1)).abs().max() < 1e-5
    assert (hidden[1] - target.hidden).abs().max() < 1e-4


def test_the_losses_are_what_they_are_called():
    p = torch.tensor([[0.6, 0.4, 0.0], [0.2, 0.3, 0.5]])
    q = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.3, 0.5]])
    rejected = 1 - torch.minimum(p, q).sum(-1).mean()
    assert live.total_variation_loss(q.log(), p).item() == pytest.approx(rejected.item())
    kl = (0.6 * math.log(0.6 / 0.8) + 0.4 * math.log(0.4 / 0.1)) / 2
    assert live.kl_loss(q.log(), p).item() == pytest.approx(kl, abs=1e-6)
    assert kl_div(q.log(), p, reduction="batchmean").item() == pytest.approx(kl, abs=1e-6)


def test_total_variation_alone_has_no_slope_where_the_draft_is_far_off():
    """Why KL comes first: the gradient on a token the draft gives next to nothing."""
    p = torch.tensor([[1.0, 0.0]])
    slopes = []
    for loss in (live.kl_loss, live.total_variation_loss):
        logits = torch.tensor([[-12.0, 0.0]], requires_grad=True)
        loss(logits, p).backward()
        slopes.append(logits.grad.abs().max().item())
    assert slopes[0] > 0.99 and slopes[1] < 1e-4


# The student.


def test_a_fresh_student_has_the_targets_embedding_and_head(pair):
    student = live.fresh_student(pair.target, seed=1)
    mine, theirs = student.state_dict(), pair.target.model.state_dict()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert torch.equal(mine[name], theirs[name])
        assert mine[name].data_ptr() != theirs[name].data_ptr(), "training would change the target"
    assert student.lm_head.weight is student.model.embed_tokens.weight
    inner = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(mine[inner], theirs[inner])
    same, other = (live.fresh_student(pair.target, seed=seed).state_dict() for seed in (1, 2))
    assert torch.equal(mine[inner], same[inner]) and not torch.equal(mine[inner], other[inner])


def test_a_fresh_student_leaves_the_random_state_alone(pair):
    torch.manual_seed(0)
    live.fresh_student(pair.target)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert drawn == torch.rand(1)


def short_run(pair: Pair, texts: torch.Tensor, seed: int = 1) -> tuple[list, ModelDrafter]:
    drafter = ModelDrafter(CausalLM(live.fresh_student(pair.target, seed=1)))
    prompts = [pair.encode(text) for text in ("Once upon a time", "def add(", "Recipe:")]
    run = live.distil(pair.target, drafter, texts, prompts, steps=30, every=15, seed=seed)
    return list(run), drafter


def test_live_distillation_lifts_acceptance(pair, texts, monkeypatch):
    """30 steps on 24 short texts are enough to see it, and the target does not move."""
    monkeypatch.setattr(live, "COPIES", 1)
    before = {name: weight.clone() for name, weight in pair.target.model.state_dict().items()}
    progress, drafter = short_run(pair, texts)
    assert [p.step for p in progress] == [0, 15, 30]
    assert math.isnan(progress[0].loss) and progress[2].loss < progress[1].loss
    assert progress[2].acceptance >= progress[0].acceptance + 0.15
    for name, weight in pair.target.model.state_dict().items():
        assert torch.equal(weight, before[name])
    again, _ = short_run(pair, texts)
    assert again[1:] == progress[1:]
    assert drafter.propose(START, 2, Sampling(), Seeded(0)).tokens.shape == (2,)


def test_bad_input_is_refused_in_one_sentence(pair):
    with pytest.raises(ValueError, match="length must be a whole number of at least 2, not 1"):
        live.teacher_texts(pair.target, None, START, 1, 1, seed=0)
    with pytest.raises(ValueError, match="texts must be a whole number of at least 1, not 0"):
        live.teacher_texts(pair.target, None, START, 0, 9, seed=0)
    with pytest.raises(ValueError, match="layers must be a whole number"):
        live.fresh_student(pair.target, layers=0)


# What is trained on top of the target.


def test_the_exit_model_is_the_targets_first_layers(pair, texts):
    deep = pair.target.model
    with torch.inference_mode():
        states = deep.model(texts, use_cache=False, output_hidden_states=True).hidden_states
        expected = deep.lm_head(deep.model.norm(states[2]))
        model = heads.exit_model(deep, 2)
        assert torch.allclose(model(texts).logits, expected, atol=1e-5)
        doubled = heads.exit_model(deep, 2, 2 * deep.model.norm.weight)
        assert torch.allclose(doubled(texts).logits, 2 * expected, atol=1e-4)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == [
        "model.norm.weight"
    ]


def test_heads_look_past_the_newest_token():
    """Row j predicted token j + 1, the newest; head 1 guesses token j + 2: row j + 1's lesson."""
    rows = torch.arange(6.0)[None, :, None]
    assert heads.ahead(rows, 2)[0, :, :, 0].tolist() == [[1, 2], [2, 3], [3, 4], [4, 5]]


def test_untrained_heads_say_what_the_target_says(pair, texts):
    head = pair.target.model.lm_head.weight
    hidden = live.hidden_rows(pair.target, texts[:1])
    logits = heads.TrainableHeads(head, 3)(hidden)
    assert logits.shape == (1, 40, 3, len(head))
    assert torch.allclose(logits[0, :, 2], pair.target.model.lm_head(hidden)[0], atol=1e-5)


# The training loop.


def test_training_goes_on_where_it_was_interrupted(tmp_path):
    """Steps 1 to 4 in one piece, and in two with the checkpoint between: the same weights."""

    class Bar:
        update = set_postfix = lambda self, *_, **__: None

    def batches(skip: int):
        return (torch.full((1, 3), float(i)) for i in range(skip, 99))

    def train(folder, *lengths: int) -> torch.Tensor:
        for steps in lengths:
            torch.manual_seed(0)
            model = torch.nn.Linear(3, 2)
            train_stage(
                model, Stage(1, steps, 0.1), False, batches,
                lambda model, batch: model(batch).square().mean(),
                Checkpoint(folder, "part"), Bar(),
            )  # fmt: skip
        return model.weight.detach()

    whole, halves = train(tmp_path / "a", 4), train(tmp_path / "b", 2, 4)
    assert torch.equal(whole, halves)
    assert not torch.equal(whole, train(tmp_path / "c", 2))


def test_rates_rise_then_fall_in_the_last_stage_alone():
    stage = Stage(1, 1000, 1.0)
    assert rate_at(0, stage, True) == 0.01 and rate_at(99, stage, True) == 1.0
    assert rate_at(999, stage, False) == 1.0 and rate_at(999, stage, True) == 0.02


def test_every_pass_reads_each_text_once():
    lesson = distil.Lesson("any", (Stage(1, 1, 1.0), Stage(1, 1, 1.0)), seed=9, rows=16)
    teacher = object.__new__(distil.Teacher)
    teacher.ids = torch.arange(distil.TEXTS)[:, None]
    teacher.hidden = teacher.ids.bfloat16()
    a_pass = distil.TEXTS // 16
    stream = teacher.batches(lesson, 0, 0)
    passes = [torch.cat([next(stream)[0] for _ in range(a_pass)]).flatten() for _ in range(2)]
    for read in passes:
        assert sorted(read.tolist()) == list(range(distil.TEXTS))
    assert passes[0].tolist() != passes[1].tolist()
    later = next(teacher.batches(lesson, a_pass, 3))[0].flatten()
    assert later.tolist() == passes[1][48:64].tolist()
