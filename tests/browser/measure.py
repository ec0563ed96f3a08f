"""How quick the widgets are in a real browser: `make bench-widgets`.

For each widget: from a control to the changed picture, from the start of its own cell to the
visible widget, and for what can be dragged, from a move of the pointer to the changed picture.
Medians and the slowest tenth, in milliseconds; one run says as much as the machine was quiet. So
a bare widget, a number in and the same number out, is measured in turns with each of them: what
it takes is JupyterLab's way to the kernel and back.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import sync_playwright

from browser.conftest import CHROMIUM, FLAGS, WIDE
from browser.gallery import GALLERY
from browser.jupyter_server import start
from browser.lab_page import LabPage

BARE = """
from specdec_core.widgets.picture import Picture
from specdec_core.widgets.stage import Stage, slider
view = lambda x: Picture(f"<svg><text>{x}</text></svg>", "")
Stage(view, "bare", [slider("x", "x", 0, 9, 1)], x=0)
"""
# Presses a control and waits for the picture's next change; the time in between.
CONTROL = """async ([place, selector, values]) => {
  const stage = document.querySelectorAll('.sd-stage')[place];
  const picture = stage.querySelector('.sd-picture');
  const field = [...stage.querySelectorAll('.sd-control input, .sd-control select')]
    .find((e) => e.labels[0]?.textContent === selector);
  const times = [];
  for (const value of values) {
    const changed = new Promise((resolve) => {
      const observer = new MutationObserver(() => { observer.disconnect(); resolve(); });
      observer.observe(picture, {childList: true, subtree: true, attributes: true});
    });
    const started = performance.now();
    field.value = value;
    const event = field.tagName === 'SELECT' || field.type === 'text' ? 'change' : 'input';
    field.dispatchEvent(new Event(event, {bubbles: true}));
    await changed;
    times.push(performance.now() - started);
    await new Promise((r) => setTimeout(r, 300));
  }
  return times;
}"""
# Moves a held pointer over a part and waits for the picture's next change.
DRAG = """async ([moves]) => {
  const picture = document.querySelector('.sd-stage .sd-picture');
  const part = picture.querySelector('[data-drag]');
  const box = part.getBoundingClientRect();
  const at = {clientX: box.x + box.width / 2, pointerId: 1, isPrimary: true, bubbles: true};
  picture.setPointerCapture = () => {};
  part.dispatchEvent(new PointerEvent('pointerdown', {...at, clientY: box.y + 2}));
  const times = [];
  for (let i = 0; i < moves; i++) {
    const changed = new Promise((resolve) => {
      const observer = new MutationObserver(() => { observer.disconnect(); resolve(); });
      observer.observe(picture, {childList: true, subtree: true, attributes: true});
    });
    const started = performance.now();
    picture.dispatchEvent(
      new PointerEvent('pointermove', {...at, clientY: box.y + 2 + (i % 2 ? 1 : -1) * (5 + i)}));
    await changed;
    times.push(performance.now() - started);
    await new Promise((r) => setTimeout(r, 20));
  }
  picture.dispatchEvent(new PointerEvent('pointerup', at));
  return times;
}"""
VISIBLE = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  panel.content.activeCellIndex = 1;
  const started = performance.now();
  window.jupyterapp.commands.execute('notebook:run-cell');
  while (!document.querySelector('.sd-stage svg, .sd-stage table'))
    await new Promise((r) => requestAnimationFrame(r));
  return performance.now() - started;
}"""


HEAD = "ms                    visible  control    p90     bare    p90  ratio     drag    p90"


def line(times: list[float]) -> str:
    slow = sorted(times)[int(0.9 * (len(times) - 1))]
    return f"{statistics.median(times):6.0f} {slow:6.0f}"


def measure(lab: LabPage, name: str) -> str:
    exhibit = GALLERY[name]
    lab.open(lab.write(exhibit.setup, exhibit.code, BARE), alone=True)
    lab.run_cell(0)
    visible = lab.page.evaluate(VISIBLE)
    lab.run_cell(2)
    lab.page.wait_for_timeout(500)
    control, bare = [], []
    for _ in range(4):
        control += lab.page.evaluate(CONTROL, [0, exhibit.control, exhibit.values])
        bare += lab.page.evaluate(CONTROL, [1, "x", [3, 4]])
    dragged = ""
    if lab.page.locator(".sd-stage [data-drag]").count():
        dragged = line(lab.page.evaluate(DRAG, [30]))
    ratio = statistics.median(control) / statistics.median(bare)
    return f"{name:20} {visible:8.0f}   {line(control)}   {line(bare)} {ratio:6.2f}   {dragged}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(GALLERY), help="which widgets")
    names = parser.parse_args().names
    if CHROMIUM is None:
        parser.error("no Chromium found: install one, or name it in the variable CHROMIUM")
    server = start(Path(tempfile.mkdtemp()))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, headless=True, args=FLAGS
            )
            context = browser.new_context(viewport=WIDE, reduced_motion="reduce")
            print(HEAD)
            for name in names:
                page = context.new_page()
                print(measure(LabPage(page, server), name), flush=True)
                page.close()
                for session in server.api("sessions"):
                    server.api(f"sessions/{session['id']}", "DELETE")
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
