"""Words in a picture: how wide they are, how they are cut, and what no picture may hold."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from drawn import SVG, words

from specdec_core import Seeded, TableDrafter, TableModel, speculative_decode
from specdec_core.widgets import origin_ribbon
from specdec_core.widgets.picture import shorten, svg_frame, svg_text, text_width, visible


@pytest.mark.parametrize("size", [11, 12])
@pytest.mark.parametrize("text", ["a", "abcdefghij", "日本語のトークン", "🚀🚀🚀🚀", "été" * 4])
def test_a_cut_text_fits_and_is_as_long_as_can_be(text, size):
    for width in range(40, 200, 7):
        cut = shorten(text, width, size)
        assert text_width(cut, size) <= width
        if cut != text:
            kept = cut.removesuffix("…")
            assert text.startswith(kept) and text_width(text, size) > width
            longer = text[: len(kept) + 1] + "…"
            assert text_width(longer, size) > width


def test_a_text_that_fits_exactly_is_not_cut():
    assert shorten("five!", text_width("five!", 12), 12) == "five!"
    assert shorten("five!", text_width("five!", 12) - 0.1, 12) == "fiv…"


def test_one_character_stays_and_nothing_stays_nothing():
    assert shorten("abc", 1) == "a…" and shorten("", 50) == ""


def test_wide_characters_take_two_columns_and_accents_none():
    assert text_width("日本") == text_width("abcd") and text_width("e\u0301") == text_width("e")
    assert shorten("e\u0301" * 5, text_width("abcd")) == "e\u0301" * 3 + "…"
    assert text_width(visible("\n ")) == text_width("ab")


def test_a_word_of_control_characters_is_drawn_as_marks():
    svg = svg_frame(100, 50, svg_text(0, 20, "a b\x00\n\ud800<"))
    (node,) = ET.fromstring(svg).iter(f"{SVG}text")
    assert node.text == "a b␀⏎\ufffd<"


def test_the_longest_token_stays_in_the_ribbon():
    target, drafter = TableModel(lambda t: [0.5, 0.5], 2), TableDrafter(lambda t: [0.5, 0.5], 2)
    out = speculative_decode(target, drafter, [0], max_new_tokens=4, randomness=Seeded(0))
    long = "antidisestablishmentarianism" * 9
    picture = origin_ribbon(out.trace, lambda ids: long)
    for box in ET.fromstring(picture.svg).iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width")) <= 760
    assert any(word.endswith("…") for word in words(picture))
    assert long in picture.table
