"""A JupyterLab of its own for the tests: own settings, own folders, a copy of the notebooks."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90


@dataclass
class Server:
    """A running JupyterLab. root: the folder it shows."""

    url: str
    token: str
    root: Path
    process: subprocess.Popen
    log: Path

    def api(self, path: str, method: str = "GET") -> object:
        """An answer of the server's REST interface; None where it is empty."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}", method=method,
            headers={"Authorization": f"token {self.token}"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def stop(self) -> None:
        """Shut the server and its kernels down."""
        try:
            self.api("shutdown", "POST")
            self.process.wait(15)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(5)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(base: Path) -> Server:
    """A server in `base` that shows a copy of the notebooks; raises RuntimeError if it fails."""
    root = base / "workbook"
    root.mkdir()
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(notebook, root)
    port, token = free_port(), secrets.token_hex(16)
    folders = {
        "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython",
        "SPECDEC_DATA": "reader",
    }  # fmt: skip
    environment = {**os.environ, **{name: str(base / folder) for name, folder in folders.items()}}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={root}",
        "--expose-app-in-browser",  # gives window.jupyterapp: commands and the kernel's status
        "--LabApp.extension_manager=readonly",
        "--ServerApp.terminals_enabled=False",
        "--KernelManager.transport_encryption=auto",
    ]  # fmt: skip
    log = base / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    server = Server(f"http://127.0.0.1:{port}", token, root, process, log)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.api("status")
            return server
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")
