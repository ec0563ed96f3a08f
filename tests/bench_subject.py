"""A tiny subject and a small plan for the tests of `specdec bench`."""

from __future__ import annotations

import tiny
import torch

from specdec_core.drafters import LookupDrafter
from specdec_core.lab.bench.plan import Plan, Subject

LENGTH = 14
PROMPTS = [tiny.prompt(6, seed=1), tiny.prompt(9, seed=2)]


def subject(dtype: torch.dtype = torch.float64, stop_tokens: tuple[int, ...] = (2,)) -> Subject:
    """A tiny pair with a draft that is often wrong, the target as its own draft, and look-up."""
    target, drafter = tiny.pair(dtype=dtype)
    itself = type(drafter)(target.fresh())
    prompts = {"first": PROMPTS[:1], "second": PROMPTS[1:]}
    drafters = {"other": drafter, "self": itself, "lookup": LookupDrafter(tiny.VOCAB)}
    return Subject("tiny", target, drafters, prompts, stop_tokens)


def plan(**options: object) -> Plan:
    small = {"repeats": 1, "max_new_tokens": LENGTH, "gammas": (1, 3), "batches": (1, 2)}
    return Plan(**{**small, "lookup_gamma": 3, "threads": 1, **options})
