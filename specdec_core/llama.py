"""The Llama family's forward, written out: all that runs between token ids and their logits.

Llama, SmolLM, Qwen2 and Mistral without a window share it: RMS norms, rotary positions, grouped
heads, a gated feed-forward. It runs on the weights of the loaded transformers module, fused so that
a layer is few operations, and writes keys and values into the preallocated cache by index. It
computes what transformers computes, which stays the reference (tests/test_llama.py).
Sources: Touvron et al. 2023 (arXiv 2302.13971); rotary positions, Su et al. 2021 (arXiv
2104.09864); grouped heads, Ainslie et al. 2023 (arXiv 2305.13245).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM

from specdec_core.cache import PreallocatedCache, causal_mask, only_plain_layers

FAMILY = (LlamaForCausalLM, Qwen2ForCausalLM, MistralForCausalLM)
# Rotary angles that depend on the position alone; other kinds change as the text grows.
FIXED_ROPE = ("default", "linear", "llama3", "yarn")


def supports(model: PreTrainedModel) -> bool:
    """Whether `LlamaForward` computes what the model's own forward computes."""
    config = model.config
    if type(model) not in FAMILY or config.hidden_act != "silu" or not only_plain_layers(model):
        return False
    if config.rope_parameters.get("rope_type") not in FIXED_ROPE:
        return False
    # A quantised or adapted projection, or a hook, does more than its weight says.
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    plain = all(type(part) is nn.Linear for layer in model.model.layers for part in _linears(layer))
    alike = len({(weight.dtype, weight.device) for weight in model.parameters()}) == 1
    return plain and alike and not hooked


