"""Answers to the exercises of chapter 04."""

from __future__ import annotations

import itertools
from functools import partial
from random import Random

import numpy as np
import torch

from exercise_cases import sources
from specdec_core.lab import exercises
from specdec_core.lab.exercises.whole_loop import reference_decode


def count_kept(p, q, drafted, coins):
    for i, x in enumerate(drafted):
        if not coins[i] * q[i][x] < p[i][x]:
            return i
    return len(drafted)


def cut_block(block, stop_tokens, room):
    for i, token in enumerate(block):
        if token in stop_tokens or i + 1 == room:
            return block[: i + 1]
    return block


def my_decode(p, q, gamma, max_new_tokens, stop_tokens, randomness):
    text = []
    while True:
        drafted = []
        for _ in range(min(gamma, max_new_tokens - len(text) - 1)):
            drafted.append(int(randomness.categorical(q(text + drafted))))
        befores = [text + drafted[:i] for i in range(len(drafted) + 1)]
        kept = int(
            randomness.first_rejection(
                torch.tensor([p(befores[i])[x] for i, x in enumerate(drafted)]),
                torch.tensor([q(befores[i])[x] for i, x in enumerate(drafted)]),
            )
        )
        weights = p(befores[kept])
        if kept < len(drafted):
            weights = (weights - q(befores[kept])).clamp(min=0)
        block = [*drafted[:kept], int(randomness.categorical(weights))]
        text += cut_block(block, stop_tokens, max_new_tokens - len(text))
        if text[-1] in stop_tokens or len(text) == max_new_tokens:
            return text


def wiping(count):
    """`count`, computed first; then the rows are overwritten, which is the caller's loss."""

    def careless(p, q, drafted, coins):
        answer = count(p, q, drafted, coins)
        for row in (*p, *q):
            row[:] = [0.0] * len(row)
        return answer

    return careless


def passes(test):
    """Drafts before the first that fails `test(p_row, q_row, x, u)`."""

    def count(p, q, drafted, coins):
        rows = zip(p, q, drafted, coins, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda row: test(*row), rows))

    return count


def loop(p, q, gamma, max_new_tokens, stop_tokens, randomness, slip=None):
    """A learner's loop with one slip in it."""
    if slip == "chain":
        return loop_from_one_context(p, q, gamma, max_new_tokens, stop_tokens, randomness)
    text = []
    while len(text) < max_new_tokens and not set(text[-1:]) & set(stop_tokens):
        room = max_new_tokens - len(text)
        wanted = {"plain": 0, "short": 1, "long": gamma}.get(slip, min(gamma, room - 1))
        drafted = []
        for _ in range(wanted):
            drafted.append(int(randomness.categorical(q(text + drafted))))
        block = judged(p, q, text, drafted, randomness, slip)
        text += written(block, stop_tokens, room, slip)
        if slip == "thrown" and text[-1] in stop_tokens:
            return text[:-1]
    return text


def stuck(p, q, gamma, max_new_tokens, stop_tokens, randomness):
    """No bonus token, and so nothing at all where nothing was drafted."""
    text = []
    while len(text) < max_new_tokens:
        drafted = []
        for _ in range(min(gamma, max_new_tokens - len(text) - 1)):
            drafted.append(int(randomness.categorical(q(text + drafted))))
        rows = [(p(text + drafted[:i]), q(text + drafted[:i])) for i in range(len(drafted))]
        chances = torch.tensor([[p[x], q[x]] for (p, q), x in zip(rows, drafted, strict=True)])
        kept = int(randomness.first_rejection(*chances.reshape(-1, 2).T))
        text += drafted[:kept]
        if kept < len(drafted):
            weights = (rows[kept][0] - rows[kept][1]).clamp(min=0)
            text.append(int(randomness.categorical(weights)))
    return text


def judged_alone(pair, randomness, slip):
    """Whether one draft is kept; `pair` holds p and q of it."""
    if slip == "own coin":
        return OWN.random() * pair[1] < pair[0]
    return int(randomness.first_rejection(*(pair[::-1] if slip == "swapped" else pair))) == 1


