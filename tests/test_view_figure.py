"""Figures and the forward race: the live figure, the image and the words say the same numbers."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from urllib.parse import parse_qs

import pytest

from specdec_core.widgets.figure import HEIGHT, STYLES, WIDTH, label, line_figure
from specdec_core.widgets.forward_race import draw_forward_race, forward_race
from specdec_core.widgets.picture import text_width

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<b>&"</script>'
FLAT = [(1, 9.12345), (2, 9.5), (64, 22.0), (256, 58.4)]
STEEP = [(n, 9.12345 * n) for n, _ in FLAT]
NAMES = {"title": "Time", "x_title": "tokens", "y_title": "milliseconds"}


def figure(log: bool = True, **series):
    return line_figure(series or {"together": FLAT, "one by one": STEEP}, log=log, **NAMES)


def shown(thing, monkeypatch) -> list[dict]:
    """The bundles a notebook is given."""
    bundles = []
    monkeypatch.setattr(
        "specdec_core.widgets.figure.display", lambda data, raw: bundles.append(data)
    )
    thing._ipython_display_()
    return bundles


def texts(svg: str) -> list[str]:
    return [node.text for node in ET.fromstring(svg).iter(f"{SVG}text")]


def marks(svg: str) -> list[tuple[float, float]]:
    """Centres of all marks, in order."""
    places = []
    for node in ET.fromstring(svg):
        if node.tag == f"{SVG}circle":
            places.append((float(node.get("cx")), float(node.get("cy"))))
        elif node.tag == f"{SVG}polygon":
            places.append(tuple(map(float, re.findall(r"[-\d.]+", node.get("transform")))))
    return places


@pytest.mark.parametrize("log", [False, True])
def test_both_twins_hold_the_same_points(log):
    drawn = figure(log)
    traces = drawn.live.to_plotly_json()["data"]
    assert [trace["name"] for trace in traces] == ["together", "one by one"]
    assert next(zip(traces[0]["x"], traces[0]["y"], strict=True)) == (1.0, 9.123)
    places = marks(drawn.picture.svg)
    assert len(places) == len(FLAT) + len(STEEP)
    # The same x, at the same place; more milliseconds, further up.
    for (x0, y0), (x1, y1) in zip(places[:4], places[4:], strict=True):
        assert x0 == x1 and y0 >= y1
    assert sorted(x for x, _ in places[:4]) == [x for x, _ in places[:4]]


def test_equal_factors_are_equal_steps_on_a_log_axis():
    doubling = [(1, 10.0), (2, 20.0), (4, 40.0), (8, 80.0)]
    xs, ys = zip(*marks(figure(twice=doubling).picture.svg), strict=True)
    for values in (xs, ys):
        steps = [b - a for a, b in pairwise(values)]
        assert max(steps) - min(steps) < 0.3


def test_labels_stand_at_the_ends_of_their_lines():
    drawn = figure(log=False)
    places = marks(drawn.picture.svg)
    named = {node.text: node for node in ET.fromstring(drawn.picture.svg).iter(f"{SVG}text")}
    notes = drawn.live.to_plotly_json()["layout"]["annotations"]
    for name, line, (x, y), note in zip(
        ("together", "one by one"), (FLAT, STEEP), (places[3], places[7]), notes, strict=True
    ):
        assert 0 < float(named[name].get("x")) - x < 20
        assert abs(float(named[name].get("y")) - y) < 8
        assert name in note["text"]
        assert (note["x"], note["y"]) == pytest.approx(line[-1], rel=1e-3)


def test_sentence_and_table_hold_the_numbers():
    picture = figure().picture
    assert "together, from 9.123 at 1 to 58.4 at 256" in picture.sentence
    assert "one by one, from 9.123 at 1 to 2,336 at 256" in picture.sentence
    assert "<td>256</td><td>58.4</td><td>2,336</td>" in picture.table


def test_a_point_one_series_lacks_is_an_empty_cell():
    picture = figure(a=[(1, 2), (3, 4)], b=[(1, 5)]).picture
    assert "<td>3</td><td>4</td><td></td>" in picture.table


@pytest.mark.parametrize("log", [False, True])
def test_everything_lies_inside_the_frame_and_labels_apart(log):
    svg = figure(log, **{f"series {i}": [(1, 5 + i / 9), (100, 6 + i / 9)] for i in range(4)})
    svg = svg.picture.svg
    for x, y in marks(svg):
        assert 0 < x < WIDTH and 0 < y < HEIGHT
    for node in ET.fromstring(svg).iter(f"{SVG}text"):
        assert 0 < float(node.get("x")) < WIDTH and 0 < float(node.get("y")) < HEIGHT
    ends = [n for n in ET.fromstring(svg).iter(f"{SVG}text") if n.text.startswith("series")]
    heights = sorted(float(node.get("y")) for node in ends)
    assert min(b - a for a, b in pairwise(heights)) >= 14


def test_series_differ_by_mark_and_dash_not_only_by_colour():
    assert len({style[0] for style in STYLES}) == len({style[2] for style in STYLES}) == len(STYLES)
    traces = figure().live.to_plotly_json()["data"]
    assert traces[0]["marker"]["symbol"] != traces[1]["marker"]["symbol"]
    assert traces[0]["line"]["dash"] != traces[1]["line"]["dash"]


def test_a_notebook_gets_a_live_figure_an_image_and_the_words(monkeypatch):
    drawn = figure()
    live, words = shown(drawn, monkeypatch)
    image = re.search(r'<img alt="([^"]+)" src="data:image/svg\+xml;base64,([^"]+)">',
                      live["text/html"])  # fmt: skip
    assert image.group(1) == drawn.picture.sentence == live["text/plain"] == repr(drawn)
    assert base64.b64decode(image.group(2)).decode() == drawn.picture.svg
    assert drawn.picture.sentence in words["text/html"] and "<details>" in words["text/html"]
    assert "application/vnd.plotly.v1+json" not in words


def test_a_live_figure_is_small_plain_and_on_white_paper(monkeypatch):
    many = [(n, 1.5 * n) for n in range(1, 40)]
    saved = json.dumps(shown(figure(a=many, b=many), monkeypatch)[0])
    layout = figure().live.to_plotly_json()["layout"]
    assert len(json.dumps(figure().live.to_plotly_json())) < 5_000
    assert '"responsive"' not in saved  # without height after a change of JupyterLab's theme
    assert "bdata" not in saved and layout["paper_bgcolor"] == "#ffffff"
    assert layout["template"] == {} or not layout["template"].get("layout")


def test_names_with_tags_are_text_in_both_twins(monkeypatch):
    drawn = line_figure({HOSTILE: FLAT}, title=HOSTILE, x_title=HOSTILE, y_title=HOSTILE)
    assert texts(drawn.picture.svg).count(HOSTILE) == 4
    live, words = shown(drawn, monkeypatch)
    saved = json.dumps(live["application/vnd.plotly.v1+json"]) + live["text/html"]
    assert "</script" not in saved + words["text/html"]
    layout = drawn.live.to_plotly_json()["layout"]
    assert layout["title"]["text"] == '&lt;b&gt;&amp;"&lt;/script&gt;'
    assert layout["annotations"][0]["text"] == '<b>&lt;b&gt;&amp;"&lt;/script&gt;</b>'


@pytest.mark.parametrize(
    ("series", "log", "said"),
    [
        ({}, False, "Give 1 to 4 series, not 0"),
        ({str(i): FLAT for i in range(5)}, False, "not 5"),
        ({"a": []}, False, "'a' has no points"),
        ({"a": [(1, float("nan"))]}, False, "not finite"),
        ({"a": [(0, 1)]}, True, "has 0, which no log axis can show"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(series, log, said):
    with pytest.raises(ValueError, match=said):
        line_figure(series, log=log, **NAMES)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("points", [[(1, 1)], [(3, 7), (3, 7)], [(1, 1e-6), (2, 1e6)]])
def test_odd_ranges_are_drawn_too(points, log):
    drawn = figure(log, odd=points)
    assert all(0 <= y <= HEIGHT for _, y in marks(drawn.picture.svg))
    assert len([t for t in texts(drawn.picture.svg) if t]) < 60


def test_same_numbers_same_bytes():
    assert figure().picture == figure().picture
    assert figure().live.to_json() == figure().live.to_json()


def test_labels_have_up_to_four_digits():
    assert [label(v) for v in (0.5, 12.3456, 2335.5, 1000)] == ["0.5", "12.35", "2,336", "1,000"]


TOKENS = [HOSTILE, "\n", " fox", "a-very-long-token", "hen"]
TIMES = {n: (8 + 2 * n) / 1e3 for n in range(1, 6)}  # 10, 12, 14, 16, 18 ms


def test_the_race_says_what_the_clock_says():
    picture = draw_forward_race(TIMES, TOKENS, 4, "mine")
    assert picture.sentence == (
        "mine: 4 tokens take 40 ms one after the other and 16 ms together, 2.5 times as quick."
    )
    assert "<td>4</td><td>40 ms</td><td>16 ms</td><td>1.60</td>" in picture.table
    assert "1 forward over 4 tokens: 16 ms" in texts(picture.svg)
    assert draw_forward_race(TIMES, TOKENS, 1, "mine").sentence == "mine: 1 token takes 10 ms."


def test_bars_are_as_long_as_their_times():
    root = ET.fromstring(draw_forward_race(TIMES, TOKENS, 5, "mine").svg)
    alone = [g.find(f"{SVG}rect") for g in root.iter(f"{SVG}g")]
    together = root.findall(f"{SVG}rect")[1]
    last = alone[-1]
    end = float(last.get("x")) + float(last.get("width")) + 2 - float(alone[0].get("x"))
    assert (float(together.get("width")) + 2) / end == pytest.approx(18 / 50, rel=0.01)


def test_blocks_of_the_race_choose_their_number():
    root = ET.fromstring(draw_forward_race(TIMES, TOKENS, 2, "mine").svg)
    chosen = [parse_qs(g.get("data-set")) for g in root.iter(f"{SVG}g")]
    assert chosen == [{"n": [str(n)]} for n in range(1, 6)]
    dashed = [bool(g.find(f"{SVG}rect").get("stroke-dasharray")) for g in root.iter(f"{SVG}g")]
    assert dashed == [False, False, True, True, True]


@pytest.mark.parametrize("n", [1, 3, 5])
def test_the_race_stays_inside_its_frame(n):
    slow = {k: 0.01 * k * k for k in range(1, 6)}  # together is slower than one by one
    for times in (TIMES, slow):
        root = ET.fromstring(draw_forward_race(times, TOKENS, n, "mine").svg)
        for box in root.iter(f"{SVG}rect"):
            assert float(box.get("x", 0)) + float(box.get("width")) <= WIDTH
        for node in root.iter(f"{SVG}text"):
            assert 0 < float(node.get("x")) < WIDTH and 0 < float(node.get("y")) < 268


def test_hostile_tokens_in_the_race_are_text():
    picture = draw_forward_race(TIMES, TOKENS, 5, HOSTILE)
    html = picture._repr_html_()
    assert "<b>&" not in picture.svg and "</script" not in picture.svg + html
    assert {"a-very-long-token", "⏎"} <= set(texts(picture.svg))


def test_twelve_long_tokens_fit_the_race():
    times = {n: 0.01 + n / 10_000 for n in range(1, 13)}
    picture = draw_forward_race(times, ["a-very-long-token"] * 12, 12, "here")
    shown = [words for words in texts(picture.svg) if words.startswith("a-very")]
    block = (WIDTH - 32) / 12
    assert len(shown) == 13 and all(text_width(words) <= block - 8 for words in shown[:12])
    assert text_width(shown[12]) <= WIDTH - 32


def test_the_stage_steps_n_and_changes_the_clock():
    double = {n: 2 * seconds for n, seconds in TIMES.items()}
    stage = forward_race({"mine": TIMES, "yours": double}, TOKENS)
    assert stage.sentence.startswith("mine: 5 tokens take 50 ms")
    stage.state = {"n": 2, "clock": "yours"}
    assert stage.sentence.startswith("yours: 2 tokens take 40 ms")
    before = stage.svg
    stage.state = {"n": 9, "clock": "yours"}
    assert stage.problem == "Choose between 1 and 5 tokens, not 9." and stage.svg == before


def test_a_race_needs_a_time_for_every_number():
    with pytest.raises(ValueError, match="'mine' has no time for n = 3, 5"):
        forward_race({"mine": {1: 1.0, 2: 1.0, 4: 1.0}}, TOKENS)
    with pytest.raises(ValueError, match="Give 1 to 12 tokens, not 13"):
        forward_race({"mine": dict.fromkeys(range(1, 14), 1.0)}, ["a"] * 13)


def test_the_race_repeats_itself():
    assert draw_forward_race(TIMES, TOKENS, 3, "m") == draw_forward_race(TIMES, TOKENS, 3, "m")
