"""The bench on paper: tables of at most 96 columns, then a verdict in sentences.

Pure functions from the numbers of `sections.py` to lines. A ratio is the median of the repeats with
their middle half beside it, and what is slower than plain decoding says so in words.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise

from specdec_core.lab.bench.rows import middle_half

PEERS = (
    "the same models and settings, transformers' top-k switched off, but for rows marked its "
    "defaults: there transformers truncates as the label says, and assisted drafts 20 tokens a "
    "round while each is likelier than .4"
)
# Who does the same as which row of ours.
RIVALS = (
    ("plain", "transformers generate"),
    ("speculative, {}", "transformers assisted, {}"),
    ("speculative, {}", "flashspec, {}"),
    ("speculative, lookup", "transformers prompt look-up"),
)
WIDTH = 96
LABEL = 48


def header(numbers: dict) -> Iterator[str]:
    """What is measured, on what."""
    machine, plan, models = numbers["machine"], numbers["plan"], numbers["models"]
    yield f"specdec bench: {models['name']}"
    drafters = ", ".join(models["drafters"])
    yield from _field(
        "models", f"target of {models['parameters']:,} parameters; drafters {drafters}"
    )
    for note in models["notes"]:
        yield from _field("", note)
    cores, threads = _count(machine["cores"], "core"), _count(machine["threads"], "thread")
    yield from _field(
        "machine",
        f"{machine['device_name']}, {cores}, {threads}; {machine['dtype']} on {machine['device']}",
    )
    peers = [name for name in ("torch", "transformers", "flashspec") if machine[name]]
    yield from _field("software", ", ".join(f"{name} {machine[name]}" for name in peers))
    yield from _field(
        "task",
        f"temperature {plan['temperature']:g}, gamma {plan['gamma']} (look-up "
        f"{plan['lookup_gamma']}), at most {plan['max_new_tokens']} new tokens",
    )
    if models["acceptance"] is None and "methods" in plan["sections"]:
        yield from _field("peers", PEERS)
    yield from _field(
        "measured",
        f"{_count(plan['repeats'], 'repeat')} after a warm-up, rows in turn; ratios within a "
        "repeat, median and (middle half); nothing after a stop token counts",
    )


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {name:<11}", subsequent_indent=" " * 13
    )  # fmt: skip


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


# --- Tables -----------------------------------------------------------------------------------


def methods_table(kind: str, rows: Sequence[dict]) -> Iterator[str]:
    """One kind of text, all methods."""
    yield f"{kind:<{LABEL}}{'tokens/s':>10}  {'times plain':<23}{'accepted':>8}"
    for row in rows:
        accepted = "" if row["acceptance"] is None else f"{row['acceptance']:.2f}"
        yield _line(row, row is rows[0], f"{accepted:>8}")


def _line(row: dict, base: bool, more: str = "", label: int = LABEL - 2) -> str:
    """A row's speed, its ratio with the middle half of the repeats, and a loss in words."""
    speed = middle_half(row["tokens_per_second"])[1]
    low, ratio, high = middle_half(row["times_plain"])
    spread = "" if base else f"({low:.2f} to {high:.2f})"
    loss = "  slower" if ratio < 1 else ""
    line = f"  {row['name']:<{label}}{speed:>10,.0f}  {ratio:>5.2f}x {spread:<16}{more}{loss}"
    return line.rstrip()


def versus_table(kinds: dict) -> Iterator[str]:
    """Ours over the peer that does the same, one column for each kind of text."""
    found = versus(kinds)
    if not found:
        return
    yield f"{'Ours against the same elsewhere':<56}" + "".join(f"{kind:>12}" for kind in kinds)
    for name, ratios in found.items():
        cells = (f"{middle_half(ratios[kind])[1]:.2f}x" for kind in kinds)
        yield f"  {name:<54}" + "".join(f"{cell:>12}" for cell in cells)


def versus(kinds: dict) -> dict[str, dict[str, list[float]]]:
    """ "our row / the peer's row" -> kind -> ratio of the speeds, repeat by repeat."""
    found: dict[str, dict[str, list[float]]] = {}
    for kind, rows in kinds.items():
        times = {row["name"]: row["times_plain"] for row in rows}
        drafts = [name.partition(", ")[2] for name in times if name.startswith("speculative, ")]
        pairs = {(a.format(d), b.format(d)): None for a, b in RIVALS for d in drafts}
        for ours, theirs in pairs:
            if ours in times and theirs in times:
                ratios = [a / b for a, b in zip(times[ours], times[theirs], strict=True)]
                found.setdefault(f"{ours} / {theirs}", {})[kind] = ratios
    return found


def gammas_table(found: dict) -> Iterator[str]:
    """Times plain of each gamma, a line for each kind; the best has a star."""
    yield f"Gamma: times plain by tokens drafted a round, drafter {found['drafter']}; * is the best"
    yield "  " + " " * 14 + "".join(f"{gamma:>7} " for gamma in found["gammas"])
    losses = []
    for kind, rows in found["kinds"].items():
        ratios = {row["name"]: middle_half(row["times_plain"])[1] for row in rows[1:]}
        best = max(ratios, key=ratios.get)
        cells = (f"{r:.2f}{'*' if name == best else ' '}" for name, r in ratios.items())
        yield f"  {kind:<14}" + "".join(f"{cell:>8}" for cell in cells)
        slow = [name for name, ratio in ratios.items() if ratio < 1]
        losses += [f"{kind} at gamma {', '.join(slow)}"] * bool(slow)
    yield from _wrapped(f"Slower than plain: {'; '.join(losses) or 'at none of these'}.")


