"""The mass mover's own arithmetic in the browser: a drag shows what Python would draw."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from specdec_core.widgets.mass_mover import LAYOUT, MassMover, draw_mass_mover, mass_mover
from specdec_core.widgets.one_draft import DRAWS

HOSTILE = ('<b>&"</script>', " fox", "\n", "'>")
FOUR = {"p": ".5 .25 .25 0", "q": ".1 .4 .2 .3"}


def random_row(rng: random.Random, size: int) -> str:
    weights = [rng.random() ** 2 for _ in range(size)]
    if size > 2 and rng.random() < 0.4:
        weights[rng.randrange(size)] = 0.0
    edges = [round(10_000 * sum(weights[:i]) / sum(weights)) for i in range(size + 1)]
    return " ".join(f"{(b - a) / 10_000:g}" for a, b in pairwise(edges))


LOAD = """async (code) => {
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  window.shell = await import(url);
  window.draw = (svg) => {
    const box = document.createElement("div");
    box.innerHTML = svg;
    return box;
  };
}"""
MOVE = """([svg, state]) => {
  const box = window.draw(svg);
  const sentence = window.shell.local.move(state, box);
  return [box.innerHTML, sentence];
}"""
# What a notebook does: a model that keeps values, and the shell drawing into an element.
MOUNT = """([values]) => {
  window.values = values;
  window.saved = 0;
  const model = {
    get: (name) => window.values[name], on() {}, off() {},
    set: (name, value) => { window.values[name] = value; },
    save_changes: () => { window.saved += 1; },
  };
  const el = document.createElement("div");
  document.body.replaceChildren(el);
  window.shell.default.render({ model, el });
}"""
DRAG = """([part, steps]) => {
  const grip = document.querySelector(`[data-part="${part}"]`);
  const at = (type, y) => new PointerEvent(type, { clientX: 0, clientY: y, bubbles: true,
    pointerId: 1, isPrimary: true });
  const box = document.querySelector("svg").getBoundingClientRect();
  document.querySelector(".sd-picture").setPointerCapture = () => {};
  grip.dispatchEvent(at("pointerdown", box.top));
  for (const y of steps) grip.dispatchEvent(at("pointermove", box.top + y));
  grip.dispatchEvent(at("pointerup", box.top));
  const words = document.querySelector(".sd-words").textContent;
  const picture = document.querySelector(".sd-picture");
  const now = [...picture.querySelectorAll("[data-drag]")].map((e) => e.ariaValueNow);
  for (const element of picture.querySelectorAll("[role]"))
    for (const name of ["tabindex", "role", "aria-valuemin", "aria-valuemax", "aria-valuenow"])
      element.removeAttribute(name);
  return [window.values.state, picture.innerHTML, words, now];
}"""


@pytest.fixture(scope="module")
def page(browser):
    """A blank page with the widget's own script loaded."""
    blank = browser.new_page()
    blank.evaluate(LOAD, MassMover._esm)
    yield blank
    blank.close()


def browser_form(page, svg: str) -> str:
    return page.evaluate("(svg) => window.draw(svg).innerHTML", svg)


def states(size: int) -> list[dict]:
    rng = random.Random(size)
    rows = [
        {"p": random_row(rng, size), "q": random_row(rng, size), "draw": draw}
        for draw in DRAWS
        for _ in range(6)
    ]
    same = random_row(rng, size)
    first, last = " ".join(["1"] + ["0"] * (size - 1)), " ".join(["0"] * (size - 1) + ["1"])
    return [
        *rows,
        *({"p": same, "q": same, "draw": draw} for draw in DRAWS),
        *({"p": first, "q": last, "draw": draw} for draw in DRAWS),
    ]


@pytest.mark.parametrize("size", [2, 3, 6])
def test_a_drag_shows_what_python_draws(page, size):
    names = {"words": (*HOSTILE, "a", "b")[:size]}
    before = draw_mass_mover(**states(size)[0], **names)
    for state in states(size):
        wanted = draw_mass_mover(**state, **names)
        moved, sentence = page.evaluate(MOVE, [before.svg, state])
        assert moved == browser_form(page, wanted.svg), state
        assert sentence == wanted.sentence
        before = wanted


def test_a_held_grip_moves_the_picture_before_python_answers(page):
    stage = mass_mover(*([float(x) for x in FOUR[side].split()] for side in "pq"))
    values = {name: stage.trait_values()[name] for name in stage.keys if name[0] != "_"}
    values = {k: v for k, v in values.items() if isinstance(v, (str, int, list, dict))}
    page.evaluate(MOUNT, [values])
    base, tall = LAYOUT["base"], LAYOUT["height"]
    heights = [base - tall * share for share in (0.1, 0.35, 0.62)]
    state, svg, words, now = page.evaluate(DRAG, ["grip-q1", heights])
    assert state["q"].split()[1] == "0.62" and state["p"] == stage.state["p"]
    assert sum(round(10_000 * float(x)) for x in state["q"].split()) == 10_000
    wanted = draw_mass_mover(**state)
    assert words == wanted.sentence
    # Python's picture is what the browser shows, but for what the shell adds to it.
    assert svg == browser_form(page, wanted.svg)
    assert now[2:4] == ["0.62", "0.25"]


REDUCE = "([state, changes]) => window.shell.local.reduce(state, changes)"


def test_what_is_not_dragged_keeps_its_proportions(page):
    state = {"draw": "M1", "p": ".5 .3 .2", "q": ".2 .2 .6"}
    after = page.evaluate(REDUCE, [state, {"p0": 0.2}])
    assert after == {**state, "p": "0.2 0.48 0.32"}
    assert page.evaluate(REDUCE, [state, {"q2": 0.904}])["q"] == "0.05 0.05 0.9"
    full = page.evaluate(REDUCE, [state, {"p1": 1}])
    assert full["p"] == "0 1 0"
    assert page.evaluate(REDUCE, [full, {"p1": 0.5}])["p"] == "0.25 0.5 0.25"
    assert page.evaluate(REDUCE, [state, {"p": ".1 .9"}])["p"] == ".1 .9"


def test_grips_stand_still_while_a_row_cannot_be_read(page):
    wrong = {"draw": "M1", "p": ".6 .5", "q": ".8 .2"}
    for grip in ({"p0": 0.3}, {"q0": 0.3}):
        assert page.evaluate(REDUCE, [wrong, grip]) == wrong


def test_numbers_python_refuses_leave_the_picture_alone(page):
    picture = draw_mass_mover(**FOUR)
    for p in (".5 x .5 0", ".5 .5", ".5 .2 .2 0", "-.5 .5 .5 .5"):
        moved, _ = page.evaluate(MOVE, [picture.svg, {**FOUR, "p": p, "draw": "residual"}])
        assert moved == browser_form(page, picture.svg)
