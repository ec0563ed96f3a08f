"""The race track: times, tokens and curve say what the run and the speed model say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from urllib.parse import parse_qs

import pytest
from drawn import SVG, at, cells, words

from specdec_core.lab.speed_model import Costs, best_gamma, expected_tokens, speedup
from specdec_core.trace import Round, Trace
from specdec_core.widgets.race_track import (
    Course,
    coin_legs,
    draw_race_track,
    race_track,
    stretches,
)
from specdec_core.widgets.race_track_curve import LEFT as FIRST_GAMMA
from specdec_core.widgets.race_track_curve import RIGHT, TALL
from specdec_core.widgets.race_track_picture import (
    DRAFT_FILL,
    FAST_TOP,
    LEFT,
    PLAIN_TOP,
    TRACK,
    WIDTH,
)

STATE = {"gamma": 4, "alpha": 0.8, "c": 0.1, "o": 0.05, "slope": 0.0, "race": 2}
MEASURED = {1: 1.2, 2: 1.5, 3: 1.6, 4: 1.2, 8: 1.4}
HOSTILE = '<b>&"</script>'
VOCABULARY = {0: "a", 1: HOSTILE, 2: "\n", 3: "extraordinarily", 4: ""}


BARE = Course()


def picture(course: Course = BARE, **changes):
    return draw_race_track(course, **{**STATE, **changes})


def played(drafted: int, accepted: int, tokens: tuple[int, ...]) -> Round:
    """A round with the fields that the race reads."""
    return Round(
        drafted=(0,) * drafted, accepted=accepted, token=tokens[-1], emitted=tokens,
        target_prob=(), draft_prob=(), u=None, residual_mass=1.0, zero_residual=False,
        target_length=(0, 0), draft_length=(0, 0),
    )  # fmt: skip


def run() -> Trace:
    """Two stretches of at least 12 tokens, and a rest."""
    whole, none = played(4, 4, (0, 1, 2, 3, 4)), played(4, 0, (3,))
    return Trace((0,), [whole, none, whole, none, none, whole, whole, played(2, 1, (0, 3)), none])


def decode(tokens) -> str:
    return "".join(VOCABULARY[token] for token in tokens)


def rows(drawn, columns: int) -> list[list[str]]:
    """The rows of that one of the two tables which has so many columns."""
    return [row for row in cells(drawn) if len(row) == columns]


def blocks(drawn, top: int) -> list[tuple[float, float, str]]:
    """Left edge, width and fill of the blocks of a timeline."""
    return [
        (float(n.get("x")), float(n.get("width")), n.get("fill"))
        for n in ET.fromstring(drawn.svg).iter(f"{SVG}rect")
        if n.get("y") == str(top)
    ]


def curve(drawn) -> tuple[list[float], float]:
    """The speed-ups of the points, read off their heights; and the height of the plot's foot."""
    root = ET.fromstring(drawn.svg)
    points = [n for n in root.iter(f"{SVG}circle") if n.get("r") == "4"]
    foot = max(float(n.get("cy")) for n in points)
    ticks = {
        n.text: float(n.get("y")) - 4
        for n in root.iter(f"{SVG}text")
        if re.fullmatch(r"\d+x", n.text or "")
    }
    unit = ticks["0x"] - TALL, max(int(t[:-1]) for t in ticks)
    foot = ticks["0x"]
    return [(foot - float(n.get("cy"))) / (foot - unit[0]) * unit[1] for n in points], foot


@pytest.mark.parametrize("v", [{}, MEASURED])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_the_curve_is_the_speed_models(v, slope):
    drawn = picture(Course(v), slope=slope)
    costs = {k: v.get(k, 1 + slope * k) for k in range(13)}
    for k, row in enumerate(rows(drawn, 6)):
        said = f"{speedup(0.8, k, 0.1, costs[k], 0.05):.3f}"
        source = "measured" if k in v else "rule"
        assert row[:5] == [
            str(k), f"{expected_tokens(0.8, k):.3f}", f"{costs[k]:.3f}", source, said,
        ]  # fmt: skip
    for seen, row in zip(curve(drawn)[0], rows(drawn, 6), strict=True):
        assert seen == pytest.approx(float(row[4]), abs=0.02)
    tried = v or {k: costs[k] for k in range(1, 13)}
    best, most = best_gamma(0.8, Costs(1.0, 0.1, tried), 0.05)
    assert f"the best gamma here is {best}, {most:.2f} times" in drawn.sentence
    mark = "◆ best measured" if v else "◆ best"
    assert f"{mark}: gamma {best}, {most:.2f}x" in words(drawn)


