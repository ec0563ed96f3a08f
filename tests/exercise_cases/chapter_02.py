"""Answers to the exercises of chapter 02, and the mistakes its cells must feel."""

from __future__ import annotations

from exercise_cases import sources
from specdec_core.lab import exercises


def row_duty(row, drafted):
    return drafted[:row], drafted[row] if row < len(drafted) else None


def draft_chain(next_token, context, gamma):
    text = list(context)
    for _ in range(gamma):
        text.append(next_token(text))
    return text[len(context) :]


def greedy_verdict(drafted, best):
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == best[accepted]:
        accepted += 1
    return accepted, best[accepted]


def kept(drafted, best):
    return greedy_verdict(drafted, best)[0]


def in_place(next_token, context, gamma):
    for _ in range(gamma):
        context.append(next_token(context))
    return context[-gamma:]


def newest_only(next_token, context, gamma):
    tokens = [next_token(context)]
    for _ in range(gamma - 1):
        tokens.append(next_token(tokens[-1:]))
    return tokens


def cut_from_the_end(next_token, context, gamma):
    return [*context, *draft_chain(next_token, context, gamma)][-gamma:]


CHECKS = {
    exercises.check_row_duty: {
        "right": row_duty,
        "which it has seen already": lambda row, drafted: (
            drafted[: row + 1], [*drafted, None][row]),
        "hides all after the first 0": lambda row, drafted: (
            drafted[: row + 1], [*drafted, None, None][row + 1]),
        "hides all after": lambda row, drafted: (drafted, None),
        "row 0 sees none": lambda row, drafted: (drafted[: max(row - 1, 0)], drafted[row]),
        "the first token it does not see is 'a', not 'b'": lambda row, drafted: (
            drafted[:row], drafted[row + 1]),
        "it judges none: None, not 'd'": lambda row, drafted: (
            drafted[:row], [*drafted, drafted[-1]][row]),
        "not a pair": lambda row, drafted: drafted[row],
        "raised IndexError": lambda row, drafted: (drafted[:row], drafted[row]),
    },
    exercises.check_draft_chain: {
        "right": draft_chain,
        "same context": lambda f, context, gamma: [f(context) for _ in range(gamma)],
        "returns the context too": lambda f, context, gamma: [
            *context, *draft_chain(f, context, gamma)],
        "changes the context": in_place,
        "newest token alone": newest_only,
        "cut with text[len(context):]": cut_from_the_end,
        "returns 1 token where gamma is 0": lambda f, context, gamma: draft_chain(
            f, context, max(gamma, 1)),
        "returns 4 tokens where gamma is 3": lambda f, context, gamma: draft_chain(
            f, context, gamma + 1),
        "it returned None": lambda f, context, gamma: (
            draft_chain(f, context, gamma) or None),
        "not a list of tokens": lambda f, context, gamma: f(context),
        "it gives": lambda f, context, gamma: draft_chain(f, context, gamma)[::-1],
    },
    exercises.check_greedy_verdict: {
        "right": greedy_verdict,
        "drafted[i] with row i + 1: use row i": lambda drafted, best: (
            kept(drafted, [*best[1:], None]), best[-1]),
        "after the first mismatch": lambda drafted, best: (
            sum(d == b for d, b in zip(drafted, best, strict=False)), best[-1]),
        "emits the rejected draft": lambda drafted, best: (
            kept(drafted, best), (drafted + best[-1:])[kept(drafted, best)]),
        "follows a rejected draft": lambda drafted, best: (kept(drafted, best), best[-1]),
        "gives the bonus token 4, not None": lambda drafted, best: (
            kept(drafted, best), [*best[:-1], None][kept(drafted, best)]),
        "not a pair (count, token)": lambda drafted, best: kept(drafted, best),
        "the emitted tokens: return a pair": lambda drafted, best: [
            *drafted[: kept(drafted, best)], best[kept(drafted, best)]],
        "which drafts are kept, [7]: return a pair": lambda drafted, best: (
            drafted[: kept(drafted, best)], best[kept(drafted, best)]),
        "it returned None": lambda drafted, best: next(
            ((i, best[i]) for i, d in enumerate(drafted) if d != best[i]), None),
        "the other way round": lambda drafted, best: (
            best[kept(drafted, best)], kept(drafted, best)),
        "it keeps 3 where 1 is right": lambda drafted, best: (len(drafted), best[-1]),
    },
}  # fmt: skip

SOLUTIONS = sources(row_duty, draft_chain, greedy_verdict)

# With one of the museum's mistakes in the core's place, these cells print something else.
NEEDS = ["pair = load_pair", "def copying(text)", "def by_last(text)"]
TEETH = {
    "M11": ["first, second, *later", "plain.stats.target_forwards", "right = exact_law("],
    "M21": ["first, second, *later", "plain.stats.target_forwards"],
    "M5": ["right = exact_law("],
    "M20": ["plain.stats.target_forwards"],
}
