"""`specdec bench`: that all rows do the same work, and that the numbers are what they are called.

Nothing here asserts a speed.
"""

from __future__ import annotations

import json
import math
import re

import pytest
import tiny
import torch
from transformers import GenerationConfig

from specdec_core import NGramDrafter, Seeded, Stats, load_pair, speculative_decode
from specdec_core.drafters import LookupDrafter
from specdec_core.lab.bench import coin, loop, peers, report, run_bench, sections
from specdec_core.lab.bench.loop import bare_forwards
from specdec_core.lab.bench.ours import Work, batch_rows, moved, plain_row, speculative_row
from specdec_core.lab.bench.plan import CHAT, Plan, Subject, subject_of
from specdec_core.lab.bench.rows import Row, Written, count_tokens, interleave, middle_half
from specdec_core.ngram import NGramTable
from specdec_core.threads import Threads

LENGTH = 14
PROMPTS = [tiny.prompt(6, seed=1), tiny.prompt(9, seed=2)]


@pytest.fixture(autouse=True)
def _one_thread():
    with Threads(1):
        yield


def subject(dtype: torch.dtype = torch.float64, stop_tokens: tuple[int, ...] = (2,)) -> Subject:
    """A tiny pair with a draft that is often wrong, the target as its own draft, and look-up."""
    target, drafter = tiny.pair(dtype=dtype)
    itself = type(drafter)(target.fresh())
    prompts = {"first": PROMPTS[:1], "second": PROMPTS[1:]}
    drafters = {"other": drafter, "self": itself, "lookup": LookupDrafter(tiny.VOCAB)}
    return Subject("tiny", target, drafters, prompts, stop_tokens)


def plan(**options: object) -> Plan:
    small = {"repeats": 1, "max_new_tokens": LENGTH, "gammas": (1, 3), "batches": (1, 2)}
    return Plan(**{**small, "lookup_gamma": 3, "threads": 1, **options})


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


# All rows do the same work


@pytest.mark.parametrize(("stops", "draft"), [((2,), None), ("early", "self")])
def test_at_temperature_0_every_row_writes_what_plain_writes(stops, draft):
    """Ours and transformers'; with a stop token that comes early, and with one that does not."""
    tested = subject()
    settings = plan(temperature=0.0, draft=draft)
    if stops == "early":
        text = plain_row(tested.target, tested.work(settings)).run(0).texts[0]
        tested.stop_tokens = (text[4],)
    for kind in tested.prompts:
        rows = sections.method_rows(tested, settings, tested.work(settings, kind))
        names = [row.name for row in rows]
        assert "plain" in names and "speculative, other" in names
        assert ("speculative, self" in names) == (draft == "self")  # a loss, shown where chosen
        assert "speculative, lookup" in names
        assert "transformers assisted, other" in names and "transformers prompt look-up" in names
        assert "transformers assisted, its defaults" in names  # nothing to truncate at 0
        assert not [name for name in names if "generate, its defaults" in name]
        (wanted,) = rows[0].run(0).texts
        assert len(wanted) >= 3
        for row in rows:
            assert row.run(0).texts == [wanted], row.name
            row.measure(1)
            assert row.tokens == [len(wanted)] and row.same_law


@pytest.mark.skipif(peers.flashspec_version() is None, reason="flashspec is not installed")
def test_flashspec_writes_what_plain_writes():
    tested, settings = subject(torch.float32), plan(temperature=0.0)
    text = plain_row(tested.target, tested.work(settings)).run(0).texts[0]
    tested.stop_tokens = (text[4],)
    rows = sections.method_rows(tested, settings, tested.work(settings, "first"))
    theirs = [row for row in rows if row.name.startswith("flashspec")]
    assert len(theirs) == 2
    (wanted,) = rows[0].run(0).texts
    for row in theirs:
        row.measure(0)
        assert row.run(0).texts == [wanted] and row.tokens == [len(wanted)], row.name


