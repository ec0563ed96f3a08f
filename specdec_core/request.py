"""What can be decoded and what cannot: every request is checked before a model runs.

Each check raises ValueError (TypeError for a text where token ids belong) with one sentence that
says what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index

from specdec_core.drafters import Drafter
from specdec_core.models import LanguageModel
from specdec_core.sampling import is_whole
from specdec_core.text import Detokenize


def check_request(
    target: LanguageModel,
    prompt: Sequence[int],
    max_new_tokens: int,
) -> list[int]:
    """The prompt as a list of ids, once the request is known to be one that can be run."""
    text = check_ids(
        prompt, target.vocab_size, "The prompt", "pass pair.encode(text), not text or a batch"
    )
    if not text:
        raise ValueError("The prompt is empty: give at least one token to continue.")
    if not is_whole(max_new_tokens) or max_new_tokens < 1:
        raise ValueError(
            f"max_new_tokens must be a whole number of at least 1, not {max_new_tokens!r}."
        )
    check_room("target", target.max_length, len(text), max_new_tokens)
    return text


# What each part of a run must be able to do, and what to pass for it.
PARTS = {
    "target": ("rollback", "pass pair.target, or CausalLM(model)"),
    "drafter": ("propose", "pass pair.drafter, or ModelDrafter(CausalLM(model))"),
    "sampling": ("probs", "pass Sampling(temperature=...)"),
    "draft_sampling": ("probs", "pass Sampling(temperature=...)"),
    "randomness": ("first_rejection", "pass Seeded(seed)"),
}


def check_parts(**parts: object) -> None:
    """Raise TypeError where a part of a run is not the kind of object it must be."""
    for name, part in parts.items():
        method, advice = PARTS[name]
        if isinstance(part, type) or not callable(getattr(part, method, None)):
            kind = f"the class {part.__name__}" if isinstance(part, type) else type(part).__name__
            raise TypeError(f"{name} cannot be {kind}: {advice}.")


def check_stops(
    target: LanguageModel,
    stop_tokens: Iterable[int],
    stop_strings: Iterable[str],
    detokenize: Detokenize | None,
) -> tuple[frozenset[int], tuple[str, ...]]:
    """The stop tokens and stop strings, once they are known to be usable."""
    tokens = check_ids(
        stop_tokens, target.vocab_size, "stop_tokens", "pass pair.stop_tokens, or [id]"
    )
    strings = () if isinstance(stop_strings, str) else tuple(stop_strings)
    if isinstance(stop_strings, str) or not all(isinstance(s, str) and s for s in strings):
        raise TypeError('stop_strings must be a list of strings, none empty, such as ["\\n\\n"].')
    if strings and detokenize is None:
        raise ValueError("stop_strings need detokenize: pass detokenize=pair.decode.")
    return frozenset(tokens), strings


def check_drafter(
    target: LanguageModel, drafter: Drafter, prompt_length: int, max_new_tokens: int
) -> None:
    """Raise ValueError where this drafter cannot draft for this target."""
    if getattr(drafter, "model", None) is target:
        raise ValueError(
            "The drafter and the target are one object, so they share one cache: wrap the model a "
            "second time, ModelDrafter(CausalLM(target.model))."
        )
    if drafter.vocab_size > target.vocab_size:
        raise ValueError(
            f"The draft's vocabulary of {drafter.vocab_size} is larger than the target's "
            f"{target.vocab_size}: build the drafter with vocab_size={target.vocab_size}."
        )
    check_room("draft", drafter.max_length, prompt_length, max_new_tokens)


def check_ids(tokens: Iterable[int], vocab_size: int, what: str, advice: str) -> list[int]:
    """`tokens` as a list, once all are known to be ids inside the vocabulary."""
    try:
        ids = [index(token) for token in (tokens.tolist() if hasattr(tokens, "tolist") else tokens)]
    except TypeError:
        raise TypeError(f"{what} must be a list of token ids: {advice}.") from None
    for token in ids:
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"{what} has token id {token}, outside the vocabulary of {vocab_size} "
                f"(ids 0 to {vocab_size - 1})."
            )
    return ids


def check_room(side: str, max_length: int | None, prompt_length: int, max_new_tokens: int) -> None:
    """Raise ValueError where the text would outgrow a model's longest."""
    if max_length is None:
        return
    if prompt_length > max_length:
        raise ValueError(
            f"The prompt has {prompt_length} tokens, and the {side} can read {max_length}: "
            "shorten it, or load the model with a larger max_length if its context allows."
        )
    if prompt_length + max_new_tokens > max_length:
        raise ValueError(
            f"{prompt_length} prompt tokens and max_new_tokens={max_new_tokens} run past the "
            f"{side}'s {max_length}: ask for at most {max_length - prompt_length} new tokens."
        )


def check_gamma(gamma: int) -> int:
    """`gamma` itself, once it is known to be a whole number of 0 or more."""
    if not is_whole(gamma) or gamma < 0:
        raise ValueError(f"gamma must be a whole number of 0 or more, not {gamma!r}.")
    return int(gamma)
