"""The teacher's side of distillation, computed once: what SmolLM2 makes of each token it wrote.

Kept are the hidden row after the last norm, bfloat16 [n, width], and the logarithm of the softmax's
denominator, float32 [n]: from these any columns of p follow by one product with rows of the head.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import LlamaForCausalLM

from specdec_core.storyworld.training import save_whole

AT_ONCE = 16  # conversations in one forward


def write_states(teacher: LlamaForCausalLM, folder: Path) -> None:
    """For each shard of conversations in `folder` its states, as far as they are not there yet."""
    for path in tqdm(sorted(folder.glob("conversations-*.safetensors")), desc="teacher states"):
        target = states_path(path)
        if target.exists():
            continue
        shard = load_file(path)
        texts = shard["tokens"].long().split(shard["lengths"].tolist())
        parts = [_states(teacher, texts[i : i + AT_ONCE]) for i in range(0, len(texts), AT_ONCE)]
        save_whole({name: torch.cat([part[name] for part in parts]) for name in parts[0]}, target)


def states_path(conversations: Path) -> Path:
    return conversations.with_name(conversations.name.replace("conversations", "states"))


@torch.inference_mode()
def _states(teacher: LlamaForCausalLM, texts: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """hidden and log_total of all tokens of a few texts, one text after the other."""
    ids = pad_sequence(list(texts), batch_first=True)
    rows = teacher.model(ids, use_cache=False).last_hidden_state
    hidden = torch.cat([row[: len(text)] for row, text in zip(rows, texts, strict=True)])
    head = teacher.lm_head.weight
    total = [(part @ head.T).float().logsumexp(-1) for part in hidden.split(256)]
    return {"hidden": hidden.to(torch.bfloat16), "log_total": torch.cat(total)}
