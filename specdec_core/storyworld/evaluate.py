"""What the bundled weights achieve, measured on held-out text: the card beside them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from specdec_core.drafters import MedusaHeads
from specdec_core.ngram import NGramTable

from .data import encode, token_ids
from .grammar import KIND_WEIGHTS, KINDS, texts
from .heads import ahead, exit_model

HELD_OUT_SEED, HELD_OUT_TEXTS = 999, 100  # texts of each kind
BATCH = 20  # documents in one forward
DRAFT_MODELS = ("default", "strong", "distilled", "mismatched")
Model = LlamaForCausalLM | NGramTable
Document = tuple[list[int], float]  # ids from start to stop token, and natural log probability


def load_model(folder: Path) -> LlamaForCausalLM:
    """The weights as they are on disk (bfloat16), run in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def load_table(folder: Path) -> NGramTable:
    """The n-gram table of the weak draft."""
    return NGramTable.from_tensors(load_file(folder / "ngrams.safetensors"))


def held_out(kind: str, count: int = HELD_OUT_TEXTS) -> list[Document]:
    """Texts from a seed that no training uses."""
    ids = token_ids()
    return [(encode(text, ids), text.log_prob) for text in texts(HELD_OUT_SEED, count, kind)]


@torch.inference_mode()
def distributions(model: Model, documents: list[Document]) -> list[Tensor]:
    """For each document, the distribution after each token but the last, [n - 1, vocab]."""
    rows = [ids for ids, _ in documents]
    if isinstance(model, NGramTable):
        return [torch.stack([model.probs(ids[:end]) for end in range(1, len(ids))]) for ids in rows]
    found: list[Tensor] = []
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        width = max(map(len, some))
        # Padding on the right needs no mask: a causal model does not look ahead.
        padded = torch.tensor([ids + [0] * (width - len(ids)) for ids in some])
        probs = model(padded, use_cache=False).logits.softmax(-1, dtype=torch.float64)
        found += [row[: len(ids) - 1] for row, ids in zip(probs, some, strict=True)]
    return found


def entropy_and_cross_entropy(
    documents: list[Document], probs: list[Tensor]
) -> tuple[float, float]:
    """The grammar's entropy and the model's cross-entropy on the same texts, nats a token."""
    entropy = loss = 0.0
    tokens = 0
    for (ids, log_prob), rows in zip(documents, probs, strict=True):
        loss += cross_entropy(rows.log(), torch.tensor(ids[1:]), reduction="sum").item()
        entropy -= log_prob
        tokens += len(ids) - 1
    return entropy / tokens, loss / tokens


def acceptance(target_probs: list[Tensor], draft_probs: list[Tensor]) -> float:
    """Mean over positions of sum min(p, q): the acceptance rate expected at temperature 1."""
    pairs = zip(target_probs, draft_probs, strict=True)
    return torch.cat([torch.minimum(p, q).sum(-1) for p, q in pairs]).mean().item()


def excess_over_entropy(rates: dict[str, tuple[float, float]], lengths: dict[str, float]) -> float:
    """Share by which cross-entropy exceeds entropy, over all kinds as the grammar mixes them.

    rates: (entropy, cross-entropy) by kind, nats a token. lengths: mean tokens of a text, by kind.
    """
    share = {k: w * lengths[k] for k, w in zip(KINDS, KIND_WEIGHTS, strict=True)}
    entropy = sum(share[kind] * rates[kind][0] for kind in KINDS)
    return sum(share[kind] * rates[kind][1] for kind in KINDS) / entropy - 1


def measure(target: Model, drafts: dict[str, Model], count: int = HELD_OUT_TEXTS) -> dict:
    """Cross-entropy of the target, its excess, and acceptance of every draft, by kind of text."""
    rates, lengths = {}, {}
    accepted: dict[str, dict[str, float]] = {name: {} for name in drafts}
    for kind in KINDS:
        documents = held_out(kind, count)
        target_probs = distributions(target, documents)
        rates[kind] = entropy_and_cross_entropy(documents, target_probs)
        lengths[kind] = sum(len(ids) - 1 for ids, _ in documents) / len(documents)
        for name, draft in drafts.items():
            accepted[name][kind] = acceptance(target_probs, distributions(draft, documents))
    excess = excess_over_entropy(rates, lengths)
    return {"held_out": rates, "excess_over_entropy": excess, "acceptance": accepted}


