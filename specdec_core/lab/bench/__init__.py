"""Speed, measured fairly: all methods in one process, in turn, by one counter, losses included.

`specdec bench` runs it. `plan.py` has the settings and prompts, `ours.py` and `peers.py` the
methods, `rows.py` the repeats and the counter, `sections.py` the tables as numbers, `report.py` as
text; `loop.py` measures the loop itself and `coin.py` times shapes that nobody has trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from specdec_core.lab.bench import report, sections
from specdec_core.lab.bench.machine import describe
from specdec_core.lab.bench.plan import Plan, Subject
from specdec_core.lab.measure import draft_network
from specdec_core.threads import Threads

__all__ = ["run_bench"]


def run_bench(
    subject: Subject,
    plan: Plan,
    say: Callable[[str], None] = print,
    progress: sections.Progress = lambda _: None,
    json_file: Path | None = None,
) -> dict:
    """Measure every section of the plan and print its table as soon as it is there.

    progress: told what runs now. json_file: all numbers are written there, again after each
    section, so that an interrupted run keeps what it has. Returns those numbers.
    """
    measure = {name: getattr(sections, name) for name in plan.sections}
    if plan.draft_device is not None:
        measure["draft_device"] = sections.draft_device
    with fixed_threads(subject, plan.threads), Threads(subject.target.threads):
        numbers = _head(subject, plan)
        _say(say, progress, report.header(numbers))
        for name, section in measure.items():
            numbers[name] = section(subject, plan, progress)
            numbers["machine"]["noise"] = _noise(numbers)
            for table in _tables(name, numbers[name]):
                _say(say, progress, table)
            if json_file is not None:
                json_file.write_text(json.dumps(numbers, indent=1) + "\n")
    _say(say, progress, report.verdict(numbers))
    return numbers


@contextmanager
def fixed_threads(subject: Subject, count: int | None) -> Iterator[None]:
    """All networks of a subject compute in `count` threads, and as before afterwards.

    Each network of ours sets its own number, so torch's alone would bind the others only. None
    leaves them as they are.
    """
    networks = [subject.target, *map(draft_network, subject.drafters.values())]
    before = [(network, network.threads) for network in networks if network is not None]
    for network, threads in before:
        network.threads = threads if count is None else count
    try:
        yield
    finally:
        for network, threads in before:
            network.threads = threads


def _head(subject: Subject, plan: Plan) -> dict:
    weights = subject.target.model.parameters()
    return {
        "machine": describe(subject) | {"noise": None},
        "plan": asdict(plan),
        "models": {
            "name": subject.name, "parameters": sum(w.numel() for w in weights),
            "drafters": list(subject.rows(plan)), "chosen": subject.chosen(plan),
            "acceptance": subject.coin, "prompts": subject.prompts, "notes": subject.notes,
        },
    }  # fmt: skip


def _tables(name: str, found: dict) -> list[Iterable[str]]:
    if name == "methods":
        tables = [report.methods_table(kind, rows) for kind, rows in found.items()]
        return [*tables, report.versus_table(found)]
    return [getattr(report, f"{name}_table")(found)]


def _say(say: Callable[[str], None], progress: sections.Progress, lines: Iterable[str]) -> None:
    progress("")
    told = [line.rstrip() for line in lines]
    for line in told + [""] * bool(told):
        say(line)


def _noise(numbers: dict) -> float | None:
    """The largest spread of a plain row among the kinds of text; None where none was timed yet."""
    kinds = numbers.get("methods") or numbers.get("gammas", {}).get("kinds") or {}
    spreads = [report.noise_of(rows[0]["tokens_per_second"]) for rows in kinds.values()]
    return max(spreads, default=None)
