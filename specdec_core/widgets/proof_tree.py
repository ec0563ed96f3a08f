"""The proof tree: all ways one round can go, and the leaves of one text adding up to the target's.

Every number is a fraction. The branches are the paths of `speculative_rounds` itself, with a
mistake of the museum in it where the reader wants one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import wrap

from specdec_core.lab.law_check import rows_of
from specdec_core.lab.museum import MISTAKES
from specdec_core.pairs import Pair
from specdec_core.widgets.picture import Picture, html_table, shorten, visible
from specdec_core.widgets.proof_drawing import VERDICTS, draw_title, draw_tree, spelled
from specdec_core.widgets.proof_paths import (
    Group,
    Leaf,
    Step,
    check_denominators,
    context_rows,
    grouped,
    leaves,
)
from specdec_core.widgets.stage import Stage, select, stepper, text

MOST_LEAVES, MOST_GAMMA = 24, 2
RIGHT_RULE = "none"
ROOM = {1: 47, 2: 27}  # width of a token in the picture, by gamma
SPELLED_OUT = 270  # and in a sentence

# The mistakes whose probabilities are fractions and whose round is read from its choices alone.
MISTAKES_HERE = ("M1", "M2", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "M22")
RULES = {RIGHT_RULE: "the right one"} | {
    name: f"{name}: {MISTAKES[name].title}" for name in MISTAKES_HERE
}


def proof_tree(
    target_probs: Sequence | str = (0.6, 0.4),
    draft_probs: Sequence | str = (0.8, 0.2),
    gamma: int = 1,
    words: Sequence[str] | None = None,
    rules: Sequence[str] = MISTAKES_HERE,
) -> Stage:
    """The live tree of one round on numbers the reader can change.

    target_probs, draft_probs: p and q. One row holds for every context; a list of rows gives the
        first for the start and one after each token. Numbers or text such as ".6 .4" or "1/3 2/3",
        with "|" between rows; a row sums to one exactly.
    gamma: drafted tokens, 1 or 2; as many are compared at first. words: the text of each token; by
        default its id. rules: the mistakes offered beside the right rule, of `MISTAKES_HERE`.

    `real_rows` gives the arguments for a position of a real pair. Raises ValueError for a mistake
    the tree does not have.
    """
    unknown = [name for name in rules if name not in MISTAKES_HERE]
    if unknown:
        raise ValueError(_no_rule(unknown[0]))
    offered = {name: RULES[name] for name in (RIGHT_RULE, *rules)}
    controls = [
        text("p", "target p", 26),
        text("q", "draft q", 26),
        stepper("gamma", "gamma", 1, MOST_GAMMA),
        stepper("compare", "tokens to compare", 1, MOST_GAMMA + 1),
        select("mistake", "the rule", offered),
    ]
    view = partial(draw_proof_tree, words=None if words is None else tuple(words))
    return Stage(
        view, "Proof tree", controls, p=_as_text(target_probs), q=_as_text(draft_probs),
        gamma=gamma, compare=gamma, mistake=RIGHT_RULE, group=" ".join("0" * gamma),
    )  # fmt: skip


def real_rows(
    pair: Pair, prompt: Sequence[int], tokens: int = 2, drafter: str | None = None
) -> dict[str, object]:
    """Arguments of `proof_tree` for what `pair` does after `prompt`: p, q and the words.

    Only the target's likeliest `tokens` (2 or 3) are looked at, at the start and after each of
    them, and their probabilities are rounded to hundredths that sum to one.
    """
    network = pair.drafters[drafter].model if drafter else pair.drafter.model
    start = rows_of(pair.target, prompt)(())
    ids = [int(i) for i in (-start).argsort(kind="stable")[:tokens]]
    contexts = [(), *((i,) for i in range(tokens))]
    p, q = (
        [_hundredths(rows_of(model, prompt, ids)(new)) for new in contexts]
        for model in (pair.target, network)
    )
    words = [pair.decode([i]).strip(" ") or pair.decode([i]) for i in ids]
    return {"target_probs": p, "draft_probs": q, "words": words}


def draw_proof_tree(
    p: str = ".6 .4",
    q: str = ".8 .2",
    gamma: int = 1,
    compare: int = 1,
    mistake: str = RIGHT_RULE,
    group: str = "0",
    words: Sequence[str] | None = None,
) -> Picture:
    """The tree of one round, its leaves grouped by their first `compare` tokens.

    p, q: as in `proof_tree`, as text. compare: at most gamma + 1 count. mistake: a key of `RULES`.
    group: the text whose leaves are shown in full: token ids with spaces between.

    Raises ValueError, in one sentence, for what cannot be drawn.
    """
    target, draft = context_rows(p, "p"), context_rows(q, "q")
    if len(target[0]) != len(draft[0]):
        raise ValueError(
            f"p has {len(target[0])} tokens and q has {len(draft[0])}: they need the same."
        )
    check_denominators(target, draft)
    if gamma not in range(1, MOST_GAMMA + 1):
        raise ValueError(f"gamma must be 1 or 2 here, not {gamma!r}.")
    if mistake not in RULES:
        raise ValueError(_no_rule(mistake))
    compare = min(max(compare, 1), gamma + 1)
    ways = leaves(target, draft, gamma, compare, None if mistake == RIGHT_RULE else mistake)
    if len(ways) > MOST_LEAVES:
        raise ValueError(
            f"This round can go {len(ways)} ways, and {MOST_LEAVES} fit the picture: compare fewer "
            "tokens, or take gamma 1 or two tokens."
        )
    groups = grouped(ways, target, compare)
    chosen = next((g for g in groups if g.key == group), groups[0])
    short, full = (_names(words, len(target[0]), room) for room in (ROOM[gamma], SPELLED_OUT))
    rule = RULES[mistake] if mistake in MISTAKES else "the right rule"
    if mistake in MISTAKES and MISTAKES[mistake].breaks == "law":
        rule = f"✗ {rule}"
    title = draw_title(target, draft, short, gamma, rule)
    lines = wrap(_sums(chosen, full), 96, break_long_words=False)
    return Picture(
        draw_tree(ways, groups, chosen, short, title, lines),
        _sentence(groups, chosen, full, gamma, mistake),
        _table(ways, groups, full),
    )


# Reading what the reader wrote


def _as_text(probs: Sequence | str) -> str:
    if isinstance(probs, str):
        return probs
    rows = probs if len(probs) and isinstance(probs[0], (Sequence, str)) else [probs]
    return " | ".join(" ".join(str(x) for x in row) for row in rows)


def _hundredths(probs: Sequence[float]) -> list[str]:
    """Probabilities rounded to hundredths that sum to one: the largest remainders are rounded up.

    Returned as text, so that they are read as decimals.
    """
    shares = [100 * float(p) for p in probs]
    parts = [int(share) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: parts[i] - shares[i])
    for i in order[: 100 - sum(parts)]:
        parts[i] += 1
    return [f"{part / 100:.2f}" for part in parts]


def _names(words: Sequence[str] | None, vocab: int, room: float) -> list[str]:
    """What each token is called, no wider than `room`."""
    if words is not None and len(words) != vocab:
        raise ValueError(f"There are {len(words)} words for {vocab} tokens: give one for each.")
    return [shorten(visible(word), room) for word in words or map(str, range(vocab))]


# Saying it


def _no_rule(name: str) -> str:
    return f"The tree has no rule {name!r}: choose among {', '.join(RULES)}."


def _sum(group: Group) -> str:
    """9/25 + 6/25 = 3/5"""
    terms = [str(leaf.probability) for leaf in group.leaves]
    return f"{' + '.join(terms)} = {group.total}" if len(terms) > 1 else str(group.total)


def _sums(group: Group, names: Sequence[str]) -> str:
    text = spelled(group.tokens, names)
    return f"{text}: the leaves give {_sum(group)}, the target gives {_product(group)}"


def _product(group: Group) -> str:
    """3/5 × 2/5 = 6/25"""
    factors = [str(factor) for factor in group.factors]
    return f"{' × '.join(factors)} = {group.target}" if len(factors) > 1 else str(group.target)


def _sentence(
    groups: Sequence[Group], chosen: Group, names: Sequence[str], gamma: int, mistake: str
) -> str:
    compare = len(chosen.tokens)
    wrong = [group for group in groups if group.total != group.target]
    parts = [] if mistake == RIGHT_RULE else [f"With {mistake} ({MISTAKES[mistake].title}):"]
    word = "they agree" if chosen.total == chosen.target else "they differ"
    parts.append(
        f"The leaves of text {spelled(chosen.tokens, names)} sum to {_sum(chosen)}, and the target "
        f"gives it {_product(chosen)}: {word}."
    )
    if any(leaf.steps[-1].kind == "plain" for group in groups for leaf in group.leaves):
        parts.append(f"A block shorter than {compare} goes on with plain draws from the target.")
    count = {1: "It is the only text", 2: "Both texts agree"}
    every = count.get(len(groups), f"All {len(groups)} texts agree")
    if wrong:
        parts.append(f"{len(wrong)} of {len(groups)} texts are off: this is not the target's law.")
    elif mistake == RIGHT_RULE or MISTAKES[mistake].breaks != "law":
        parts.append(f"{every}: the round writes by the target's law.")
    else:
        more = "compare more tokens" if compare <= gamma else "these p and q do not show it"
        parts.append(f"{every}, so the mistake stays hidden: {more}.")
    return " ".join(parts)


def _table(ways: Sequence[Leaf], groups: Sequence[Group], names: Sequence[str]) -> str:
    compare = len(groups[0].tokens)
    rows = [
        (
            ", ".join(_said(step, names) for step in leaf.steps),
            spelled(leaf.tokens, names),
            leaf.probability,
            spelled(leaf.tokens[:compare], names),
        )
        for leaf in ways
    ]
    sums = [
        (spelled(group.tokens, names), _sum(group), _product(group), group.verdict)
        for group in groups
    ]
    return html_table(("way", "text emitted", "probability", "counts for"), rows) + html_table(
        ("text", "sum of its leaves", "target", "verdict"), sums
    )


def _said(step: Step, names: Sequence[str]) -> str:
    return step.kind if step.kind in VERDICTS else f"{step.kind} {names[step.token]}"
