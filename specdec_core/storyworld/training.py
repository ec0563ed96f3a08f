"""The training loop of everything that is bundled: stages, their rates, and resumption."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

CHECKPOINT_EVERY = 200  # steps


@dataclass(frozen=True)
class Stage:
    """A stretch of training at one depth; the learning rate is the peak of the stage."""

    layers: int
    steps: int
    rate: float


def rate_at(step: int, stage: Stage, last: bool) -> float:
    """Warm-up over 100 steps, then constant; the last stage ends linearly, down to 2 %."""
    warm_up = min(1.0, (step + 1) / 100)
    decay = min(1.0, max(0.02, (stage.steps - step) / (0.4 * stage.steps))) if last else 1.0
    return stage.rate * warm_up * decay


class Checkpoint:
    """The state of one training run in a safetensors file, written in one piece."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.safetensors"

    def save(self, step: int, seconds: float, model: nn.Module, optimizer) -> None:
        state = {f"model.{k}": v for k, v in model.named_parameters()}
        for i, slots in optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{i}.{k}": v for k, v in slots.items()}
        state["progress"] = torch.tensor([step, seconds], dtype=torch.float64)
        save_whole({k: v.detach().contiguous() for k, v in state.items()}, self.path)

    def load(self, model: nn.Module, optimizer) -> tuple[int, float]:
        """Restore both; returns steps done and seconds spent, 0 and 0 where there is no file."""
        if not self.path.exists():
            return 0, 0.0
        state = load_file(self.path)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(state[f"model.{name}"])
        slots: dict[int, dict[str, Tensor]] = {}
        for name in state:
            if name.startswith("optimizer."):
                _, i, key = name.split(".")
                slots.setdefault(int(i), {})[key] = state[name]
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
        step, seconds = state["progress"].tolist()
        return int(step), seconds


def save_whole(tensors: dict[str, Tensor], path: Path) -> None:
    """A safetensors file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    save_file(tensors, unfinished)
    unfinished.replace(path)


def train_stage(
    model: nn.Module,
    stage: Stage,
    last: bool,
    batches: Callable[[int], Iterator[Any]],
    loss_of: Callable[[nn.Module, Any], Tensor],
    checkpoint: Checkpoint,
    bar: tqdm,
) -> float:
    """Adam steps down `loss_of(model, batch)`, from the checkpoint on; returns the seconds spent.

    batches: number of batches to skip -> the batches after them. bar: counts steps.
    """
    matrices = [p for p in model.parameters() if p.ndim > 1 and p.requires_grad]
    gains = [p for p in model.parameters() if p.ndim == 1 and p.requires_grad]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)
    done, seconds = checkpoint.load(model, optimizer)
    started = time.perf_counter() - seconds
    model.train()
    stream = batches(done)
    bar.update(done)
    for step in range(done, stage.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, stage, last)
        loss = loss_of(model, next(stream))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        bar.update()
        if (step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == stage.steps:
            seconds = time.perf_counter() - started
            checkpoint.save(step + 1, seconds, model, optimizer)
            bar.set_postfix(layers=stage.layers, loss=f"{loss.item():.3f}")
    return seconds
