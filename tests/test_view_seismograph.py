"""The acceptance seismograph: bars, mean, words and lists say what the records say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from urllib.parse import parse_qs

import pytest
from drawn import SVG, at, cells, words

from specdec_core import TableModel
from specdec_core.drafters import LookupDrafter
from specdec_core.lab.acceptance import AcceptanceRecord, record_acceptance
from specdec_core.widgets.picture import BLUE, VERMILION, text_width
from specdec_core.widgets.seismograph import draw_seismograph, seismograph, strip
from specdec_core.widgets.seismograph_picture import LEFT, MARGIN, RIGHT, TALL, WIDTH

HOSTILE = '<b>&"</script>'
VOCABULARY = ["a", HOSTILE, "\n", "extraordinarily long", ""]


def decode(tokens) -> str:
    return "".join(VOCABULARY[token] for token in tokens)


def made(length: int, shift: int = 0, start: int = 3) -> AcceptanceRecord:
    """A record whose betas run through sixteenths."""
    tokens = tuple((i + shift) % 5 for i in range(length + start))
    beta = tuple(((7 * (i + shift)) % 17) / 16 for i in range(length))
    tops = tuple((((i + shift) % 5, 0.75), ((i + shift + 1) % 5, 0.125)) for i in range(length))
    return AcceptanceRecord(tokens, beta, start, tops, tops[::-1])


RECORDS = {"long": made(250, 1), "short": made(40), "middle": made(100, 3)}


def picture(records=RECORDS, shown="short", below="nothing", position=5):
    strips = {name: strip(name, record, decode) for name, record in records.items()}
    return draw_seismograph(strips, shown, below, position)


def shocks(drawn) -> list[list[tuple[float, float]]]:
    """For each panel the middle and the depth of every bar, depth as acceptance."""
    paths = [n.get("d") for n in ET.fromstring(drawn.svg).iter(f"{SVG}path")
             if n.get("stroke") == BLUE and n.get("d").count("M") > 1]  # fmt: skip
    panels = []
    for path in paths:
        bars = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", path)
        panels.append([(float(x), 1 - (float(y) - float(top)) / TALL) for x, top, y in bars])
    return panels


def parts(drawn) -> list[tuple[dict, str]]:
    return [
        ({k: v[0] for k, v in parse_qs(n.get("data-set")).items()}, n.get("aria-label"))
        for n in ET.fromstring(drawn.svg).iter(f"{SVG}g")
        if n.get("data-set")
    ]


def test_every_bar_is_as_deep_as_its_record_says():
    record = RECORDS["short"]
    drawn = picture()
    (bars,) = shocks(drawn)
    assert [depth for _, depth in bars] == pytest.approx(record.beta, abs=0.01)
    xs = [x for x, _ in bars]
    assert xs == sorted(xs) and xs[0] > LEFT and xs[-1] < RIGHT
    for row, beta, rolling in zip(cells(drawn), record.beta, record.rolling(10), strict=True):
        assert row[2:] == [f"{beta:.3f}", f"{rolling:.3f}"]


def test_the_mean_line_lies_on_the_rolling_mean():
    record = RECORDS["short"]
    lines = [n.get("d") for n in ET.fromstring(picture().svg).iter(f"{SVG}path")
             if n.get("d").count("L") == 39]  # fmt: skip
    quiet = float(re.search(rf'd="M{LEFT} ([0-9.]+)H[0-9.]+" stroke="{BLUE}"', picture().svg)[1])
    for line in lines:
        heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", line)]
        values = [1 - (y - quiet) / TALL for y in heights]
        assert values == pytest.approx(record.rolling(10), abs=0.01)
    assert len(lines) == 2  # the line and the paper behind it


def test_the_sentence_says_the_position_and_what_was_expected():
    record, drawn = RECORDS["short"], picture(position=8)
    assert f"short: mean acceptance {record.mean:.2f} over 40 positions, from 0.00 to 1.00" in (
        drawn.sentence
    )
    # start is 3: position 8 is the token of index 10, and index 7 of the betas.
    assert f"At position 8, “a”, it is {record.beta[7]:.2f}" in drawn.sentence
    target, draft = record.target_top[7][0], record.draft_top[7][0]
    shown = [VOCABULARY[token].replace("\n", "⏎").replace(" ", "␣") for token in
             (target[0], draft[0])]  # fmt: skip
    told = f"the target expects “{shown[0]}” (0.75), the draft expects “{shown[1] or '#4'}” (0.75)"
    assert told in drawn.sentence
    assert picture(position=9).sentence != drawn.sentence


def test_tokens_before_the_first_position_have_no_acceptance():
    drawn = picture(position=1)
    assert {"#4", "⏎"} <= set(words(drawn))
    labels = [label for state, label in parts(drawn) if label.startswith("position")]
    assert labels[0].startswith("position 1,")
    assert all(int(state["position"]) >= 1 for state, _ in parts(drawn) if "position" in state)


def test_a_start_without_a_text_is_a_mark_and_no_number():
    record = made(5)
    start = record.tokens[0]

    def quiet(tokens):
        return "" if tokens == [start] else decode(tokens)

    drawn = draw_seismograph({"short": strip("short", record, quiet)}, "short", "nothing", 1)
    assert "▷" in words(drawn) and f"#{start}" not in words(drawn)


def test_one_position_is_counted_as_one():
    assert "over 1 position, from" in picture({"short": made(1)}, position=1).sentence


def test_p_is_blue_and_q_vermilion_as_in_the_other_views():
    inks = {n.text: n.get("fill") for n in ET.fromstring(picture().svg).iter(f"{SVG}text")}
    assert inks["target p"] == BLUE and inks["draft q, short"] == VERMILION


def test_long_texts_come_in_pages_of_one_length():
    pages = [picture(shown="long", position=k) for k in (1, 84, 85, 168, 250)]
    firsts = [(int(cells(drawn)[0][0]), len(cells(drawn))) for drawn in pages]
    assert firsts == [(1, 84), (1, 84), (85, 84), (85, 84), (169, 82)]
    places = [shocks(drawn)[0][0][0] for drawn in pages]
    assert len(set(places)) == 1


def test_a_second_record_lies_below_on_the_same_positions():
    drawn = picture(shown="middle", below="short", position=20)
    above, below = shocks(drawn)
    assert [x for x, _ in above][:40] == [x for x, _ in below]
    assert len(above) == 100 and len(below) == 40
    value = RECORDS["short"].beta[19]
    assert f"Below, short: mean {RECORDS['short'].mean:.2f}, and {value:.2f} at its" in (
        drawn.sentence
    )
    row = cells(drawn)[19]
    assert row[5] == f"{value:.3f}" and cells(drawn)[50][4:] == ["", ""]
    late = picture(shown="long", below="short", position=100)
    assert "ends at position 40" in words(late) and len(shocks(late)) == 1
    assert picture(below="short") == picture()


def test_two_drafts_on_one_text_show_what_each_expected():
    one = made(40)
    two = replace(one, beta=made(40, 2).beta, draft_top=one.target_top)
    drawn = picture({"one": one, "two": two}, "one", "two", 6)
    assert {"target p", "draft q, one", "draft q, two"} <= set(words(drawn))
    for record in (one, two):
        assert f"sum of min(p, q) over all tokens: {record.beta[5]:.2f}" in words(drawn)
    assert "draft q, short" not in words(picture(shown="middle", below="short"))


def test_a_click_near_a_shock_chooses_the_deepest():
    drawn = picture(shown="middle", below="short", position=20)
    for name in ("middle", "short"):
        beta = RECORDS[name].beta
        chosen = [int(state["position"]) for state, label in parts(drawn)
                  if label.startswith(f"{name}, position")]  # fmt: skip
        reached = 5 * len(chosen)  # 510 / 100 is 5.1 wide, and a target at least 24
        assert reached >= len(beta)
        for i, position in enumerate(chosen):
            assert beta[position - 1] == min(beta[5 * i : 5 * i + 5])
    wide = [float(n.find(f"{SVG}rect").get("width")) for n in
            ET.fromstring(drawn.svg).iter(f"{SVG}g") if "acceptance" in n.get("aria-label", "")
            and n.get("aria-label").startswith("middle")]  # fmt: skip
    assert min(wide) >= 24


def test_means_stand_beside_and_choose_their_record():
    drawn = picture()
    shown = [(state, label) for state, label in parts(drawn) if "shown" in state]
    assert shown == [
        ({"shown": name}, f"show {name}, mean {record.mean:.2f}")
        for name, record in RECORDS.items()
    ]


def test_a_record_without_expectations_and_a_draft_that_passes():
    bare = {"bare": AcceptanceRecord((0, 1, 2), (0.5, 0.25))}
    drawn = picture(bare, "bare", position=2)
    assert "target p" not in words(drawn) and "expects" not in drawn.sentence
    assert drawn.sentence.endswith("At position 2, “⏎”, it is 0.25.")
    model = TableModel(lambda prefix: (0.25, 0.75, 0.0, 0.0, 0.0), 5)
    looked = {"look-up": record_acceptance(model, LookupDrafter(5), (0, 1, 1, 0, 1))}
    drawn = picture(looked, "look-up", position=1)
    assert "the draft proposes nothing" in drawn.sentence
    assert "proposes nothing here" in words(drawn)


def test_hostile_tokens_and_names_are_text():
    drawn = picture({HOSTILE: made(40)}, HOSTILE)
    html = drawn.svg + drawn.table
    assert "<b>" not in html and "</script" not in html
    assert HOSTILE in words(drawn)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shown": "other"}, "There is no record 'other' here"),
        ({"shown": "nothing"}, "There is no record 'nothing' here"),
        ({"below": "other"}, "There is no record 'other' here"),
        ({"position": 0}, "'short' has positions 1 to 40, not 0"),
        ({"position": 41}, "'short' has positions 1 to 40, not 41"),
        ({"position": 2.5}, "'short' has positions 1 to 40, not 2.5"),
    ],
)
def test_what_is_not_there_is_one_sentence(changes, said):
    with pytest.raises(ValueError, match=said):
        picture(**changes)


def test_records_that_cannot_be_shown_are_refused():
    with pytest.raises(ValueError, match="Give 1 to 8 records, not 0"):
        seismograph({}, decode)
    with pytest.raises(ValueError, match="not 9"):
        seismograph({str(i): made(5) for i in range(9)}, decode)
    with pytest.raises(ValueError, match="'a' has no position"):
        seismograph({"a": AcceptanceRecord((0,), ())}, decode)


def test_the_stage_begins_at_a_shock_and_keeps_to_its_text():
    stage = seismograph(RECORDS, decode)
    beta = RECORDS["long"].beta
    assert stage.state == {
        "shown": "long", "below": "short", "position": beta.index(min(beta[:84])) + 1,
    }  # fmt: skip
    at(stage, position=200)
    assert "At position 200" in stage.sentence
    at(stage, shown="short")
    assert stage.state["position"] == 40 and "At position 40" in stage.sentence
    assert all(control["label"] for control in stage.controls)
    alone = seismograph({"one": made(5)}, decode)
    assert [control["name"] for control in alone.controls] == ["shown", "position"]


@pytest.mark.parametrize(
    ("shown", "below", "position"),
    [("short", "nothing", 1), ("long", "middle", 250), ("middle", "long", 100),
     ("short", "long", 40)],
)  # fmt: skip
def test_it_stays_inside_its_frame_and_repeats_itself(shown, below, position):
    drawn = picture(shown=shown, below=below, position=position)
    root = ET.fromstring(drawn.svg)
    height = float(root.get("height"))
    assert float(root.get("width")) == WIDTH
    for node in root.iter(f"{SVG}rect"):
        x, width = float(node.get("x") or 0), float(node.get("width"))
        assert x >= 0 and x + width <= WIDTH
    for node in root.iter(f"{SVG}text"):
        size = int(node.get("font-size"))
        assert size >= 11
        assert 0 <= float(node.get("x")) <= WIDTH and 10 <= float(node.get("y")) <= height - 4
        if node.get("text-anchor") is None and node.get("font-family"):
            assert float(node.get("x")) + text_width(node.text, size) <= WIDTH - MARGIN + 10
    assert drawn == picture(shown=shown, below=below, position=position)


def test_eight_records_fit_beside():
    records = {f"a rather long name of a draft {i}": made(30, i) for i in range(8)}
    drawn = picture(records, next(iter(records)))
    names = [n for n in ET.fromstring(drawn.svg).iter(f"{SVG}text")
             if n.text.endswith("…") and float(n.get("x")) > RIGHT]  # fmt: skip
    assert len(names) == 8
    chips = [float(n.get("y")) for n in ET.fromstring(drawn.svg).iter(f"{SVG}rect")
             if n.get("height") == "25"]  # fmt: skip
    assert min(chips) > max(float(n.get("y")) for n in names) + 16
