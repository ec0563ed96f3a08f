"""`make lab` opens JupyterLab on chapter 00: the real command, a real server, asked by HTTP."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "workbook"
NOTIFICATIONS = "@jupyterlab/apputils-extension:notification"
ANNOUNCEMENTS = "@jupyterlab/apputils-extension:announcements"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def without(*beginnings: str) -> dict[str, str]:
    """The environment less the variables that begin so."""
    return {k: v for k, v in os.environ.items() if not k.startswith(beginnings)}


def lab_arguments(port: int) -> list[str]:
    """What `make lab` would run, with this Python and without a browser window."""
    extra = f"--no-browser --ServerApp.port={port} --ServerApp.port_retries=0"
    options = f"LAB_ARGS={extra} --IdentityProvider.token={TOKEN}"
    plan = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "lab", options],
        cwd=ROOT, env=without("MAKE", "MFLAGS"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    (line,) = [x for x in plan.stdout.splitlines() if x.startswith(".venv/bin/jupyter lab ")]
    return [sys.executable, "-m", "jupyter", *shlex.split(line)[1:]]


class Server:
    """A running JupyterLab and the folder where it notes what a browser should open."""

    def __init__(self, port: int, runtime: Path, log: Path):
        self.port, self.runtime, self.log = port, runtime, log

    def get(self, path: str) -> str:
        """The text behind a path."""
        request = urllib.request.Request(
            f"http://localhost:{self.port}{path}", headers={"Authorization": f"token {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()

    def json(self, path: str) -> dict:
        """The JSON behind a path."""
        return json.loads(self.get(path))

    def wait(self, process: subprocess.Popen, seconds: float = 120) -> None:
        """Return once the server answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            try:
                self.json("/api/status")
                return
            except OSError:
                time.sleep(0.2)
        pytest.fail(f"JupyterLab did not start:\n{self.log.read_text()}")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """JupyterLab as `make lab` starts it, with no settings of the user in the way."""
    home = tmp_path_factory.mktemp("lab")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    folders = ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"]
    folders += ["JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"]
    environment = without("JUPYTER") | {name: str(home / name.lower()) for name in folders}
    log = home / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            lab_arguments(port), cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    lab = Server(port, home / "jupyter_runtime_dir", log)
    try:
        lab.wait(process)
        yield lab
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_the_root_is_the_repository(server):
    names = {entry["name"] for entry in server.json("/api/contents/")["content"]}
    assert {"README.md", "notebooks", "specdec_core"} <= names


def test_chapter_00_is_there_and_opens_first(server):
    inside = {entry["name"] for entry in server.json("/api/contents/notebooks")["content"]}
    assert "00_start_here.ipynb" in inside
    pages = "".join(page.read_text() for page in server.runtime.glob("*open*.html"))
    assert "/lab/tree/notebooks/00_start_here.ipynb" in pages


def test_no_news_and_no_look_ups(server):
    page = server.get("/lab")
    found = re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    config = json.loads(found[1])
    assert ANNOUNCEMENTS in config["disabledExtensions"]
    assert config.get("news") in (None, {"disabled": True})
    setting = server.json(f"/lab/api/settings/{NOTIFICATIONS}")
    properties = setting["schema"]["properties"]
    assert properties["fetchNews"]["default"] == "false"
    assert properties["checkForUpdates"]["default"] is False


def test_the_configuration_in_use_is_the_one_in_the_repository():
    # An editable install copies it once: a changed file needs a new `make` set-up.
    source = ROOT / "notebooks" / "jupyter"
    for file in source.rglob("*.json"):
        installed = Path(sys.prefix, "etc", "jupyter", file.relative_to(source))
        assert installed.read_text() == file.read_text(), file.name
    config = json.loads((source / "jupyter_server_config.json").read_text())
    assert config["LabApp"]["check_for_updates_class"] == "jupyterlab.NeverCheckForUpdate"
    assert config["LabApp"]["news_url"] is None
    assert config["KernelManager"]["transport_encryption"] == "auto"


def test_the_log_has_no_warning(server):
    assert not re.findall(r"^\[[WEC] .*", server.log.read_text(), re.MULTILINE)
