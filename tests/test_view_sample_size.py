"""How many samples: the picture and the sentence say what the planned check says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from specdec_core.exact import marginal, total_variation
from specdec_core.lab.law_check import (
    check_law,
    draw,
    null_band,
    power,
    samples_needed,
)
from specdec_core.lab.museum import MISTAKES, Example, by_parity
from specdec_core.widgets.sample_size import (
    BAND_BOTTOM,
    BAND_TOP,
    CHOICES,
    HEIGHT,
    POWER_BOTTOM,
    POWER_TOP,
    WIDTH,
    draw_sample_size,
    sample_size,
    samples_at,
)

SVG = "{http://www.w3.org/2000/svg}"
STATE = {
    "examples": {}, "mistake": "M1", "toy": "own", "length": 1, "level": 0.01, "exponent": 2.0,
    "seed": 1, "p": ".6 .4", "q": ".8 .2",
}  # fmt: skip


def picture(**changes):
    return draw_sample_size(**{**STATE, **changes})


def table(drawn) -> dict[str, str]:
    return dict(re.findall(r"<td>(.*?)</td><td>(.*?)</td>", drawn.table))


def texts(drawn) -> list[str]:
    return [node.text for node in ET.fromstring(drawn.svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(("mistake", "length"), [("M1", 1), ("M7", 2), ("M13", 2), ("none", 1)])
def test_numbers_are_those_of_the_check(mistake, length):
    toy = MISTAKES["M1" if mistake == "none" else mistake].example
    right = marginal(toy.law(), length)
    wrong = marginal(toy.law(None if mistake == "none" else mistake), length)
    check = check_law(draw(wrong, 1000, 7), right)
    drawn = picture(mistake=mistake, length=length, exponent=3.0, seed=7)
    cells = table(drawn)
    assert cells["samples"] == "1,000"
    assert cells["observed total variation"] == f"{check.total_variation:.3g}"
    assert cells["null band"] == f"{null_band(right, 1000, 0.01):.3g}"
    assert cells["true total variation"] == f"{total_variation(right, wrong):.3g}"
    assert cells["power"] == f"{power(right, wrong, 1000, 0.01):.4f}"
    assert ("passes" if check.passes(0.01) else "rejects") in drawn.sentence
    tiny = check.p_value < 1e-12
    chance = "below 1e-12" if tiny else f"{check.p_value:.2g}"
    assert f"(p-value {chance})" in drawn.sentence
    inside = check.total_variation <= null_band(right, 1000, 0.01)
    assert ("◇ seen: inside the band" if inside else "◆ seen: outside the band") in texts(drawn)


def test_the_plan_is_the_packages_own():
    toy = MISTAKES["M7"].example
    needed = samples_needed(*(marginal(toy.law(m), 2) for m in (None, "M7")), level=0.01)
    drawn = picture(mistake="M7", length=2)
    assert f"power .99 needs {needed} samples" in drawn.sentence
    assert f"power .99: {needed} samples" in texts(drawn)


def test_first_tokens_never_show_a_wrong_bonus():
    drawn = picture(mistake="M7", exponent=8.0)
    assert "no number of samples would reach power .99" in drawn.sentence
    assert "true distance: 0: these tokens keep the target's law" in texts(drawn)


def test_what_only_the_walk_sees_is_off_to_the_right():
    words = " ".join(texts(picture(mistake="M14", exponent=8.0)))
    assert "samples, off to the right" in words and "below this plot" in words


def test_marks_stand_where_the_numbers_say():
    """The diamond on the distance, the dot on the power; both on the line of the samples."""
    drawn = picture(exponent=2.0)
    root = ET.fromstring(drawn.svg)
    dot = next(root.iter(f"{SVG}circle"))
    share = (POWER_BOTTOM - float(dot.get("cy"))) / (POWER_BOTTOM - POWER_TOP)
    assert share == pytest.approx(float(table(drawn)["power"]), abs=0.01)
    diamond = next(p for p in root.iter(f"{SVG}path") if p.get("fill") in ("#ffffff", "#1a1a1a"))
    x, y = map(float, diamond.get("d")[1:].split("L")[0].split())
    assert x == float(dot.get("cx"))
    exponent = -6 * (y + 7 - BAND_TOP) / (BAND_BOTTOM - BAND_TOP)
    seen = float(table(drawn)["observed total variation"])
    assert 10**exponent == pytest.approx(seen, rel=0.05)


def test_more_samples_narrow_the_band_and_another_seed_draws_other_texts():
    bands = [float(table(picture(exponent=x))["null band"]) for x in (2.0, 3.0, 4.0)]
    assert bands == sorted(bands, reverse=True)
    one, two = picture(seed=1), picture(seed=2)
    assert table(one)["power"] == table(two)["power"]
    assert table(one)["chi-square, degrees"] != table(two)["chi-square, degrees"]


def test_a_pair_and_the_readers_numbers():
    rows = by_parity((0.8, 0.2), (0.3, 0.7))
    examples = {"pair": Example(rows, by_parity((0.5, 0.5), (0.6, 0.4)), tokens=3)}
    drawn = picture(examples=examples, toy="pair", length=2)
    assert float(table(drawn)["true total variation"]) > 0
    mine = picture(toy="mine", p=".5 .3 .2", q=".2 .5 .3")
    assert table(mine)["true total variation"] == "0.15"
    hidden = picture(toy="mine", q=".6 .4")
    assert "no number of samples" in hidden.sentence


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mistake": "M16"}, "no mistake 'M16' to sample"),
        ({"toy": "pair"}, "no pair 'pair' here"),
        ({"level": 0.5}, "Choose a level"),
        ({"exponent": 9.0}, "10 to 100,000,000 samples"),
        ({"toy": "mine", "p": ".6"}, "p needs 2 to 3 numbers"),
        ({"toy": "mine", "p": '<b>&"</script>'}, "p must be numbers"),
    ],
)
def test_what_is_not_on_offer_is_one_sentence(changes, said):
    with pytest.raises(ValueError, match=said):
        picture(**changes)


def test_every_decoder_that_writes_texts_is_on_offer():
    assert set(CHOICES) == {"none", *MISTAKES} - {"M16", "M23b"}


def test_samples_of_an_exponent_have_two_digits():
    assert [samples_at(x) for x in (1, 2, 2.3, 3.3, 8)] == [10, 100, 200, 2000, 10**8]


def test_it_stays_inside_its_frame_and_repeats_itself():
    for exponent in (1.0, 4.5, 8.0):
        drawn = picture(mistake="M6", length=2, exponent=exponent)
        root = ET.fromstring(drawn.svg)
        assert (float(root.get("width")), float(root.get("height"))) == (WIDTH, HEIGHT)
        numbers = [
            float(n)
            for path in root.iter(f"{SVG}path")
            for n in re.findall(r"[\d.]+", path.get("d"))
        ]
        assert max(numbers) <= WIDTH
        assert all(int(t.get("font-size")) >= 11 for t in root.iter(f"{SVG}text"))
        assert drawn == picture(mistake="M6", length=2, exponent=exponent)


def test_the_stage_keeps_its_picture_after_bad_input():
    stage = sample_size()
    before = stage.svg
    stage.state = {**stage.state, "toy": "mine", "p": ".6 .6"}
    assert "add up to 1" in stage.problem and stage.svg == before
    assert all(control["label"] for control in stage.controls)
    assert [control["label"] for control in stage.controls][-2:] == ["my p", "my q"]
    assert "pair" not in dict(stage.controls[1]["options"]["choices"])