def test_a_repeat_has_one_prompt_for_all_rows():
    work = Work(PROMPTS, temperature=0.0, max_new_tokens=4)
    assert [work.prompt(seed) for seed in (0, 1, 2)] == [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    tested = subject()
    both = tested.work(plan())
    assert both.prompts == PROMPTS and tested.work(plan(), "second").prompts == PROMPTS[1:]


# What transformers is told


def spy(model, monkeypatch) -> list[tuple]:
    """What `generate` is called with: its config, and the assistant's settings at that time."""
    seen, generate = [], model.generate

    def recorded(*ids, **given):
        assistant = given.get("assistant_model")
        own = assistant.generation_config.to_dict() if assistant is not None else None
        seen.append((given["generation_config"], own))
        return generate(*ids, **given)

    monkeypatch.setattr(model, "generate", recorded)
    return seen


def test_settings_of_the_library_rows_are_what_their_labels_say(monkeypatch):
    tested, settings = subject(), plan(temperature=0.7, gamma=3, lookup_gamma=5)
    own = tested.target.model.generation_config
    own.top_k, own.top_p, own.repetition_penalty = 7, 0.9, 1.3  # as a published model may have
    rows = sections.method_rows(tested, settings, tested.work(settings, "first"))
    seen = spy(tested.target.model, monkeypatch)
    found = {}
    for row in rows:
        if row.name.startswith("transformers"):
            row.run(3)
            found[row.name] = seen.pop()
    assert set(found) == {
        "transformers generate",
        "transformers generate, its defaults: top-k 7, top-p 0.9",
        "transformers assisted, other",
        "transformers assisted, its defaults: top-k 7, top-p 0.9",
        "transformers prompt look-up",
    }
    for name, (config, assistant) in found.items():
        assert config.do_sample and config.temperature == 0.7, name
        assert config.max_new_tokens == LENGTH and config.eos_token_id == [2], name
        defaults = "defaults" in name
        truncation = (config.top_k, config.top_p, config.repetition_penalty)
        assert truncation == ((None, None, None) if defaults else (0, 1.0, 1.0)), name
        look_up = (config.prompt_lookup_num_tokens, config.max_matching_ngram_size)
        longest = tested.drafters["lookup"].sizes[0]  # of our own look-up
        assert look_up == ((5, longest) if name.endswith("look-up") else (None, None))
        drafts = assistant and (
            assistant["num_assistant_tokens"], assistant["num_assistant_tokens_schedule"],
            assistant["assistant_confidence_threshold"],
        )  # fmt: skip
        if "assisted" not in name:
            assert assistant is None
        else:
            assert drafts == ((None, None, None) if defaults else (3, "constant", 0.0)), name
    # The assistant is as it was.
    kept = tested.drafters["other"].model.model.generation_config
    assert kept.num_assistant_tokens is None and kept.assistant_confidence_threshold is None
    assert {row.name: row.same_law for row in rows if not row.same_law} == {
        name: False for name in found if "defaults" in name
    }


def test_the_librarys_own_defaults_are_those_the_labels_and_the_head_name():
    known = GenerationConfig()._get_default_generation_params()
    assert known["top_k"] == peers.LIBRARY_TOP_K == 50
    assert known["num_assistant_tokens"] == 20 and "20 tokens a round" in report.PEERS
    assert known["assistant_confidence_threshold"] == 0.4 and "likelier than .4" in report.PEERS
    row = peers.generate_row(subject().target, Work(PROMPTS), own_defaults=True)
    assert row.name == "transformers generate, its defaults: top-k 50" and not row.same_law


@pytest.mark.parametrize(
    ("top_k", "top_p", "label"), [(0, None, "no truncation"), (0, 0.9, "top-p 0.9")]
)
def test_a_model_may_switch_the_librarys_top_k_off(top_k, top_p, label):
    target = subject().target
    own = target.model.generation_config
    own.top_k, own.top_p = top_k, top_p
    row = peers.generate_row(target, Work(PROMPTS), own_defaults=True)
    assert row.name == f"transformers generate, its defaults: {label}"


def test_a_truncation_of_the_models_own_does_not_reach_the_rows_of_our_law():
    tested = subject()
    tested.target.model.generation_config.top_k = 1  # would make every sample the same
    work = Work(PROMPTS[:1], max_new_tokens=LENGTH)
    for row, many in [
        (peers.generate_row(tested.target, work), True),
        (peers.generate_row(tested.target, work, own_defaults=True), False),
    ]:
        texts = {tuple(row.run(seed).texts[0]) for seed in range(6)}
        assert (len(texts) > 1) == many, row.name


# Verdicts by a coin

# Five standard deviations: a right coin fails this once in 1.7 million seeds, and these are fixed.
SIGMAS = 5


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.87, 1.0])
def test_a_coin_keeps_drafts_as_often_as_asked_whatever_p_and_q(acceptance):
    count = 40_000
    for p, q in ((0.0, 1.0), (1.0, 0.1)):
        ends = coin.CoinVerdicts(acceptance, seed=4).first_rejection(
            torch.full((count, 3), p), torch.full((count, 3), q)
        )
        for depth in range(3):
            judged = ends[ends >= depth]
            kept = (judged > depth).double().mean().item() if len(judged) else acceptance
            sigma = math.sqrt(acceptance * (1 - acceptance) / max(1, len(judged)))
            assert abs(kept - acceptance) <= SIGMAS * sigma


