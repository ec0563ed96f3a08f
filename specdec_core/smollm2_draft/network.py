"""The draft's network: two Llama layers between the target's own embedding and a short head.

Only what was trained is stored; the embedding and the head's rows are the target's, taken from it
when the draft is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, LlamaModel, PreTrainedModel

from specdec_core.short_head import ShortHead

LAYERS = 2
WEIGHTS = Path(__file__).parent / "weights"
FILE = WEIGHTS / "draft.safetensors"
CARD = WEIGHTS / "card.json"


def trainable_body(teacher: LlamaForCausalLM) -> LlamaModel:
    """A float32 body to train: the teacher's frozen embedding, first and last layer, and norm."""
    config = deepcopy(teacher.config)
    config.num_hidden_layers = LAYERS
    # Explicit products train faster on a CPU than the fused attention's backward.
    config._attn_implementation = "eager"
    body = LlamaModel(config).float()
    body.embed_tokens.weight = nn.Parameter(teacher.model.embed_tokens.weight, requires_grad=False)
    body.layers[0].load_state_dict(teacher.model.layers[0].state_dict())
    body.layers[-1].load_state_dict(teacher.model.layers[-1].state_dict())
    body.norm.load_state_dict(teacher.model.norm.state_dict())
    return body


def trained_tensors(body: LlamaModel, ids: Tensor) -> dict[str, Tensor]:
    """What is stored: layers and norm in bfloat16, and the ids of the short head, int32."""
    trained = {name: p for name, p in body.named_parameters() if p.requires_grad}
    tensors = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in trained.items()}
    return {**tensors, "ids": ids.to(torch.int32)}


def draft_network(target: PreTrainedModel, tensors: Mapping[str, Tensor]) -> LlamaForCausalLM:
    """The draft as a causal language model in the target's dtype and place; shares its embedding.

    tensors: as `trained_tensors` names them. Raises ValueError where they do not fit the target.
    """
    config = deepcopy(target.config)
    config.num_hidden_layers, config.tie_word_embeddings = LAYERS, False
    embedding, head = target.get_input_embeddings().weight, target.get_output_embeddings().weight
    ids = tensors["ids"].long().to(head.device)
    with torch.device("meta"):
        draft = LlamaForCausalLM(config)
    trained = {
        f"model.{name}": tensor.to(head.device, head.dtype)
        for name, tensor in tensors.items()
        if name != "ids"
    }
    try:
        draft.load_state_dict(
            {**trained, "model.embed_tokens.weight": embedding, "lm_head.weight": head},
            assign=True,
        )
    except RuntimeError as error:
        raise ValueError(
            "SmolLM2's draft does not fit this target: it was distilled from "
            f"SmolLM2-135M-Instruct alone ({str(error).splitlines()[-1].strip()})."
        ) from error
    # The angles of the positions are no weights, and the meta device left them empty.
    draft.model.rotary_emb = deepcopy(target.model.rotary_emb)
    draft.lm_head = ShortHead(head.detach()[ids], ids, head.shape[0])
    return draft.requires_grad_(False)