def _linears(layer: nn.Module) -> tuple[nn.Module, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return (
        attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj,
        mlp.gate_proj, mlp.up_proj, mlp.down_proj,
    )  # fmt: skip


class Projection(NamedTuple):
    """x @ weight + bias. weight: [in, out], a view of the module's own. bias: [out] or None."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def onto(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + what `__call__` returns."""
        if self.bias is not None:
            return residual + self(x)
        return torch.addmm(residual, x, self.weight)


class Layer(NamedTuple):
    """One layer's weights and its part of the cache, [2, heads, capacity, head_dim]."""

    attention_norm: Tensor
    qkv: Projection
    out: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection
    rows: Tensor


def fuse(*linears: nn.Linear) -> Projection:
    """Linear maps of one input as one; the modules' weights become views of it.

    Fusing the same modules again gives views of the same memory, so two caches over one model
    share its weights.
    """
    weight = _joined([linear.weight for linear in linears])
    biases = [linear.bias for linear in linears]
    return Projection(weight.t(), None if biases[0] is None else _joined(biases))


def _joined(parts: list[nn.Parameter]) -> Tensor:
    """The parts one below the other, in memory they share from now on."""
    base = parts[0].data
    if len(parts) == 1:
        return base
    sizes = [part.shape[0] for part in parts]
    end, joined = base.data_ptr(), True
    for part in parts:
        joined &= part.data_ptr() == end and part.is_contiguous()
        end += part.nbytes
    if joined and base.untyped_storage().nbytes() >= end - base.untyped_storage().data_ptr():
        return base.as_strided((sum(sizes), *base.shape[1:]), base.stride())
    whole = torch.cat([part.data for part in parts])
    for part, own in zip(parts, whole.split(sizes), strict=True):
        part.data = own
    return whole


# (layer, queries [N, heads, head_dim], new keys and values [N, 2, kv_heads, head_dim]) -> what the
# queries see, [N, heads * head_dim], once the new rows are in the cache.
Attend = Callable[[Layer, Tensor, Tensor], Tensor]


class LlamaForward:
    """ids -> hidden rows over the preallocated cache, which it fills but does not advance.

    Hidden rows are those after the last norm; `head` makes logits of them. The module must stay
    where it is: its weights are read in place.
    """

    def __init__(self, model: PreTrainedModel, cache: PreallocatedCache) -> None:
        config, body = model.config, model.model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.groups = self.heads // self.kv_heads
        self.eps = config.rms_norm_eps
        self.embedding, self.norm = body.embed_tokens.weight.data, body.norm.weight.data
        # A head of another kind does more than its weight says: it is called as it is.
        plain = type(model.lm_head) is nn.Linear
        self.head = Projection(model.lm_head.weight.data.t(), None) if plain else model.lm_head
        self.head_dim = body.layers[0].self_attn.head_dim
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        rows = cache.allocate(self.kv_heads, self.head_dim, self.dtype, self.device)
        self.layers = [
            self._layer(layer, own) for layer, own in zip(body.layers, rows, strict=True)
        ]
        self.cos, self.sin = self._rope(body, cache.capacity)

    def new_rows(self, capacity: int) -> Tensor:
        """Room in one layer for one more text, [2, 1, kv_heads, capacity, head_dim]."""
        shape = (2, 1, self.kv_heads, capacity, self.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _layer(self, layer: nn.Module, rows: Tensor) -> Layer:
        q, k, v, out, gate, up, down = _linears(layer)
        return Layer(
            layer.input_layernorm.weight.data, fuse(q, k, v), fuse(out),
            layer.post_attention_layernorm.weight.data, fuse(gate, up), fuse(down), rows,
        )  # fmt: skip

    def _rope(self, body: nn.Module, capacity: int) -> tuple[Tensor, Tensor]:
        """cos and sin of every position, [capacity, 1, head_dim]; the first half of sin negative.

        With that sign, turning a vector is x * cos + (x with its halves swapped) * sin.
        """
        positions = torch.arange(capacity, device=self.device)[None]
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        cos, sin = (table[0].detach()[:, None] for table in body.rotary_emb(like, positions))
        half = self.head_dim // 2
        return cos, torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)

    def first(self, layers: int, norm: Tensor) -> LlamaForward:
        """The first `layers` of these, with `norm` [width] as the last norm.

        The cache rows are the same memory, so both read and write one text.
        """
        shallow = copy(self)
        shallow.layers, shallow.norm = self.layers[:layers], norm
        return shallow

    def __call__(self, ids: Tensor, length: int) -> Tensor:
        """Hidden rows [n, width] of ids int64 [n] after `length` rows."""
        count, end = ids.shape[0], length + ids.shape[0]
        mask = None
        if count > 1 and length > 0:
            mask = causal_mask(count, length, self.device)[0, 0].tile(self.groups, 1)

        def attend(layer: Layer, queries: Tensor, new: Tensor) -> Tensor:
            layer.rows[:, :, length:end] = new.permute(1, 2, 0, 3)
            return self._attend(queries[None], layer.rows[:, None, :, :end], mask)

        x = self._layers(ids, self.cos[length:end], self.sin[length:end], attend)
        return self._normed(x, self.norm)

    def many(self, ids: Tensor, lengths: Tensor, end: int, rows: Sequence[Tensor]) -> Tensor:
        """Hidden rows [B, n, width] of ids int64 [B, n], each text after its own `lengths` [B].

        end: most rows any text has then. rows: the texts' cache for each layer, in order,
        [2, B, kv_heads, capacity, head_dim].
        """
        batch, count = ids.shape
        text = torch.arange(batch, device=self.device)[:, None]
        positions = lengths[:, None] + torch.arange(count, device=self.device)
        mask = torch.arange(end, device=self.device) <= positions[..., None]
        mask = mask.tile(1, self.groups, 1)[:, None]
        caches = iter(rows)

        def attend(_: Layer, queries: Tensor, new: Tensor) -> Tensor:
            cache = next(caches)
            cache[:, text, :, positions] = new.view(batch, count, *new.shape[1:])
            queries = queries.view(batch, count, *queries.shape[1:])
            return self._attend(queries, cache[:, :, :, :end], mask)

        # A text that drafts past its end, since others still draft, turns by no angle that is read.
        turns = positions.flatten().clamp(max=self.cos.shape[0] - 1)
        x = self._layers(ids.flatten(), self.cos[turns], self.sin[turns], attend)
        return self._normed(x, self.norm).view(batch, count, -1)

    def _layers(self, ids: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Hidden rows [N, width] of ids int64 [N], whose positions turn by cos and sin."""
        count, queries = ids.shape[0], self.heads
        heads, kept = (count, queries + 2 * self.kv_heads, self.head_dim), self.kv_heads
        # Values pass through the same product unturned, so that keys and values are written as one.
        still = cos.new_ones(count, kept, self.head_dim)
        cos = torch.cat([cos.expand(-1, queries + kept, -1), still], 1)
        sin = torch.cat([sin.expand(-1, queries + kept, -1), torch.zeros_like(still)], 1)
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            qkv = layer.qkv(self._normed(x, layer.attention_norm)).view(heads)
            turned = qkv * cos + qkv.roll(self.head_dim // 2, -1) * sin
            new = turned[:, queries:].view(count, 2, kept, self.head_dim)
            x = layer.out.onto(attend(layer, turned[:, :queries], new), x)
            gate, up = layer.gate_up(self._normed(x, layer.mlp_norm)).chunk(2, -1)
            x = layer.down.onto(F.silu(gate) * up, x)
        return x

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS norm in float32 whatever the weights are, as the reference takes it."""
        shape = x.shape[-1:]
        if x.dtype == torch.float32:
            return F.rms_norm(x, shape, weight, self.eps)
        return F.rms_norm(x.float(), shape, None, self.eps).to(x.dtype) * weight

    def _attend(self, queries: Tensor, rows: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of queries [B, n, heads, head_dim] to rows [2, B, kv_heads, L, head_dim].

        The heads that share keys are rows of one product, so no key is repeated. Without a mask
        the queries of a text are either one, or the whole text. Returns [B * n, heads * head_dim].
        """
        batch, count, _, width = queries.shape
        keys, values = rows
        whole = count > 1 and mask is None
        if whole:
            grouped = queries.transpose(1, 2)
        else:
            grouped = queries.view(batch, count, self.kv_heads, self.groups, width)
            grouped = grouped.permute(0, 2, 3, 1, 4).reshape(batch, self.kv_heads, -1, width)
        seen = F.scaled_dot_product_attention(
            grouped, keys, values, attn_mask=mask, is_causal=whole,
            enable_gqa=whole and self.groups > 1,
        )  # fmt: skip
        seen = seen.reshape(batch, self.heads, count, width).transpose(1, 2)
        return seen.reshape(batch * count, self.heads * width)
