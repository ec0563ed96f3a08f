"""Train what is bundled: `python -m specdec_core.storyworld.train` rebuilds all weights.

The target and three drafts are Llama models that learn texts of the grammar by next-token
prediction, and the weak draft is an n-gram table. The rest learns from the target: the distilled
draft, the norm of the early exit and the Medusa heads. Budgets are counted in tokens and every seed
is fixed. A run that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from specdec_core.drafters import ModelDrafter
from specdec_core.models import CausalLM
from specdec_core.ngram import NGramTable
from specdec_core.threads import Threads

from . import distil
from .data import batches, encode, token_ids
from .evaluate import load_model, write_card
from .grammar import texts
from .tokenizer import START, STOP, WEIGHTS, save_tokenizer, vocabulary
from .training import Checkpoint, Stage, save_whole, train_stage

CHECKPOINTS = Path("build/train")
CONTEXT = 4096
WEAK_ORDER, WEAK_TEXTS, WEAK_SEED = 2, 4000, 41


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
    kind: str | None = None  # of the texts it reads; None for all

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
        } | ({"kind": self.kind} if self.kind else {})


LANGUAGE_MODELS = (
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
    # As the default draft in all but what it read.
    Plan(
        "mismatched", (Stage(1, 600, 3e-3),), hidden=32, intermediate=64, heads=2, seed=4,
        kind="recipe",
    ),
)  # fmt: skip
PLANS = {plan.name: plan for plan in LANGUAGE_MODELS}
PARTS = (*PLANS, "weak", *distil.LESSONS)


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


def train(plan: Plan, folder: Path) -> tuple[LlamaForCausalLM, float]:
    """All stages of a plan, by next-token prediction; returns the model and the seconds it took."""

    def read(first: int, skip: int) -> Iterator[Tensor]:
        fresh = batches(plan.seed, plan.rows, plan.length, first + skip, plan.kind)
        return map(torch.from_numpy, fresh)

    model, spent, first = build_model(plan, plan.stages[0].layers), 0.0, 0
    with tqdm(total=plan.steps, desc=plan.name) as bar:
        for number, stage in enumerate(plan.stages):
            if number:
                model = grow(plan, model, stage.layers)
            spent += train_stage(
                model, stage, number == len(plan.stages) - 1, partial(read, first),
                next_token_loss, Checkpoint(folder, f"{plan.name}-{number}"), bar,
            )  # fmt: skip
            first += stage.steps
    return model.eval(), spent


def next_token_loss(model: LlamaForCausalLM, batch: Tensor) -> Tensor:
    """Mean cross-entropy, nats a token, of ids int64 [rows, length + 1]."""
    logits = model(batch[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


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


class Workshop:
    """Makes the parts by name: `make` puts one into `folder` and returns its facts for the card.

    A part that learns from the target reads it from `folder`, so it comes after the target.
    """

    def __init__(self, folder: Path, checkpoints: Path) -> None:
        self.folder, self.checkpoints = folder, checkpoints

    def make(self, name: str) -> dict:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        if name in PLANS:
            model, seconds = train(PLANS[name], self.checkpoints)
            save_model(model, self.folder / name)
            return PLANS[name].facts() | {"training_seconds": round(seconds)}
        if name == "weak":
            save_whole(fit_weak().to_tensors(), self.folder / name / "ngrams.safetensors")
            return {"order": WEAK_ORDER, "texts_seen": WEAK_TEXTS, "seed": WEAK_SEED}
        lesson, learnt = distil.LESSONS[name]
        made, seconds = learnt(self.target, self.teacher, self.checkpoints)
        if isinstance(made, LlamaForCausalLM):
            save_model(made, self.folder / name)
        else:
            halves = {k: v.to(torch.bfloat16) if v.ndim else v for k, v in made.items()}
            save_whole(halves, self.folder / name / f"{name}.safetensors")
        return lesson.facts() | {
            "teacher_seconds": round(self.teacher.seconds), "training_seconds": round(seconds)
        }  # fmt: skip

    @cached_property
    def target(self) -> CausalLM:
        return CausalLM(load_model(self.folder / "target"))

    @cached_property
    def teacher(self) -> distil.Teacher:
        drafter = ModelDrafter(CausalLM(load_model(self.folder / "strong")))
        return distil.Teacher(self.target, drafter, self.checkpoints)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the bundled models of storyworld.")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", default=PARTS,
                        help=f"make these and leave the others: {', '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--output", type=Path, default=WEIGHTS, help="folder of the weights")
    parser.add_argument("--checkpoints", type=Path, default=CHECKPOINTS)
    options = parser.parse_args(arguments)
    made, parts = options.checkpoints / "weights", [p for p in PARTS if p in options.only]
    shutil.rmtree(made, ignore_errors=True)
    if len(parts) < len(PARTS):
        shutil.copytree(options.output, made)
    workshop = Workshop(made, options.checkpoints)
    with Threads(2):
        card = write_card(made, {name: workshop.make(name) for name in parts})
    shutil.rmtree(options.output, ignore_errors=True)
    shutil.copytree(made, options.output)
    for file in options.checkpoints.glob("*.safetensors"):  # the next run starts afresh
        file.unlink()
    print(json.dumps(card, indent=1))


if __name__ == "__main__":
    main()
