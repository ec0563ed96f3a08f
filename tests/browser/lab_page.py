"""One page of JupyterLab, driven as a reader would: open, run, click, type, look."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import axe_playwright_python
import nbformat
from playwright.sync_api import Locator, Page

from browser.jupyter_server import ROOT, Server

SCREENSHOTS = ROOT / "tests" / "screenshots"
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
READY = """(notebook) => {
  const w = window.jupyterapp?.shell?.currentWidget;
  return w?.context?.path === notebook && w.context.isReady && w.sessionContext?.isReady
    && w.sessionContext.session?.kernel?.status === 'idle';
}"""
# Run cells and wait until the kernel rests; returns the errors and where they came from.
RUN = """async (from) => {
  const panel = window.jupyterapp.shell.currentWidget;
  const command = from === null ? 'notebook:run-all-cells' : 'notebook:run-cell';
  if (from !== null) panel.content.activeCellIndex = from;
  await window.jupyterapp.commands.execute(command);
  const kernel = panel.sessionContext.session.kernel;
  for (let i = 0; i < 2400 && kernel.status !== 'idle'; i++)
    await new Promise((r) => setTimeout(r, 50));
  const errors = [];
  panel.content.widgets.forEach((cell, i) =>
    (cell.model.sharedModel.toJSON().outputs ?? [])
      .filter((o) => o.output_type === 'error')
      .forEach((o) => errors.push(`cell ${i}: ${o.ename}: ${o.evalue}`)));
  return errors;
}"""
EVALUATE = """async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const reply = await kernel.requestExecute(
    {code: '', silent: false, store_history: false, user_expressions: {value: code}}).done;
  const value = reply.content.user_expressions.value;
  return value.status === 'ok' ? value.data['text/plain'] : value.evalue;
}"""


class LabPage:
    """A browser page on a JupyterLab. outside: requests that would have left the machine."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page, self.server = page, server
        self.outside: list[str] = []
        self.errors: list[str] = []
        own = (server.url, server.url.replace("http", "ws", 1), "data:", "blob:")
        page.on("request", lambda r: r.url.startswith(own) or self.outside.append(r.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def write(self, *cells: str) -> str:
        """A new notebook with these code cells; returns its name."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        notebook.metadata["kernelspec"] = KERNEL
        name = f"{secrets.token_hex(4)}.ipynb"
        nbformat.write(notebook, self.server.root / name)
        return name

    def open(self, notebook: str, alone: bool = False) -> None:
        """Open a notebook and wait for its kernel; alone: without the side bar."""
        place = "doc" if alone else f"lab/workspaces/t-{secrets.token_hex(4)}"
        self.page.goto(f"{self.server.url}/{place}/tree/{notebook}?token={self.server.token}")
        self.page.wait_for_function(READY, arg=notebook)
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def run_all(self) -> None:
        """Run every cell; fails with the errors that came."""
        errors = self.page.evaluate(RUN, None)
        assert not errors, errors

    def run_cell(self, index: int) -> None:
        errors = self.page.evaluate(RUN, index)
        assert not errors, errors

    def evaluate(self, code: str) -> str:
        """What the kernel answers to an expression, as text."""
        return self.page.evaluate(EVALUATE, code)

    def theme(self, name: str) -> None:
        """Light or Dark."""
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})",
            f"JupyterLab {name}",
        )
        self.page.wait_for_function(
            "(light) => document.body.dataset.jpThemeLight === light",
            arg="true" if name == "Light" else "false",
        )
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def axe(self, selector: str) -> list[str]:
        """What axe-core finds wrong inside `selector`."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.add_script_tag(path=AXE)
        found = self.page.evaluate(
            "async (s) => (await axe.run(s, {resultTypes: ['violations']})).violations", selector
        )
        return [f"{v['id']}: {node['html'][:160]}" for v in found for node in v["nodes"]]

    def screenshot(self, name: str, part: Locator | None = None) -> Path:
        """Write a picture of the page, or of a part, into the ignored folder."""
        SCREENSHOTS.mkdir(exist_ok=True)
        path = SCREENSHOTS / f"{re.sub(r'[^A-Za-z0-9_-]+', '_', name)}.png"
        (self.page if part is None else part).screenshot(path=path)
        return path


class Widget:
    """One stage on the page, by the names a reader sees."""

    def __init__(self, lab: LabPage, root: Locator) -> None:
        self.lab, self.root = lab, root
        self.words = root.locator(".sd-words")
        self.problem = root.locator(".sd-problem")
        self.picture = root.locator(".sd-picture")
        self.table = root.locator(".sd-table table").or_(root.locator(".sd-picture table"))

    def control(self, label: str) -> Locator:
        """The field, box, list or button with exactly this label."""
        return self.root.get_by_label(label, exact=True).or_(
            self.root.get_by_role("button", name=label, exact=True)
        )

    def part(self, **state: object) -> Locator:
        """The clickable part of the picture that sets this state."""
        pairs = "&".join(f"{name}={value}" for name, value in state.items())
        return self.picture.locator(f'[data-set="{pairs}"]')

    def state(self, name: str) -> str:
        """A value of the state as the page has it now."""
        return self.lab.evaluate(f"stage.state[{name!r}]")
