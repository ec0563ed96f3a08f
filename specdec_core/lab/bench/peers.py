"""Rows of other implementations: transformers' own generation, and flashspec where installed.

They get the modules our rows run, the same prompts, temperature, length and stop tokens, and their
tokens go through the same counter. transformers truncates to the 50 likeliest tokens unless told
otherwise: rows that are to sample our law are told, and a row left to its defaults says so.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch
from transformers import GenerationConfig, PreTrainedModel

from specdec_core.lab.bench.ours import Work
from specdec_core.lab.bench.rows import Row, Written
from specdec_core.loading import quiet
from specdec_core.models import CausalLM

# What would change the law of a sample, each at the value that leaves it alone. A model's own
# generation config may set any of them.
NEUTRAL = {"top_k": 0, "top_p": 1.0, "typical_p": 1.0, "repetition_penalty": 1.0}
# transformers' own, where a model does not say otherwise.
LIBRARY_TOP_K = 50
# The last tokens our look-up compares at most; transformers' own number is 2.
LONGEST_MATCH = 3


def constant_gamma(gamma: int) -> dict:
    """Settings of an assistant that drafts `gamma` tokens in every round."""
    return {
        "num_assistant_tokens": gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }


def generation_config(work: Work, own_defaults: bool = False, **more: object) -> GenerationConfig:
    """The task as transformers is told it; own_defaults leaves the truncation to the library."""
    sampling: dict = {"do_sample": work.temperature > 0}
    if work.temperature > 0:
        sampling["temperature"] = work.temperature
        sampling |= {} if own_defaults else NEUTRAL
    pad = work.stop_tokens[0] if work.stop_tokens else 0
    return GenerationConfig(
        **sampling, max_new_tokens=work.max_new_tokens, pad_token_id=pad,
        eos_token_id=list(work.stop_tokens) or None, **more,
    )  # fmt: skip


def generate_row(target: CausalLM, work: Work, own_defaults: bool = False) -> Row:
    """transformers' `generate`: the same model, one token a forward."""
    name = "transformers generate" + (_defaults(target, work) if own_defaults else "")
    config = generation_config(work, own_defaults)
    return _library_row(name, target, work, config, own_defaults=own_defaults)


def _defaults(target: CausalLM, work: Work) -> str:
    """The label of a row left to its defaults: what it samples from."""
    known = target.model.generation_config
    top_k = LIBRARY_TOP_K if known.top_k is None else known.top_k  # 0 keeps all tokens
    told = [f"top-k {top_k}"] * bool(top_k)
    told += [f"top-p {known.top_p:g}"] if (known.top_p or 1.0) < 1 else []
    told = told or ["no truncation"]
    return ", its defaults" + (f": {', '.join(told)}" if work.temperature > 0 else "")


def assisted_row(
    draft: str, target: CausalLM, assistant: CausalLM, work: Work, gamma: int | None
) -> Row:
    """transformers' assisted generation with our draft; gamma None leaves all to its defaults."""
    own_defaults = gamma is None
    name = "transformers assisted" + (_defaults(target, work) if own_defaults else f", {draft}")
    return _library_row(
        name, target, work, generation_config(work, own_defaults), assistant.model,
        {} if gamma is None else constant_gamma(gamma), own_defaults,
    )  # fmt: skip


def lookup_row(target: CausalLM, work: Work, gamma: int) -> Row:
    """transformers' prompt look-up: up to `gamma` tokens that followed the same words before."""
    config = generation_config(
        work, prompt_lookup_num_tokens=gamma, max_matching_ngram_size=LONGEST_MATCH
    )
    return _library_row("transformers prompt look-up", target, work, config)


def _library_row(
    name: str, target: CausalLM, work: Work, config: GenerationConfig,
    assistant: PreTrainedModel | None = None, settings: dict | None = None,
    own_defaults: bool = False,
) -> Row:  # fmt: skip
    """A row that calls `generate`; settings: of the assistant's generation config as it runs."""
    given = {} if assistant is None else {"assistant_model": assistant}

    def run(seed: int) -> Written:
        prompt = work.prompt(seed)
        ids = torch.tensor([prompt], device=target.device)
        torch.manual_seed(seed)
        with silence(), _set(assistant, settings or {}):
            out = target.model.generate(
                ids, attention_mask=torch.ones_like(ids), generation_config=config, **given
            )
        return Written([out[0, len(prompt) :].tolist()])

    # At temperature 0 there is nothing to truncate.
    same_law = not own_defaults or work.temperature == 0
    return Row(name, run, work.stop_tokens, same_law)


@contextmanager
def _set(assistant: PreTrainedModel | None, settings: dict) -> Iterator[None]:
    """An assistant reads its settings from its own generation config: set, and back afterwards."""
    config = assistant.generation_config if assistant is not None else None
    before = {name: getattr(config, name) for name in settings}
    for name, value in settings.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


@contextmanager
def silence() -> Iterator[None]:
    """No warnings of a peer's about itself between the lines of our table."""
    with warnings.catch_warnings(), quiet():
        warnings.simplefilter("ignore")
        yield


def flashspec_version() -> str | None:
    """The version of flashspec that is installed, or None."""
    try:
        return version("flashspec") if find_spec("flashspec") else None
    except PackageNotFoundError:
        return None


def flashspec_rows(
    draft: str, target: CausalLM, assistant: CausalLM, work: Work, gamma: int
) -> list[Row]:
    """flashspec's engine with our modules: at this gamma, and as it sets itself up."""
    logging.getLogger("flashspec").setLevel(logging.ERROR)
    fixed = {"drafter_strategy": "bandit"}
    return [
        _flashspec_row(f"flashspec, {draft}", target, assistant, work, gamma, fixed),
        _flashspec_row(
            "flashspec, its defaults: look-up 6, else 2", target, assistant, work, gamma, {}
        ),
    ]


def _flashspec_row(
    name: str, target: CausalLM, assistant: CausalLM, work: Work, gamma: int, strategy: dict
) -> Row:
    engines = importlib.import_module("flashspec.engine")
    configs = importlib.import_module("flashspec.utils.config")
    device, dtype = target.device, target.dtype
    config = configs.FlashSpecConfig(
        device=str(device), dtype=str(dtype).removeprefix("torch."),
        max_new_tokens=work.max_new_tokens, eos_token_ids=work.stop_tokens,
        sampling=configs.SamplingConfig(gamma=gamma, temperature=work.temperature),
        bandit=configs.BanditConfig(n_arms=1), **strategy,
    )  # fmt: skip
    drafter = engines.HuggingFaceDrafter(
        "draft", device, dtype, work.temperature, model=assistant.model
    )
    judge = engines.TargetModel("target", device, dtype, model=target.model)
    engine = engines.SpeculativeEngine(config, [drafter], judge)

    def run(seed: int) -> Written:
        torch.manual_seed(seed)
        with silence():
            out = engine.generate(torch.tensor([work.prompt(seed)], device=device))
        # After a stop its tensor is filled up with -1.
        return Written([[token for token in out.output_ids[0].tolist() if token >= 0]])

    return Row(name, run, work.stop_tokens)
