"""Pairs of models: a target and drafters that share its tokens.

`load_pair("storyworld")` is bundled and needs no network; `load_pair("smollm2")` is a real chat
model, got once by `make models`; `load_pair(target=..., draft=...)` takes any two, by name or
folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from jinja2 import TemplateError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdec_core.drafters import (
    Drafter,
    EarlyExitModel,
    LookupDrafter,
    LookupElse,
    MedusaDrafter,
    MedusaHeads,
    ModelDrafter,
    NGramDrafter,
)
from specdec_core.loading import load_model, load_tokenizer, parse_device
from specdec_core.models import CausalLM
from specdec_core.ngram import NGramTable
from specdec_core.smollm2 import smollm2_folder
from specdec_core.smollm2_draft import FILE as SMOLLM2_DRAFT
from specdec_core.smollm2_draft import draft_network
from specdec_core.storyworld import WEIGHTS, check_words
from specdec_core.tokenizer_match import check_rows, check_same_tokens

PAIR_NAMES = ("storyworld", "smollm2")
# Beyond this SmolLM2's draft costs more than it gains; a copied draft costs nothing.
DRAFTS_AT_MOST = 3


@dataclass
class Pair:
    """A target, its drafters, and the text they share.

    name: of the pair. target: the model whose law the output has. drafters: by name; `drafter` is
    the one used by default. stop_tokens: ids that end a text. check_text: raises ValueError for a
    text the tokenizer cannot express, where such texts exist.
    """

    name: str
    target: CausalLM
    drafters: dict[str, Drafter]
    tokenizer: PreTrainedTokenizerBase
    stop_tokens: tuple[int, ...]
    check_text: Callable[[str], None] | None = None

    @property
    def drafter(self) -> Drafter:
        """The first of `drafters`."""
        return next(iter(self.drafters.values()))

    def encode(self, text: str, chat: bool = False) -> list[int]:
        """Token ids of `text`, with whatever the tokenizer puts before it.

        chat: the text is a user's message; wrap it in the chat template, ready for the answer.
        Raises ValueError where there is no template, or for a word outside a closed vocabulary.
        """
        if not isinstance(text, str):
            raise TypeError(f"encode takes text, not {type(text).__name__}.")
        if self.check_text:
            self.check_text(text)
        if not chat:
            return self.tokenizer(text).input_ids
        if not self.tokenizer.chat_template:
            raise ValueError(
                f"The tokenizer of {self.name} has no chat template: give it plain text."
            )
        messages = [{"role": "user", "content": text}]
        wrapped = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        return self.tokenizer(wrapped, add_special_tokens=False).input_ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out, spaces as they are."""
        return self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


class _Options(NamedTuple):
    """How to load a pair; arguments of `load_pair`."""

    device: str | torch.device
    draft_device: str | torch.device
    dtype: str | torch.dtype
    max_length: int | None


def load_pair(
    name: str | None = None,
    *,
    target: str | Path | None = None,
    draft: str | Path | None = None,
    device: str | torch.device = "cpu",
    draft_device: str | torch.device | None = None,
    dtype: str | torch.dtype = "float32",
    max_length: int | None = None,
) -> Pair:
    """Load a pair by its name, or any two models that share a tokenizer.

    name: "storyworld" (drafters default, weak, strong, distilled, mismatched, lookup, exit, medusa)
        or "smollm2" (drafters distilled, lookup else distilled, lookup, self).
    target, draft: a folder, or a model's name on the hub. Without a draft the only drafter is
        "self", the target as its own draft: every draft is accepted, and nothing is gained.
    device: "cpu", "cuda" or "cuda:1". draft_device: the draft's, where it is another; its drafts
        then travel in every round. dtype: "float32", "float64", "bfloat16" or "float16".
    max_length: longest text in tokens; by default each model's context, at most 4,096.

    Raises ValueError, in one sentence, where a model is not there, cannot be loaded whole or cannot
    roll back, where the device is not there, and where target and draft do not mean the same token
    by the same id. Logit widths may differ: padding rows have no token.
    """
    if (name is None) == (target is None):
        raise ValueError(f"Name a pair ({' or '.join(PAIR_NAMES)}), or pass target= and draft=.")
    options = _Options(device, device if draft_device is None else draft_device, dtype, max_length)
    if target is not None:
        return _any_pair(target, draft, options)
    if draft is not None:
        raise ValueError(f"draft= goes with target=; choose among load_pair({name!r}).drafters.")
    if name == "storyworld":
        return _storyworld(options)
    if name == "smollm2":
        return _smollm2(options)
    raise ValueError(
        f"There is no pair named {name!r}: choose {' or '.join(PAIR_NAMES)}, or pass target= and "
        "draft=."
    )