@torch.inference_mode()
def measure_heads(
    target: LlamaForCausalLM, heads: MedusaHeads, count: int = HELD_OUT_TEXTS
) -> dict[str, list[float]]:
    """Acceptance of each Medusa head at temperature 1, by kind of text.

    Of the draft it makes alone, whatever became of the drafts before it: mean of sum min(p, q)
    over all rows that have a row so far ahead.
    """
    found = {}
    for kind in KINDS:
        rates = []
        for ids, _ in held_out(kind, count):
            hidden = target.model(torch.tensor([ids[:-1]]), use_cache=False).last_hidden_state
            p = target.lm_head(hidden).softmax(-1, dtype=torch.float64)
            q = target.lm_head(heads.hidden(hidden[:, : -len(heads)]))
            q = q.softmax(-1, dtype=torch.float64)
            rates.append(torch.minimum(ahead(p, len(heads)), q).sum(-1)[0])
        found[kind] = torch.cat(rates).mean(0).tolist()
    return found


def load_all(weights: Path) -> tuple[LlamaForCausalLM, dict[str, Model]]:
    """The target and its drafts by name; Medusa's heads are apart, since they are no model."""
    drafts: dict[str, Model] = {name: load_model(weights / name) for name in DRAFT_MODELS}
    target = load_model(weights / "target")
    early = load_file(weights / "exit" / "exit.safetensors")
    drafts["exit"] = exit_model(target, int(early["layers"]), early["norm"].float())
    return target, drafts | {"weak": load_table(weights / "weak")}


def load_heads(weights: Path) -> MedusaHeads:
    """The Medusa heads as they are on disk (bfloat16), run in float32."""
    tensors = load_file(weights / "medusa" / "medusa.safetensors")
    return MedusaHeads.from_tensors({name: tensor.float() for name, tensor in tensors.items()})


def write_card(weights: Path, facts: dict[str, dict]) -> dict:
    """Measure the parts in `facts`, add it to what `facts` says of their training, and write
    `card.json`. What the card said of other parts stays."""
    path = weights / "card.json"
    card = json.loads(path.read_text()) if path.exists() else {}
    card["note"] = (
        "Entropies in nats a token and acceptance at temperature 1, both on held-out text of the "
        f"grammar ({HELD_OUT_TEXTS} texts of each kind, seed {HELD_OUT_SEED}). training_seconds: "
        "wall time of the run that made these weights."
    )
    target, drafts = load_all(weights)
    found = measure(target, {name: drafts[name] for name in facts if name in drafts})
    for name, about in facts.items():
        card[name] = dict(about)
        if name in (*DRAFT_MODELS, "target"):
            model = drafts.get(name, target)
            card[name]["parameters"] = sum(p.numel() for p in model.parameters())
        if name in drafts:
            card[name]["acceptance"] = _rounded(found["acceptance"][name])
    if "target" in facts:
        card["target"]["held_out"] = {
            kind: {"entropy": round(h, 4), "cross_entropy": round(ce, 4)}
            for kind, (h, ce) in found["held_out"].items()
        }
        card["target"]["excess_over_entropy"] = round(found["excess_over_entropy"], 4)
    for name in EXTRAS.keys() & facts:
        card[name] |= EXTRAS[name](weights, target, drafts)
    path.write_text(json.dumps(card, indent=1) + "\n")
    return card


def _under_another_target(_: Path, __: LlamaForCausalLM, drafts: dict[str, Model]) -> dict:
    """What the distilled draft loses where it drafts for another model of the same world."""
    found = measure(drafts["strong"], {"distilled": drafts["distilled"]})["acceptance"]
    return {"acceptance_under_strong": _rounded(found["distilled"])}


def _untrained_exit(_: Path, target: LlamaForCausalLM, drafts: dict[str, Model]) -> dict:
    """What the trained norm is worth: the same exit with the target's own last norm."""
    layers = drafts["exit"].config.num_hidden_layers
    found = measure(target, {"exit": exit_model(target, layers)})["acceptance"]
    return {
        "parameters": drafts["exit"].model.norm.weight.numel(),
        "acceptance_with_the_target_norm": _rounded(found["exit"]),
    }


def _each_head(weights: Path, target: LlamaForCausalLM, _: dict[str, Model]) -> dict:
    heads = load_heads(weights)
    found = measure_heads(target, heads)
    return {
        "parameters": heads.weight.numel() + heads.bias.numel(),
        "acceptance_by_head": {
            kind: [round(rate, 3) for rate in rates] for kind, rates in found.items()
        },
    }


EXTRAS = {"distilled": _under_another_target, "exit": _untrained_exit, "medusa": _each_head}


def _rounded(rates: dict[str, float]) -> dict[str, float]:
    return {kind: round(rate, 3) for kind, rate in rates.items()}
