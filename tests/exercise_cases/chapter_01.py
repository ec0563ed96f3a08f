"""Answers to the exercises of chapter 01."""

from __future__ import annotations

from exercise_cases import sources
from specdec_core.lab import exercises, timing


def rows_fed(prompt_length, new_tokens, cached):
    if cached:
        return prompt_length + new_tokens - 1
    return sum(prompt_length + written for written in range(new_tokens))


def greedy_loop(model, prompt, new_tokens):
    model.rollback(0)
    tokens, unread = [], list(prompt)
    for _ in range(new_tokens):
        tokens.append(int(model.forward(unread)[-1].argmax()))
        unread = tokens[-1:]
    return tokens


def most_tokens(times):
    return max(n for n, seconds in times.items() if seconds <= 2 * times[1])


def loop(feed, first=True, row=-1, extra=0, whole=False):
    """A greedy loop with slips: what it feeds after each token, and how it starts and ends."""

    def write(model, prompt, new_tokens):
        if first:
            model.rollback(0)
        tokens, unread = [], list(prompt)
        for _ in range(new_tokens):
            tokens.append(int(model.forward(unread)[row].argmax()))
            unread = feed(prompt, tokens)
        for _ in range(extra):
            model.forward(unread)
        return [*prompt, *tokens] if whole else tokens

    return write


def newest(prompt, tokens):
    return tokens[-1:]


def grows_the_prompt(model, prompt, new_tokens):
    model.rollback(0)
    unread = list(prompt)
    for _ in range(new_tokens):
        prompt.append(int(model.forward(unread)[-1].argmax()))
        unread = prompt[-1:]
    return prompt[-new_tokens:]


def first_slow_ends(times):
    most = 1
    for n in sorted(times):
        if times[n] > 2 * times[1]:
            break
        most = n
    return most


def prompt_end_twice(model, prompt, new_tokens):
    model.rollback(0)
    model.forward(prompt)
    tokens, last = [], prompt[-1]
    for _ in range(new_tokens):
        last = int(model.forward([last])[-1].argmax())
        tokens.append(last)
    return tokens


def endless(model, prompt, new_tokens):
    model.rollback(0)
    tokens, unread = [], list(prompt)
    while True:
        tokens.append(int(model.forward(unread)[-1].argmax()))
        unread = tokens[-1:]


CHECKS = {
    exercises.check_rows_fed: {
        "right": rows_fed,
        "read once and never again": lambda p, n, cached: rows_fed(p, n, False),
        "same with and without": lambda p, n, cached: rows_fed(p, n, True),
        "it counts forwards": lambda p, n, cached: n,
        "reads the last new token too, and nothing follows that one (5 tokens of prompt, 24 new "
        "ones, with": lambda p, n, cached: p + n,
        "reads the last new token too, and nothing follows that one (5 tokens of prompt, 24 new "
        "ones, without": lambda p, n, cached: (
            rows_fed(p, n, True) if cached else sum(p + i for i in range(n + 1))
        ),
        "follows that one: the first forward reads the prompt alone": (
            lambda p, n, cached: (
                rows_fed(p, n, True) if cached else sum(p + i for i in range(1, n + 1))
            )
        ),
        "final length": lambda p, n, cached: rows_fed(p, n, True) if cached else n * (p + n),
        "leaves the prompt out": lambda p, n, cached: (
            rows_fed(p, n, True) if cached else n * (n + 1) // 2
        ),
        "it returns [28], not a number": lambda p, n, cached: [rows_fed(p, n, cached)],
        "it gives 7 where 28 is right": lambda p, n, cached: 7,
        "raised ZeroDivisionError": lambda p, n, cached: p / 0,
    },
    exercises.check_greedy_loop: {
        "right": greedy_loop,
        "right, as the package has it": timing.greedy_with_cache,
        "it returned None: return the answer": lambda model, prompt, n: print(end=""),
        "earlier run left": loop(newest, first=False),
        "already holds it": loop(lambda prompt, tokens: [*prompt, *tokens]),
        "but it reads 39 tokens where 9 are enough": timing.greedy_without_cache,
        "last forward is not needed": loop(newest, extra=1),
        "returns the prompt too": loop(newest, whole=True),
        "comes from the first row": loop(newest, row=0),
        "last token of the prompt twice": prompt_end_twice,
        "changes the caller's list": grows_the_prompt,
        "it returns 7 tokens, not 6": lambda model, prompt, n: greedy_loop(model, prompt, n + 1),
        "the loop does not end: stop when new_tokens": endless,
        "not a list of tokens": lambda model, prompt, n: 3,
        "raised IndexError": lambda model, prompt, n: prompt[99],
    },
    exercises.check_most_tokens: {
        "right": most_tokens,
        "right, as the package has it": timing.most_tokens,
        "first n that costs more": lambda times: min(
            (n for n in times if times[n] > 2 * times[1]), default=max(times)
        ),
        "exactly twice": lambda times: max(n for n in times if times[n] < 2 * times[1]),
        "stops at the first n that costs more": first_slow_ends,
        "last in the order given": lambda times: [n for n in times if times[n] <= 2 * times[1]][-1],
        "it gives a time": lambda times: max(t for t in times.values() if t <= 2 * times[1]),
        "time per token": lambda times: max(n for n in times if times[n] / n <= 2 * times[1]),
        "where 32 is right": lambda times: 2.0,
        "not a number": lambda times: [n for n in times if times[n] <= 2 * times[1]],
        "raised KeyError": lambda times: times[0],
    },
}

SOLUTIONS = sources(rows_fed, greedy_loop, most_tokens)

# Cells whose output must change under a mistake of the museum, and what they need.
NEEDS = ["pair = load_pair("]
SPECULATIVE = ["fast = speculative_decode("]
TEETH = {"M18": SPECULATIVE, "M19": SPECULATIVE, "M20": SPECULATIVE, "M21": SPECULATIVE}
