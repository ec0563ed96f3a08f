"""`specdec bench`: that the numbers of its tables are what they are called.

Nothing here asserts a speed.
"""

from __future__ import annotations

import json
import math
import re

import pytest
import tiny
import torch
from bench_subject import LENGTH, PROMPTS, plan, subject

from specdec_core import NGramDrafter, Seeded, Stats, load_pair, speculative_decode
from specdec_core.lab.bench import loop, run_bench, sections
from specdec_core.lab.bench.loop import bare_forwards
from specdec_core.lab.bench.ours import batch_rows, moved, plain_row, speculative_row
from specdec_core.lab.bench.plan import CHAT, Plan, subject_of
from specdec_core.lab.bench.rows import Row, Written, count_tokens, interleave, middle_half
from specdec_core.ngram import NGramTable
from specdec_core.threads import Threads


@pytest.fixture(autouse=True)
def _one_thread():
    with Threads(1):
        yield


# One counter, rows in turn


def test_the_counter_stops_at_the_first_stop():
    assert count_tokens([5, 7, 2, 9, 2], [2]) == 3
    assert count_tokens([5, 7, 9], [2]) == 3
    assert count_tokens([2], (1, 2)) == 1
    assert count_tokens([5, 2, 2], ()) == 3


def test_rows_take_turns_and_another_begins_each_repeat():
    seen = []

    def row(name: str) -> Row:
        return Row(name, lambda seed: seen.append((name, seed)) or Written([[1]]))

    rows = [row("a"), row("b"), row("c")]
    interleave(rows, 4)
    assert seen[:3] == [("a", 0), ("b", 0), ("c", 0)]  # the warm-up
    assert ["".join(name for name, seed in seen[3:] if seed == i) for i in (1, 2, 3, 4)] == [
        "abc", "bca", "cab", "abc",
    ]  # fmt: skip
    assert all(len(row.seconds) == len(row.tokens) == 4 for row in rows)


def test_ratios_are_taken_within_a_repeat_and_after_the_counter():
    plain, fast = (Row(name, lambda seed: Written([]), (2,)) for name in ("plain", "fast"))
    plain.tokens, plain.seconds = [10, 10], [1.0, 4.0]  # the machine was slower for a while
    fast.tokens, fast.seconds = [30, 30], [1.0, 4.0]
    assert fast.times(plain) == [3.0, 3.0]
    stats = Stats()
    stats.accepted, stats.rejected = 3, 1
    row = Row("ours", lambda seed: Written([[4, 2, 9], [4, 4, 4]], [stats, stats]), (2,))
    row.measure(0)
    row.measure(1)
    assert row.tokens == [5, 5] and row.numbers(row)["acceptance"] == 0.75


def test_the_middle_half():
    assert middle_half([3.0]) == (3.0, 3.0, 3.0)
    assert middle_half([1.0, 2.0, 3.0, 4.0, 100.0]) == (2.0, 3.0, 4.0)


# Sections


def test_the_bare_forwards_are_those_of_the_run():
    tested = subject()
    target, drafter = tested.target, tested.drafters["other"]
    decoded = []
    for gamma in (0, 1, 4):
        before = target.forwards, drafter.model.forwards
        out = speculative_decode(
            target, drafter, PROMPTS[0], gamma=gamma, max_new_tokens=LENGTH, randomness=Seeded(3)
        )
        middle = target.forwards, drafter.model.forwards
        lengths = target.length
        assert bare_forwards(target, drafter.model, out.trace) > 0
        after = target.forwards, drafter.model.forwards
        assert [b - a for a, b in zip(before, middle, strict=True)] == [
            b - a for a, b in zip(middle, after, strict=True)
        ]
        last = out.trace.rounds[-1]
        assert target.length == last.target_length[0] + 1 + last.gamma >= lengths
        decoded.append(out.tokens)
    assert all(len(tokens) == LENGTH for tokens in decoded)


