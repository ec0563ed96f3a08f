"""Build the notebooks: percent scripts in `source/` -> executed, normalised .ipynb files.

`python notebooks/build.py [NAME ...]` builds all, or those whose file name starts with a NAME; two
builds give the same bytes. Cells that measure (tag nbval-ignore-output) keep the figures they have
while their source stays the same; `--remeasure` takes new ones.

`--check` starts no kernel: it fails where a notebook and its source differ, where a code cell was
not run, where a notebook is too large, or where one has no source.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

HERE = Path(__file__).resolve().parent
ANSI = re.compile(r"\x1b\[[0-9;]*m")
MAX_BYTES = 150_000
CELL_SECONDS = 120
MEASURES = "nbval-ignore-output"
# One thread and one hash seed, so that the last digits do not depend on the machine.
REPEATABLE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}


def read_source(script: Path) -> NotebookNode:
    """The notebook a script describes, not yet run, with ids that do not change."""
    notebook = jupytext.read(script)
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"{script.stem[:2]}-{i:02d}"
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": kernel, "language_info": {"name": "python"}}
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Printed text as one output: where the kernel happened to flush it is chance."""
    joined: list[NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else None
        same = last and output.output_type == last.output_type == "stream"
        if same and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def keep_measured(notebook: NotebookNode, earlier: NotebookNode) -> None:
    """Take over the figures of measuring cells whose source and kinds of output are unchanged."""

    def key(cell: NotebookNode) -> tuple:
        return cell.source, tuple(output.output_type for output in cell.outputs)

    known = {key(cell): cell.outputs for cell in earlier.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        if MEASURES in cell.metadata.get("tags", []) and cell.cell_type == "code":
            cell.outputs = known.get(key(cell), cell.outputs)


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Drop what differs from run to run, and live widgets where a static twin stands beside."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = nbformat.from_dict({"name": "python"})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = join_streams(cell.outputs)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if len(data) > 1:
                data.pop("application/vnd.jupyter.widget-view+json", None)
            if "traceback" in output:
                output["traceback"] = [ANSI.sub("", line) for line in output["traceback"]]
    return notebook


def rebuilt(script: Path, remeasure: bool = False) -> NotebookNode:
    """One script run as a notebook, in the form that is written."""
    notebook = read_source(script)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(HERE)}},
        # Without it every kernel prints a warning about plain text on the local socket.
        config=Config({"KernelManager": {"transport_encryption": "auto"}}),
    )
    client.execute()
    normalise(notebook)
    earlier = HERE / f"{script.stem}.ipynb"
    if earlier.exists() and not remeasure:
        keep_measured(notebook, nbformat.read(earlier, 4))
    return notebook


def build(script: Path, remeasure: bool = False) -> Path:
    """Run one script as a notebook and write it; returns the file."""
    target = HERE / f"{script.stem}.ipynb"
    nbformat.write(rebuilt(script, remeasure), target)
    return target


def _cells(notebook: NotebookNode) -> list[tuple]:
    return [(cell.cell_type, cell.source, cell.metadata.get("tags")) for cell in notebook.cells]


def problems(script: Path) -> list[str]:
    """What is wrong with the notebook of a script, without running it."""
    target = HERE / f"{script.stem}.ipynb"
    if not target.exists():
        return [f"{target.name} is missing"]
    notebook = nbformat.read(target, 4)
    found = []
    if _cells(notebook) != _cells(read_source(script)):
        found.append(f"{target.name} differs from {script.name}")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if any(cell.execution_count is None for cell in code):
        found.append(f"{target.name} has cells that were not run")
    if target.stat().st_size > MAX_BYTES:
        found.append(f"{target.name} has more than {MAX_BYTES} bytes")
    return found


def orphans() -> list[str]:
    """Notebooks that no script stands for."""
    built = sorted(HERE.glob("*.ipynb"))
    return [
        f"{notebook.name} has no source"
        for notebook in built
        if not (HERE / "source" / f"{notebook.stem}.py").exists()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the notebooks from their sources.")
    parser.add_argument("names", nargs="*", help="only notebooks that start with one of these")
    parser.add_argument("--check", action="store_true", help="compare only, without a kernel")
    parser.add_argument("--remeasure", action="store_true", help="take all timings anew")
    options = parser.parse_args()
    scripts = sorted((HERE / "source").glob("*.py"))
    if options.names:
        scripts = [s for s in scripts if s.stem.startswith(tuple(options.names))]
        if not scripts:
            parser.error(f"no source starts with {' or '.join(options.names)}")
    if options.check:
        found = [problem for script in scripts for problem in problems(script)] + orphans()
        print("\n".join([*found, "Run `make notebooks`."]) if found else "notebooks are in step")
        return 1 if found else 0
    os.environ.update(REPEATABLE)
    with tempfile.TemporaryDirectory() as empty:
        os.environ["SPECDEC_DATA"] = empty  # no reader's predictions in a saved notebook
        for script in scripts:
            target = build(script, options.remeasure)
            print(f"built {target.name}, {target.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
