"""The shell: every kind of control by mouse and by keyboard, and what may go wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

CODE = """
from specdec_core.widgets.picture import Picture, clickable, draggable, html_table
from specdec_core.widgets.picture import svg_frame, svg_text
from specdec_core.widgets.stage import Stage, button, select, slider, stepper, text, toggle

import time

def view(size, step, kind, on, words, presses):
    if words == "slow":
        time.sleep(2)
    if words == "bad":
        raise ValueError("This line must not be bad: write another word.")
    box = f'<rect x="{40 * step:g}" y="20" width="30" height="30" fill="#0072b2"/>'
    parts = "".join(
        clickable(f'<rect x="{60 * i + 10}" y="80" width="50" height="30" fill="#e5f1f8"/>'
                  + svg_text(60 * i + 20, 100, f"to {i}"), f"go to {i}", step=i)
        for i in range(4)
    )
    bar = (f'<rect x="400" y="{190 - 160 * size:g}" width="30" height="{160 * size:g}" '
           f'fill="#e69f00"/>')
    bar = draggable(bar, "the size", "size", size, (190, 30))
    said = f"size {size:.2f}, step {step}, {kind}, {on}, {words}, {presses} presses"
    return Picture(svg_frame(600, 200, box + parts + bar + svg_text(10, 180, words)), said,
                   html_table(("name", "value"), [("words", words), ("step", step)]))