def storyworld_card() -> dict:
    """What is known about the bundled models: sizes, training, entropies, acceptance."""
    path = WEIGHTS / "card.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _storyworld(options: _Options) -> Pair:
    if not (WEIGHTS / "target").is_dir():
        raise ValueError("The bundled weights are missing: run `make train` to make them again.")
    pair = _with_self("storyworld", WEIGHTS / "target", options)
    table = NGramTable.from_tensors(load_file(WEIGHTS / "weak" / "ngrams.safetensors"))
    target = pair.target
    early = _trained_with(target, "exit")
    pair.drafters = {
        "default": _draft_model(WEIGHTS / "default", target, options),
        "weak": NGramDrafter(table),
        "strong": _draft_model(WEIGHTS / "strong", target, options),
        "distilled": _draft_model(WEIGHTS / "distilled", target, options),
        "mismatched": _draft_model(WEIGHTS / "mismatched", target, options),
        "lookup": LookupDrafter(target.vocab_size),
        "exit": ModelDrafter(EarlyExitModel(target, int(early["layers"]), early["norm"])),
        "medusa": MedusaDrafter(target, MedusaHeads.from_tensors(_trained_with(target, "medusa"))),
    }
    pair.check_text = check_words
    return pair


def _trained_with(target: CausalLM, name: str) -> dict[str, Tensor]:
    """What was trained for the bundled target, where the target is and in its dtype."""
    tensors = load_file(WEIGHTS / name / f"{name}.safetensors")
    return {
        part: tensor.to(target.device, target.dtype) if tensor.is_floating_point() else tensor
        for part, tensor in tensors.items()
    }


def _smollm2(options: _Options) -> Pair:
    pair = _with_self("smollm2", smollm2_folder(), options)
    lookup = LookupDrafter(pair.target.vocab_size)
    pair.drafters = {**_distilled_for_smollm2(pair), "lookup": lookup, **pair.drafters}
    return pair


def _distilled_for_smollm2(pair: Pair) -> dict[str, Drafter]:
    """Its own draft, and look-up that falls back on it."""
    if not SMOLLM2_DRAFT.exists():
        raise ValueError("SmolLM2's draft is missing: clone again, or run `make train-smollm2`.")
    target, own = pair.target, pair.drafters["self"].model
    network = draft_network(own.model, load_file(SMOLLM2_DRAFT))
    distilled = ModelDrafter(CausalLM(network, max_length=target.max_length))
    longer = LookupDrafter(target.vocab_size, longest=3, shortest=2)
    both = LookupElse(longer, distilled, limit=DRAFTS_AT_MOST)
    return {"distilled": distilled, "lookup else distilled": both}


def _any_pair(target: str | Path, draft: str | Path | None, options: _Options) -> Pair:
    if draft is None:
        return _with_self(_short(target), target, options)
    target_tokenizer, draft_tokenizer = load_tokenizer(target), load_tokenizer(draft)
    check_same_tokens(target_tokenizer, draft_tokenizer, str(target), str(draft))
    pair = _with_self(f"{_short(target)} + {_short(draft)}", target, options)
    drafter = _draft_model(draft, pair.target, options)
    check_rows(draft_tokenizer, drafter.model.vocab_size, str(draft))
    pair.drafters = {_short(draft): drafter}
    return pair


def _with_self(name: str, target: str | Path, options: _Options) -> Pair:
    """A pair whose only drafter is the target itself: the same weights, a cache of its own."""
    tokenizer = load_tokenizer(target)
    model = load_model(target, options.device, options.dtype)
    lm = CausalLM(model, max_length=options.max_length)
    check_rows(tokenizer, lm.vocab_size, str(target))
    if parse_device(options.draft_device) != parse_device(options.device):
        model = load_model(target, options.draft_device, options.dtype)
    itself = ModelDrafter(CausalLM(model, max_length=lm.max_length))
    return Pair(name, lm, {"self": itself}, tokenizer, find_stop_tokens(model, tokenizer))


def _draft_model(source: str | Path, target: CausalLM, options: _Options) -> ModelDrafter:
    """A drafter for `target`, with room for the same texts where its own context allows."""
    model = load_model(source, options.draft_device, options.dtype)
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    length = min(target.max_length, context or target.max_length)
    return ModelDrafter(CausalLM(model, max_length=length), vocab_size=target.vocab_size)


def _short(source: str | Path) -> str:
    return Path(source).name or str(source)


def find_stop_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """All ids that end a text: of the generation config, the config, the tokenizer, and the token
    that the chat template puts after an answer."""
    found: list[int | None] = []
    for config in (model.generation_config, model.config):
        ids = getattr(config, "eos_token_id", None)
        found += ids if isinstance(ids, Iterable) else [ids]
    found += [tokenizer.eos_token_id, _end_of_turn(tokenizer)]
    rows = model.get_output_embeddings().weight.shape[0]
    return tuple(sorted({token for token in found if token is not None and 0 <= token < rows}))


def _end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token right after an assistant's message in the chat template, if there is."""
    if not tokenizer.chat_template:
        return None
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ANSWER"}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except (TemplateError, ValueError, TypeError, KeyError):  # it refuses this chat: tells nothing
        return None
    after = text.rpartition("ANSWER")[2].lstrip()
    ids = tokenizer(after, add_special_tokens=False).input_ids
    return ids[0] if ids and ids[0] in tokenizer.all_special_ids else None
