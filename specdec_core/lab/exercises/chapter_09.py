"""Checks of chapter 09: a look-up, a confidence stop, and which draft to take."""

from __future__ import annotations

from collections.abc import Callable

from specdec_core.lab import speed_model
from specdec_core.lab.exercises.verdicts import as_whole, as_wholes, attempted, over

# text, n, gamma. The last n tokens stood there: twice, once, right before themselves, never.
TEXTS = (
    ([5, 6, 7, 8, 9, 5, 6, 4, 3, 2, 1, 5, 6], 2, 3),
    ([1, 2, 3, 4, 1, 2], 2, 4),
    ([7, 3, 3, 3], 2, 2),
    ([1, 2, 3, 4], 1, 4),
    ([9, 8, 7, 9], 1, 1),
    ([4, 4], 2, 3),
)


@attempted
def check_look_up(function: Callable[[list[int], int, int], list[int]]) -> None:
    """Exercise 1: what followed the last n tokens where they stood before."""
    over(TEXTS, function, _explain_look_up, "text={}, n={}, gamma={}".format)


def look_up(text: list[int], n: int, gamma: int) -> list[int]:
    """At most `gamma` tokens of `text` that followed its last n at their latest earlier place."""
    for place in range(len(text) - n - 1, -1, -1):
        if text[place : place + n] == text[-n:]:
            return text[place + n : place + n + gamma]
    return []


def _explain_look_up(answer: object, text: list[int], n: int, gamma: int) -> str | None:
    mine, right = as_wholes(answer), look_up(text, n, gamma)
    if mine is None:
        return f"it returns {answer!r}, which is not a list of tokens"
    if mine == right:
        return None
    starts = [i for i in range(len(text) - n) if text[i : i + n] == text[-n:]]
    if not starts:
        return f"these tokens never stood there before: nothing is drafted, not {mine}"
    if not mine:
        return (
            "nothing is drafted, though these tokens stood there before: the end of the text "
            "itself is no earlier place"
        )
    if len(mine) > gamma:
        return f"{len(mine)} tokens are drafted: gamma = {gamma} is the most"
    last, first = starts[-1], starts[0]
    slips = {
        tuple(text[first + n : first + n + gamma]): "this is the earliest place: the latest counts",
        tuple(text[last : last + gamma]): "this repeats the tokens you looked for: draft what "
        "came after them",
        tuple(text[last + n + 1 : last + n + 1 + gamma]): "the first token after the match is "
        "left out",
        tuple(text[-gamma:]): "these are the last tokens of the text, not what followed them",
    }
    return slips.get(tuple(mine)) or f"it is {right}, not {mine}"


# q of each token as it is drawn, threshold
DRAWN = (
    ([0.9, 0.8, 0.2, 0.9, 0.9], 0.25),
    ([0.9, 0.9, 0.9], 0.25),
    ([0.1, 0.9, 0.9], 0.25),
    ([0.9, 0.25, 0.8, 0.2, 0.9], 0.25),
    ([0.6, 0.7, 0.9, 0.3], 0.4),
)


@attempted
def check_drafts_in_round(function: Callable[[list[float], float], int]) -> None:
    """Exercise 2: how many drafts a round has with a confidence stop that keeps the law."""
    over(DRAWN, function, _explain_drafts, "q={}, threshold={}".format)


def drafts_in_round(q: list[float], threshold: float) -> int:
    """Drafts up to the first unsure token, which is kept."""
    return next((i for i, value in enumerate(q, 1) if value < threshold), len(q))


def _explain_drafts(answer: object, q: list[float], threshold: float) -> str | None:
    mine, right = as_whole(answer), drafts_in_round(q, threshold)
    if mine is None:
        return f"it returns {answer!r}, which is not a whole number"
    if mine == right:
        return None
    stopped = q[right - 1] < threshold
    if stopped and mine == right - 1:
        return f"the unsure token is dropped, which biases the law: keep it, so {right}"
    at_most = next((i + 1 for i, value in enumerate(q) if value <= threshold), len(q))
    if mine == at_most:
        return "a token is unsure where q lies below the threshold, not where it equals it"
    if not stopped:
        return f"no token is unsure: all {right} are drafted, not {mine}"
    if mine == len(q):
        return f"nothing stops the draft: token {right} is unsure, and it is the last"
    if mine == sum(value >= threshold for value in q):
        return "this counts the sure tokens, also those behind the stop: they were never drawn"
    return f"it is {right}, not {mine}"


# name -> (alpha, c), gamma; v = 1 and o = 0. The best is at least 4 % ahead.
OFFERS = (
    ({"small": (0.75, 0.05), "large": (0.92, 0.40), "heads": (0.60, 0.01)}, 4),
    ({"small": (0.80, 0.30), "large": (0.97, 0.35), "copy": (0.30, 0.00)}, 4),
    ({"large": (0.90, 0.95), "wrong": (0.05, 0.10)}, 4),
    ({"small": (0.70, 0.12), "copy": (0.55, 0.00), "large": (0.95, 0.60)}, 2),
)
PLAIN = "plain"


@attempted
def check_best_draft(function: Callable[[dict[str, tuple[float, float]], int], str]) -> None:
    """Exercise 3: the draft with the largest speed-up, or "plain"."""
    over(OFFERS, function, _explain_draft, "drafts={}, gamma={}".format)


def speedups(drafts: dict[str, tuple[float, float]], gamma: int) -> dict[str, float]:
    """The speed-up of each draft, name -> (alpha, c), and of plain decoding."""
    gains = {name: speed_model.speedup(alpha, gamma, c) for name, (alpha, c) in drafts.items()}
    return {PLAIN: 1.0, **gains}


def best_draft(drafts: dict[str, tuple[float, float]], gamma: int) -> str:
    """The name of the largest speed-up."""
    gains = speedups(drafts, gamma)
    return max(gains, key=gains.get)


def _explain_draft(
    answer: object, drafts: dict[str, tuple[float, float]], gamma: int
) -> str | None:
    gains, right = speedups(drafts, gamma), best_draft(drafts, gamma)
    if isinstance(answer, str) and answer == right:
        return None
    if not isinstance(answer, str) or answer not in gains:
        return f"it returns {answer!r}: return one of {', '.join(gains)}"
    told = f"{answer} gives {gains[answer]:.2f}x, {right} {gains[right]:.2f}x"
    if right == PLAIN:
        return f"no draft gains here: {told}"
    if answer == PLAIN:
        return f"a draft gains here: {told}"
    if answer == max(drafts, key=lambda name: drafts[name][0]):
        return f"the highest acceptance is not the fastest, its price counts too: {told}"
    if answer == min(drafts, key=lambda name: drafts[name][1]):
        return f"the cheapest is not the fastest, acceptance counts too: {told}"
    return told
