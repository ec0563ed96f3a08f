"""What learns from the target itself: the distilled draft, the exit norm and the Medusa heads.

The target writes texts at temperature 1; they are kept with its hidden rows, of which its output
head makes the distributions that are matched. The target itself is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from tqdm import tqdm
from transformers import LlamaForCausalLM

from specdec_core.drafters import ModelDrafter
from specdec_core.lab.live_distillation import (
    fresh_student,
    hidden_rows,
    kl_loss,
    teacher_probs,
    teacher_texts,
    total_variation_loss,
)
from specdec_core.models import CausalLM

from .data import token_ids
from .heads import TrainableHeads, ahead, exit_model
from .tokenizer import START
from .training import Checkpoint, Stage, save_whole, train_stage

TEXTS, LENGTH, TEACHER_SEED = 3072, 161, 5
AT_ONCE = 128  # texts in one batch of decoding
HEADS = 4
LOSSES = {"KL": kl_loss, "total variation": total_variation_loss}


@dataclass(frozen=True)
class Lesson:
    """How something learns from the target: KL first, which has a slope far from the target too,
    then total variation, which is the share of drafts rejected. One batch is `rows` texts."""

    name: str
    stages: tuple[Stage, Stage]
    seed: int
    rows: int = 16

    def facts(self) -> dict:
        """What the card says about the training."""
        steps = sum(stage.steps for stage in self.stages)
        return {
            "stages": [
                asdict(stage) | {"loss": loss}
                for stage, loss in zip(self.stages, LOSSES, strict=True)
            ],
            "trained_length": LENGTH,
            "tokens_seen": steps * self.rows * LENGTH,
            "teacher_tokens": TEXTS * LENGTH,
            "teacher_seed": TEACHER_SEED,
            "seed": self.seed,
        }


DISTILLED = Lesson("distilled", (Stage(1, 800, 3e-3), Stage(1, 800, 2e-3)), seed=5)
EXIT = Lesson("exit", (Stage(1, 150, 1e-2), Stage(1, 150, 5e-3)), seed=6)
MEDUSA = Lesson("medusa", (Stage(1, 400, 3e-3), Stage(1, 400, 2e-3)), seed=7, rows=8)


class Teacher:
    """The target's own texts, int64 [TEXTS, LENGTH], and its hidden rows, bfloat16 [.., width].

    Made in pieces; those that lie in `folder` already are read. seconds: what making them took.
    """

    def __init__(self, target: CausalLM, drafter: ModelDrafter, folder: Path) -> None:
        self.target = target.model.requires_grad_(False)
        start, pieces = [token_ids()[START]], []
        for first in tqdm(range(0, TEXTS, AT_ONCE), desc="texts of the target"):
            path = folder / f"teacher-{first}.safetensors"
            if not path.exists():
                began = time.perf_counter()
                ids = teacher_texts(target, drafter, start, AT_ONCE, LENGTH, TEACHER_SEED, first)
                hidden = hidden_rows(target, ids).bfloat16()
                took = torch.tensor(time.perf_counter() - began)
                save_whole({"ids": ids, "hidden": hidden, "seconds": took}, path)
            pieces.append(load_file(path))
        self.ids = torch.cat([piece["ids"] for piece in pieces])
        self.hidden = torch.cat([piece["hidden"] for piece in pieces])
        self.seconds = sum(piece["seconds"].item() for piece in pieces)

    def batches(self, lesson: Lesson, first: int, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless (ids, hidden rows) of `lesson.rows` texts, from batch `first + skip` on;
        each pass has an order of its own."""
        a_pass = TEXTS // lesson.rows
        number, place = divmod(first + skip, a_pass)
        while True:
            order = torch.randperm(
                TEXTS, generator=torch.Generator().manual_seed(lesson.seed * 10_000 + number)
            )
            for which in order.split(lesson.rows)[place:a_pass]:
                yield self.ids[which], self.hidden[which].float()
            number, place = number + 1, 0


def learn(
    model: nn.Module,
    lesson: Lesson,
    teacher: Teacher,
    compare: Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]],
    folder: Path,
) -> float:
    """Train `model` through both stages; returns the seconds it took.

    compare: (model, ids, hidden rows) -> the model's logits and the probabilities they should have.
    """
    spent, first = 0.0, 0
    with tqdm(total=sum(stage.steps for stage in lesson.stages), desc=lesson.name) as bar:
        for number, (stage, loss) in enumerate(zip(lesson.stages, LOSSES.values(), strict=True)):
            spent += train_stage(
                model, stage, number == 1, partial(teacher.batches, lesson, first),
                lambda model, batch, loss=loss: loss(*compare(model, *batch)),
                Checkpoint(folder, f"{lesson.name}-{number}"), bar,
            )  # fmt: skip
            first += stage.steps
    return spent


def distilled(target: CausalLM, teacher: Teacher, folder: Path) -> tuple[LlamaForCausalLM, float]:
    """The distilled draft, and the seconds its training took."""
    student = fresh_student(target, DISTILLED.stages[0].layers, seed=DISTILLED.seed)

    def compare(model: LlamaForCausalLM, ids: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return model(ids, use_cache=False).logits, teacher_probs(target, hidden)

    return student, learn(student, DISTILLED, teacher, compare, folder)


def exit_norm(target: CausalLM, teacher: Teacher, folder: Path) -> tuple[dict[str, Tensor], float]:
    """The norm of the early exit, its number of layers, and the seconds its training took."""
    layers = EXIT.stages[0].layers
    model = exit_model(target.model, layers)

    def compare(model: LlamaForCausalLM, ids: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return model(ids, use_cache=False).logits, teacher_probs(target, hidden)

    seconds = learn(model, EXIT, teacher, compare, folder)
    return {"norm": model.model.norm.weight.detach(), "layers": torch.tensor(layers)}, seconds


def medusa_heads(
    target: CausalLM, teacher: Teacher, folder: Path
) -> tuple[dict[str, Tensor], float]:
    """The Medusa heads, and the seconds their training took."""
    model = TrainableHeads(target.model.lm_head.weight, HEADS)

    def compare(model: TrainableHeads, _: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return model(hidden[:, :-HEADS]), ahead(teacher_probs(target, hidden), HEADS)

    seconds = learn(model, MEDUSA, teacher, compare, folder)
    return model.heads.to_tensors(), seconds


Learnt = Callable[[CausalLM, Teacher, Path], tuple[LlamaForCausalLM | dict[str, Tensor], float]]
LESSONS: dict[str, tuple[Lesson, Learnt]] = {
    "distilled": (DISTILLED, distilled),
    "exit": (EXIT, exit_norm),
    "medusa": (MEDUSA, medusa_heads),
}