stage = Stage(
    view, "Test stage",
    [slider("size", "size", 0, 1), stepper("step", "step", 0, 5), toggle("on", "switch"),
     select("kind", "kind", {"one": "the first", "two": "the second"}), text("words", "a line"),
     button("presses", "Press me")],
    size=0.5, step=1, kind="one", on=False, words='<b>&"</script>', presses=0,
)
stage
"""
START = 'size 0.50, step 1, one, False, <b>&"</script>, 0 presses'


@pytest.fixture(autouse=True)
def fresh(lab, widget):
    """Each test starts from the same state."""
    lab.evaluate(
        "setattr(stage, 'state', dict(size=0.5, step=1, kind='one', on=False, "
        "words='<b>&\"</script>', presses=0))"
    )
    expect(widget.words).to_have_text(START)


def test_words_and_picture_and_table_are_text(widget):
    expect(widget.picture.locator("svg text").last).to_have_text('<b>&"</script>')
    widget.root.get_by_text("As a table").click()
    expect(widget.table.locator("td").nth(1)).to_have_text('<b>&"</script>')
    assert widget.root.locator("b, script").count() == 0
    widget.root.get_by_text("As a table").click()


def test_slider_and_its_number_go_together(widget):
    slider, exact = widget.control("size, slider"), widget.control("size")
    slider.press("ArrowRight")
    expect(widget.words).to_contain_text("size 0.51")
    expect(exact).to_have_value("0.51")
    exact.fill("0.25")
    expect(widget.words).to_contain_text("size 0.25")
    expect(slider).to_have_value("0.25")


def test_a_number_out_of_range_changes_nothing(widget):
    widget.control("size").fill("7")
    expect(widget.problem).to_have_text("size goes from 0 to 1 in steps of 0.01.")
    widget.control("step").fill("1.5")
    expect(widget.problem).to_have_text("step goes from 0 to 5 in steps of 1.")
    widget.control("Press me").click()
    expect(widget.words).to_contain_text("size 0.50, step 1")
    expect(widget.words).to_contain_text("1 presses")
    expect(widget.problem).to_have_text("")


def test_stepper_stops_at_its_ends(widget):
    widget.control("previous step").click()
    for _ in range(2):
        widget.lab.page.keyboard.press("Enter")
    expect(widget.words).to_contain_text("step 0")
    expect(widget.control("previous step")).to_have_attribute("aria-disabled", "true")
    widget.control("next step").focus()
    widget.lab.page.keyboard.press("Enter")
    expect(widget.words).to_contain_text("step 1")
    widget.lab.page.keyboard.press("Space")
    expect(widget.words).to_contain_text("step 2")


def test_select_toggle_text_and_button_by_keyboard(widget):
    page = widget.lab.page
    widget.control("kind").focus()
    page.keyboard.press("ArrowDown")
    expect(widget.words).to_contain_text("two")
    widget.control("switch").focus()
    page.keyboard.press("Space")
    expect(widget.words).to_contain_text("True")
    widget.control("a line").fill("lantern")
    page.keyboard.press("Enter")
    expect(widget.words).to_contain_text("lantern")
    widget.control("Press me").focus()
    page.keyboard.press("Enter")
    expect(widget.words).to_contain_text("1 presses")


def test_parts_of_the_picture_by_mouse_and_by_keyboard(widget):
    widget.part(step=3).click()
    expect(widget.words).to_contain_text("step 3")
    part = widget.root.get_by_role("button", name="go to 2", exact=True)
    part.focus()
    widget.lab.page.keyboard.press("Enter")
    expect(widget.words).to_contain_text("step 2")
    expect(part).to_be_focused()


def test_dragging_a_part(widget):
    page, bar = widget.lab.page, widget.picture.locator("[data-drag]")
    box = bar.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] - 500, steps=5)
    page.mouse.up()
    expect(widget.words).to_contain_text("size 1.00")


def test_a_part_to_drag_is_a_slider_for_the_keyboard(widget):
    part = widget.root.get_by_role("slider", name="the size", exact=True)
    expect(part).to_have_attribute("aria-valuenow", "0.5")
    part.focus()
    page = widget.lab.page
    for key, size in (
        ("ArrowUp", "0.51"), ("ArrowLeft", "0.50"), ("PageUp", "0.60"), ("PageDown", "0.50"),
        ("End", "1.00"), ("ArrowRight", "1.00"), ("Home", "0.00"), ("ArrowDown", "0.00"),
    ):  # fmt: skip
        page.keyboard.press(key)
        expect(widget.words).to_contain_text(f"size {size}")
        expect(part).to_be_focused()
    expect(part).to_have_attribute("aria-valuenow", "0")


def test_bad_input_is_said_and_the_picture_stays(widget):
    line = widget.control("a line")
    line.fill("bad")
    line.press("Enter")
    expect(widget.problem).to_have_text("This line must not be bad: write another word.")
    expect(widget.words).to_have_text(START)
    line.fill("good")
    line.press("Enter")
    expect(widget.problem).to_have_text("")
    expect(widget.words).to_contain_text("good")


def test_keys_inside_do_not_reach_the_notebook(widget):
    cells = widget.lab.page.locator(".jp-Cell").count()
    widget.control("step").focus()
    for key in ("a", "b", "d", "d", "ArrowUp"):
        widget.lab.page.keyboard.press(key)
    assert widget.lab.page.locator(".jp-Cell").count() == cells


def test_two_stages_on_a_page_do_not_share_their_labels(lab, server):
    from browser.lab_page import LabPage

    page = lab.page.context.new_page()
    other = LabPage(page, server)
    other.open(other.write(CODE, CODE.replace("Test stage", "Second stage")), alone=True)
    other.run_all()
    stages = page.locator(".sd-stage")
    expect(stages).to_have_count(2)
    ids = page.evaluate("() => [...document.querySelectorAll('.sd-stage [id]')].map((e) => e.id)")
    assert len(set(ids)) == len(ids) > 0
    stages.nth(1).get_by_label("step", exact=True).fill("4")
    expect(stages.nth(1).locator(".sd-words")).to_contain_text("step 4")
    expect(stages.nth(0).locator(".sd-words")).to_contain_text("step 1")
    assert other.axe(".sd-stage") == []
    page.close()


def test_a_field_left_with_a_wrong_number_shows_the_right_one(widget):
    field = widget.control("size")
    field.fill("7")
    expect(widget.problem).not_to_have_text("")
    field.press("Tab")
    expect(field).to_have_value("0.5")
    expect(widget.problem).to_have_text("")


def test_a_slow_picture_says_that_it_is_on_its_way(widget):
    line = widget.control("a line")
    line.fill("bad")
    line.press("Enter")
    expect(widget.problem).not_to_have_text("")
    line.fill("slow")
    line.press("Enter")
    expect(widget.words).to_have_text("Computing …")
    expect(widget.root).to_have_attribute("aria-busy", "true")
    expect(widget.problem).to_have_text("")
    expect(widget.words).to_contain_text("slow, 0 presses")
    expect(widget.root).not_to_have_attribute("aria-busy", "true")


@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_axe_finds_nothing(widget, theme):
    widget.lab.theme(theme)
    widget.control("a line").fill("bad")
    widget.control("a line").press("Enter")
    expect(widget.problem).not_to_have_text("")
    widget.root.get_by_text("As a table").click()
    widget.lab.screenshot(f"stage {theme}", widget.root)
    assert widget.lab.axe(".sd-stage") == []
    widget.root.get_by_text("As a table").click()