def test_the_loop_counts_no_forwards_of_a_drafter_without_a_network(monkeypatch):
    tested, seen = subject(), []
    monkeypatch.setattr(loop, "bare_forwards", lambda target, draft, trace: seen.append(draft) or 1)
    table = NGramDrafter(NGramTable.fit([PROMPTS[0]], 2, tiny.VOCAB))
    drafters = [None, table, tested.drafters["lookup"], tested.drafters["other"]]
    for drafter in drafters:
        loop.loop_efficiency(tested.target, drafter, 2, tested.work(plan()), repeats=1)
    assert seen[1::2] == [None, None, None, tested.drafters["other"].model]


class Watched:
    """A forward that notes how many threads torch has when it is called."""

    def __init__(self, forward, counts):
        self.forward, self.counts = forward, counts

    def __getattr__(self, name):
        return getattr(self.forward, name)

    def __call__(self, *given):
        self.counts.add(torch.get_num_threads())
        return self.forward(*given)


def test_threads_hold_for_every_row_and_are_put_back(monkeypatch):
    tested, seen = subject(torch.float32), {}

    def watch(name, network):
        forward, counts = network._fast, seen.setdefault(name, set())
        if forward is not None:
            network._fast = Watched(forward, counts)
        network.model.register_forward_pre_hook(lambda *_: counts.add(torch.get_num_threads()))
        return network

    def moved_and_watched(drafter, device):
        copied = moved(drafter, device)
        watch("copy", copied.model)
        return copied

    monkeypatch.setattr(sections, "moved", moved_and_watched)
    draft = tested.drafters["other"].model
    watch("target", tested.target), watch("draft", draft)
    settings = {"sections": ("methods",), "draft_device": "cpu", "max_new_tokens": 4}
    found = run_bench(tested, plan(threads=2, **settings), lambda _: None)
    assert seen == {"target": {2}, "draft": {2}, "copy": {2}}
    assert found["machine"]["threads"] == found["plan"]["threads"] == 2
    assert tested.target.threads == draft.threads == torch.get_num_threads() == 1
    found = run_bench(tested, plan(threads=None, **settings), lambda _: None)
    assert seen["target"] == {1, 2} and found["machine"]["threads"] == 1


def test_batches_ignore_stops_so_that_they_stay_full():
    tested, greedy = subject(), plan(temperature=0.0)
    text = plain_row(tested.target, tested.work(greedy)).run(0).texts[0]
    tested.stop_tokens = (text[4],)
    work = tested.work(greedy)
    plain, fast = batch_rows(tested.target, tested.drafters["other"], 3, 3, work.without_stops())
    alone = plain_row(tested.target, work.without_stops())
    for row in (plain, fast):
        row.measure(0)
        assert row.tokens == [3 * LENGTH]
        assert row.run(0).texts == [alone.run(i).texts[0] for i in range(3)]
    assert fast.judged > 0 and plain.judged == 0


def test_a_moved_draft_is_a_copy_that_drafts_the_same():
    tested = subject()
    drafter = tested.drafters["other"]
    copied = moved(drafter, torch.device("cpu"))
    assert copied.model.model is not drafter.model.model and copied.vocab_size == tiny.VOCAB
    work = tested.work(plan())
    texts = [speculative_row("", tested.target, d, 4, work).run(7).texts for d in (drafter, copied)]
    assert texts[0] == texts[1]


def test_the_drafter_of_the_sweeps_is_not_the_target_itself():
    tested = subject()
    assert tested.chosen(plan()) == "other"
    assert tested.chosen(plan(draft="self")) == "self"
    tested.drafters = {name: tested.drafters[name] for name in ("self", "other")}
    assert tested.is_target(tested.drafters["self"]) and tested.chosen(plan()) == "other"
    with pytest.raises(ValueError, match="no drafter 'best': choose self or other"):
        tested.chosen(plan(draft="best"))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"repeats": True}, "--repeats must be a whole number of at least 1, not True"),
        ({"gamma": 2.5}, "--gamma must be a whole number of at least 1, not 2.5"),
        ({"threads": math.nan}, "--threads must be a whole number of at least 1, not nan"),
        ({"gammas": ()}, "--gammas must be one or more whole numbers"),
        ({"batches": (2, False)}, "--batches must be one or more whole numbers"),
        ({"sections": ("speed",)}, r"among methods, gammas, batches, loop, not \['speed'\]"),
        ({"sections": ()}, r"--only must name tables among methods, gammas, batches, loop"),
    ],
)
def test_a_plan_that_cannot_be_run_is_one_sentence(setting, says):
    with pytest.raises(ValueError, match=says) as raised:
        Plan(**setting)
    said = str(raised.value)
    assert said.endswith(".") and "\n" not in said


