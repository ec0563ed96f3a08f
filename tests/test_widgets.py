"""Views: the picture and the sentence say what the trace says, whatever the tokens are."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET

import pytest

from specdec_core import (
    Seeded,
    TableDrafter,
    TableModel,
    Trace,
    autoregressive_decode,
    speculative_decode,
)
from specdec_core.widgets import Picture, origin_ribbon
from specdec_core.widgets.picture import html_table
from specdec_core.widgets.ribbon import MARGIN, ORIGINS, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ['<b>&"</script>', " fox", "\n", "'>", "\t", " lantern"]


def run(tokens: int = 40, gamma: int = 3):
    target = TableModel(lambda prefix: [0.3, 0.2, 0.1, 0.1, 0.1, 0.2], 6)
    drafter = TableDrafter(lambda prefix: [0.1, 0.3, 0.2, 0.1, 0.2, 0.1], 6)
    return speculative_decode(
        target, drafter, [0], gamma=gamma, max_new_tokens=tokens, randomness=Seeded(5)
    )


def decode(ids) -> str:
    return "".join(HOSTILE[i] for i in ids)


@pytest.fixture(scope="module")
def ribbon():
    out = run()
    return out, origin_ribbon(out.trace, decode)


def texts(picture: Picture) -> list[str]:
    return [node.text for node in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def test_ribbon_shows_every_token_with_its_origin(ribbon):
    out, picture = ribbon
    shown = texts(picture)
    marks = {mark: name for name, (mark, *_) in ORIGINS.items()}
    origins = [origin for round in out.trace.rounds for origin in round.origins]
    in_legend = len(set(origins))
    assert [marks[t] for t in shown if t in marks][in_legend:] == origins
    words = [
        decode([t]).replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") for t in out.tokens
    ]
    assert [t for t in shown if t in set(words)] == words


def test_ribbon_counts_forwards_and_says_them(ribbon):
    out, picture = ribbon
    rounds = len(out.trace.rounds)
    assert f"{rounds} target forwards" in texts(picture)
    assert f"{len(out.tokens)} target forwards" in texts(picture)
    assert picture.sentence.startswith(f"{len(out.tokens)} tokens from {rounds} target forwards")
    assert repr(picture) == picture.sentence


def test_ribbon_stays_inside_its_frame(ribbon):
    _, picture = ribbon
    root = ET.fromstring(picture.svg)
    for box in root.iter(f"{SVG}rect"):
        right = float(box.get("x", 0)) + float(box.get("width"))
        assert right <= WIDTH - MARGIN + 1 or box.get("fill") == "#ffffff"
        assert float(box.get("y", 0)) + float(box.get("height")) <= float(root.get("height"))


def test_the_legend_of_all_four_origins_fits():
    trace = Trace((0,), [*run(40).trace.rounds, *plain().trace.rounds])
    root = ET.fromstring(origin_ribbon(trace, decode).svg)
    words = [node for node in root.iter(f"{SVG}text") if node.text == ORIGINS["plain"][1]]
    # At 12 px a letter of the sans-serif face is 6.6 wide on average, here and in the layout.
    assert float(words[0].get("x")) + 6.6 * len(words[0].text) <= WIDTH


def plain():
    return autoregressive_decode(
        TableModel(lambda prefix: [0.5, 0.5], 2), [0], max_new_tokens=4, randomness=Seeded(0)
    )


def test_hostile_tokens_are_text_everywhere(ribbon):
    _, picture = ribbon
    html = picture._repr_html_()
    assert "<b>" not in html and "</script" not in html and "&lt;b&gt;" in html
    source = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html).group(1)
    assert base64.b64decode(source).decode() == picture.svg
    assert "<script" not in picture.svg and "&lt;b&gt;" in picture.svg


def test_a_plain_run_has_its_own_origin():
    picture = origin_ribbon(plain().trace, decode)
    assert "4 target forwards" in texts(picture) and "one token a forward" not in texts(picture)
    assert picture.sentence == ("4 tokens from 4 target forwards: 4 plain, one forward each.")


def test_pictures_are_repeatable():
    assert origin_ribbon(run().trace, decode) == origin_ribbon(run().trace, decode)


def test_tables_escape_their_cells():
    assert html_table(("<a>",), [("&",)]).count("<th>&lt;a&gt;</th>") == 1
    assert "<td>&amp;</td>" in html_table(("a",), [("&",)])
