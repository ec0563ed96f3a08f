"""The proof tree: branches are the core's paths, and the sums of their fractions are exact."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from fractions import Fraction as F
from math import prod
from urllib.parse import parse_qs

import pytest

from specdec_core import (
    TableDrafter,
    TableModel,
    exact_law,
    load_pair,
    marginal,
    speculative_decode,
)
from specdec_core.lab.museum import MISTAKES
from specdec_core.widgets.proof_paths import Exact, context_rows, grouped, leaves
from specdec_core.widgets.proof_tree import (
    MISTAKES_HERE,
    RULES,
    draw_proof_tree,
    proof_tree,
    real_rows,
)

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ('<b>&"</script>', " fox\n")
LAST = ".6 .4 | .9 .1 | .2 .8"
ROWS = {
    "the standard toy": (".6 .4", ".8 .2"),
    "thirds": ("1/3 2/3", "2/3 1/3"),
    "by the last token": (LAST, ".5 .5"),
    "three tokens": (".5 .3 .2", ".2 .5 .3"),
    "zeros": ("0 .25 .75", ".5 0 .5"),
    "p = q": (".3 .7", ".3 .7"),
}


def sums(p: str, q: str, gamma: int, compare: int, mistake: str | None = None) -> dict:
    """Text -> (sum of its leaves, the target's product)."""
    target = context_rows(p, "p")
    ways = leaves(target, context_rows(q, "q"), gamma, compare, mistake)
    return {g.tokens: (g.total, g.target) for g in grouped(ways, target, compare)}


@pytest.mark.parametrize("compare", [1, 2, 3])
@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("case", ROWS)
def test_leaves_of_a_text_sum_to_the_targets_product(case, gamma, compare):
    p, q = ROWS[case]
    found = sums(p, q, gamma, min(compare, gamma + 1))
    assert all(total == target for total, target in found.values())
    assert sum(total for total, _ in found.values()) == 1


def test_the_standard_toy_by_hand():
    ways = leaves(context_rows(".6 .4", "p"), context_rows(".8 .2", "q"), 1, 1, None)
    told = [
        (
            " ".join(f"{s.kind} {s.token}" if s.token >= 0 else s.kind for s in w.steps),
            w.probability,
        )
        for w in ways
    ]
    assert told == [
        ("draft 0 keep bonus 0", F(9, 25)),
        ("draft 0 keep bonus 1", F(6, 25)),
        ("draft 0 reject residual 1", F(1, 5)),
        ("draft 1 keep bonus 0", F(3, 25)),
        ("draft 1 keep bonus 1", F(2, 25)),
    ]


@pytest.mark.parametrize("case", ["the standard toy", "three tokens", "zeros"])
def test_every_branch_is_the_one_the_theory_gives(case):
    """q(x), min(1, p/q), max(p - q, 0) scaled, p: written here once more, from p and q alone."""
    (p,), (q,) = (context_rows(rows, "p") for rows in ROWS[case])
    left = [max(a - b, F(0)) for a, b in zip(p, q, strict=True)]
    for way in leaves((p,), (q,), 1, 2, None):
        drafted = way.steps[0].token
        keep = min(F(1), p[drafted] / q[drafted])
        weigh = {
            "draft": lambda token: q[token],
            "keep": lambda token, keep=keep: keep,
            "reject": lambda token, keep=keep: 1 - keep,
            "residual": lambda token: left[token] / sum(left),
            "bonus": lambda token: p[token],
            "plain": lambda token: p[token],
        }
        assert way.probability == prod(weigh[step.kind](step.token) for step in way.steps)


@pytest.mark.parametrize("mistake", [None, "M1", "M9"])
def test_fractions_are_the_floats_of_the_enumeration(mistake):
    """Each path's fraction equals the probability that `Enumerated` has for it."""
    toy, path, paths = MISTAKES[mistake or "M1"].example, [], 0
    while path is not None:
        choices = Exact(path)
        toy.run(choices, mistake)
        assert float(choices.fraction) == pytest.approx(choices.probability, abs=1e-12)
        path, paths = choices.next_path(), paths + 1
    assert paths > 4


@pytest.mark.parametrize("gamma", [1, 2])
def test_sums_are_the_exact_law_of_the_decoder(gamma):
    law = exact_law(
        lambda coins: speculative_decode(
            TableModel(lambda _: [0.5, 0.3, 0.2], 3), TableDrafter(lambda _: [0.2, 0.5, 0.3], 3),
            [0], gamma=gamma, max_new_tokens=gamma + 1, randomness=coins,
        ).tokens
    )  # fmt: skip
    first = marginal(law, 1)
    for tokens, (total, _) in sums(*ROWS["three tokens"], gamma, 1).items():
        assert float(total) == pytest.approx(first[tokens], abs=1e-12)


@pytest.mark.parametrize(
    ("mistake", "p", "q", "gamma", "compare", "text", "total"),
    [
        ("M1", ".6 .4", ".8 .2", 1, 1, (0,), F(18, 25)),
        ("M2", ".6 .4", ".8 .2", 1, 1, (0,), F(3, 4)),
        ("M5", ".6 .4", ".8 .2", 1, 1, (1,), F(0)),
        ("M10", ".6 .4", "0 1", 1, 1, (1,), F(16, 25)),
        ("M11", LAST, ".5 .5", 1, 1, (0,), F(1, 2)),
    ],
)
def test_mistakes_have_the_damage_their_exhibit_tells(mistake, p, q, gamma, compare, text, total):
    assert sums(p, q, gamma, compare, mistake)[text][0] == total


@pytest.mark.parametrize(
    ("mistake", "p", "q", "gamma", "variation"),
    [
        ("M6", ".6 .4", ".4 .6", 2, F(2, 25)),
        ("M7", ".6 .4", ".5 .5", 1, F(9, 25)),
        ("M8", ".6 .4", ".8 .2", 1, F(4, 25)),
        ("M9", LAST, ".5 .5", 2, F(7, 100)),
        ("M22", ".6 .4", ".8 .2", 2, F(0)),
    ],
)
def test_two_tokens_have_the_total_variation_their_exhibit_tells(mistake, p, q, gamma, variation):
    found = sums(p, q, gamma, 2, mistake).values()
    assert sum(abs(total - target) for total, target in found) / 2 == variation


def texts(picture) -> list[str]:
    return [node.text for node in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def test_picture_sentence_and_table_say_the_sums():
    right, wrong = draw_proof_tree(), draw_proof_tree(mistake="M1")
    assert texts(right).count("✓ equal") == 2 and "✗ differs" not in texts(right)
    assert texts(wrong).count("✗ differs") == 2 and "sum 18/25" in texts(wrong)
    assert "sum to 9/25 + 6/25 = 3/5, and the target gives it 3/5: they agree" in right.sentence
    assert "9/25 + 6/25 + 3/25 = 18/25" in wrong.sentence and "they differ" in wrong.sentence
    assert "<td>draft 0, reject, residual 1</td><td>1</td><td>1/5</td>" in right.table
    assert "not the target's law" in wrong.sentence and "not the target's law" not in right.sentence


def test_leaves_in_the_picture_are_the_leaves_of_the_round():
    picture = draw_proof_tree(gamma=2, compare=2)
    ways = leaves(context_rows(".6 .4", "p"), context_rows(".8 .2", "q"), 2, 2, None)
    shares = [
        node.text for node in ET.fromstring(picture.svg).iter(f"{SVG}text")
        if node.get("text-anchor") == "end" and re.fullmatch(r"\d+(/\d+)?", node.text)
    ]  # fmt: skip
    assert sorted(shares) == sorted(str(way.probability) for way in ways)
    assert texts(picture).count("✗ reject") == 3


def test_a_hidden_mistake_is_called_hidden():
    assert "hidden: compare more tokens" in draw_proof_tree(mistake="M7").sentence
    assert "not the target's law" in draw_proof_tree(mistake="M7", compare=2).sentence
    assert "hidden: these p and q" in draw_proof_tree(mistake="M11", compare=2).sentence
    assert "hidden" not in draw_proof_tree(mistake="M22").sentence


def test_groups_are_clickable_and_the_chosen_one_stands_out():
    picture = draw_proof_tree(compare=2, group="1 0")
    parts = [n for n in ET.fromstring(picture.svg).iter(f"{SVG}g") if n.get("data-set")]
    keys = [parse_qs(part.get("data-set"))["group"][0] for part in parts]
    assert sorted(keys) == ["0 0", "0 1", "1 0", "1 1"] and keys[-1] == "1 0"
    assert [p.get("aria-label") for p in parts][-1] == "text 1 0: sum 6/25, target 6/25"
    thick = [part.find(f"{SVG}rect[@stroke-width='3']") is not None for part in parts]
    assert thick == [False, False, False, True]
    assert "text 1 0 sum to" in picture.sentence


def test_a_group_that_is_gone_falls_back_to_the_first():
    assert "text 0 sum" in draw_proof_tree(compare=1, group="1 0 1").sentence
    assert "compare" not in draw_proof_tree(gamma=1, compare=3).sentence  # as many as there are


@pytest.mark.parametrize("mistake", RULES)
@pytest.mark.parametrize("gamma", [1, 2])
def test_picture_stays_inside_its_frame(mistake, gamma):
    picture = draw_proof_tree(gamma=gamma, compare=2, mistake=mistake, words=HOSTILE)
    root = ET.fromstring(picture.svg)
    width, height = float(root.get("width")), float(root.get("height"))
    assert width == 760
    for node in root.iter(f"{SVG}text"):
        assert int(node.get("font-size")) >= 11
        assert 0 < float(node.get("x")) < width and 0 < float(node.get("y")) < height - 4
        length = (6.9 if "Mono" in node.get("font-family", "") else 6.2) * len(node.text)
        free = float(node.get("x")) if node.get("text-anchor") else width - float(node.get("x"))
        assert length < free, node.text
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("y", 0)) + float(box.get("height")) <= height


def test_long_fractions_do_not_run_into_each_other():
    rows = {"p": ".64 .36 | .7 .3 | .07 .93", "q": ".6 .4 | .81 .19 | .02 .98", "gamma": 2}
    picture = draw_proof_tree(**rows, compare=3, mistake="M1", words=("there", "a"))
    lines: dict[str, list] = {}
    for node in ET.fromstring(picture.svg).iter(f"{SVG}text"):
        if node.text.startswith(("sum 8", "target 8", "sum 3", "target 4")):
            lines.setdefault(node.get("y"), []).append(node.text)
    assert lines and all(len("".join(line)) < 22 for line in lines.values())


def test_the_longest_fractions_stay_in_their_boxes():
    picture = draw_proof_tree(".123 .877", ".331 .669", gamma=2, compare=3)
    inside = [w for w in texts(picture) if re.fullmatch(r"(sum|target|Σ|p) \d+/\d+", w)]
    # A digit of the sans-serif face is 7 px wide at 11 px; the box has 152 px inside.
    assert len(inside) == 16 and all(7 * len(word) <= 160 for word in inside)
    assert "Σ 674526133/1000000000" in inside
    assert any(w.startswith("sum ") for w in texts(draw_proof_tree(".12 .88", gamma=2)))


def test_hostile_tokens_are_text():
    picture = draw_proof_tree(words=HOSTILE, gamma=1)
    assert "<b>" not in picture.svg + picture.table and "</script" not in picture._repr_html_()
    assert "␣fox⏎" in texts(picture) and '<b>&"</script>' in picture.sentence


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"p": "half half"}, "p must be numbers"),
        ({"p": "1/0 1"}, "p must be numbers"),
        ({"q": ".5 .6"}, "q must be probabilities that add up to 1; these add up to 1.1"),
        ({"q": "1.5 -.5"}, "q must be probabilities"),
        ({"p": "1/3 2/3", "q": ".501 .499"}, "p and q together may have three decimals"),
        ({"p": "261/997 736/997", "q": "779/991 212/991"}, "one common denominator up to 1000"),
        ({"q": "1"}, "q needs 2 to 3 numbers, not 1"),
        ({"p": ".5 .3 .2"}, "p has 3 tokens and q has 2"),
        ({"p": ".5 .5 | .5 .5"}, "or 3 rows"),
        ({"p": ".12345 .87655"}, "three decimals"),
        ({"gamma": 3}, "gamma must be 1 or 2"),
        ({"mistake": "M3"}, "no rule 'M3'"),
        ({"words": ("a",)}, "1 words for 2 tokens"),
        ({"p": ".5 .3 .2", "q": ".2 .5 .3", "gamma": 2}, "35 ways, and 24 fit"),
    ],
)
def test_bad_input_gets_one_sentence(state, words):
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        draw_proof_tree(**state)
    assert "\n" not in str(refusal.value)