def test_a_coin_decides_a_whole_run():
    tested = coin.coin_subject("small", 0.6, "cpu", "float32", 600)
    row = speculative_row("coin", tested.target, tested.drafters["draft"], 4,
                          tested.work(plan(max_new_tokens=500)))  # fmt: skip
    row.measure(1)
    sigma = math.sqrt(0.6 * 0.4 / row.judged)
    assert row.tokens == [500] and row.judged > 200
    assert abs(row.accepted / row.judged - 0.6) <= SIGMAS * sigma


def test_peers_that_judge_drafts_themselves_are_left_out_and_that_is_said():
    tested = coin.coin_subject("small", 0.6, "cpu", "float32", 64)
    rows = sections.method_rows(tested, plan(), tested.work(plan()))
    assert [row.name for row in rows] == ["plain", "speculative, draft", "transformers generate"]
    assert tested.target.model.generation_config.eos_token_id is None
    for row in rows:  # no random token may end a text
        row.measure(0)
        assert row.tokens == [LENGTH], row.name
    assert any("left out" in note for note in tested.notes)
    assert "skipped" in sections.batches(tested, plan(), print)


def test_a_shape_that_does_not_fit_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(coin, "free_bytes", lambda device: 20 * 10**9)
    monkeypatch.setattr(coin, "_random_model", lambda *_: pytest.fail("allocated"))
    with pytest.raises(
        ValueError, match=r"7b/0.5b pair needs about 32\.\d GB in float32"
    ) as raised:
        coin.random_pair("7b/0.5b", "cpu", "float32", 1024)
    tiny.sentence_of(raised.value)
    monkeypatch.setattr(coin, "free_bytes", lambda device: None)
    with pytest.raises(pytest.fail.Exception, match="allocated"):
        coin.random_pair("7b/0.5b", "cpu", "float32", 1024)


def test_the_large_shape_is_the_published_one():
    target, draft = coin.configs("7b/0.5b")
    assert coin.weight_bytes(target, torch.bfloat16) == 2 * 7_615_616_512
    assert coin.weight_bytes(draft, torch.bfloat16) == 2 * 494_032_768
    assert "seconds a token" in coin.slow_warning("7b/0.5b", torch.device("cpu"), torch.bfloat16)
    assert coin.slow_warning("small", torch.device("cpu"), torch.float32) is None
    assert (coin.free_bytes(torch.device("cpu")) or 1) > 0


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


def test_threads_hold_for_every_row_and_are_put_back(monkeypatch):
    tested, seen = subject(torch.float32), {}

    def watch(name, network):
        forward, counts = network._fast, seen.setdefault(name, set())
        if forward is not None:
            network._fast = lambda *given: counts.add(torch.get_num_threads()) or forward(*given)
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


def test_prompts_of_the_pairs():
    pair = load_pair("storyworld")
    found = subject_of(pair)
    assert list(found.prompts) == ["story", "recipe", "code"]
    assert list(found.drafters) == [*pair.drafters, "lookup"]
    assert found.drafters["default"] is not None and found.chosen(plan()) == "default"
    assert pair.decode(subject_of(pair, ["code"]).prompts["code"][0]).startswith("def add(")
    assert list(CHAT) == ["story", "explanation", "code", "copy"]
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
    assert set(numbers["loop"]["shares"]) == {
        "plain",
        "speculative, other",
        "speculative, lookup",
    }
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