def judged(p, q, text, drafted, randomness, slip):
    """The block a round offers."""
    block = []
    for i, x in enumerate(drafted):
        before = text + drafted[:i]
        row = p([*before, x]) if slip == "row" else p(before)
        if slip == "argmax":
            passed = int(row.argmax()) == x
        else:
            pair = torch.stack([row[x]]), torch.stack([q(before)[x]])
            passed = judged_alone(pair, randomness, slip)
        if passed:
            block.append(x)
            continue
        block.append(int(randomness.categorical(corrected(p, q, before, text, slip))))
        if slip != "go on":
            return block
    if slip == "no bonus row":
        return [*block, int(randomness.categorical(corrected(p, q, text + block, text, None)))]
    if slip == "silent":
        return block
    if not drafted or slip not in ("no bonus", "argmax bonus", "draft bonus"):
        return [*block, int(randomness.categorical(p(text + block)))]
    if slip == "no bonus":
        return block
    if slip == "argmax bonus":
        return [*block, int(p(text + block).argmax())]
    return [*block, int(randomness.categorical(q(text + block)))]


def corrected(p, q, before, text, slip):
    """The weights after a rejection."""
    if slip in ("target", "argmax"):
        return p(before)
    weights = p(before) - q(text if slip == "row 0" else before)
    return weights if slip == "unclamped" else weights.clamp(min=0)


def written(block, stop_tokens, room, slip):
    """What is written of a block."""
    careless = {"long": block, "inside": block[:room], "endless": []}
    if slip in careless:
        return careless[slip]
    return cut_block(block, stop_tokens[:1] if slip == "one id" else stop_tokens, room)


def loop_from_one_context(p, q, gamma, max_new_tokens, stop_tokens, randomness):
    """Drafts that all follow the same text; q is recorded, so the law is right."""

    def recorded(context):
        return q(context[:start])

    text = []
    while len(text) < max_new_tokens and not set(text[-1:]) & set(stop_tokens):
        start, room = len(text), max_new_tokens - len(text)
        drafted = [int(randomness.categorical(q(text))) for _ in range(min(gamma, room - 1))]
        text += cut_block(judged(p, recorded, text, drafted, randomness, None), stop_tokens, room)
    return text


OWN = Random(0)


def slipped(name):
    return partial(loop, slip=name)


