"""The museum wall: it says what the checks said, on the exhibits and on the reader's numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from urllib.parse import parse_qs

import pytest

from specdec_core.exact import marginal
from specdec_core.lab import museum
from specdec_core.lab.museum import MISTAKES
from specdec_core.widgets.museum_wall import (
    BARS_X,
    BREAKS_X,
    COLUMNS,
    TITLE_X,
    WIDTH,
    draw_museum_wall,
    museum_wall,
    own_pair,
)

SVG = "{http://www.w3.org/2000/svg}"
ALL = " ".join(MISTAKES)
SOME = "M1 M7 M16 M19"


def texts(picture) -> list[str]:
    return [node.text for node in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def rows(picture) -> dict[str, list[str]]:
    """The table: id -> its cells."""
    found = re.findall(r"<tr>(<td>.*?)</tr>", picture.table)
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in found]
    return {row[0]: row[1:] for row in cells}


def test_the_wall_says_what_the_checks_said():
    table = rows(draw_museum_wall("M7", ALL))
    assert list(table) == list(MISTAKES)
    for id, mistake in MISTAKES.items():
        words = dict(zip(COLUMNS, table[id][2:-1], strict=True))
        assert {name for name, word in words.items() if word == "sees"} == set(mistake.seen_by)
        left = {word for word in words.values() if word != "sees"}
        assert left == ({"–"} if mistake.breaks == "crash" else {"blind"})


def test_the_wall_fills_in_as_mistakes_are_tried():
    shown = [texts(draw_museum_wall("M7", tried)) for tried in ("", SOME, ALL)]
    assert [t.count("▶ run the checks") for t in shown] == [28, 24, 0]
    seen = sum(len(MISTAKES[id].seen_by) for id in SOME.split())
    assert [t.count("● sees") for t in shown[:2]] == [0, seen]
    assert rows(draw_museum_wall("M7", SOME))["M2"][1:-1] == ["", *["not tried"] * len(COLUMNS)]


def test_what_a_mistake_breaks_is_hidden_until_it_is_tried():
    before, after = (draw_museum_wall("M7", tried) for tried in ("M1", "M1 M7"))
    assert "total variation" not in " ".join(texts(before)) and "0.36" not in before.sentence
    assert "Guess, then run the checks." in " ".join(texts(before))
    assert "total variation 0.36" in texts(after)


@pytest.mark.parametrize("id", ["M1", "M7", "M12", "M17", "M18"])
def test_bars_are_the_laws(id):
    """Every bar's number is the law's, and every bar is as long as its number says."""
    root = ET.fromstring(draw_museum_wall(id, id).svg)
    length = 1 if "first token" in MISTAKES[id].seen_by else 2
    right, wrong = (museum.MISTAKES[id].example.law(m) for m in (None, id))
    laws = [marginal(law, length) for law in (right, wrong)]
    labels = [t for t in root.iter(f"{SVG}text") if t.get("x") == str(BARS_X)]
    shown = [tuple(map(int, t.text.split())) for t in labels if re.fullmatch(r"\d( \d)*", t.text)]
    numbers = [n for n in root.iter(f"{SVG}text") if re.fullmatch(r"[01]\.\d{4}", n.text)]
    assert shown
    assert [n.text for n in numbers] == [f"{law.get(t, 0):.4f}" for t in shown for law in laws]
    left = str(BARS_X + 44)
    bars = [r for r in root.iter(f"{SVG}rect") if r.get("x") == left and r.get("height") == "8"]
    scales = [
        float(bar.get("width")) / float(number.text)
        for bar, number in zip(bars, numbers, strict=True)
        if float(number.text) > 0.05
    ]
    assert max(scales) == pytest.approx(min(scales), rel=0.02)


def test_a_mistake_hides_on_a_pair_of_the_readers():
    seen = draw_museum_wall("M1", "M1", "mine", ".6 .4", ".8 .2")
    assert "total variation 0.12" in texts(seen)
    hidden = draw_museum_wall("M1", "M1", "mine", ".6 .4", ".6 .4")
    assert "on my p and q no check sees it" in hidden.sentence
    three = draw_museum_wall("M4", "M4", "mine", "0.5,0.3,0.2", ".2 .5 .3")
    assert "total variation 0.21" in texts(three)


def test_a_run_that_breaks_off_says_so():
    picture = draw_museum_wall("M23b", "M23b")
    assert "the run breaks off, which anyone sees" in picture.sentence
    equal = draw_museum_wall("M23b", "M23b", "mine", ".6 .4", ".8 .2")
    assert "no check sees it" in equal.sentence
    padded = draw_museum_wall("M23b", "M23b", "mine", ".5 .3 .2", ".6 .4")
    assert "breaks off" in padded.sentence


@pytest.mark.parametrize("id", MISTAKES)
def test_every_mistake_runs_on_the_readers_numbers(id):
    for p, q in ((".6 .4", ".8 .2"), (".6 .4", ".6 .4")):
        assert draw_museum_wall(id, id, "mine", p, q).sentence


def test_numbers_on_which_no_decoder_runs_are_not_the_mistakes_fault():
    """Where nothing may come twice, one possible token is not enough for a text of two."""
    with pytest.raises(ValueError, match="No decoder runs on these numbers"):
        draw_museum_wall("M13", "M13", "mine", "1 0", "0 1")
    assert draw_museum_wall("M1", "M1", "mine", "1 0", "0 1").sentence


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (".6 .5", "add up to 1"),
        ("1.2 -.2", "1.2 is above 1"),
        (".6 x", "must be numbers"),
        ("<b>", "must be numbers"),
        ("1", "needs 2 to 3 numbers, not 1"),
        (".25 .25 .25 .25", "not 4"),
        ("nan 1", "must be numbers"),
        (".5 .3 .2", "p has 3 tokens and q has 2"),
    ],
)
def test_bad_numbers_are_one_sentence(p, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        draw_museum_wall("M1", "M1", "mine", p, ".8 .2")


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no mistake 'M99'"):
        draw_museum_wall("M99", "")
    with pytest.raises(ValueError, match="no mistake 'M0'"):
        draw_museum_wall("M1", "M0")
    with pytest.raises(ValueError, match="no toy 'x'"):
        draw_museum_wall("M1", "", "x")


def test_parts_to_click_carry_the_right_state():
    root = ET.fromstring(draw_museum_wall("M7", "M1 M7").svg)
    parts = [(g.get("aria-label"), parse_qs(g.get("data-set"))) for g in root.iter(f"{SVG}g")]
    names = [state for _, state in parts if set(state) == {"chosen"}]
    assert [state["chosen"] for state in names] == [[id] for id in MISTAKES]
    runs = {state["chosen"][0]: state["tried"][0] for _, state in parts if "tried" in state}
    assert set(runs) == set(MISTAKES) - {"M1", "M7"}
    assert runs["M3"] == "M1 M7 M3"
    assert all(label for label, _ in parts)


def test_buttons_run_the_checks():
    wall = museum_wall(tried=("M1",), chosen="M3")
    wall.state = {**wall.state, "runs": 1}
    assert wall.state["tried"] == "M1 M3" and "total variation 0.09" in wall.svg
    wall.state = {**wall.state, "chosen": "M5"}
    assert wall.state["tried"] == "M1 M3"
    wall.state = {**wall.state, "all": 1}
    assert set(wall.state["tried"].split()) == set(MISTAKES)
    wall.state = {**wall.state, "toy": "mine", "p": ".6"}
    assert wall.problem.startswith("p needs 2 to 3 numbers") and wall.svg


def test_it_stays_inside_its_frame_and_repeats_itself():
    for id in MISTAKES:
        picture = draw_museum_wall(id, ALL)
        root = ET.fromstring(picture.svg)
        assert float(root.get("width")) == WIDTH
        for box in root.iter(f"{SVG}rect"):
            assert float(box.get("x", 0)) + float(box.get("width")) <= WIDTH
            assert float(box.get("y", 0)) + float(box.get("height")) <= float(root.get("height"))
        for words in root.iter(f"{SVG}text"):
            assert int(words.get("font-size")) >= 11
        assert picture == draw_museum_wall(id, ALL)


def test_text_of_the_panel_stays_inside_it():
    """The panel's lines end above the wall, whatever the mistake says of itself."""
    for id in MISTAKES:
        for toy in ("own", "mine"):
            svg = draw_museum_wall(id, id, toy).svg
            panel = svg[: svg.rindex("<text", 0, svg.index("mistake, on its own toy"))]
            ends = [float(y) for y in re.findall(r'<text x="\d+" y="([\d.]+)"', panel)]
            assert max(ends) < 250


def test_words_of_the_panel_are_plain_and_titles_end_before_the_next_column():
    longest = max(len(mistake.title) for mistake in MISTAKES.values())
    assert 5.6 * longest < BREAKS_X - TITLE_X
    for id, mistake in MISTAKES.items():
        words = " ".join(texts(draw_museum_wall(id, id)))
        assert "`" not in words
        assert ("no page to cite" in words) == (not mistake.link)


def test_fields_that_count_only_for_the_readers_pair_say_so():
    labels = [control["label"] for control in museum_wall().controls]
    assert labels[-2:] == ["my p", "my q"]


def test_sources_are_links_in_the_table():
    table = draw_museum_wall("M1", "").table
    for mistake in MISTAKES.values():
        if mistake.link:
            assert f'<a href="{mistake.link}">' in table
    assert table.count("<a ") == sum(bool(m.link) for m in MISTAKES.values())


def test_numbers_of_the_reader():
    toy = own_pair("M17", (0.5, 0.5), (0.5, 0.5))
    assert toy.stop_tokens == (1,) and toy.tokens == MISTAKES["M17"].example.tokens
    assert own_pair("M13", (0.6, 0.4), (0.5, 0.5)).prompt == (1,)
