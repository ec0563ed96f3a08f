"""Checks of chapter 07: a warped row, the q that goes into the ratio, the prefix of each row.

The second is enumerated: the learner's own function is run for every outcome of its draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from specdec_core.exact import exact_law
from specdec_core.lab.exercises.verdicts import as_number, as_whole, attempted, call, over, verdict
from specdec_core.randomness import Randomness
from specdec_core.sampling import Sampling

Row = list[float]
Shape = Callable[[Sequence[float]], Row]
CLOSE = 1e-6  # a row may come in float32

# Logits, temperature, top-k. The first tells the slips apart; the last overflows a bare exp.
ROWS = (
    ([2.0, 0.5, 1.5, -1.0], 0.5, 2),
    ([0.3, 0.1, -0.4], 2.0, 3),
    ([-3.0, -1.0, -1.5, -2.0], 1.0, 1),
    ([800.0, 799.0, 1.0], 1.0, 2),
)


def _shaped(logits: Sequence[float], temperature: float = 1.0, top_k: int | None = None) -> Row:
    row = torch.tensor([list(logits)], dtype=torch.float64)
    return Sampling(temperature, top_k).probs(row)[0].tolist()


def _cut(row: Sequence[float], top_k: int, fill: float) -> Row:
    least = sorted(row)[-top_k]
    return [x if x >= least else fill for x in row]


def _scaled(row: Sequence[float]) -> Row:
    return [x / sum(row) for x in row]


# What is written in place of the warped row, and its name.
ROW_SLIPS: dict[str, Callable[[Row, float, int], Row]] = {
    "top-k is missing: all tokens are kept": lambda z, t, k: _shaped(z, t),
    "the temperature is missing": lambda z, t, k: _shaped(z, 1.0, k),
    "it multiplies by the temperature: divide the logits by it": (
        lambda z, t, k: _shaped(z, 1 / t, k)
    ),
    "it is not scaled after the cut: what is kept must add up to 1": (
        lambda z, t, k: _cut(_shaped(z, t), k, 0.0)
    ),
    "it divides the probabilities by the temperature: divide the logits, before the softmax": (
        lambda z, t, k: [x / t for x in _shaped(z, 1.0, k)]
    ),
    "a cut logit is set to 0, and e to the 0 is 1: set it to minus infinity, or its probability "
    "to 0": lambda z, t, k: _shaped(_cut([x / t for x in z], k, 0.0)),
    "it keeps the k least likely tokens": lambda z, t, k: _least(z, t, k),
    "it returns logits, not probabilities": lambda z, t, k: [x / t for x in z],
}


def _least(z: Row, t: float, k: int) -> Row:
    most = sorted(z)[k - 1]
    return _scaled([x if y <= most else 0.0 for x, y in zip(_shaped(z, t), z, strict=True)])


def _close(row: Sequence[float], other: Sequence[float]) -> bool:
    return len(row) == len(other) and all(
        math.isclose(a, b, abs_tol=CLOSE) for a, b in zip(row, other, strict=True)
    )


def _said(row: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in row) + ")"


def _as_row(answer: object) -> Row | None:
    """A row of numbers (list, tuple, array, tensor); None for anything else."""
    found, problem = call(lambda: [as_number(x) for x in answer])
    return None if problem or None in found else found


OVERFLOW = {
    "OverflowError": "subtract the largest logit from all of them first; the softmax is the same"
}


@attempted
def check_warped(function: Callable[[Row, float, int], Sequence[float]]) -> None:
    """Exercise 1: temperature, then top-k, then a softmax over what is left."""
    over(ROWS, function, _explain_row, _about_row, OVERFLOW)


def _about_row(logits: Row, temperature: float, top_k: int) -> str:
    return f"logits {_said(logits)}, temperature {temperature:g}, top-k {top_k}"


def _explain_row(answer: object, logits: Row, temperature: float, top_k: int) -> str | None:
    row = _as_row(answer)
    if row is None:
        return f"it returns {answer!r}, not a list of numbers"
    if len(row) != len(logits):
        return f"it returns {len(row)} numbers for {len(logits)} tokens: a cut token has 0"
    right = _shaped(logits, temperature, top_k)
    if _close(row, right):
        return None
    if any(map(math.isnan, row)):
        return "it gives nan: subtract the largest logit from all of them before the softmax"
    seen = f"it gives {_said(row)} where {_said(right)} is right"
    for name, slip in ROW_SLIPS.items():
        if _close(row, slip(logits, temperature, top_k)):
            return f"{name}; {seen}"
    return seen


# Logits, and how the draft samples.
DRAFTS = (
    ([1.2, 0.7, 0.1], Sampling(0.5, top_k=2)),
    ([0.0, 0.4, 1.0, -0.3], Sampling(2.0)),
    ([0.2, 1.1, 0.9], Sampling(top_k=1)),
)


class Slip(Exception):
    """The run went wrong; says how."""


@attempted
def check_draft_one(function: Callable[[Row, Shape, Callable], tuple]) -> None:
    """Exercise 2: draw one draft, and return it with the row it was drawn from."""
    for logits, sampling in DRAFTS:
        problem = _explain_draft(function, logits, sampling)
        if problem:
            verdict(f"{problem} (logits {_said(logits)})")
            return
    verdict(None)


def _explain_draft(function: Callable, logits: Row, sampling: Sampling) -> str | None:
    """Run the function for every outcome of its draw; what is wrong on the first bad one."""
    shaped = sampling.probs(torch.tensor([logits], dtype=torch.float64))[0].tolist()

    def shape(scores: Sequence[float]) -> Row:
        row = torch.as_tensor(scores, dtype=torch.float64)[None]
        return sampling.probs(row)[0].tolist()

    def run(coins: Randomness) -> list[int]:
        drawn: list[Row] = []
        tokens: list[int] = []

        def draw(row: Sequence[float]) -> int:
            drawn.append([float(x) for x in row])
            tokens.append(int(coins.categorical(torch.tensor(drawn[-1], dtype=torch.float64))))
            return tokens[-1]

        answer, problem = call(function, list(logits), shape, draw)
        problem = problem or _explain_answer(answer, drawn, tokens, list(logits), shaped)
        if problem:
            raise Slip(problem)
        return tokens

    try:
        exact_law(run)
    except Slip as slip:
        return str(slip)
    return None


def _explain_answer(
    answer: object, drawn: list[Row], tokens: list[int], logits: Row, shaped: Row
) -> str | None:
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        return f"it returns {answer!r}, not two things: the token and q"
    token, q = answer
    if _as_row(token) is not None and as_whole(q) is not None:
        return "token and q are exchanged: return the token first"
    if not drawn:
        return (
            "nothing was drawn: an argmax beside a softmax q is mistake M2, since the argmax has "
            "q = 1. Draw from shape(logits)"
        )
    if len(drawn) > 1:
        return f"it draws {len(drawn)} times: one token is drafted"
    if not _close(drawn[0], shaped):
        raw = _close(drawn[0], _shaped(logits))
        told = "the softmax of the bare logits" if raw else _said(drawn[0])
        return f"it draws from {told}, where shape(logits) gives {_said(shaped)}"
    if as_whole(token) != tokens[0]:
        return f"the token it returns, {token!r}, is not the one it drew, {tokens[0]}"
    return _explain_recorded(q, tokens[0], logits, shaped)


def _explain_recorded(q: object, token: int, logits: Row, shaped: Row) -> str | None:
    number, row = as_number(q), _as_row(q)
    if number is not None:
        return "q is one number: after a rejection max(p − q, 0) needs q of every token"
    if row is None:
        return f"q is {q!r}, not a row of numbers"
    if _close(row, shaped):
        return None
    seen = f"q is {_said(row)}, and the token was drawn from {_said(shaped)}"
    if _close(row, _shaped(logits)):
        return f"{seen}: the softmax before temperature and top-k is mistake M12"
    if _close(row, [float(i == token) for i in range(len(logits))]):
        return f"{seen}: a row with all mass on the drawn token says that it was certain"
    if _close(row, logits):
        return f"{seen}: these are the logits"
    return seen


# The text so far and the drafts of a round.
ROUNDS = (([7, 3], [5, 9, 4]), ([2], [6]), ([8, 1, 8], []))


@attempted
def check_prefixes(function: Callable[[list[int], list[int]], Sequence]) -> None:
    """Exercise 3: the text each of the gamma + 1 rows continues, which a penalty must read."""
    over(ROUNDS, function, _explain_prefixes, "text {}, drafts {}".format)


def _explain_prefixes(answer: object, text: list[int], drafts: list[int]) -> str | None:
    # Whole numbers only: a row that is a text or a number has no prefixes in it.
    found, problem = call(lambda: [[as_whole(x) for x in row] for row in answer])
    if problem or any(None in row for row in found):
        return f"it returns {answer!r}, not a list of lists of tokens"
    count = len(drafts) + 1
    right = [text + drafts[:i] for i in range(count)]
    if found == right:
        return None
    slips = (
        ([text] * count, "every row reads the text before the draft: that is mistake M13"),
        ([text + drafts] * count, "every row reads the whole block: a word would be punished for "
         "drafts that come after it"),
        (right[:-1], "one is missing: the row of the bonus token continues all drafts"),
        (right[1:], "row 0 is missing: it judges the first draft, and continues the text alone"),
        ([text + drafts[: i + 1] for i in range(count)], "they are one draft too long: row i "
         "judges draft i + 1, so it must not have read it"),
        ([drafts[:i] for i in range(count)], "the text before the drafts is missing"),
        ([text + drafts[i - 1 : i] if i else text for i in range(count)], "each reads one draft: "
         "row i continues the first i drafts"),
    )  # fmt: skip
    for slip, name in slips:
        if found == slip and slip != right:
            return name
    if len(found) != count:
        return f"it returns {len(found)} prefixes; {len(drafts)} drafts need {count}"
    return f"it gives {found} where {right} is right"
