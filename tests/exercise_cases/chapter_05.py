"""Answers to the exercises of chapter 05."""

from __future__ import annotations

import numpy as np
import torch

from exercise_cases import sources
from specdec_core.lab import exercises


def rows_after(target_rows, draft_rows, gamma, accepted):
    target = target_rows + accepted + 1
    drafted = target_rows + gamma if gamma else draft_rows
    return target, min(drafted, target)


def write_rows(buffer, length, new):
    end = length + len(new)
    if end > len(buffer):
        raise ValueError("no room")
    buffer[length:end] = new
    return end


def find_fault(prompt_length, rounds):
    needed = prompt_length - 1
    for emitted, target_rows, draft_rows in rounds:
        needed += emitted
        if target_rows != needed:
            return "target too long" if target_rows > needed else "target too short"
        if draft_rows > needed:
            return "draft too long"
    return "none"


def slip(change):
    """`write_rows`, with `change(buffer, length, new)` in its place wherever the rows fit."""

    def wrong(buffer, length, new):
        if length + len(new) > len(buffer):
            raise ValueError("no room")
        return change(buffer, length, new)

    return wrong


def append(buffer, length, new):
    buffer += new
    return length + len(new)


def one_further(buffer, length, new):
    buffer[length + 1 : length + 1 + len(new)] = new
    del buffer[8:]
    return length + len(new)


def one_before(buffer, length, new):
    at = max(length - 1, 0)
    buffer[at : at + len(new)] = new
    return length + len(new)


def wiping(buffer, length, new):
    buffer[length:] = [*new, *[None] * (len(buffer) - length - len(new))]
    return length + len(new)


def filling(buffer, length, new):
    buffer[length:] = (new * len(buffer))[: len(buffer) - length]
    return length + len(new)


def nested(buffer, length, new):
    buffer[length] = np.array(new)
    return length + len(new)


def late_look(buffer, length, new):
    for i, row in enumerate(new):
        if length + i >= len(buffer):
            raise ValueError("no room")
        buffer[length + i] = row
    return length + len(new)


def copied(buffer, length, new):
    return write_rows(list(buffer), length, new)


def unchecked(buffer, length, new):
    buffer[length : length + len(new)] = new
    return length + len(new)


def silent(buffer, length, new):
    return write_rows(buffer, length, new[: len(buffer) - length]) and length + len(new)


def greater_or_equal(buffer, length, new):
    if length + len(new) >= len(buffer):
        raise ValueError("full")
    return write_rows(buffer, length, new)


def never(buffer, length, new):
    raise ValueError("full")


def fault(prompt_length, rounds, newest=1, cumulative=True, stop=None, short=0):
    """`find_fault` with a slip."""
    needed = prompt_length - newest
    for emitted, target, draft in rounds[:stop]:
        needed = needed + emitted if cumulative else prompt_length - newest + emitted
        if target != needed:
            return "target too long" if target > needed else "target too short"
        if draft > needed or (short and draft < needed):
            return "draft too long"
    return "none"


CHECKS = {
    exercises.check_rows_after: {
        "right": lambda *a: torch.tensor(rows_after(*a)),
        "nothing was rolled back (target_rows=18": lambda t, d, g, n: (t + g + 1, t + g),
        "also read the newest token": lambda t, d, g, n: (t + n, min(t + g, t + n)),
        "in no cache yet": lambda t, d, g, n: (t + n + 2, t + n + 1),
        "the two are swapped": lambda t, d, g, n: rows_after(t, d, g, n)[::-1],
        "draft's rejected rows": lambda t, d, g, n: (t + n + 1, t + g),
        "one row short": lambda t, d, g, n: (t + n + 1, t + n + 1),
        "catches up": lambda t, d, g, n: (t + n + 1, min(d + g, d + n + 1)),
        "nothing was drafted": lambda t, d, g, n: (t + n + 1, min(t + g, t + n + 1)),
        "rows that are cut off": lambda t, d, g, n: (g - n, max(g - n - 1, 0)),
        "cuts too much": lambda t, d, g, n: (t + n + 1, t + n),
        "not two numbers": lambda t, d, g, n: t + n + 1,
        "(21.5, 21.5), not two": lambda *a: tuple(x + 0.5 for x in rows_after(*a)),
        "('21', '21'), not two": lambda *a: tuple(map(str, rows_after(*a))),
        "array([[21, 21]]), not two": lambda *a: np.array([rows_after(*a)]),
        "it returned None": lambda t, d, g, n: rows_after(t, d, g, n) if g else None,
        "raised TypeError": lambda t, d, g: (t, d),
    },
    exercises.check_write_rows: {
        "right": lambda *a: np.int64(write_rows(*a)),
        "write by index, nothing is appended": slip(append),
        "a stale row is left": slip(one_further),
        "a good row was overwritten": slip(one_before),
        "looks whether the rows fit": late_look,
        "not into a copy": copied,
        "makes a list grow": unchecked,
        "do not fit: raise ValueError": silent,
        "returns the capacity": slip(lambda b, n, new: write_rows(b, n, new) and len(b)),
        "the length is now 7": slip(lambda b, n, new: write_rows(b, n, new) and len(new)),
        "behind the new rows was changed": slip(wiping),
        "new rows was changed": slip(filling),
        "not in order": slip(lambda b, n, new: write_rows(b, n, new[::-1])),
        "a stale row is left among": slip(nested),
        "not array([7, 7])": slip(lambda b, n, new: np.array([write_rows(b, n, new)] * 2)),
        "it returned None": slip(lambda b, n, new: print(
            end="", file=write_rows(b, n, new) and None)),
        "it raised ValueError: full, but they fit exactly (a buffer of 6": greater_or_equal,
        "it raised ValueError: full, but they fit (a buffer of 8": never,
        "the new rows do not fit": lambda b, n, new: (
            write_rows(b, n, new) if n + len(new) <= len(b) else None),
        "raised NameError": lambda b, n, new: undefined,  # noqa: F821
    },
    exercises.check_find_fault: {
        "right": find_fault,
        "the newest token is in no cache": lambda p, r: fault(p, r, newest=0),
        "never more": lambda p, r: fault(p, r, short=1),
        "all tokens emitted so far": lambda p, r: fault(p, r, cumulative=False),
        "after round 2": lambda p, r: fault(p, r, stop=1),
        "this is 'draft too long'": lambda p, r: (
            "none" if (f := fault(p, r)).startswith("draft") else f
        ),
        "after round 1 the caches hold 6 and 4 rows, and the text without its newest token has 4; "
        "a later round hides it": lambda p, r: (
            fault(p + sum(emitted for emitted, *_ in r[:-1]), r[-1:])
        ),
        "none of none, target too long": lambda p, r: True,
        "it returns array([1, 2])": lambda p, r: np.array([1, 2]),
        "it returned None": lambda p, r: f if (f := fault(p, r)) != "none" else None,
        "raised ZeroDivisionError": lambda p, r: 1 / 0,
    },
}  # fmt: skip

SOLUTIONS = sources(rows_after, write_rows, find_fault)
# Cells that must print something else with the mistake, and what they need to run.
ROWS = ["rounds = list(speculative_rounds", "needed = len(prompt) - 1\nfor r in rounds"]
TEETH = {
    "M18": ROWS,
    "M18b": ROWS,
    "M18c": ROWS,
    "M19": ROWS,
    "M19b": ["rejected by itself", "rounds = list(speculative_rounds"],
}
NEEDS = ["ledger = record_caches(pair, prompt", "rounds = list(speculative_rounds"]
