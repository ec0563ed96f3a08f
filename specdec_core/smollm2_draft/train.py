"""Distil a draft for SmolLM2: `python -m specdec_core.smollm2_draft.train`, hours on two cores.

SmolLM2 writes conversations, its hidden rows are computed once and kept, and two layers learn its
distribution from them. Every part goes on where an interrupted run left it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import LlamaForCausalLM, LlamaModel

from specdec_core.pairs import load_pair
from specdec_core.smollm2 import smollm2_folder
from specdec_core.storyworld.training import Checkpoint, save_whole

from .network import CARD, FILE, trainable_body, trained_tensors
from .prompts import KINDS
from .samples import temperature, write_samples
from .states import states_path, write_states

FOLDER = Path("build/smollm2_draft")
SHARDS = 144  # of 96 conversations
HEAD_IDS = 8192
HELD_OUT = 3  # shards, one of each temperature
ROWS, PEAK, WARM_UP = 16, 1e-3, 100
REPORT_EVERY = 200  # steps


class Lesson(NamedTuple):
    """A batch. ids: int64 [B, n]. hidden: bfloat16 [m, width] and log_total float32 [m], of the m
    positions that count, which `counts` bool [B, n] marks: those of the answers."""

    ids: Tensor
    hidden: Tensor
    log_total: Tensor
    counts: Tensor


class Text(NamedTuple):
    """One conversation and its teacher states. answer: where the answer begins."""

    ids: Tensor
    hidden: Tensor
    log_total: Tensor
    answer: int


class Found(NamedTuple):
    """Means over the positions of some answers. acceptance: sum min(p, q) at temperature 1.
    same_likeliest: how often both have the same likeliest token, the acceptance of greedy drafts.
    """

    acceptance: float
    same_likeliest: float


def read_texts(path: Path) -> list[Text]:
    """Conversations of a shard, with their states."""
    shard, states = load_file(path), load_file(states_path(path))
    lengths = shard["lengths"].tolist()
    columns = (shard["tokens"].long(), states["hidden"], states["log_total"])
    parts = zip(*(c.split(lengths) for c in columns), shard["answers"].tolist(), strict=True)
    return [Text(*part) for part in parts]


def read_all(paths: list[Path]) -> list[Text]:
    return [text for path in paths for text in read_texts(path)]


def read_held_out(path: Path, learnt: list[Text]) -> dict[str, list[Text]]:
    """kind -> conversations of a shard whose request was never learnt: at temperature 0 the same
    request gets the same answer."""
    seen, shard = {_request(text) for text in learnt}, read_texts(path)
    return {
        kind: [text for text in shard[i :: len(KINDS)] if _request(text) not in seen]
        for i, kind in enumerate(KINDS)
    }


def _request(text: Text) -> tuple[int, ...]:
    return tuple(text.ids[: text.answer].tolist())


def lessons(texts: list[Text], seed: int, skip: int = 0) -> Iterator[Lesson]:
    """Batches without end, each pass in an order of its own; `skip` of them are left out."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(texts), generator=generator)
        for which in order[: len(texts) // ROWS * ROWS].split(ROWS):
            if skip:
                skip -= 1
                continue
            yield lesson([texts[i] for i in which])


def lesson(texts: list[Text]) -> Lesson:
    counts = [torch.arange(len(text.ids)) >= text.answer - 1 for text in texts]
    for one in counts:
        one[-1] = False  # what follows the last token was not written
    parts = zip(texts, counts, strict=True)
    hidden, total = zip(*((t.hidden[c], t.log_total[c]) for t, c in parts), strict=True)
    ids = pad_sequence([text.ids for text in texts], batch_first=True)
    return Lesson(ids, torch.cat(hidden), torch.cat(total), pad_sequence(counts, batch_first=True))


def compare(
    rows: Tensor, hidden: Tensor, log_total: Tensor, head: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Slope of the mean loss of the draft's rows [m, width]; overlap and agreement [m].

    loss: w times the cross-entropy -sum p log q and 1 - w times -sum min(p, q), where w is
    exp(-3 mean overlap): what is to grow is the overlap, but far from p its slope is flat. Both
    go over the short head's ids alone, where p sums to less than one. Their slopes in the logits,
    q sum(p) - p and q (sum of q where q < p) - q [q < p], are written out so that p and q are made
    once. overlap: sum min(p, q), the acceptance. agreement: whether the likeliest tokens are the
    same.
    """
    p = ((hidden @ head.T).float() - log_total[:, None]).exp()
    logits = (rows @ head.T).float()
    q = logits.softmax(-1)
    overlap = torch.minimum(p, q).sum(-1)
    weight = (-3.0 * overlap.mean()).exp()
    short = q * (q < p)
    cross = q * p.sum(-1, keepdim=True) - p
    apart = q * short.sum(-1, keepdim=True) - short
    slope = weight * cross + (1.0 - weight) * apart
    gradient = slope.to(rows.dtype) @ head / rows.shape[0]
    return gradient, overlap, p.argmax(-1) == q.argmax(-1)


def compiled(function: Callable) -> Callable:
    """Compiled where there is a C++ compiler: about three times as fast, else the same."""
    found = any(shutil.which(name) for name in ("g++", "clang++", "cl"))
    return torch.compile(function, dynamic=True) if found else function


def rate_at(step: int, steps: int) -> float:
    """Warm-up, then constant; the second half falls linearly to 2 %."""
    return PEAK * min(1.0, (step + 1) / WARM_UP, max(0.02, 2 * (1 - step / steps)))


class Student:
    """A body in training, the head it is judged by, and the state it is saved with."""

    def __init__(
        self, teacher: LlamaForCausalLM, ids: Tensor, start: Mapping[str, Tensor] | None = None
    ) -> None:
        self.body: LlamaModel = trainable_body(teacher)
        if start is not None:
            layers = {name: tensor for name, tensor in start.items() if name != "ids"}
            self.body.load_state_dict(layers, strict=False)  # the embedding is the teacher's
        self.ids = ids
        self.head = teacher.lm_head.weight.detach()[ids].to(torch.bfloat16)
        self.trained = [p for p in self.body.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=PEAK, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self.state = nn.ParameterList(self.trained)  # what a checkpoint holds
        self._body, self._compare = compiled(self.body), compiled(compare)

    def judge(self, batch: Lesson) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The draft's rows, and what `compare` says of them."""
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self._body(batch.ids, use_cache=False).last_hidden_state
        rows = hidden.to(torch.bfloat16)[batch.counts]
        return rows, *self._compare(rows.detach(), batch.hidden, batch.log_total, self.head)

    def learn(self, batch: Lesson, rate: float) -> float:
        """One step; returns the mean acceptance before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rows, slope, overlap, _ = self.judge(batch)
        rows.backward(slope)
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return overlap.mean().item()

    @torch.no_grad()
    def found(self, texts: list[Text]) -> Found:
        """How well it drafts after the prefixes of these texts."""
        judged = [self.judge(lesson(texts[i : i + ROWS])) for i in range(0, len(texts), ROWS)]
        overlap, same = (torch.cat([one[i] for one in judged]).float() for i in (2, 3))
        return Found(round(overlap.mean().item(), 4), round(same.mean().item(), 4))


def frequent_ids(texts: list[Text], count: int, vocab: int) -> Tensor:
    """The most frequent ids of the answers, ascending."""
    seen = torch.cat([text.ids[text.answer :] for text in texts]).bincount(minlength=vocab)
    return seen.topk(count).indices.sort().values


def distil(teacher: LlamaForCausalLM, folder: Path, steps: int, go_on: bool = False) -> None:
    """Train on all shards of `folder` but the last few, and write the weights and their card.

    go_on: start from the weights in the package, not from the teacher's own layers.
    """
    paths = sorted(folder.glob("conversations-*.safetensors"))
    learnt = read_all(paths[:-HELD_OUT])
    held_out = {path: read_held_out(path, learnt) for path in paths[-HELD_OUT:]}
    ids = frequent_ids(learnt, HEAD_IDS, teacher.config.vocab_size)
    student = Student(teacher, ids, load_file(FILE) if go_on else None)
    checkpoint = Checkpoint(folder, "checkpoint")
    watched = [text for kinds in held_out.values() for texts in kinds.values() for text in texts]
    seconds = _run(student, learnt, watched, checkpoint, steps)
    earlier = json.loads(CARD.read_text()) if go_on else None
    save_whole(trained_tensors(student.body, student.ids), FILE)
    card = {
        "note": "acceptance: mean sum min(p, q) at temperature 1; same_likeliest: how often both "
        "have the same likeliest token; over the answers to requests that were not trained on, by "
        "the temperature they were written at and by kind.",
        "conversations": len(learnt),
        "tokens": sum(len(text.ids) for text in learnt),
        "steps": steps,
        "conversations_a_step": ROWS,
        "training_seconds": round(seconds),
        "held_out": {
            f"temperature {temperature(path)}": _by_kind(student, kinds)
            for path, kinds in held_out.items()
        },
        "started_from": earlier or "the target's first and last layer",
    }
    CARD.write_text(json.dumps(card, indent=1) + "\n")
    checkpoint.path.unlink(missing_ok=True)  # the next run starts afresh


def _by_kind(student: Student, kinds: dict[str, list[Text]]) -> dict[str, dict[str, float]]:
    together = [text for texts in kinds.values() for text in texts]
    return {
        kind: {"conversations": len(texts), **student.found(texts)._asdict()}
        for kind, texts in {"all": together, **kinds}.items()
        if texts
    }


def _run(
    student: Student, learnt: list[Text], held_out: list[Text], checkpoint: Checkpoint, steps: int
) -> float:
    """All steps that are not done yet; returns the seconds that all took."""
    done, spent = checkpoint.load(student.state, student.optimizer)
    started = time.perf_counter() - spent
    stream = lessons(learnt, seed=5, skip=done)
    bar = tqdm(range(done, steps), initial=done, total=steps, unit="step", desc="draft")
    for step in bar:
        acceptance = student.learn(next(stream), rate_at(step, steps))
        bar.set_postfix(acceptance=f"{acceptance:.3f}")
        if (step + 1) % REPORT_EVERY == 0:
            spent = time.perf_counter() - started
            checkpoint.save(step + 1, spent, student.state, student.optimizer)
            tqdm.write(f"step {step + 1}: {student.found(held_out)}")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="Distil a draft for SmolLM2-135M-Instruct.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="conversations and states")
    parser.add_argument("--shards", type=int, default=SHARDS, help="of 96 conversations")
    parser.add_argument("--steps", type=int, default=4000, help="of 16 conversations")
    parser.add_argument(
        "--go-on", action="store_true", help="start from the weights in the package"
    )
    options = parser.parse_args()
    if options.shards <= HELD_OUT:
        parser.error(f"--shards must be at least {HELD_OUT + 1}: the last {HELD_OUT} are held out.")
    pair = load_pair(target=smollm2_folder(), dtype="bfloat16", max_length=1024)
    write_samples(pair, options.folder, options.shards)
    teacher = pair.target.model
    write_states(teacher, options.folder)
    distil(teacher.float(), options.folder, options.steps, options.go_on)


if __name__ == "__main__":
    main()