def test_only_measured_costs_make_a_best_gamma():
    """By the rule gamma 5 would win; nobody measured it."""
    drawn = picture(Course({4: 1.5}), slope=0.0)
    assert float(rows(drawn, 6)[5][4]) > float(rows(drawn, 6)[4][4])
    assert "the best gamma here is 4" in drawn.sentence
    fills = [
        n.get("fill") for n in ET.fromstring(drawn.svg).iter(f"{SVG}circle") if n.get("r") == "4"
    ]
    assert fills[4] != fills[5] == fills[12]


@pytest.mark.parametrize("gamma", [0, 1, 4, 12])
def test_races_take_on_average_what_the_model_says(gamma):
    """A race ends with a whole round, so tokens over time come out as N over the cost (Wald)."""
    tokens = steps = 0.0
    for race in range(1, 151):
        drawn = rows(picture(gamma=gamma, race=race), 5)
        tokens += sum(len(row[2].split()) for row in drawn)
        steps += sum(float(row[4]) for row in drawn)
    assert tokens / steps == pytest.approx(speedup(0.8, gamma, 0.1, 1.0, 0.05), rel=0.06)


def test_coins_follow_alpha_and_the_seed():
    assert all(leg.origins[-1] == "bonus" for leg in coin_legs(1.0, 4, 1))
    assert all(leg.origins == ("corrected",) for leg in coin_legs(0.0, 4, 1))
    assert all(leg.origins == ("plain",) for leg in coin_legs(0.5, 0, 1))
    assert coin_legs(0.8, 4, 1) != coin_legs(0.8, 4, 2)
    for leg in coin_legs(0.8, 4, 2):
        kept = leg.verdicts.count("accepted")
        assert leg.origins.count("draft") == kept == len(leg.words) - 1
        assert leg.verdicts[kept : kept + 1] in (("rejected",), ())


@pytest.mark.parametrize(("c", "alpha"), [(0.1, 0.8), (0.62, 0.5)])
def test_both_timelines_lie_on_one_axis(c, alpha):
    drawn = picture(c=c, alpha=alpha)
    legs = coin_legs(alpha, 4, 2)
    tokens, cost = sum(len(leg.words) for leg in legs), 4 * c + 1.05
    unit = TRACK / max(tokens, cost * len(legs))
    plain, fast = blocks(drawn, PLAIN_TOP), blocks(drawn, FAST_TOP)
    assert len(plain) == tokens
    assert all(width == pytest.approx(unit, abs=0.11) for _, width, _ in plain)
    drafts = [width for _, width, fill in fast if fill == DRAFT_FILL]
    assert len(drafts) == 4 * len(legs)
    assert all(width == pytest.approx(c * unit, abs=0.11) for width in drafts)
    ends = [max(x + width for x, width, _ in row) for row in (plain, fast)]
    assert ends[0] == pytest.approx(LEFT + tokens * unit, abs=0.2)
    assert ends[1] == pytest.approx(LEFT + cost * len(legs) * unit, abs=0.2)
    ratio = tokens / (cost * len(legs))
    assert f"in {len(legs)} rounds: {ratio:.2f} times as fast" in drawn.sentence
    assert ("so slower" in drawn.sentence) == (ratio < 1)
    gap = abs(tokens - cost * len(legs))
    assert f"◀ {'saved' if ratio > 1 else 'speculative behind'} {gap:.1f} steps" in words(drawn)


def test_a_dear_draft_lies_below_one_at_every_gamma():
    drawn = picture(c=0.6, alpha=0.5)
    assert "no gamma is faster than plain here, so the best is 0" in drawn.sentence
    assert {row[5] for row in rows(drawn, 6)[1:]} == {"slower"}
    assert "slower than plain" in words(drawn) and "◆ best: gamma 0, which is plain" in words(drawn)
    seen, _ = curve(drawn)
    assert seen[0] == pytest.approx(1) and max(seen[1:]) < 1


