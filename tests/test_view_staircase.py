"""The staircase says what the target's forward and the exact law say, and the reader can place."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from specdec_core import (
    autoregressive_decode,
    exact_law,
    largest_difference,
    load_pair,
    marginal,
    speculative_decode,
)
from specdec_core.lab import museum
from specdec_core.sampling import Sampling
from specdec_core.widgets.passes import ShiftedRows, greedy_run, one_pass, toy_law
from specdec_core.widgets.staircase import (
    MOST_GAMMA,
    WIDTH,
    WIRINGS,
    draw_staircase,
    staircase,
    toy_rows,
)

SVG = "{http://www.w3.org/2000/svg}"
GREEDY = Sampling(temperature=0)
TOY_P, TOY_Q = ".6 .4 | .9 .1 | .2 .8", ".5 .5"
P, Q = toy_rows(TOY_P, 3, "p"), toy_rows(TOY_Q, 1, "q")
NONE = (0,) * (MOST_GAMMA + 1)
ALL = tuple(range(1, MOST_GAMMA + 2))


@pytest.fixture(scope="module")
def pair():
    return load_pair("storyworld", dtype="float64")


@pytest.fixture(scope="module")
def second(pair):
    """The second round of chapter 02: brown is kept, hedgehog becomes hen."""
    context, round = greedy_run(pair, "Once upon a time", 4, 2)[1]
    return context, round, one_pass(pair, context, round)


def draw(one, wiring="mine", placed=NONE, row=0):
    return draw_staircase(one, wiring, placed, row, TOY_P, TOY_Q)


def texts(picture) -> list[str]:
    return [node.text for node in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def parts(picture) -> dict[str, dict[str, list[str]]]:
    """Clickable parts: what they are called, and what they set."""
    groups = ET.fromstring(picture.svg).iter(f"{SVG}g")
    return {g.get("aria-label"): parse_qs(g.get("data-set")) for g in groups if g.get("data-set")}


def cells(table: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]


def test_rows_are_the_forwards_of_each_prefix(pair, second):
    context, round, one = second
    header, *rows = cells(draw(one).table)
    assert len(rows) == 5 and header[4:8] == [
        f"p of x{i + 1} {t}" for i, t in enumerate(one.drafted)
    ]
    for i, row in enumerate(rows):
        pair.target.rollback(0)
        logits = pair.target.forward([*context, *round.drafted[:i]], keep=1)
        p = Sampling().probs(logits)[0]
        assert row[2] == pair.decode([int(p.argmax())])
        assert row[3] == f"{p.max():.4f}"
        assert row[4:8] == [f"{p[token]:.4f}" for token in round.drafted]


def test_the_stair_has_one_step_more_in_each_row(second):
    one = second[2]
    assert texts(draw(one)).count("sees") == sum(2 + i for i in range(5))


def test_the_row_in_hand_shows_what_it_sees(second):
    for row in range(5):
        picture = draw(second[2], row=row)
        shown, groups = texts(picture), ET.fromstring(picture.svg).iter(f"{SVG}g")
        slots = [g for g in groups if (g.get("aria-label") or "").startswith("drop")]
        assert len(slots) == 5
        assert {s.find(f"{SVG}rect").get("fill-opacity") for s in slots} == {"0"}
        assert shown.count("sees") == sum(2 + i for i in range(5))
        assert shown.count("?") == 5 + 1  # the five places and the bonus token's name


def test_nothing_is_in_hand_when_all_rows_are_right(second):
    for row in (0, 4, 5):
        done = draw(second[2], placed=ALL, row=row)
        assert list(parts(done)) == ["start over, no row placed"]
        assert texts(done).count("?") == 1 and not [t for t in texts(done) if "▶" in t]


def test_a_wrong_row_stays_in_hand_and_a_right_one_hands_on(second):
    one = second[2]
    slots = parts(draw(one, placed=(0, 2, 0, 0, 0, 0, 0)))
    assert slots["drop row 0 on x3"] == {"r0": ["3"], "row": ["0"]}
    assert slots["drop row 0 on x1"] == {"r0": ["1"], "row": ["2"]}  # row 1 is right already
    last = parts(draw(one, placed=(1, 2, 0, 4, 5, 0, 0), row=2))
    assert last["drop row 2 on x3"] == {"r2": ["3"], "row": ["5"]}
    first = parts(draw(one, placed=(0, 2, 3, 4, 0, 0, 0), row=4))
    assert first["drop row 4 on the bonus token"] == {"r4": ["5"], "row": ["0"]}


def test_a_higher_gamma_puts_its_new_row_in_hand(pair):
    longer = one_pass(pair, *greedy_run(pair, "Once upon a time", 5, 1)[0])
    placed = (1, 2, 3, 4, 5, 0, 0)
    assert "▶ row 5" in texts(draw(longer, placed=placed, row=5))
    shorter = one_pass(pair, *greedy_run(pair, "Once upon a time", 2, 1)[0])
    assert "▶ row 1" in texts(draw(shorter, placed=(1, 4, 3, 4, 5, 0, 0), row=5))


def test_the_right_wiring_is_the_run_and_the_others_are_not(pair, second):
    context, round, one = second
    assert one.rounds[0].emitted == round.emitted and one.rounds[0].accepted == 1
    plain = autoregressive_decode(pair.target, context, sampling=GREEDY, max_new_tokens=5)
    assert one.plain == tuple(pair.decode([t]) for t in plain.tokens)
    assert one.emitted == {0: ("brown", "hen"), 1: ("hen",), -1: ("brown", "brown")}
    assert "✓ the same so far" in texts(draw(one, "0"))
    assert "✗ another text" in texts(draw(one, "+1")) and "✗ another text" in texts(draw(one, "-1"))


def test_verdicts_stand_where_token_and_row_meet(second):
    one = second[2]
    marks = {w: [t for t in texts(draw(one, w)) if re.match(r"[✓✗–] [.<1]", t)] for w in WIRINGS}
    assert [m[0] for m in marks["0"]] == ["✓", "✗", "–", "–"]
    assert marks["0"][1] == f"✗ {one.prob[1][1]:.2f}".replace("0.", ".")
    assert [m[0] for m in marks["+1"]] == ["✗", "–", "–", "–"]
    assert [m[0] for m in marks["-1"]] == ["✓", "✗", "–", "–"]
    assert one.prob[1][0] < 0.005 and one.prob[0][1] < 0.005
    assert marks["+1"][0] == marks["-1"][1] == "✗ <.01"
    assert marks["mine"] == []


def test_shift_by_one_is_the_museums_m11():
    example = replace(museum.MISTAKES["M11"].example, gamma=2, tokens=3)
    target, drafter = example.models()
    shifted = exact_law(
        lambda coins: (
            speculative_decode(
                ShiftedRows(target, 1), drafter, [0], gamma=2, max_new_tokens=3, randomness=coins
            ).tokens
        )
    )
    assert largest_difference(shifted, example.law("M11")) < 1e-15
    assert largest_difference(marginal(example.law("M11"), 2), toy_law(P, Q, 1)) < 1e-15


def test_the_law_breaks_as_the_exact_law_says(second):
    one = second[2]
    right = toy_law(P, Q, 0)
    assert {t: round(p, 12) for t, p in right.items()} == {
        (0, 0): 0.54, (0, 1): 0.06, (1, 0): 0.08, (1, 1): 0.32,
    }  # fmt: skip
    assert round(marginal(toy_law(P, Q, 1), 1)[(0,)], 12) == 0.5
    assert round(marginal(toy_law(P, Q, -1), 1)[(0,)], 12) == 0.6
    late, early = draw(one, "+1"), draw(one, "-1")
    assert "first word: ✗ law broken, TV .10" in texts(late)
    assert "first word: ✓ same law" in texts(early)
    assert "two words: ✗ law broken, TV .31" in texts(early)
    assert "off by 0.100 for one word and 0.360 for two" in late.sentence
    assert draw(one, "0").sentence.endswith("the toy's law is the target's.")


def test_the_readers_numbers_change_the_law(second):
    same = draw_staircase(second[2], "+1", NONE, 0, ".6 .4 | .6 .4 | .6 .4", ".5 .5")
    assert same.sentence.endswith("the toy's law is the target's.")


BAD = ("", ".6 .4", "a b | c d | e f", ".6 .5 | 1 0 | 1 0", "-1 2 | 1 0 | 1 0", "nan 0 | 1 0 | 1 0")


@pytest.mark.parametrize("line", BAD)
def test_bad_numbers_are_refused_in_one_sentence(second, line):
    with pytest.raises(ValueError, match=r"^Toy p "):
        draw_staircase(second[2], "mine", NONE, 0, line, ".5 .5")


def test_a_row_is_dropped_on_its_token(second):
    one = second[2]
    slots = parts(draw(one, row=2))
    assert slots["drop row 2 on x3"] == {"r2": ["3"], "row": ["3"]}
    assert slots["drop row 2 on the bonus token"] == {"r2": ["5"], "row": ["2"]}
    assert slots["take row 4"] == {"row": ["4"]}
    assert set(slots["start over, no row placed"]) == {f"r{i}" for i in range(7)} | {"row"}
    flips = parts(draw(one, "+1"))
    assert [flip["wiring"] for flip in flips.values()] == [["-1"], ["0"], ["+1"]]


def test_each_wrong_place_is_told_why(second):
    one = second[2]
    seen = draw(one, placed=(1, 1, 0, 0, 0, 0, 0), row=1)
    assert "Row 1 is wrong on x1: it has seen x1" in seen.sentence
    assert "✗ seen" in texts(seen) and "✗ row 1 stays in hand: click another ?" in texts(seen)
    ahead = draw(one, placed=(1, 4, 0, 0, 0, 0, 0), row=1)
    assert "Row 1 is wrong on x4: it has not seen x2" in ahead.sentence
    assert texts(ahead).count("✓ yes") == texts(ahead).count("✗ no") == 1
    left = draw(one, placed=(1, 4, 0, 0, 0, 0, 0), row=2).sentence
    assert "Row 2 is in hand: it sees the text up to x2" in left
    assert left.endswith("Row 1 is wrong on x4.")
    assert "Row 0 is in hand, and right on x1" in draw(one, placed=(1, *NONE[1:])).sentence
    assert draw(one, placed=ALL, row=4).sentence.startswith("All 5 rows are right")
    assert "5 of 5 rows right" in texts(draw(one, placed=ALL, row=4))


def test_every_part_stays_inside_the_frame(pair, second):
    longest = one_pass(pair, *greedy_run(pair, "def add(", MOST_GAMMA, 1)[0])
    for one in (second[2], longest, replace(second[2], drafted=("hippopotamus",) * 4)):
        pictures = [draw(one, wiring, ALL, 3) for wiring in WIRINGS]
        pictures += [draw(one, placed=(1, *NONE[1:]), row=1), draw(one, placed=(3, *NONE[1:]))]
        for picture in pictures:
            root = ET.fromstring(picture.svg)
            for node in root.iter():
                if node.get("x") is None:
                    continue
                x, y, wide = float(node.get("x")), float(node.get("y")), 0.0
                if node.tag == f"{SVG}text":
                    each = 6.7 if "Mono" in node.get("font-family", "") else 6.9
                    wide = each * float(node.get("font-size")) / 11 * len(node.text)
                    anchor = node.get("text-anchor")
                    x -= {"middle": wide / 2, "end": wide}.get(anchor, 0)
                else:
                    wide, y = float(node.get("width")), y + float(node.get("height"))
                assert x >= 0 and x + wide <= WIDTH + 1, node.text
                assert y <= float(root.get("height")), node.text


def test_hostile_tokens_are_text(second):
    nasty = '<b>&"</script>'
    top = (((nasty, 0.5), (nasty, 0.5)),) * 5
    emitted = dict.fromkeys((-1, 0, 1), (nasty,))
    one = replace(
        second[2],
        drafted=(nasty,) * 4,
        tail=(nasty, "\n"),
        top=top,
        emitted=emitted,
        plain=(nasty,),
    )
    for wiring in WIRINGS:
        picture = draw(one, wiring)
        ET.fromstring(picture.svg)
        assert "<b>" not in picture.svg + picture._repr_html_() and "<script" not in picture.svg
        assert "&lt;b&gt;&amp;" in picture.table


def test_same_state_same_bytes(second):
    assert draw(second[2], "+1") == draw(second[2], "+1")


def test_the_stage_is_live(pair):
    stage = staircase(pair)
    assert stage.state["row"] == 1 and "1 of 5 rows right" in stage.sentence
    stage.state = {**stage.state, "wiring": "+1"}
    assert stage.sentence.startswith("Shift +1: one row too late. Judged are x1 by row 1")
    before = stage.svg
    stage.state = {**stage.state, "prompt": "Once upon a computer"}
    assert "'computer' is not a word" in stage.problem and stage.svg == before
    stage.state = {**stage.state, "prompt": "Recipe: soup with", "gamma": 1, "round": 1}
    assert stage.problem == "" and "x1 by row 1; the bonus comes from row 1" in stage.sentence
