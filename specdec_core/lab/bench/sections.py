"""The tables of the bench, as numbers: each section measures its rows and returns them for JSON."""

from __future__ import annotations

from collections.abc import Callable

import torch

from specdec_core.drafters import ModelDrafter
from specdec_core.lab.bench import peers
from specdec_core.lab.bench.loop import loop_efficiency
from specdec_core.lab.bench.ours import Work, batch_rows, moved, plain_row, speculative_row
from specdec_core.lab.bench.plan import LOOKUP, Plan, Subject
from specdec_core.lab.bench.rows import Row, interleave
from specdec_core.lab.measure import draft_network
from specdec_core.loading import parse_device

Progress = Callable[[str], None]


def methods(subject: Subject, plan: Plan, progress: Progress) -> dict:
    """Every method on every kind of text: kind -> rows."""
    found = {}
    for kind in subject.prompts:
        rows = method_rows(subject, plan, subject.work(plan, kind))
        found[kind] = _measured(rows, plan, progress, kind)
    return found


def method_rows(subject: Subject, plan: Plan, work: Work) -> list[Row]:
    """Our plain decoding first, our drafters, then the peers."""
    target = subject.target
    rows = [plain_row(target, work)]
    for name, drafter in subject.rows(plan).items():
        gamma = gamma_of(name, plan)
        rows.append(speculative_row(f"speculative, {name}", target, drafter, gamma, work))
    rows.append(peers.generate_row(target, work))
    # Peers judge drafts by themselves: a coin cannot do it for them.
    if subject.coin is None:
        rows += _peer_rows(subject, plan, work)
    return rows


def gamma_of(drafter: str, plan: Plan) -> int:
    return plan.lookup_gamma if drafter.startswith(LOOKUP) else plan.gamma


def _peer_rows(subject: Subject, plan: Plan, work: Work) -> list[Row]:
    target, rows = subject.target, []
    if work.temperature > 0:
        rows.append(peers.generate_row(target, work, own_defaults=True))
    name = subject.chosen(plan)
    network = draft_network(subject.drafters[name])
    if network is not None:
        rows.append(peers.assisted_row(name, target, network, work, plan.gamma))
        rows.append(peers.assisted_row(name, target, network, work, None))
    rows.append(peers.lookup_row(target, work, plan.lookup_gamma))
    if network is not None and peers.flashspec_version() and target.dtype != torch.float64:
        rows += peers.flashspec_rows(name, target, network, work, plan.gamma)
    return rows


def gammas(subject: Subject, plan: Plan, progress: Progress) -> dict:
    """The chosen drafter at each gamma: its name, and kind -> rows, plain first."""
    name = subject.chosen(plan)
    kinds = {}
    for kind in subject.prompts:
        work = subject.work(plan, kind)
        rows = [plain_row(subject.target, work)]
        rows += [
            speculative_row(str(gamma), subject.target, subject.drafters[name], gamma, work)
            for gamma in plan.gammas
        ]
        kinds[kind] = _measured(rows, plan, progress, f"gammas, {kind}")
    return {"drafter": name, "gammas": list(plan.gammas), "kinds": kinds}


def batches(subject: Subject, plan: Plan, progress: Progress) -> dict:
    """Plain against speculative decoding of B texts at once, of all kinds in turn.

    Stop tokens are ignored, so that the batch stays full to the end.
    """
    name = subject.chosen(plan)
    drafter = subject.drafters[name]
    if not isinstance(drafter, ModelDrafter):
        return {"skipped": f"a batch cannot draft with {name}: choose another with --draft."}
    if subject.coin is not None:
        return {"skipped": "a coin sets the verdicts of one text at a time."}
    work = subject.work(plan).without_stops()
    sizes = []
    for size in plan.batches:
        rows = batch_rows(subject.target, drafter, plan.gamma, size, work)
        measured = _measured(rows, plan, progress, f"batch of {size}")
        sizes.append({"size": size, "rows": measured})
    return {"drafter": name, "gamma": plan.gamma, "sizes": sizes}


def loop(subject: Subject, plan: Plan, progress: Progress) -> dict:
    """Loop efficiency of plain decoding and of the chosen drafter: kind, and name -> shares."""
    kind, chosen = next(iter(subject.prompts)), subject.chosen(plan)
    work, shares = subject.work(plan, kind), {}
    for name, drafter in {"plain": None, chosen: subject.drafters[chosen]}.items():
        progress(f"loop, {name}")
        label = name if drafter is None else f"speculative, {name}"
        shares[label] = loop_efficiency(
            subject.target, drafter, gamma_of(name, plan), work, plan.repeats
        )
    return {"kind": kind, "shares": shares}


def draft_device(subject: Subject, plan: Plan, progress: Progress) -> dict:
    """The chosen drafter beside the target, and a copy of it on another device."""
    name = subject.chosen(plan)
    drafter = subject.drafters[name]
    if draft_network(drafter) is None:
        return {"skipped": f"{name} drafts without a network, so there is nothing to move."}
    here, there = subject.target.device, parse_device(plan.draft_device)
    kind = next(iter(subject.prompts))
    work = subject.work(plan, kind)
    copied = moved(drafter, there)
    copied.model.threads = plan.threads or copied.model.threads
    rows = [
        plain_row(subject.target, work),
        speculative_row(f"draft on {here}", subject.target, drafter, plan.gamma, work),
        speculative_row(f"copy on {there}", subject.target, copied, plan.gamma, work),
    ]
    return {
        "drafter": name, "kind": kind, "target": str(here), "draft": str(there),
        "rows": _measured(rows, plan, progress, "draft device"),
    }  # fmt: skip


def _measured(rows: list[Row], plan: Plan, progress: Progress, what: str) -> list[dict]:
    interleave(rows, plan.repeats, lambda text: progress(f"{what}: {text}"))
    return [row.numbers(rows[0]) for row in rows]