def batches_table(found: dict) -> Iterator[str]:
    """Plain and speculative by batch size, and where they cross."""
    if "skipped" in found:
        yield from _wrapped(f"Batches: not measured, {found['skipped']}", indent="")
        return
    yield f"Batches: B texts at once, drafter {found['drafter']}, gamma {found['gamma']}, tokens/s"
    yield f"  {'B':>5}{'plain':>10}{'speculative':>14}  times plain"
    ratios = {}
    for entry in found["sizes"]:
        plain, fast = entry["rows"]
        low, ratio, high = middle_half(fast["times_plain"])
        ratios[entry["size"]] = ratio
        speeds = [middle_half(row["tokens_per_second"])[1] for row in (plain, fast)]
        loss = "  slower" if ratio < 1 else ""
        yield (
            f"  {entry['size']:>5}{speeds[0]:>10,.0f}{speeds[1]:>14,.0f}  {ratio:>5.2f}x "
            f"({low:.2f} to {high:.2f}){loss}"
        )
    yield from _wrapped(crossing_sentence(ratios))


def crossing_sentence(ratios: dict[int, float]) -> str:
    """Where plain decoding overtakes, between the batch sizes measured."""
    sizes = sorted(ratios)
    if all(ratios[size] >= 1 for size in sizes):
        return f"No crossing: speculative decoding is ahead at every size up to {sizes[-1]}."
    if all(ratios[size] < 1 for size in sizes):
        return "No crossing: plain decoding is ahead at every size."
    a, b = next((a, b) for a, b in pairwise(sizes) if (ratios[a] >= 1) != (ratios[b] >= 1))
    # Between two sizes the ratio is taken to change evenly with the logarithm of the size.
    share = (ratios[a] - 1) / (ratios[a] - ratios[b])
    near = math.exp(math.log(a) + share * (math.log(b) - math.log(a)))
    ahead = "plain" if ratios[a] >= 1 else "speculative"
    return f"Crossing near {near:.0f} texts: beyond, {ahead} decoding is ahead."


def loop_table(found: dict) -> Iterator[str]:
    """Share of a run's time that its forwards alone take."""
    yield f"Loop efficiency on {found['kind']}: the bare forwards of a run / its wall time"
    for name, shares in found["shares"].items():
        low, share, high = middle_half(shares)
        yield f"  {name:<{LABEL - 2}}{share:>10.3f}  ({low:.3f} to {high:.3f})"
    if any(round(middle_half(shares)[2], 3) > 1 for shares in found["shares"].values()):
        yield "  Values above 1 are noise: the two are timed one after the other."


def draft_device_table(found: dict) -> Iterator[str]:
    """What it costs to have the draft elsewhere."""
    if "skipped" in found:
        yield from _wrapped(f"Draft device: not measured, {found['skipped']}", indent="")
        return
    title = f"Draft device: {found['drafter']} on {found['kind']}"
    yield f"{title:<{LABEL}}{'tokens/s':>10}  times plain"
    for row in found["rows"]:
        yield _line(row, row is found["rows"][0])
    if found["target"] == found["draft"]:
        yield from _wrapped(
            f"Target and draft share {found['target']}: both rows do the same work, and what "
            "differs is noise."
        )
    else:
        here, there = (row["times_plain"] for row in found["rows"][1:])
        kept = middle_half([b / a for a, b in zip(here, there, strict=True)])[1]
        yield from _wrapped(f"On {found['draft']} the draft leaves {kept:.0%} of the speed.")


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


# --- Verdict ----------------------------------------------------------------------------------


def verdict(numbers: dict) -> Iterator[str]:
    """Two or three sentences: what was fastest, what lost, and how calm the machine was."""
    if "methods" in numbers:
        law = (
            ", among rows that sample the same law,"
            if numbers["models"]["acceptance"] is None
            else ""
        )
        yield from _wrapped(f"Fastest{law} {_fastest(numbers['methods'])}", indent="")
        yield from _wrapped(_losses(numbers["methods"]), indent="")
    noise = numbers["machine"]["noise"]
    if noise is not None:
        busy = ", too much for fine differences: repeat it on a quiet machine" * (noise > 0.1)
        told = f"Noise: the middle half of plain decoding's repeats spans {noise:.0%} of its speed"
        yield from _wrapped(f"{told}{busy}.", indent="")


def _fastest(kinds: dict) -> str:
    told = []
    for kind, rows in kinds.items():
        ratios = {
            row["name"]: middle_half(row["times_plain"])[1] for row in rows if row["same_law"]
        }
        best = max(ratios, key=ratios.get)
        told.append(f"{kind}: {best} ({ratios[best]:.2f}x plain)")
    return f"on {'; on '.join(told)}."


def _losses(kinds: dict) -> str:
    told = []
    for kind, rows in kinds.items():
        slow = [r["name"] for r in rows if middle_half(r["times_plain"])[1] < 1]
        ours = [name for name in slow if name.startswith("speculative")]
        peers = [r["name"] for r in rows if not r["name"].startswith(("plain", "speculative"))]
        others = f"{len(slow) - len(ours)} of the {len(peers)} rows of others"
        parts = ours + [others] * (len(slow) > len(ours))
        told += [f"on {kind}: {', '.join(parts)}"] * bool(parts)
    if not told:
        return "No row is slower than our plain decoding."
    return f"Slower than our plain decoding {'; '.join(told)}."


def noise_of(rates: Sequence[float]) -> float:
    """Middle half of repeated rates over their median: how calm the machine was."""
    low, median, high = middle_half(rates)
    return (high - low) / median
