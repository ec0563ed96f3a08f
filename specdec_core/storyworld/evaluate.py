"""What the bundled weights achieve, measured on held-out text: the card beside them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from specdec_core.ngram import NGramTable

from .data import encode, token_ids
from .grammar import KINDS, texts

HELD_OUT_SEED, HELD_OUT_TEXTS = 999, 100  # texts of each kind


def load_model(folder: Path) -> LlamaForCausalLM:
    """The weights as they are on disk (bfloat16), run in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def load_table(folder: Path) -> NGramTable:
    """The n-gram table of the weak draft."""
    return NGramTable.from_tensors(load_file(folder / "ngrams.safetensors"))


@torch.no_grad()
def next_token_logits(model: LlamaForCausalLM, ids: list[int]) -> Tensor:
    """Logits after each token but the last, float32 [n - 1, vocab]."""
    return model(torch.tensor([ids]), use_cache=False).logits[0, :-1].float()


def distributions(model: LlamaForCausalLM | NGramTable, ids: list[int]) -> Tensor:
    """The distribution after each token but the last, [n - 1, vocab]."""
    if isinstance(model, NGramTable):
        return torch.stack([model.probs(ids[: i + 1]) for i in range(len(ids) - 1)])
    return next_token_logits(model, ids).softmax(-1)


def held_out(kind: str, count: int = HELD_OUT_TEXTS) -> list[tuple[list[int], float]]:
    """Texts no training has seen: ids with start and stop token, and natural log probability."""
    ids = token_ids()
    return [(encode(text, ids), text.log_prob) for text in texts(HELD_OUT_SEED, count, kind)]


def entropy_and_cross_entropy(model: LlamaForCausalLM, kind: str) -> tuple[float, float, int]:
    """Grammar's entropy and model's cross-entropy on the same texts, nats; and how many tokens."""
    entropy = loss = 0.0
    tokens = 0
    for ids, log_prob in held_out(kind):
        logits = next_token_logits(model, ids)
        loss += cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()
        entropy -= log_prob
        tokens += len(ids) - 1
    return entropy, loss, tokens


def acceptance(target: LlamaForCausalLM, draft: LlamaForCausalLM | NGramTable, kind: str) -> float:
    """Mean over positions of sum min(p, q) at temperature 1: the expected acceptance rate."""
    kept = 0.0
    tokens = 0
    for ids, _ in held_out(kind):
        overlap = torch.minimum(distributions(target, ids), distributions(draft, ids)).sum(-1)
        kept += overlap.sum().item()
        tokens += len(overlap)
    return kept / tokens


def write_card(weights: Path, facts: dict[str, dict]) -> dict:
    """Measure everything, add it to `facts` about the training, and write `card.json`."""
    target = load_model(weights / "target")
    drafts = {name: load_model(weights / name) for name in ("default", "strong")}
    drafts |= {"weak": load_table(weights / "weak")}
    card = {"note": "entropies in nats a token, acceptance at temperature 1, held-out text"}
    card |= {name: dict(about) for name, about in facts.items()}
    for name, model in {"target": target, **drafts}.items():
        if not isinstance(model, NGramTable):
            card[name]["parameters"] = sum(p.numel() for p in model.parameters())
    sums = [entropy_and_cross_entropy(target, kind) for kind in KINDS]
    card["target"]["held_out"] = {
        kind: {"entropy": round(h / n, 4), "cross_entropy": round(ce / n, 4)}
        for kind, (h, ce, n) in zip(KINDS, sums, strict=True)
    }
    excess = sum(ce for _, ce, _ in sums) / sum(h for h, _, _ in sums) - 1
    card["target"]["excess_over_entropy"] = round(excess, 4)
    for name, draft in drafts.items():
        rates = {kind: round(acceptance(target, draft, kind), 3) for kind in KINDS}
        card[name]["acceptance"] = rates
    (weights / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    return card
