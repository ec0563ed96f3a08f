"""Fixtures: one JupyterLab and one Chromium a worker, one page a module."""

from __future__ import annotations

import os
import shutil

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    # Nothing but this machine resolves.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 480, "height": 900}


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("no Chromium found: install one, or name it in the variable CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def server(browser, tmp_path_factory):
    """A JupyterLab to look at."""
    from browser.jupyter_server import start

    running = start(tmp_path_factory.mktemp("jupyter"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def context(browser, server):
    """One context: JupyterLab's own scripts stay in its cache."""
    opened = browser.new_context(viewport=WIDE, reduced_motion="reduce")
    opened.set_default_timeout(60_000)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def lab(server, context):
    """A page; afterwards its kernels are stopped and nothing has left the machine."""
    from browser.lab_page import LabPage

    page = context.new_page()
    opened = LabPage(page, server)
    yield opened
    page.close()
    for session in server.api("sessions"):
        server.api(f"sessions/{session['id']}", "DELETE")
    shutil.rmtree(server.root.parent / "settings", ignore_errors=True)
    assert not opened.outside, f"requests left the machine: {opened.outside}"
    assert not opened.errors, opened.errors


@pytest.fixture(scope="module")
def widget(lab, request):
    """The widget that the module's `CODE` leaves in a notebook as `stage`."""
    from browser.lab_page import Widget

    lab.open(lab.write(request.module.CODE), alone=True)
    lab.run_all()
    root = lab.page.locator(".sd-stage")
    root.wait_for()
    return Widget(lab, root)
