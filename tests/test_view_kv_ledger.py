"""The KV ledger: its rows are those the caches held, and its words and marks say what is wrong."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import pytest

from specdec_core import load_pair, speculative_decode
from specdec_core.lab.ledger import Ledger, Moment, record_caches
from specdec_core.randomness import Seeded
from specdec_core.widgets.kv_history import error_height
from specdec_core.widgets.kv_ledger import FAULTS, STATES, WIDTH, draw_kv_ledger, kv_ledger
from specdec_core.widgets.picture import text_width

SVG = "{http://www.w3.org/2000/svg}"
PROMPT = "Once upon a time"
HOSTILE = '<b>&"</script>'


@pytest.fixture(scope="module")
def pair():
    return load_pair("storyworld", dtype="float64", max_length=256)


@pytest.fixture(scope="module")
def single(pair):
    """Runs with one draft a round, whose first two rounds are full accepts."""

    @cache
    def record(fault: str) -> Ledger:
        ledger = record_caches(pair, pair.encode(PROMPT), gamma=1, seed=0, fault=fault)
        assert [entry.round.accepted for entry in ledger.rounds[:2]] == [1, 1]
        return ledger

    return record


@pytest.fixture(scope="module")
def recorded(pair):
    @cache
    def record(fault: str | None) -> Ledger:
        return record_caches(pair, pair.encode(PROMPT), seed=27, max_new_tokens=20, fault=fault)

    return record


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]


def lane(svg: str, y: float) -> list[tuple[str, str]]:
    """(mark, token) of each cell of the lane whose boxes begin at `y`."""
    marks = {float(t.get("x")): t.text for t in ET.fromstring(svg).iter(f"{SVG}text")
             if float(t.get("y")) == y + 15}  # fmt: skip
    words = {float(t.get("x")): t.text or "" for t in ET.fromstring(svg).iter(f"{SVG}text")
             if float(t.get("y")) == y + 31 and "Mono" in t.get("font-family", "")}  # fmt: skip
    return [(marks[x], words[x]) for x in sorted(words)]


@pytest.mark.parametrize("fault", [None, "M18", "M18b", "M18c", "M19", "M19b"])
def test_rows_are_those_the_trace_counted(recorded, fault):
    for entry in recorded(fault).rounds:
        for side, counted in (("target", "target_length"), ("draft", "draft_length")):
            cache = getattr(entry, side)
            assert (len(cache.before), len(cache.after)) == getattr(entry.round, counted)


def test_recording_is_the_run_itself_and_leaves_the_pair_alone(pair, recorded):
    ids = pair.encode(PROMPT)
    out = speculative_decode(
        pair.target, pair.drafter, ids, max_new_tokens=20, stop_tokens=pair.stop_tokens,
        randomness=Seeded(27),
    )  # fmt: skip
    before = pair.target.length, pair.target.forwards
    fresh = record_caches(pair, ids, seed=27, max_new_tokens=20)
    assert [entry.round for entry in fresh.rounds] == out.trace.rounds
    assert (pair.target.length, pair.target.forwards) == before
    assert fresh == recorded(None)


def test_without_a_fault_every_row_is_the_text_at_its_place(recorded):
    ledger = recorded(None)
    for number, entry in enumerate(ledger.rounds):
        end = Moment(ledger, number, 2)
        for side in ("target", "draft"):
            rows = end.rows(side)
            assert [row.token for row in rows] == list(end.tokens[: len(rows)])
            assert set(end.states(side)) == {"committed"}
            assert getattr(entry, side).error < 1e-12
        assert len(end.rows("target")) == len(end.tokens) - 1


@pytest.mark.parametrize(
    ("fault", "side", "states"),
    [
        ("M18", "target", {"committed", "stale", "out of place"}),
        ("M18b", "target", {"committed", "out of place"}),
        ("M18c", "target", {"committed", "stale", "out of place"}),
        ("M19", "draft", {"committed", "stale", "out of place"}),
        ("M19b", "draft", {"committed", "out of place"}),
    ],
)
def test_a_fault_shows_in_its_own_cache_and_its_own_logits(recorded, fault, side, states):
    ledger = recorded(fault)
    end = Moment(ledger, len(ledger.rounds) - 1, 2)
    other = "draft" if side == "target" else "target"
    assert set(end.states(side)) == states
    assert set(end.states(other)) == {"committed"}
    assert end.largest_error(side) > 0.1 and end.largest_error(other) < 1e-12


def test_a_round_goes_through_its_three_pictures(recorded, pair):
    ledger = recorded(None)
    entry = ledger.rounds[0]
    assert (entry.round.accepted, entry.round.gamma) == (1, 4)
    draft, verify, back = (draw_kv_ledger(ledger, pair.decode, step) for step in (1, 2, 3))
    text, target, drafted = 116, 164, 212
    assert [mark for mark, _ in lane(draft.svg, target)] == ["✓"] * 4
    assert [mark for mark, _ in lane(draft.svg, drafted)] == [*"✓✓✓✓✓???"]
    assert [mark for mark, _ in lane(draft.svg, text)] == [*"✓✓✓✓◆????"]
    assert [mark for mark, _ in lane(verify.svg, text)] == [*"✓✓✓✓◆✓✗––"]
    assert [mark for mark, _ in lane(verify.svg, target)] == [*"✓✓✓✓✓????"]
    assert [mark for mark, _ in lane(back.svg, text)] == [*"✓✓✓✓✓✓◆"]
    assert [mark for mark, _ in lane(back.svg, target)] == [*"✓✓✓✓✓✓✗––"]
    assert [mark for mark, _ in lane(back.svg, drafted)] == [*"✓✓✓✓✓✓✗–"]
    written = [pair.decode([t]) or "special" for t in (*entry.text, *entry.round.emitted)]
    assert [word for _, word in lane(back.svg, text)] == written


def test_a_full_accept_leaves_the_draft_one_row_short(recorded, pair):
    ledger = recorded(None)
    number = next(i for i, e in enumerate(ledger.rounds) if e.round.accepted == e.round.gamma)
    picture = draw_kv_ledger(ledger, pair.decode, 3 * number + 3)
    assert [mark for mark, _ in lane(picture.svg, 212)][-1] == "○"
    assert "○" not in [mark for mark, _ in lane(picture.svg, 164)]


def test_a_cut_row_has_the_mark_its_draft_has_in_the_text(recorded, pair):
    ledger = recorded(None)
    for number, entry in enumerate(ledger.rounds):
        verify, back = (draw_kv_ledger(ledger, pair.decode, 3 * number + s) for s in (2, 3))
        judged = [mark for mark, _ in lane(verify.svg, 116)][-entry.round.gamma :]
        thrown = [mark for mark in judged if mark in "✗–"] if entry.round.gamma else []
        for y, side in ((164, "target"), (212, "draft")):
            cut = len(getattr(entry, side).full) - len(getattr(entry, side).after)
            marks = [mark for mark, _ in lane(back.svg, y)]
            assert [mark for mark in marks if mark in "✗–"] == thrown[:cut]
    assert all(words.count("rejected") == (state == "rejected")
               for state, (_, words, *_) in STATES.items())  # fmt: skip


def test_a_draft_past_the_end_is_not_called_unjudged(recorded, pair):
    ledger = recorded(None)
    number = next(i for i, e in enumerate(ledger.rounds) if e.round.accepted == 4)
    entry = ledger.rounds[number]
    ended = replace(entry, round=replace(entry.round, emitted=entry.round.emitted[:2]))
    rounds = (*ledger.rounds[:number], ended)
    picture = draw_kv_ledger(replace(ledger, rounds=rounds), pair.decode, 3 * number + 2)
    assert [mark for mark, _ in lane(picture.svg, 116)][-4:] == [*"✓✓■■"]


def test_the_row_of_an_accepted_draft_that_was_cut_off_is_lost(single, pair):
    ledger = single("M18b")
    first, second = (draw_kv_ledger(ledger, pair.decode, step) for step in (3, 6))
    accepted = pair.decode(ledger.rounds[0].round.drafted)
    assert lane(first.svg, 164)[-1] == ("∅", accepted)
    assert "1 row wrong in the target cache (1 lost)" in first.sentence and "!1" in texts(first.svg)
    assert ledger.rounds[1].target.error > 1
    assert [mark for mark, _ in lane(second.svg, 164)] == [*"✓✓✓✓✓↔↔∅"]
    assert lane(second.svg, 164)[-1] == ("∅", accepted)
    assert "3 rows wrong in the target cache (1 lost)" in second.sentence


def test_a_short_draft_is_wrong_once_something_newer_was_fed(single, pair):
    ledger = single("M19b")
    pictures = [draw_kv_ledger(ledger, pair.decode, step) for step in (3, 4, 6)]
    marks = [[mark for mark, _ in lane(picture.svg, 212)] for picture in pictures]
    assert marks == [[*"✓✓✓✓✓○"], [*"✓✓✓✓✓↔∅"], [*"✓✓✓✓✓↔∅○"]]
    assert lane(pictures[1].svg, 212)[-1][1] == pair.decode(ledger.rounds[0].round.drafted)
    assert "No row is wrong" in pictures[0].sentence
    for picture in pictures[1:]:
        assert "2 rows wrong in the draft cache (1 lost)" in picture.sentence


@pytest.mark.parametrize("fault", ["M18", "M18b", "M18c", "M19", "M19b"])
def test_logits_that_are_off_never_stand_beside_rows_that_are_right(recorded, single, fault):
    for ledger in (recorded(fault), single(fault)):
        for number, entry in enumerate(ledger.rounds):
            for side in ("target", "draft"):
                if (getattr(entry, side).error or 0) > 1e-6:
                    assert Moment(ledger, number, 1).wrong(side)


@pytest.mark.parametrize("fault", [None, "M18", "M18b", "M19", "M19b"])
def test_every_picture_stays_inside_its_frame_and_is_quick(recorded, pair, fault):
    ledger = recorded(fault)
    seconds = []
    for step in range(1, 3 * len(ledger.rounds) + 1):
        started = time.process_time()
        picture = draw_kv_ledger(ledger, pair.decode, step)
        seconds.append(time.process_time() - started)
        root = ET.fromstring(picture.svg)
        for box in root.iter(f"{SVG}rect"):
            assert float(box.get("x", 0)) >= 0
            assert float(box.get("x", 0)) + float(box.get("width")) <= WIDTH
            assert float(box.get("y", 0)) + float(box.get("height")) <= float(root.get("height"))
        for node in root.iter(f"{SVG}text"):
            width = 0.62 * float(node.get("font-size")) * len(node.text or "")
            start = {"middle": width / 2, "end": width}.get(node.get("text-anchor"), 0)
            assert float(node.get("x")) - start >= 0
            assert float(node.get("x")) - start + width <= WIDTH + 12
        assert picture == draw_kv_ledger(ledger, pair.decode, step)
    assert sorted(seconds)[len(seconds) // 2] < 0.025


def test_words_and_table_say_what_is_wrong(recorded, pair):
    ledger = recorded("M18")
    picture = draw_kv_ledger(ledger, pair.decode, 6)
    end = Moment(ledger, 1, 2)
    assert "drops 0 rows" in picture.sentence
    assert f"{end.wrong('target')} rows wrong in the target cache" in picture.sentence
    assert f"target {end.largest_error('target'):.1f}" in picture.sentence
    cells = re.findall(r"<td>([^<]*)</td>", picture.table)
    assert cells[:2] == ["1", "1 of 4"] and cells[3] == "3" and len(cells) == 20
    assert "No row is wrong" in draw_kv_ledger(recorded(None), pair.decode, 6).sentence
    assert f"!{end.wrong('target')}" in texts(picture.svg)


def test_hostile_tokens_are_text(recorded):
    picture = draw_kv_ledger(recorded("M18"), lambda ids: HOSTILE, 9)
    html = picture._repr_html_()
    assert HOSTILE in texts(picture.svg)
    assert "</script" not in html and "<b>" not in html and "</script" not in picture.svg


def test_clickable_parts_lead_to_the_steps_they_name(recorded, pair):
    ledger = recorded(None)
    svg = draw_kv_ledger(ledger, pair.decode, 5).svg
    parts = dict(re.findall(r'data-set="step=(\d+)" aria-label="([^"]+)"', svg))
    assert parts["4"] == "show step 1: draft" and parts["5"] == "show step 2: verify"
    ends = [int(s) for s in re.findall(r'step=(\d+)" aria-label="show the end of round', svg)]
    assert ends == [3 * number for number in range(1, len(ledger.rounds) + 1)]


def test_a_difference_of_logits_has_its_height():
    assert error_height(0.0) == error_height(1e-9) == 70
    assert error_height(100) == error_height(1e6) == 10
    assert error_height(1) == 30 and error_height(0.002) == error_height(0.01) == 50


def test_stage_takes_the_readers_numbers_and_says_what_it_cannot(pair):
    stage = kv_ledger(pair, PROMPT, seed=27, max_new_tokens=8, step=3)
    assert stage.sentence.startswith("Round 1 of ") and stage.problem == ""
    choices = next(c for c in stage.controls if c["name"] == "fault")["options"]["choices"]
    assert [value for value, _ in choices] == list(FAULTS)
    stage.state = {**stage.state, "fault": "M18", "gamma": 4}
    assert "wrong in the target cache" in stage.sentence
    stage.state = {**stage.state, "prompt": "Recipe: soup with", "fault": "none", "step": 72}
    assert "Recipe" in stage.svg or "soup" in stage.svg
    right = stage.svg
    stage.state = {**stage.state, "prompt": "Once upon a computer"}
    assert "computer" in stage.problem and stage.svg == right
    stage.state = {**stage.state, "prompt": "  "}
    assert stage.problem == "Write a prompt of one word or more."
    with pytest.raises(ValueError, match="1 to 24 new tokens, not 25"):
        kv_ledger(pair, PROMPT, max_new_tokens=25)


def test_a_cache_that_overflows_is_explained(pair):
    small = load_pair("storyworld", dtype="float64", max_length=30)
    with pytest.raises(ValueError, match="do not fit the cache of 30"):
        record_caches(small, small.encode(PROMPT), seed=27, max_new_tokens=24, fault="M18")
    pair = replace(pair, drafters={"weak": pair.drafters["weak"], **pair.drafters})
    with pytest.raises(ValueError, match="This drafter has no cache"):
        record_caches(pair, pair.encode(PROMPT))


def test_marks_differ_and_colours_can_be_read():
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    marks = [mark for mark, *_ in STATES.values()]
    assert len(set(marks)) == len(marks)
    for _, _, ink, fill, _ in STATES.values():
        assert (luminance(fill) + 0.05) / (luminance(ink) + 0.05) >= 4.5


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_very_long_token_is_cut_and_stays_inside_its_cell(recorded, step):
    root = ET.fromstring(draw_kv_ledger(recorded(None), lambda ids: "long" * 30, step).svg)
    cut = [t for t in root.iter(f"{SVG}text") if (t.text or "").startswith("long")]
    rights = {float(b.get("x", 0)) + float(b.get("width")) for b in root.iter(f"{SVG}rect")}
    assert cut and max(rights) <= WIDTH
    for node in cut:
        end = float(node.get("x")) + text_width(node.text)
        assert node.text.endswith("…") and min(r - end for r in rights if r > end) <= 10


def test_a_step_past_the_run_becomes_its_last(pair):
    stage = kv_ledger(pair, PROMPT, seed=27, max_new_tokens=8, step=99)
    last = stage.state["step"]
    assert last % 3 == 0 and last < 99
    stage.state = {**stage.state, "step": last + 1}
    assert stage.state["step"] == last
    stage.state = {**stage.state, "step": last, "gamma": 8}
    shorter = stage.state["step"]
    assert shorter < last and f"Round {shorter // 3} of {shorter // 3}" in stage.sentence


def test_a_long_prompt_gets_one_sentence(pair):
    stage = kv_ledger(pair, PROMPT, max_new_tokens=8)
    stage.state = {**stage.state, "prompt": " ".join(["Once upon a time ,"] * 60)}
    assert re.fullmatch(r"The prompt has \d+ tokens; the ledger reads 120 or fewer.", stage.problem)
