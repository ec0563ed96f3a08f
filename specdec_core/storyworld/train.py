"""Train the bundled pair: `python -m specdec_core.storyworld.train` rebuilds all weights.

The target and two drafts are Llama models that learn the grammar's texts by next-token prediction;
the third draft is an n-gram table. Budgets are counted in tokens and every seed is fixed. A run
that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from specdec_core.ngram import NGramTable

from .data import batches, encode, token_ids
from .evaluate import write_card
from .grammar import texts
from .tokenizer import START, STOP, WEIGHTS, save_tokenizer, vocabulary

CHECKPOINTS = Path("build/train")
CONTEXT = 4096
CHECKPOINT_EVERY = 200  # steps
WEAK_ORDER, WEAK_TEXTS, WEAK_SEED = 2, 4000, 41


@dataclass(frozen=True)
class Stage:
    """A stretch of training at one depth; the learning rate is the peak of the stage."""

    layers: int
    steps: int
    rate: float


@dataclass(frozen=True)
class Plan:
    """A Llama model and its training; one batch is `rows` x `length` tokens.

    A model that learns through several stages grows: recall of names is learnt in a minute by one
    layer and not within an hour by 24 fresh ones. Added layers start as the identity.
    """

    name: str
    stages: tuple[Stage, ...]
    hidden: int
    intermediate: int
    heads: int
    seed: int
    rows: int = 27
    length: int = 152

    @property
    def layers(self) -> int:
        return self.stages[-1].layers

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    @property
    def tokens(self) -> int:
        """Tokens seen in training."""
        return self.steps * self.rows * self.length

    def facts(self) -> dict:
        """What the card says about the training."""
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "trained_length": self.length,
            "tokens_seen": self.tokens,
            "seed": self.seed,
        }


PLANS = (
    Plan(
        "target",
        (Stage(1, 1200, 3e-3), Stage(4, 1500, 2e-3), Stage(24, 1500, 1e-3)),
        hidden=96, intermediate=256, heads=6, seed=1,
    ),
    # Small and short on purpose: a lesson needs a draft that errs, more on stories than on code.
    Plan("default", (Stage(1, 600, 3e-3),), hidden=32, intermediate=64, heads=2, seed=2),
    Plan(
        "strong",
        (Stage(1, 1000, 3e-3), Stage(3, 1000, 2e-3)),
        hidden=96, intermediate=256, heads=6, seed=3,
    ),
)  # fmt: skip


def build_model(plan: Plan, layers: int) -> LlamaForCausalLM:
    """A fresh model; what each layer adds is scaled down by depth (GPT-2's initialisation)."""
    torch.manual_seed(plan.seed)
    ids = token_ids()
    config = LlamaConfig(
        vocab_size=len(ids), hidden_size=plan.hidden, intermediate_size=plan.intermediate,
        num_hidden_layers=layers, num_attention_heads=plan.heads,
        num_key_value_heads=plan.heads, max_position_embeddings=CONTEXT,
        tie_word_embeddings=True, initializer_range=0.05,
        bos_token_id=ids[START], eos_token_id=ids[STOP], pad_token_id=ids[STOP],
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter /= math.sqrt(2 * layers)
    return model


@torch.no_grad()
def grow(plan: Plan, shallow: LlamaForCausalLM, layers: int) -> LlamaForCausalLM:
    """A deeper model that computes what `shallow` does: its layers are spread, the rest add 0."""
    deep = build_model(plan, layers)
    deep.model.embed_tokens.load_state_dict(shallow.model.embed_tokens.state_dict())
    deep.model.norm.load_state_dict(shallow.model.norm.state_dict())
    for layer in deep.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    every = layers // len(shallow.model.layers)
    for i, layer in enumerate(shallow.model.layers):
        deep.model.layers[i * every].load_state_dict(layer.state_dict())
    return deep


def rate_at(step: int, stage: Stage, last: bool) -> float:
    """Warm-up over 100 steps, then constant; the last stage ends linearly, down to 2 %."""
    warm_up = min(1.0, (step + 1) / 100)
    decay = min(1.0, max(0.02, (stage.steps - step) / (0.4 * stage.steps))) if last else 1.0
    return stage.rate * warm_up * decay


class Checkpoint:
    """The state of one training run in a safetensors file, written in one piece."""

    def __init__(self, folder: Path, plan: Plan, stage: int) -> None:
        self.path = folder / f"{plan.name}-{stage}.safetensors"

    def save(self, step: int, seconds: float, model, optimizer) -> None:
        state = {f"model.{k}": v for k, v in model.named_parameters()}
        for i, slots in optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{i}.{k}": v for k, v in slots.items()}
        state["progress"] = torch.tensor([step, seconds], dtype=torch.float64)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        save_file({k: v.detach().contiguous() for k, v in state.items()}, unfinished)
        unfinished.replace(self.path)

    def load(self, model, optimizer) -> tuple[int, float]:
        """Restore both; returns steps done and seconds spent, 0 and 0 where there is no file."""
        if not self.path.exists():
            return 0, 0.0
        state = load_file(self.path)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(state[f"model.{name}"])
        slots: dict[int, dict[str, torch.Tensor]] = {}
        for name in state:
            if name.startswith("optimizer."):
                _, i, key = name.split(".")
                slots.setdefault(int(i), {})[key] = state[name]
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
        step, seconds = state["progress"].tolist()
        return int(step), seconds


def train(plan: Plan, folder: Path) -> tuple[LlamaForCausalLM, float]:
    """All stages of a plan; returns the model and the seconds it took."""
    total = plan.rows * plan.length
    model, spent, first = build_model(plan, plan.stages[0].layers), 0.0, 0
    with tqdm(total=plan.tokens, unit="token", unit_scale=True, desc=plan.name) as bar:
        for number, stage in enumerate(plan.stages):
            if number:
                model = grow(plan, model, stage.layers)
            data = partial(batches, plan.seed, plan.rows, plan.length)
            checkpoint = Checkpoint(folder, plan, number)
            last = number == len(plan.stages) - 1
            spent += train_stage(model, stage, last, data, first, checkpoint, bar)
            first += stage.steps
            bar.update(first * total - bar.n)
    return model.eval(), spent


def train_stage(model, stage: Stage, last: bool, data, first: int, checkpoint, bar) -> float:
    """Next-token prediction on fresh texts, from batch number `first` on; returns seconds."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)
    done, seconds = checkpoint.load(model, optimizer)
    started = time.perf_counter() - seconds
    model.train()
    stream = data(skip=first + done)
    for step in range(done, stage.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, stage, last)
        batch = torch.from_numpy(next(stream))
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        bar.update((first + step + 1) * batch[:, 1:].numel() - bar.n)
        if (step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == stage.steps:
            seconds = time.perf_counter() - started
            checkpoint.save(step + 1, seconds, model, optimizer)
            bar.set_postfix(layers=stage.layers, loss=f"{loss.item():.3f}")
    return seconds


def save_model(model: LlamaForCausalLM, folder: Path) -> None:
    """An ordinary transformers folder, weights in bfloat16, tokenizer beside them."""
    model.generation_config = GenerationConfig.from_model_config(model.config)
    model.to(torch.bfloat16).save_pretrained(folder)
    save_tokenizer(folder)


def fit_weak() -> NGramTable:
    """The weak draft: counts over a few thousand texts."""
    ids = token_ids()
    documents = [encode(text, ids) for text in texts(WEAK_SEED, WEAK_TEXTS)]
    return NGramTable.fit(documents, WEAK_ORDER, len(vocabulary()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the bundled pair of storyworld.")
    parser.add_argument("--output", type=Path, default=WEIGHTS, help="folder of the weights")
    parser.add_argument("--checkpoints", type=Path, default=CHECKPOINTS)
    options = parser.parse_args()
    torch.set_num_threads(2)
    made = options.checkpoints / "weights"
    shutil.rmtree(made, ignore_errors=True)
    seconds = {}
    for plan in PLANS:
        model, seconds[plan.name] = train(plan, options.checkpoints)
        save_model(model, made / plan.name)
    (made / "weak").mkdir(parents=True)
    save_file(fit_weak().to_tensors(), made / "weak" / "ngrams.safetensors")
    facts = {plan.name: plan.facts() | {"training_seconds": round(seconds[plan.name])}
             for plan in PLANS}  # fmt: skip
    facts["weak"] = {"order": WEAK_ORDER, "texts_seen": WEAK_TEXTS, "seed": WEAK_SEED}
    card = write_card(made, facts)
    shutil.rmtree(options.output, ignore_errors=True)
    shutil.copytree(made, options.output)
    for plan in PLANS:  # the next run starts afresh
        for number in range(len(plan.stages)):
            Checkpoint(options.checkpoints, plan, number).path.unlink()
    print(json.dumps(card, indent=1))


if __name__ == "__main__":
    main()
