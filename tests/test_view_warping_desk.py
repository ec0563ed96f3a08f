"""The warping desk: its bars are the real code's on any settings, a wrong q is the museum's."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from urllib.parse import parse_qs

import pytest
import torch
from drawn import at, cells, words

from specdec_core import Sampling, load_pair, marginal, total_variation
from specdec_core.lab import museum
from specdec_core.widgets.picture import visible
from specdec_core.widgets.warping_desk import (
    BAR,
    BASE,
    HEIGHT,
    RATIOS,
    TALL,
    WIDTH,
    Place,
    draw_warping_desk,
    warping_desk,
)
from specdec_core.widgets.warping_desk_law import warped_draft

SVG = "{http://www.w3.org/2000/svg}"
STATE = {
    "places": {}, "place": "mine", "target_temperature": 1.0, "target_top_k": 2,
    "target_top_p": 1.0, "draft_temperature": 1.0, "draft_top_k": 2, "draft_top_p": 1.0,
    "ratio": "drawn", "p": ".5 .3 .2", "q": ".4 .35 .25",
}  # fmt: skip
P, Q = (0.5, 0.3, 0.2), (0.4, 0.35, 0.25)


def picture(**changes):
    return draw_warping_desk(**{**STATE, **changes})


def column(drawn, name: str) -> list[float]:
    head = re.findall(r"<th>(.*?)</th>", drawn.table)
    return [float(row[head.index(name)]) for row in cells(drawn)]


def random_row(rng: random.Random, size: int) -> str:
    weights = [rng.random() ** 2 + 0.01 for _ in range(size)]
    edges = [round(10_000 * sum(weights[:i]) / sum(weights)) for i in range(size + 1)]
    return " ".join(f"{(b - a) / 10_000:g}" for a, b in pairwise(edges))


# What is drawn


def test_the_known_example_of_a_wrong_q():
    """theory: p = (.5, .3, .2), q = (.4, .35, .25), both cut to two: TV .092, 1.0 against .908."""
    right, wrong = picture(), picture(ratio="uncut")
    assert "exactly p′. Of all drafts 0.908 are kept." in right.sentence
    assert "✓ the law is p′" in words(right) and "total variation 0" in words(right)
    assert "Out come A 0.533, B 0.467, C 0.000: not p′, total variation 0.092" in wrong.sentence
    assert "1.000 are kept; with the q really drawn from, 0.908." in wrong.sentence
    assert {"✗ the law is not p′", "more kept, and wrong", "1.000", "0.908"} <= set(words(wrong))
    assert words(wrong).count("▼ −0.092") == words(wrong).count("▲ +0.092") == 1


def test_any_settings_keep_the_law_and_only_alpha_moves():
    alphas = set()
    for seed in range(12):
        rng = random.Random(seed)
        size = rng.choice((2, 3, 6))
        drawn = picture(
            p=random_row(rng, size), q=random_row(rng, size), target_top_k=3,
            target_top_p=rng.choice((0.7, 1.0)), draft_temperature=rng.choice((0, 0.3, 1.0, 2.0)),
            draft_top_k=rng.randint(1, 6), draft_top_p=rng.choice((0.3, 0.8, 1.0)),
        )  # fmt: skip
        assert "exactly p′" in drawn.sentence
        assert column(drawn, "comes out") == column(drawn, "p′")
        alphas.add(re.search(r"Of all drafts ([\d.]+)", drawn.sentence)[1])
    assert len(alphas) > 6


@pytest.mark.parametrize(
    ("mistake", "ratio", "draft"),
    [
        (None, "drawn", Sampling(0.7, top_k=2)),
        ("M12", "raw", Sampling(0.7, top_k=2)),
        ("M12", "uncut", Sampling(1.0, top_k=2)),
        ("M2", "raw", Sampling(0)),
    ],
)
def test_law_and_acceptance_are_those_of_the_whole_decoder(mistake, ratio, draft):
    target = Sampling(1.3)
    # M2 finds the likeliest by itself, and records the row that its draft's sampling gives.
    settings = Sampling() if mistake == "M2" else draft
    toy = museum.Example(
        museum.always(*P), museum.always(*Q), sampling=target, draft_sampling=settings
    )
    law = marginal(toy.law(mistake), 1)
    seen = warped_draft(P, Q, target, draft, ratio)
    assert [law.get((i,), 0.0) for i in range(3)] == pytest.approx(seen.out, abs=1e-12)


def test_uncut_keeps_the_temperature_and_raw_does_not():
    draft, tempered = Sampling(0.5, top_k=2), [x**2 for x in Q]
    for ratio, recorded in (("uncut", tempered), ("raw", Q)):
        seen = warped_draft(P, Q, Sampling(), draft, ratio)
        total = sum(recorded)
        assert seen.recorded == pytest.approx([x / total for x in recorded])
        two = [tempered[0], tempered[1], 0]
        assert seen.offered == pytest.approx([x / sum(two) for x in two])


def test_bars_stand_at_the_numbers():
    drawn = picture(target_top_k=6, draft_temperature=0.5, draft_top_k=6)
    bars = [
        node for node in ET.fromstring(drawn.svg).iter(f"{SVG}rect")
        if node.get("width") == str(BAR) and node.get("fill") not in ("none",)
    ]  # fmt: skip
    shown = [round(float(b.get("height")) / TALL * 0.8, 2) for b in bars]
    wanted = zip(*(column(drawn, c) for c in ("q′ drawn from", "p′", "comes out")), strict=True)
    assert shown == pytest.approx([x for row in wanted for x in row], abs=0.006)
    assert all(float(b.get("y")) + float(b.get("height")) == BASE for b in bars)


def test_the_line_is_the_q_of_the_ratio():
    for ratio in RATIOS:
        drawn = picture(draft_temperature=0.5, ratio=ratio)
        lines = [n for n in ET.fromstring(drawn.svg).iter() if "ratio" in n.get("data-part", "")]
        heights = [(BASE - float(re.search(r" ([\d.]+)H", n.get("d"))[1])) / TALL for n in lines]
        top = 0.8
        assert [h * top for h in heights] == pytest.approx(
            column(drawn, "q in the ratio"), abs=0.003
        )


def test_a_cut_word_is_told_from_one_that_greedy_leaves():
    assert "p′ cut" in words(picture()) and "q′ cut" in words(picture())
    cold = words(picture(target_temperature=0.0))
    assert "p′ cut" not in cold and cold.count("p′ 0.000") == 2


# Real rows


@pytest.fixture(scope="module")
def pair():
    return load_pair("storyworld", dtype="float64")


def test_a_real_place_holds_the_models_own_rows_and_says_what_is_left_out(pair):
    stage = at(warping_desk(pair), place="0", target_top_k=6, draft_temperature=1.0)
    rows = [
        Sampling().probs(model.fresh().forward(pair.encode("Recipe: soup with"), keep=1))[0]
        for model in (pair.target, pair.drafter.model)
    ]
    ids = torch.stack(rows).sum(0).argsort(descending=True)[:6].tolist()
    assert [row[0] for row in cells(stage)] == [visible(pair.decode([i])) for i in ids]
    for name, row in zip(("p", "q"), rows, strict=True):
        assert column(stage, name) == pytest.approx((row[ids] / row[ids].sum()).tolist(), abs=6e-4)
        assert f"{1 - row[ids].sum().item():.3f} of {name}" in stage.svg
    assert "6 likeliest of 525 words" in stage.svg
    assert pair.target.length == pair.drafter.length == 0


def test_every_place_of_the_pair_can_be_chosen(pair):
    stage = warping_desk(pair, ("def add(", "Once upon a time"))
    choices = [key for key, _ in stage.controls[0]["options"]["choices"]]
    assert choices == ["mine", "0", "1"]
    for place in choices:
        assert at(stage, place=place).sentence


# Form


def test_hostile_tokens_are_text():
    names = ('<b>&"</script>', " fox", "\n")
    drawn = picture(place="x", places={"x": Place(names, P, Q, 'after “<i>&"”')})
    html = drawn._repr_html_() + drawn.svg
    assert "<b>" not in html and "</script" not in html and "<i>" not in html
    assert {'<b>&"</script>', "␣fox", "⏎", 'after “<i>&"”'} <= set(words(drawn))


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("size", [2, 3, 6])
def test_picture_stays_inside_its_frame(size, ratio):
    rng = random.Random(size)
    state = {"p": random_row(rng, size), "q": random_row(rng, size), "ratio": ratio}
    drawn = picture(**state, target_temperature=0.0, draft_temperature=0.3)
    root = ET.fromstring(drawn.svg)
    assert (float(root.get("width")), float(root.get("height"))) == (WIDTH, HEIGHT)
    for box in root.iter(f"{SVG}rect"):
        x, y = (float(box.get(a, 0)) for a in "xy")
        assert 0 <= x <= WIDTH - float(box.get("width"))
        assert 0 <= y <= HEIGHT - float(box.get("height"))
    assert all(int(t.get("font-size")) >= 11 for t in root.iter(f"{SVG}text"))
    assert drawn == picture(**state, target_temperature=0.0, draft_temperature=0.3)


def test_the_ratio_can_be_clicked():
    groups = [n for n in ET.fromstring(picture().svg).iter() if n.get("data-set")]
    assert [parse_qs(g.get("data-set")) for g in groups] == [{"ratio": [key]} for key in RATIOS]
    assert all("the ratio uses q" in g.get("aria-label") for g in groups)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"p": ".6 x .4"}, "p must be numbers"),
        ({"p": ".5 .5"}, "p has 2 numbers and q has 3"),
        ({"q": ".5 .3 .3"}, "add up to 1"),
        ({"ratio": "M2"}, "The ratio can use q as one of drawn, uncut, raw"),
        ({"place": "7"}, "no place '7'"),
        ({"target_temperature": -1.0}, "temperature must be 0"),
        ({"draft_top_k": 0}, "top_k must be a whole number"),
        ({"draft_top_p": 0.0}, "top_p must lie in"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(changes, said):
    with pytest.raises(ValueError, match=said):
        picture(**changes)


def test_the_stage_keeps_its_picture_after_bad_input():
    stage = warping_desk()
    assert "Out come A 0.625, B 0.375, C 0.000: exactly p′" in stage.sentence
    before = stage.svg
    stage.state = {**stage.state, "p": ".6 .6 .2"}
    assert "add up to 1" in stage.problem and stage.svg == before
    labels = [control["label"] for control in stage.controls]
    assert len(set(labels)) == len(labels) == 10


def test_total_variation_is_that_of_the_laws():
    seen = warped_draft(P, Q, Sampling(0.6), Sampling(2.0), "raw")
    laws = [{(i,): x for i, x in enumerate(row)} for row in (seen.out, seen.wanted)]
    drawn = picture(target_temperature=0.6, target_top_k=6, draft_temperature=2.0, draft_top_k=6,
                    ratio="raw")  # fmt: skip
    assert f"total variation {total_variation(*laws):.3f}" in drawn.sentence