def test_a_real_run_is_drawn_as_it_ran():
    stage = race_track(trace=run(), decode=decode, step=0.002, c=0.25, v=MEASURED)
    assert stage.state["gamma"] == 4 and stage.state["verdicts"] == "run"
    assert stage.state["alpha"] == pytest.approx(17 / 22, abs=0.006)  # accepted of judged
    # 4 rounds of 4 drafts, the measured verification and the rest, in steps of 2 ms.
    took = 4 * (4 * 0.25 + 1.2 + 0.05) * 2
    told = f"12 tokens at gamma 4: plain takes 24 ms, speculative {took:g} ms in 4 rounds"
    assert stage.sentence.startswith(told)
    first = rows(stage, 5)
    assert [row[3] for row in first[:2]] == ["draft, draft, draft, draft, bonus", "corrected"]
    assert first[0][2] == f"a {HOSTILE} ⏎ extraordinarily #4"
    assert {"0 ms", "a real run, part 1 of 2".capitalize()} <= set(words(stage))
    at(stage, race=2)
    assert "A real run, part 2 of 2" in words(stage)
    at(stage, race=3)
    assert "A real run, part 1 of 2" in words(stage)


def test_stretches_are_whole_rounds_of_the_run():
    parts = stretches(run(), decode)
    assert [[len(leg.words) for leg in part] for part in parts] == [[5, 1, 5, 1], [1, 5, 5, 2]]
    short = Trace((0,), run().rounds[:1])
    assert [[len(leg.words) for leg in part] for part in stretches(short, decode)] == [[5]]
    assert stretches(Trace((0,)), decode) == []
    rest = Trace((0,), [*run().rounds[:4], played(4, 4, (0, 1, 2, 3, 4)), played(4, 0, (3,))])
    assert [sum(len(leg.words) for leg in part) for part in stretches(rest, decode)] == [12, 6]


def test_the_first_race_shows_a_correction_where_there_is_one():
    whole = played(4, 4, (0, 1, 2, 3, 0))
    lucky = Trace((0,), [whole] * 3)
    assert race_track(trace=lucky, decode=decode).state["race"] == 1
    then = Trace((0,), [whole] * 5 + [played(4, 0, (3,))] + [whole])
    stage = race_track(trace=then, decode=decode)
    assert stage.state["race"] == 2 and "corrected" in stage.table


def test_each_gamma_has_its_own_run_or_coins_and_says_so():
    stage = race_track(trace={4: run(), 2: run()}, decode=decode, alpha=0.7)
    assert stage.state["gamma"] == 2 and "A real run, part 1 of 2" in words(stage)
    at(stage, gamma=3)
    title = "Verdicts by coins, alpha 0.7, race 1; there is no run at gamma 3"
    assert title in words(stage)
    at(stage, gamma=4, verdicts="coins")
    assert "Verdicts by coins, alpha 0.7, race 1" in words(stage)


def test_where_alpha_is_moved_the_race_runs_on_coins_and_says_so():
    stage = race_track(trace=run(), decode=decode)
    own = stage.state["alpha"]
    assert stage.svg.count("A real run, part") == 1
    at(stage, c=0.9, o=0.3)
    assert "A real run, part" in stage.svg
    at(stage, alpha=0.1, race=2)
    assert "Verdicts by coins, alpha 0.1, race 2; there is no run at alpha 0.1" in stage.svg
    coins = [" ".join(leg.words) for leg in coin_legs(0.1, 4, 2)]
    assert [row[2] for row in rows(stage._view(**stage.state), 5)] == coins
    at(stage, alpha=own)
    assert "A real run, part" in stage.svg


def test_a_click_on_the_curve_sets_gamma():
    root = ET.fromstring(picture().svg)
    parts = [n for n in root.iter(f"{SVG}g") if n.get("data-set")]
    assert [parse_qs(n.get("data-set")) for n in parts] == [{"gamma": [str(k)]} for k in range(13)]
    gamma_4 = f"gamma 4, speed-up {speedup(0.8, 4, 0.1, 1.0, 0.05):.2f}"
    assert parts[4].get("aria-label") == gamma_4
    reach = [n.find(f"{SVG}rect") for n in parts]
    lefts = [float(n.get("x")) for n in reach]
    assert lefts[0] < FIRST_GAMMA and lefts[-1] + float(reach[-1].get("width")) > RIGHT


