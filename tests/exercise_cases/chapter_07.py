"""Answers to the exercises of chapter 07, and the mistakes its cells must notice."""

from __future__ import annotations

import math

import numpy as np
import torch

from exercise_cases import sources
from specdec_core.lab import exercises


def warped(logits, temperature, top_k):
    z = torch.tensor(logits, dtype=torch.float64) / temperature
    least = z.topk(top_k).values[-1]
    return z.masked_fill(z < least, -torch.inf).softmax(-1)


def in_lists(logits, temperature, top_k):
    least, most = sorted(logits)[-top_k], max(logits)
    weights = [math.exp((x - most) / temperature) if x >= least else 0.0 for x in logits]
    return [w / sum(weights) for w in weights]


def draft_one(logits, shape, draw):
    q = shape(logits)
    return draw(q), q


def prefixes(text, drafts):
    return [text + drafts[:i] for i in range(len(drafts) + 1)]


def softmax(row):
    weights = [math.exp(x - max(row)) for x in row]
    return [w / sum(weights) for w in weights]


def unscaled(logits, temperature, top_k):
    least = sorted(logits)[-top_k]
    row = softmax([x / temperature for x in logits])
    return [x if z >= least else 0.0 for x, z in zip(row, logits, strict=True)]


def zeroed(logits, temperature, top_k):
    least = sorted(logits)[-top_k]
    return softmax([x / temperature if x >= least else 0.0 for x in logits])


def bare_exp(logits, temperature, top_k):
    least = sorted(logits)[-top_k]
    weights = [math.exp(x / temperature) if x >= least else 0.0 for x in logits]
    return [w / sum(weights) for w in weights]


def numpy_exp(logits, temperature, top_k):
    with np.errstate(all="ignore"):
        weights = np.exp(np.array(logits) / temperature)
        weights[np.array(logits) < sorted(logits)[-top_k]] = 0
        return weights / weights.sum()


def least_likely(logits, temperature, top_k):
    most = sorted(logits)[top_k - 1]
    weights = [math.exp(x / temperature) if x <= most else 0.0 for x in logits]
    return [w / sum(weights) for w in weights]


def kept_only(logits, temperature, top_k):
    return [x for x in warped(logits, temperature, top_k) if x > 0]


def draws_again(logits, shape, draw):
    draw(shape(logits))
    return draft_one(logits, shape, draw)


def raw_draw(logits, shape, draw):
    return draw(softmax(logits)), shape(logits)


def argmax_draft(logits, shape, draw):
    return logits.index(max(logits)), shape(logits)


def certain(logits, shape, draw):
    token = draw(shape(logits))
    return token, [float(i == token) for i in range(len(logits))]


CHECKS = {
    exercises.check_warped: {
        "right": warped,
        "right, in float32": lambda *case: warped(*case).float(),
        "right, in lists": in_lists,
        "top-k is missing": lambda z, t, k: warped(z, t, len(z)),
        "the temperature is missing": lambda z, t, k: warped(z, 1, k),
        "it multiplies by the temperature": lambda z, t, k: warped(z, 1 / t, k),
        "what is kept must add up to 1": unscaled,
        "divide the logits, before the softmax": lambda z, t, k: [x / t for x in warped(z, 1, k)],
        "and e to the 0 is 1": zeroed,
        "the k least likely tokens": least_likely,
        "it returns logits, not": lambda z, t, k: [x / t for x in z],
        "OverflowError: math range error: subtract the largest logit": bare_exp,
        "it gives nan: subtract the largest": numpy_exp,
        "2 numbers for 4 tokens: a cut token has 0": kept_only,
        "not a list of numbers": lambda z, t, k: 0.5,
        "it gives (0.25, 0.25, 0.25, 0.25) where": lambda z, t, k: [1 / len(z)] * len(z),
    },
    exercises.check_draft_one: {
        "right": draft_one,
        "right, with a tensor": lambda z, shape, draw: (
            torch.tensor(draw(shape(z))), torch.tensor(shape(z)),
        ),
        "before temperature and top-k is mistake M12": lambda z, shape, draw: (
            draw(shape(z)), softmax(z),
        ),
        "mistake M2": argmax_draft,
        "it draws from the softmax of the bare logits": raw_draw,
        "q is one number": lambda z, shape, draw: (
            (lambda x: (x, shape(z)[x]))(draw(shape(z)))
        ),
        "says that it was certain": certain,
        "it draws 2 times": draws_again,
        "are exchanged": lambda z, shape, draw: (shape(z), draw(shape(z))),
        "not two things": lambda z, shape, draw: draw(shape(z)),
        "these are the logits": lambda z, shape, draw: (draw(shape(z)), z),
        "is not the one it drew": lambda z, shape, draw: (draw(shape(z)) + 1, shape(z)),
        "not a row of numbers": lambda z, shape, draw: (draw(shape(z)), "q"),
        "where shape(logits) gives": lambda z, shape, draw: (
            draw(shape(shape(z))), shape(z),
        ),
        "q is (0.3333, 0.3333, 0.3333), and": lambda z, shape, draw: (
            draw(shape(z)), [1 / len(z)] * len(z),
        ),
    },
    exercises.check_prefixes: {
        "right": prefixes,
        "right, as tensors": lambda text, drafts: [torch.tensor(x) for x in prefixes(text, drafts)],
        "mistake M13": lambda text, drafts: [text] * (len(drafts) + 1),
        "the whole block": lambda text, drafts: [text + drafts] * (len(drafts) + 1),
        "the row of the bonus": lambda text, drafts: prefixes(text, drafts)[:-1],
        "row 0 is missing": lambda text, drafts: prefixes(text, drafts)[1:],
        "one draft too long": lambda text, drafts: [
            text + drafts[: i + 1] for i in range(len(drafts) + 1)
        ],
        "the text before the drafts is missing": lambda text, drafts: prefixes([], drafts),
        "each reads one draft": lambda text, drafts: [text, *([*text, x] for x in drafts)],
        "not a list of lists": lambda text, drafts: text + drafts,
        "1 prefixes; 3 drafts need 4": lambda text, drafts: [text],
        "where [[7, 3], [7, 3, 5]": lambda text, drafts: prefixes(text, drafts)[::-1],
    },
}  # fmt: skip

SOLUTIONS = sources(warped, draft_one, prefixes)

# Cells that must print something else when a mistake of the museum stands in for the core, and
# the cells they need beyond the first.
TEETH = {
    "M12": ["all laws equal below 1e-15", 'print(f"target {name:17} keeps"', "odd = real_law"],
    "M2": ["all laws equal below 1e-15", 'print(f"target {name:17} keeps"'],
    "M13": ["fresh_pairs = Sampling"],
    "M15": ["all laws equal below 1e-15"],
}
NEEDS = ['pair = load_pair("storyworld", dtype="float64")', "sides = {", "def walk(side"]