CHECKS = {
    exercises.check_count_kept: {
        "right": wiping(lambda *a: torch.tensor(count_kept(*a))),
        "(mistake M9)": lambda p, q, drafted, coins: sum(
            u * q[i][x] < p[i][x] for i, (x, u) in enumerate(zip(drafted, coins, strict=True))
        ),
        "(mistake M6)": lambda p, q, x, u: count_kept(p, q, x, u[:1] * len(u)),
        "with p alone": passes(lambda p, q, x, u: u < p[x]),
        "(mistake M5)": passes(lambda p, q, x, u: p[x] == max(p)),
        "never looks at the coins": passes(lambda p, q, x, u: q[x] <= p[x]),
        "(mistake M11)": lambda p, q, drafted, coins: count_kept(p[1:], q, drafted, coins),
        "reads row 0 for every draft": lambda p, q, drafted, coins: (
            count_kept(p[:1] * len(p), q[:1] * len(q), drafted, coins)
        ),
        "counts the rejected draft": lambda *a: min(count_kept(*a) + 1, len(a[2])),
        "last kept draft": lambda *a: count_kept(*a) - 1,
        "with p = 0 even u = 0": passes(lambda p, q, x, u: u * q[x] <= p[x]),
        "it gives 0 where": lambda *a: 0,
        "it raised IndexError": lambda p, q, drafted, coins: drafted[9],
        "it gives 0 where 1 is right": wiping(lambda *a: 0),
        "it returns 'two'": lambda *a: "two",
        "', not a whole number": lambda *a: str(count_kept(*a)),
        ".9, not a whole number": lambda *a: count_kept(*a) + 0.9,
        "it returns True, not a whole number": lambda p, q, x, u: count_kept(p, q, x, u) == len(x),
        "it returned None": lambda *a: count_kept(*a) or None,
    },
    exercises.check_cut_block: {
        "right": lambda *a: torch.tensor(cut_block(*a)),
        "inside the block goes unnoticed": lambda block, stops, room: block[:room],
        "there may be several": lambda block, stops, room: cut_block(block, stops[:1], room),
        "past max_new_tokens": lambda block, stops, room: cut_block(block, stops, 99),
        "throws the stop token away": lambda block, stops, room: [
            x for x in cut_block(block, stops, room) if x not in stops
        ],
        "longer than the room": lambda block, stops, room: (
            [] if len(cut_block(block, stops, 99)) > room else cut_block(block, stops, 99)
        ),
        "one place empty": lambda block, stops, room: cut_block(block, stops, 99)[: room - 1],
        "ends at the first": lambda block, stops, room: (
            block[: len(block) - next((i for i, x in enumerate(block[::-1]) if x in stops), 0)][
                :room
            ]
        ),
        "where [5, 6, 7] is right": lambda block, stops, room: block[:1],
        "it returns 3, not a list of token ids": lambda block, stops, room: len(block),
        "it returns '567'": lambda *a: "".join(map(str, cut_block(*a))),
        "it returns array([[5, 6, 7]])": lambda *a: np.array([cut_block(*a)]),
        "it returned None": lambda b, stops, room: (
            b if cut_block(b, stops, room) == b else None
        ),
    },
    exercises.check_my_decode: {
        "right": my_decode,
        "right, as the package has it": reference_decode,
        "this is mistake M1: after a rejection, draw from p": slipped("target"),
        "this is mistake M7: bonus token is the most likely one": slipped("argmax bonus"),
        "this is mistake M8: bonus token drawn from the draft": slipped("draft bonus"),
        "this is mistake M9: go on after a rejection": slipped("go on"),
        "this is mistake M11: row off by one": slipped("row"),
        "this is mistake M17: it writes past max_new_tokens": slipped("long"),
        "this is mistake M17: text goes on after a stop token": slipped("inside"),
        "goes on after a stop token ([0, 0, 2, 0]": slipped("one id"),
        "throws the stop token away": slipped("thrown"),
        "this is mistake M20: no bonus token": slipped("no bonus"),
        "(mistake M21)": slipped("chain"),
        "q's row 0, not the row of the rejected draft": slipped("row 0"),
        "categorical got negative weights: clamp p - q at 0": slipped("unclamped"),
        "all chance must come from `randomness`": slipped("own coin"),
        "it subtracts q from the bonus row too": slipped("no bonus row"),
        "swapped in first_rejection: p comes first": slipped("swapped"),
        "the loop does not end (": slipped("endless"),
        "where nothing was drafted, it writes nothing. This is mistake M20": stuck,
        "it does not end: a loop goes round for ever": slipped("silent"),
        "no draft was judged": slipped("plain"),
        "fewer tokens a round than gamma": slipped("short"),
        "its law is off: total variation": slipped("argmax"),
        "it makes no choice through": lambda p, q, gamma, most, stops, randomness: [0] * most,
        "it ends before max_new_tokens": lambda p, q, gamma, most, stops, randomness: [
            int(randomness.categorical(p([])))
        ],
        "it returned None": lambda *a: my_decode(*a) and None,
        ".9": lambda *a: [token + 0.9 for token in reference_decode(*a)],
        "it returns 7": lambda p, q, gamma, most, stops, randomness: (
            (randomness.categorical(p([])) and 7) or 7
        ),
        "it raised AttributeError": lambda p, q, gamma, most, stops, randomness: (
            randomness.first_rejection([0.6], [0.8])
        ),
    },
}  # fmt: skip

SOLUTIONS = sources(count_kept, cut_block, my_decode)

# With one of the museum's mistakes in the core's place, these cells print something else.
NEEDS = [
    "pair = load_pair",
    "runs = [",
    "stories = [run.trace",
]
TEETH = {
    "M6": ['print("texts:", len(whole)'],
    "M7": ['print("texts:", len(whole)'],
    "M8": ['print("texts:", len(whole)'],
    "M9": ['print("texts:", len(whole)'],
    "M17": ['print("drafted", last.gamma'],
}
