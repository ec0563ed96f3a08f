"""Every widget of the gallery: by mouse, by keyboard, light and dark, wide and narrow."""

from __future__ import annotations

import ast

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from browser.conftest import NARROW, WIDE
from browser.gallery import GALLERY
from browser.lab_page import Widget

WITHOUT_PARTS = {"mass mover", "sample size", "bet", "bet board"}
# The parts of a stage that can be focused, and the place of the focused one, -1 outside.
PARTS = """(stage) => {
  const all = stage.querySelectorAll('input, select, button, summary, [tabindex="0"]');
  const shown = [...all].filter((e) => e.checkVisibility());
  return [shown.length, shown.indexOf(document.activeElement)];
}"""


@pytest.fixture(scope="module", params=GALLERY)
def exhibit(request):
    return request.param


@pytest.fixture(scope="module")
def widget(lab, exhibit):
    shown = GALLERY[exhibit]
    lab.open(lab.write(shown.setup, shown.code), alone=True)
    lab.run_all()
    root = lab.page.locator(".sd-stage")
    root.wait_for()
    return Widget(lab, root)


def in_python(widget, name: str) -> str:
    """A text of the stage as the kernel has it."""
    return ast.literal_eval(widget.lab.evaluate(f"stage.{name}"))


def use(widget, label: str, value: object) -> None:
    """Do what a reader does with a control."""
    control = widget.control(label)
    if value is None:
        control.click()
    elif control.evaluate("(e) => e.tagName") == "SELECT":
        control.select_option(label=value)
    else:
        control.fill(str(value))
        control.press("Enter")


def test_what_a_reader_tries(widget, exhibit):
    for label, value, words in GALLERY[exhibit].tries:
        before = widget.root.inner_text()
        use(widget, label, value)
        expect(widget.root).not_to_have_text(before, use_inner_text=True)
        expect(widget.root).to_contain_text(words)


def test_every_part_is_reached_by_keyboard_alone(widget):
    page = widget.lab.page
    widget.root.locator("input, select, button").first.focus()
    count, place = widget.root.evaluate(PARTS)
    reached = {place}
    for _ in range(count + 2):
        page.keyboard.press("Tab")
        reached.add(widget.root.evaluate(PARTS)[1])
    assert set(range(count)) <= reached


def test_a_part_of_the_picture_answers_to_enter(widget, exhibit):
    parts = widget.picture.locator("[data-set]")
    assert (parts.count() == 0) == (exhibit in WITHOUT_PARTS)
    if exhibit in WITHOUT_PARTS:
        return
    names = [parts.nth(i).get_attribute("aria-label") for i in range(parts.count())]
    assert all(names)
    state = widget.lab.evaluate("stage.state")
    for i in range(parts.count()):
        parts.nth(i).focus()
        widget.lab.page.keyboard.press("Enter")
        widget.lab.page.wait_for_timeout(200)
        if widget.lab.evaluate("stage.state") != state:
            break
    assert widget.lab.evaluate("stage.state") != state


@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_axe_finds_nothing_and_pictures_are_kept_for_a_look(widget, exhibit, theme):
    widget.lab.theme(theme)
    widget.lab.screenshot(f"{exhibit} {theme}", widget.root)
    summary = widget.root.locator(".sd-table > summary")
    if summary.is_visible():
        summary.click()
    assert widget.lab.axe(".sd-stage") == []
    if summary.is_visible():
        summary.click()


def test_a_narrow_window_cuts_nothing_off(widget, exhibit):
    page = widget.lab.page
    page.set_viewport_size(NARROW)
    try:
        box = widget.root.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"]
        for field in widget.root.locator(".sd-control").all():
            inside = field.bounding_box()
            assert inside["x"] + inside["width"] <= NARROW["width"]
        widget.lab.screenshot(f"{exhibit} narrow", widget.root)
    finally:
        page.set_viewport_size(WIDE)


def test_python_and_the_page_say_the_same(widget):
    expect(widget.words).to_have_text(in_python(widget, "sentence"))
    expect(widget.problem).to_have_text(in_python(widget, "problem"))