def test_same_state_same_bytes():
    assert draw_proof_tree(gamma=2).svg == draw_proof_tree(gamma=2).svg


def test_every_mistake_offered_can_be_drawn():
    for mistake in MISTAKES_HERE:
        assert mistake in draw_proof_tree(mistake=mistake).sentence


def test_stage_takes_rows_as_numbers_or_text():
    stage = proof_tree((0.6, 0.4), (0.8, 0.2))
    assert stage.state["p"] == "0.6 0.4" and stage.svg == draw_proof_tree("0.6 0.4", "0.8 0.2").svg
    stage.state = {**stage.state, "mistake": "M1"}
    assert "sum 18/25" in stage.svg and not stage.problem
    stage.state = {**stage.state, "p": "nonsense"}
    assert "p must be numbers" in stage.problem and "sum 18/25" in stage.svg
    rows = proof_tree([(0.6, 0.4), (0.9, 0.1), (0.2, 0.8)], "1/2 1/2", gamma=2, words=("a", "b"))
    assert rows.state["p"] == "0.6 0.4 | 0.9 0.1 | 0.2 0.8" and "p(a) = 3/5" in rows.svg


def test_a_chapter_offers_only_the_rules_it_explains():
    def offered(stage):
        (control,) = (c for c in stage.controls if c["name"] == "mistake")
        return [value for value, _ in control["options"]["choices"]]

    assert offered(proof_tree()) == list(RULES)
    few = proof_tree(rules=("M1", "M5"))
    assert offered(few) == ["none", "M1", "M5"]
    few.state = {**few.state, "mistake": "M5"}
    assert "With M5" in few.sentence and "they differ" in few.sentence
    with pytest.raises(ValueError, match="no rule 'M3'"):
        proof_tree(rules=("M1", "M3"))


def test_a_real_position_of_the_bundled_pair():
    pair = load_pair("storyworld", dtype="float64")
    rows = real_rows(pair, pair.encode("Once upon a time,"))
    assert rows["words"] == ["there", "a"]
    assert rows["target_probs"][0] == ["0.64", "0.36"]
    assert len(rows["draft_probs"]) == 3
    stage = proof_tree(**rows)
    assert "All" in stage.sentence or "Both texts agree" in stage.sentence
    assert proof_tree(**real_rows(pair, pair.encode("Once upon a time,"), 3, "weak")).svg
