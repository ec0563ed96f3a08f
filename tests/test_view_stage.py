"""The shell in Python: what it sends, what it says of an error, what a saved notebook keeps."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from specdec_core.widgets.picture import Picture, clickable, svg_frame, svg_text, visible
from specdec_core.widgets.stage import Stage, stepper


def view(step: int) -> Picture:
    if step > 3:
        raise ValueError("There are three steps: choose one of them.")
    if step < 0:
        raise KeyError("step")
    return Picture(svg_frame(10, 10, ""), f"step {step}", "<table></table>")


@pytest.fixture
def stage():
    return Stage(view, "Steps", [stepper("step", "step", 0, 9)], step=1)


def test_a_change_of_state_is_drawn(stage):
    stage.state = {"step": 2}
    assert (stage.sentence, stage.problem, stage.drawn) == ("step 2", "", 1)


def test_an_error_is_said_and_the_picture_stays(stage):
    stage.state = {"step": 4}
    assert stage.problem == "There are three steps: choose one of them."
    assert stage.sentence == "step 1" and stage.drawn == 1
    stage.state = {"step": -1}
    assert stage.problem == "This cannot be drawn (KeyError: 'step')."
    stage.state = {"steps": 1}
    assert stage.problem.startswith("This cannot be drawn (TypeError: ")
    stage.state = {"step": 3}
    assert (stage.sentence, stage.problem) == ("step 3", "")


def test_a_saved_notebook_keeps_the_first_picture(stage):
    stage.state = {"step": 2}
    data, _ = stage._repr_mimebundle_()
    assert data["text/plain"] == repr(stage) == "Steps: step 1"
    assert 'alt="step 1"' in data["text/html"] and "Run this cell" in data["text/html"]
    assert "<table></table>" in data["text/html"]


def test_clickable_parts_carry_their_state_escaped():
    part = clickable("", 'say "<b>"', word='a&b="c"', row=2)
    node = ET.fromstring(part)
    assert node.get("aria-label") == 'say "<b>"'
    assert node.get("data-set") == "word=a%26b%3D%22c%22&row=2"


@pytest.mark.parametrize("text", ["\x00", "\x1b[31m", "\ud800", "\ufffe", "\r\x7f"])
def test_characters_that_xml_may_not_hold_are_drawn_as_marks(text):
    svg = svg_frame(10, 10, svg_text(0, 0, visible(text)))
    assert ET.fromstring(svg.encode()) is not None
