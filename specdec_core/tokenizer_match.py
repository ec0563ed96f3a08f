"""Whether two tokenizers mean the same token by the same id.

Speculative decoding compares p and q id by id. Equal vocabulary sizes say nothing about that, and
unequal logit widths nothing against it: models of one family are padded to different sizes.
"""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

SPECIAL_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
PROBE = (
    "Once upon a time, there was a café in Zürich — it's 3.14159 or 2,718?\n"
    "def add(a, b):\n    return a + b  # привет, 世界 🎉\n\tx = {'k': [1, 22, 333]}\r\n"
)


def find_mismatch(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> str | None:
    """The first difference between two tokenizers as half a sentence; None where they agree.

    Compared are the special tokens, every token's id, the number of tokens, and the ids of a probe
    text. Which special token ends a text may differ (a base model and its chat version): the
    target's decides.
    """
    target_ids, draft_ids = target.get_vocab(), draft.get_vocab()
    for role in SPECIAL_ROLES:
        token = getattr(target, role)
        if token is not None and target_ids.get(token) != draft_ids.get(token):
            return f"the special token {token!r} is {_by_id(token, target_ids, draft_ids)}"
    for token in sorted(target_ids.keys() & draft_ids.keys(), key=target_ids.__getitem__):
        if target_ids[token] != draft_ids[token]:
            return f"{token!r} is {_by_id(token, target_ids, draft_ids)}"
    for token in sorted(target_ids.keys() ^ draft_ids.keys()):
        return f"{token!r} is {_by_id(token, target_ids, draft_ids)}"
    ours, theirs = _probe(target), _probe(draft)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"token {i} of a probe text is id {a} for the target and {b} for the draft"
    if len(ours) != len(theirs):
        return f"a probe text has {len(ours)} tokens for the target, {len(theirs)} for the draft"
    return None


def _by_id(token: str, target_ids: dict[str, int], draft_ids: dict[str, int]) -> str:
    def told(ids: dict[str, int]) -> str:
        return f"id {ids[token]}" if token in ids else "unknown"

    return f"{told(target_ids)} for the target and {told(draft_ids)} for the draft"


def _probe(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    return tokenizer(PROBE, add_special_tokens=False).input_ids


def check_same_tokens(
    target: PreTrainedTokenizerBase,
    draft: PreTrainedTokenizerBase,
    target_name: str = "the target",
    draft_name: str = "the draft",
) -> None:
    """Raise ValueError, naming the first difference, where the two tokenizers differ."""
    mismatch = find_mismatch(target, draft)
    if mismatch:
        raise ValueError(
            f"{draft_name} cannot draft for {target_name}: their tokenizers differ, {mismatch}."
        )


def check_rows(tokenizer: PreTrainedTokenizerBase, rows: int, name: str) -> None:
    """Raise ValueError where a model has fewer embedding rows than its tokenizer has ids."""
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise ValueError(
            f"{name} has {rows} embedding rows, but its tokenizer has ids up to {highest}."
        )
