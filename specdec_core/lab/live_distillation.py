"""Distillation: a small draft learns to guess what one target writes, from the target itself.

Three parts. The target writes texts at temperature 1; its full distribution after each token is the
lesson, since the token it drew is only one sample of it; a student with the target's embedding and
output head, and fresh layers between, learns to match it. Sources: Hinton et al. 2015 (arXiv
1503.02531); Zhou et al. 2023 (DistillSpec, arXiv 2310.08461) for both losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax
from transformers import LlamaForCausalLM

from specdec_core.batch import speculative_decode_batch
from specdec_core.drafters import ModelDrafter
from specdec_core.lab.checks import check_whole
from specdec_core.models import CausalLM
from specdec_core.randomness import Seeded
from specdec_core.threads import Threads
from specdec_core.trace import Stats

WARM_UP = 20  # steps
COPIES = 4  # texts written after each prompt to measure acceptance


class Progress(NamedTuple):
    """Where a training stands. loss: mean KL in nats since the last report; NaN before any step.

    acceptance: `acceptance_rate` of the draft as it is now, by decoding with it.
    """

    step: int
    loss: float
    acceptance: float


def teacher_texts(
    target: CausalLM, drafter: ModelDrafter | None, start: Sequence[int], texts: int, length: int,
    seed: int, first: int = 0,
) -> Tensor:  # fmt: skip
    """Texts the target writes after `start` at temperature 1, int64 [texts, length].

    drafter: makes it faster and changes nothing in the law; None for plain decoding. A text that
    ends is followed by another, as the target has learnt it. first: number of the first text; a
    text depends on `seed` and its number alone.
    """
    new = check_whole("length", length, len(start) + 1) - len(start)
    results = speculative_decode_batch(
        target, drafter, [start] * check_whole("texts", texts, 1), gamma=6, max_new_tokens=new,
        randomness=[Seeded((seed << 32) + first + i) for i in range(texts)], record="stats",
    )  # fmt: skip
    return torch.tensor([[*start, *result.tokens] for result in results])


@torch.no_grad()
def hidden_rows(target: CausalLM, ids: Tensor) -> Tensor:
    """The target's hidden rows after its last norm, [B, n, width], of texts int64 [B, n].

    Its output head makes logits of them, so they are all that is kept of a teacher.
    """
    body = target.model.model
    with Threads(target.threads):
        return body(input_ids=ids, use_cache=False).last_hidden_state


@torch.no_grad()
def teacher_probs(target: CausalLM, hidden: Tensor) -> Tensor:
    """The target's distributions at temperature 1, [..., V], of its hidden rows."""
    return target.model.lm_head(hidden).softmax(-1)


def fresh_student(
    target: CausalLM, layers: int = 1, intermediate: int = 256, seed: int = 0
) -> LlamaForCausalLM:
    """A student: the target's embedding and output head, tied as they are, fresh layers between.

    The layers are as wide as the target's, else its embedding would not fit. Raises ValueError
    unless the target is a Llama.
    """
    if not isinstance(target.model, LlamaForCausalLM):
        raise ValueError(f"{type(target.model).__name__} is not a Llama: it has no such student.")
    config = deepcopy(target.model.config)
    config.num_hidden_layers = check_whole("layers", layers, 1)
    config.intermediate_size = check_whole("intermediate", intermediate, 1)
    config.dtype = target.dtype
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        student = LlamaForCausalLM(config).to(target.dtype)
    student.model.embed_tokens.load_state_dict(target.model.model.embed_tokens.state_dict())
    student.lm_head.load_state_dict(target.model.lm_head.state_dict())
    return student


def total_variation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """Mean 1 - sum min(p, q): the share of drafts that will be rejected, which is the goal itself.

    logits: the student's, [..., V]. teacher: probabilities [..., V].
    """
    return (logits.softmax(-1) - teacher).abs().sum(-1).mean() / 2


def kl_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """Mean KL(p || q) in nats; arguments as `total_variation_loss`.

    Its slope does not vanish where q is all but zero, as a fresh draft's is nearly everywhere.
    """
    return kl_div(log_softmax(logits, -1), teacher, reduction="none").sum(-1).mean()


def decoded_acceptance(
    target: CausalLM, drafter: ModelDrafter, prompts: Sequence[Sequence[int]], tokens: int = 32
) -> float:
    """`acceptance_rate` at temperature 1 over `COPIES` texts of so many tokens after each prompt.

    The same seeds each time, so that only the draft differs from one call to the next.
    """
    starts, total = [*prompts] * COPIES, Stats()
    for result in speculative_decode_batch(
        target, drafter, starts, max_new_tokens=tokens,
        randomness=[Seeded(i) for i in range(len(starts))],
    ):  # fmt: skip
        for round in result.trace.rounds:
            total.add(round)
    return total.acceptance_rate


def distil(
    target: CausalLM, drafter: ModelDrafter, texts: Tensor, prompts: Sequence[Sequence[int]], *,
    steps: int = 120, rate: float = 4e-3, rows: int = 16, every: int = 20, seed: int = 0,
) -> Iterator[Progress]:  # fmt: skip
    """Train the draft's model, in place, on the target's own `texts`; it drafts better at once.

    drafter: of a `fresh_student`. texts: int64 [texts, length]. prompts: after which acceptance is
    measured, before the first step and after each `every` steps. One step reads `rows` texts; the
    learning rate falls to zero along a line. The same seed gives the same run.
    """
    student = drafter.model.model.train()
    optimizer = torch.optim.AdamW(student.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.05)
    generator = torch.Generator().manual_seed(seed)
    taught = teacher_probs(target, hidden_rows(target, texts))
    yield Progress(0, math.nan, decoded_acceptance(target, drafter, prompts))
    losses = []
    for step in range(1, steps + 1):
        which = torch.randperm(len(texts), generator=generator)[:rows]
        with Threads(target.threads):
            loss = kl_loss(student(texts[which], use_cache=False).logits, taught[which])
            loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = rate * min(step / WARM_UP, 1 - (step - 1) / steps)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % every == 0 or step == steps:
            loss = sum(losses) / len(losses)
            yield Progress(step, loss, decoded_acceptance(target, drafter, prompts))
            losses = []
