"""Every notebook in JupyterLab: as a fresh clone shows it, exported, and run from top to bottom."""

from __future__ import annotations

import re
from html import unescape

import nbformat
import pytest

pytest.importorskip("playwright")
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from browser.jupyter_server import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Each picture: its alternative text, and whether the browser could draw it.
IMAGES = """() => [...document.querySelectorAll('img[src^="data:image/svg+xml"]')]
  .map((image) => [image.alt, image.complete && image.naturalWidth > 0])"""


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda file: file.stem)
def notebook(request):
    return request.param


PLOTLY = "application/vnd.plotly.v1+json"


def html_of(file, plotly: bool = True) -> str:
    """All html a notebook holds; plotly: also where JupyterLab shows a live figure instead."""
    outputs = [o for c in nbformat.read(file, 4).cells for o in c.get("outputs", [])]
    shown = [o["data"] for o in outputs if "data" in o and (plotly or PLOTLY not in o["data"])]
    return "".join("".join(data.get("text/html", "")) for data in shown)


def pictures(html: str) -> list[str]:
    """The sentences of the pictures, in order."""
    return [unescape(alt) for alt in re.findall(r'<img alt="([^"]*)"', html)]


def stages(file) -> int:
    """How many cells of a notebook show a live widget."""
    return html_of(file).count("Run this cell for the controls.")


def test_an_exported_notebook_shows_every_picture(lab, notebook, tmp_path):
    exported = tmp_path / "exported.html"
    exported.write_text(HTMLExporter().from_filename(str(notebook))[0])
    page = lab.page.context.new_page()
    page.goto(exported.as_uri(), wait_until="domcontentloaded")
    assert page.evaluate(IMAGES) == [[sentence, True] for sentence in pictures(html_of(notebook))]
    page.close()


def test_notebook_without_and_with_a_kernel(lab, notebook):
    lab.open(notebook.name)
    page = lab.page
    images = page.locator('.jp-OutputArea img[src^="data:image/svg+xml"]')
    sentences = pictures(html_of(notebook, plotly=False))
    # A busy machine draws one after the other.
    expect(images).to_have_count(len(sentences), timeout=30_000)
    assert page.evaluate(IMAGES) == [[sentence, True] for sentence in sentences]
    figures = page.locator(".jp-OutputArea .js-plotly-plot")
    expect(figures).to_have_count(len(pictures(html_of(notebook))) - len(sentences))

    lab.run_all()
    widgets = page.locator(".sd-stage")
    expect(widgets).to_have_count(stages(notebook))
    for theme in ("Dark", "Light"):
        lab.theme(theme)
        for i in range(widgets.count()):
            widgets.nth(i).scroll_into_view_if_needed()
            lab.screenshot(f"{notebook.stem[:2]} widget {i} {theme}", widgets.nth(i))
        if widgets.count():
            assert lab.axe(".sd-stage") == []