def test_hostile_tokens_are_text():
    stage = race_track(trace=run(), decode=decode)
    assert "<b>" not in stage.svg + stage.table and "</script" not in stage.svg + stage.table
    assert "⏎" in words(stage)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gamma": 13}, "gamma goes from 0 to 12 here, not 13"),
        ({"alpha": 1.1}, "alpha goes from 0 to 1 here, not 1.1"),
        ({"c": -0.1}, "c goes from 0 to 1.5"),
        ({"o": 3}, "o goes from 0 to 1"),
        ({"slope": float("nan")}, "slope goes from 0 to 1"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(changes, said):
    with pytest.raises(ValueError, match=said):
        picture(**changes)


def test_the_stage_takes_measured_numbers_as_they_come():
    stage = race_track(alpha=0.987, c=1.7, o=-0.01, v={1: 0.9, 4: 0.8, 16: 2.0})
    assert stage.state["alpha"] == 0.99 and stage.state["c"] == 1.5
    assert stage.state["o"] == stage.state["slope"] == 0
    with pytest.raises(ValueError, match="A trace needs decode"):
        race_track(trace=run())
    with pytest.raises(ValueError, match="above 0"):
        race_track(v={4: 0.0})
    before = stage.svg
    stage.state = {**stage.state, "gamma": 99}
    assert stage.problem.startswith("gamma goes") and stage.svg == before
    assert all(control["label"] for control in stage.controls)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"step": 0}, "takes time: give numbers above 0"),
        ({"step": float("nan")}, "takes time: give numbers above 0"),
        ({"v": {4: float("nan")}}, "takes time: give numbers above 0"),
        ({"v": {2.5: 1.0}}, "v maps whole gammas to their cost, and 2.5 is not whole"),
        ({"v": {float("nan"): 1.0}}, "v maps whole gammas to their cost, and nan is not whole"),
        ({"alpha": float("nan")}, "alpha is a number from 0 to 1 here, not nan"),
        ({"c": float("nan")}, "c is a number from 0 to 1.5 here, not nan"),
    ],
)
def test_numbers_that_are_none_are_refused(numbers, said):
    with pytest.raises(ValueError, match=said):
        race_track(**numbers)


@pytest.mark.parametrize("changes", [{"alpha": 1.0, "c": 0.0, "o": 0.0}, {}, {"c": 0.9}])
def test_no_line_strikes_the_name_of_the_zone_below_1(changes):
    drawn = picture(**changes).svg
    line = float(re.search(r'd="M[0-9]+ ([0-9.]+)H[0-9]+" stroke="#b34700"', drawn)[1])
    name = next(n for n in ET.fromstring(drawn).iter(f"{SVG}text") if "slower" in (n.text or ""))
    foot = float(name.get("y"))
    assert not foot - 11 < line < foot + 3


@pytest.mark.parametrize(
    "changes",
    [{}, {"gamma": 0}, {"gamma": 12, "alpha": 0.95}, {"gamma": 12, "alpha": 0.1, "c": 1.5, "o": 1},
     {"gamma": 12, "alpha": 1.0, "c": 0.0, "o": 0.0}, {"gamma": 1, "alpha": 0.0, "slope": 1.0}],
)  # fmt: skip
def test_it_stays_inside_its_frame_and_repeats_itself(changes):
    drawn = picture(**changes)
    root = ET.fromstring(drawn.svg)
    height = float(root.get("height"))
    assert float(root.get("width")) == WIDTH
    for node in root.iter(f"{SVG}rect"):
        x, width = float(node.get("x") or 0), float(node.get("width"))
        assert x >= 0 and x + width <= WIDTH
    for node in root.iter(f"{SVG}text"):
        assert int(node.get("font-size")) >= 11
        assert 0 <= float(node.get("x")) <= WIDTH and 10 <= float(node.get("y")) <= height - 4
    assert drawn == picture(**changes)
