"""The mass mover: its numbers are the real code's law, and a drag shows what Python would draw."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from specdec_core import Sampling, Seeded, exact_law, marginal
from specdec_core.lab import museum
from specdec_core.widgets.mass_mover import (
    HEIGHT,
    LAYOUT,
    WIDTH,
    draw_mass_mover,
    mass_mover,
)
from specdec_core.widgets.one_draft import DRAWS, one_draft_law

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ('<b>&"</script>', " fox", "\n", "'>")
FOUR = {"p": ".5 .25 .25 0", "q": ".1 .4 .2 .3"}


def parts(svg: str) -> dict[str, ET.Element]:
    """The shapes a drag moves, by name."""
    found = [node for node in ET.fromstring(svg).iter() if "data-part" in node.attrib]
    assert len({node.get("data-part") for node in found}) == len(found)
    return {node.get("data-part"): node for node in found}


def random_row(rng: random.Random, size: int) -> str:
    weights = [rng.random() ** 2 for _ in range(size)]
    if size > 2 and rng.random() < 0.4:
        weights[rng.randrange(size)] = 0.0
    edges = [round(10_000 * sum(weights[:i]) / sum(weights)) for i in range(size + 1)]
    return " ".join(f"{(b - a) / 10_000:g}" for a, b in pairwise(edges))


@pytest.mark.parametrize(
    ("p", "q", "draw", "out"),
    [
        (".6 .4", ".8 .2", "residual", ("0.600", "0.400")),
        (".6 .4", ".8 .2", "M1", ("0.720", "0.280")),
        (".6 .4", ".8 .2", "M3", ("0.690", "0.310")),
        (".5 .3 .2", ".2 .5 .3", "M4", ("0.290", "0.300", "0.410")),
    ],
)
def test_known_laws_are_in_picture_sentence_and_table(p, q, draw, out):
    picture = draw_mass_mover(p, q, draw)
    shown = parts(picture.svg)
    assert tuple(shown[f"say-out{i}"].text for i in range(len(out))) == tuple(
        f"out {value}" for value in out
    )
    rows = re.findall(r"<tr><td>.*?</tr>", picture.table)
    assert tuple(re.findall(r"<td>([^<]*)</td>", row)[-1] for row in rows) == out
    assert all(value in picture.sentence for value in out)
    assert ("exactly p" in picture.sentence) == (draw == "residual")
    assert shown["verdict"].text.startswith("✓" if draw == "residual" else "✗")


@pytest.mark.parametrize("draw", DRAWS)
def test_law_is_that_of_a_whole_decoder(draw):
    toy = museum.Example(museum.always(0.5, 0.3, 0.2), museum.always(0.2, 0.5, 0.3))
    law = marginal(exact_law(lambda coins: toy.run(coins, DRAWS[draw][0]).tokens), 1)
    kept, drawn = one_draft_law((0.5, 0.3, 0.2), (0.2, 0.5, 0.3), draw)
    for i in range(3):
        assert kept[i] + drawn[i] == pytest.approx(law[(i,)], abs=1e-12)


def test_alpha_is_shown_three_ways_and_the_bars_say_it():
    picture = draw_mass_mover(**FOUR)
    shown = parts(picture.svg)
    assert [shown[f"alpha{i}"].text for i in range(3)] == ["0.550"] * 3
    for way in ("overlap", "chance"):
        widths = [float(shown[f"{way}{i}"].get("width")) for i in range(4)]
        assert sum(widths) == pytest.approx(0.55 * LAYOUT["unit"], abs=0.4)
    assert float(shown["distance"].get("width")) == pytest.approx(0.55 * LAYOUT["unit"], abs=0.1)


def test_bars_on_the_right_reach_the_line_of_p_or_miss_it():
    for draw, reached in (("residual", True), ("M1", False)):
        shown = parts(draw_mass_mover(**FOUR, draw=draw).svg)
        tops = [float(shown[f"drawn{i}"].get("y")) for i in range(4)]
        lines = [float(re.search(r" ([\d.]+)H", shown[f"line{i}"].get("d"))[1]) for i in range(4)]
        assert (tops == lines) == reached


def test_hostile_words_are_text():
    picture = draw_mass_mover(**FOUR, words=HOSTILE)
    html = picture._repr_html_()
    assert "<b>" not in html + picture.svg and "</script" not in html + picture.svg
    words = [n.text for n in ET.fromstring(picture.svg).iter(f"{SVG}text") if n.get("data-word")]
    assert words == ['<b>&"</script>', "␣fox", "⏎", "'>"]


def test_picture_stays_inside_its_frame():
    rng = random.Random(1)
    for size in (2, 4, 6):
        for draw in DRAWS:
            svg = draw_mass_mover(random_row(rng, size), random_row(rng, size), draw).svg
            for box in ET.fromstring(svg).iter(f"{SVG}rect"):
                if box.get("y", "").startswith("-"):
                    continue  # a grip, placed by its group
                assert float(box.get("x", 0)) + float(box.get("width")) <= WIDTH
                assert 0 <= float(box.get("y", 0)) <= HEIGHT - float(box.get("height"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"p": ".6 x"}, "numbers with spaces"),
        ({"p": "1"}, "2 to 6 numbers, not 1"),
        ({"q": "-.2 1.2"}, "-.2 is below 0"),
        ({"q": "nan .5"}, "must be numbers"),
        ({"p": ".6 .3"}, "add up to 1; these add up to 0.9"),
        ({"p": ".5 .3 .2"}, "p has 3 numbers and q has 2"),
        ({"p": ".6 .4", "words": ("a", "b", "c")}, "3 numbers each"),
        ({"draw": "M2"}, "draw must be one of"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_sentence(change, said):
    with pytest.raises(ValueError, match=said):
        draw_mass_mover(**{"p": ".6 .4", "q": ".8 .2", **change})


def test_a_stage_keeps_its_picture_when_a_number_is_wrong():
    stage = mass_mover([0.6, 0.4], [0.8, 0.2])
    before = stage.svg
    stage.state = {**stage.state, "p": ".6 .6"}
    assert stage.svg == before and "add up to 1" in stage.problem
    stage.state = {**stage.state, "p": ".5 .5"}
    assert stage.svg != before and stage.problem == ""


def test_builder_leaves_out_what_neither_model_gives():
    words = [f"w{i}" for i in range(9)]
    p, q = [0.0] * 9, [0.0] * 9
    p[2], p[7], q[7], q[4] = 0.25, 0.75, 1 / 3, 2 / 3
    for given in (words, lambda ids: words[ids[0]]):
        stage = mass_mover(p, q, given)
        assert stage.state == {"draw": "residual", "p": "0.25 0 0.75", "q": "0 0.6667 0.3333"}
        assert "w2 0.250, w4 0.000, w7 0.750: exactly p" in stage.sentence
    with pytest.raises(ValueError, match="top_k"):
        mass_mover([1 / 9] * 9, [1 / 9] * 9)
    with pytest.raises(ValueError, match="one length"):
        mass_mover([1.0], [0.5, 0.5])


def test_same_state_same_bytes():
    assert draw_mass_mover(**FOUR, draw="M3") == draw_mass_mover(**FOUR, draw="M3")


def test_a_real_position_of_the_bundled_pair(storyworld_rows):
    p, q, decode = storyworld_rows
    stage = mass_mover(p, q, decode)
    assert 2 <= len(stage.state["p"].split()) <= 6
    assert "exactly p" in stage.sentence


@pytest.fixture(scope="module")
def storyworld_rows():
    """p and q of one position, both after top_k = 3."""
    from specdec_core import load_pair

    pair, sampling = load_pair("storyworld", dtype="float64"), Sampling(top_k=3)
    text = pair.encode("Once upon a time , there")
    p = sampling.probs(pair.target.forward(text, keep=1))[0]
    return p, pair.drafter.propose(text, 1, sampling, Seeded(0)).probs[0], pair.decode