def test_prompts_of_the_pairs():
    pair = load_pair("storyworld")
    found = subject_of(pair)
    assert list(found.prompts) == ["story", "recipe", "code"]
    assert list(found.drafters) == list(pair.drafters) and "lookup" in found.drafters
    assert found.drafters["default"] is not None and found.chosen(plan()) == "default"
    assert pair.decode(subject_of(pair, ["code"]).prompts["code"][0]).startswith("def add(")
    assert list(CHAT) == ["story", "explanation", "code", "e-mail", "copy", "edit"]
    with pytest.raises(ValueError, match="no kind of text 'poem' for storyworld"):
        subject_of(pair, ["poem"])


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory) -> tuple[dict, list[str]]:
    """Every section of a run on the tiny pair, as JSON and as printed."""
    file, lines, told = tmp_path_factory.mktemp("bench") / "numbers.json", [], []
    with Threads(1):
        run_bench(
            subject(torch.float32), plan(draft_device="cpu", repeats=2), lines.append, told.append,
            file,
        )  # fmt: skip
    assert any("repeat 2 of 2" in text for text in told) and told[-1] == ""
    return json.loads(file.read_text()), lines


def test_the_json_has_every_section_and_every_repeat(whole_run):
    numbers, _ = whole_run
    assert set(numbers) == {
        "machine", "plan", "models", "methods", "gammas", "batches", "loop", "draft_device",
    }  # fmt: skip
    assert set(numbers["methods"]) == set(numbers["gammas"]["kinds"]) == {"first", "second"}
    tables = [*numbers["methods"].values(), *numbers["gammas"]["kinds"].values()]
    tables += [entry["rows"] for entry in numbers["batches"]["sizes"]]
    for rows in [*tables, numbers["draft_device"]["rows"]]:
        assert rows[0]["name"] == "plain" and rows[0]["times_plain"] == [1.0, 1.0]
        for row in rows:
            assert len(row["tokens"]) == len(row["seconds"]) == 2, row["name"]
            for n, s, rate, times, base in zip(
                row["tokens"], row["seconds"], row["tokens_per_second"], row["times_plain"],
                rows[0]["tokens_per_second"], strict=True,
            ):  # fmt: skip
                assert rate == pytest.approx(n / s) and times == pytest.approx(rate / base)
    assert [row["name"] for row in numbers["gammas"]["kinds"]["first"]] == ["plain", "1", "3"]
    assert [entry["size"] for entry in numbers["batches"]["sizes"]] == [1, 2]
    assert set(numbers["loop"]["shares"]) == {"plain", "speculative, other"}
    assert all(share > 0 for shares in numbers["loop"]["shares"].values() for share in shares)
    machine = numbers["machine"]
    assert machine["torch"] == torch.__version__ and machine["dtype"] == "float32"
    assert machine["cpu"] and machine["cores"] and machine["threads"] == 1
    assert machine["noise"] >= 0 and numbers["models"]["parameters"] > 0


def test_the_printed_report_is_aligned_and_complete(whole_run):
    numbers, lines = whole_run
    assert max(map(len, lines)) <= 100 and not [line for line in lines if line != line.rstrip()]
    text = "\n".join(lines)
    for kind, rows in numbers["methods"].items():
        assert re.search(rf"^{kind} +tokens/s  times plain", text, re.M)
        for row in rows:
            ratio = middle_half(row["times_plain"])[1]
            told = re.search(rf"^  {re.escape(row['name'])} +[\d,]+ +{ratio:.2f}x.*$", text, re.M)
            assert told, row["name"]
    for part in ("Gamma:", "Batches:", "Loop efficiency", "Draft device:", "Fastest", "Noise:"):
        assert part in text
    assert "Target and draft share cpu" in text
