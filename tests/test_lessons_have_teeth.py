"""The lessons notice mistakes, and their exercises can be solved; each in a kernel of its own.

One of the museum's mistakes stands in for the core in a first cell that is put before the lesson's
own. Then the cells named in `exercise_cases/chapter_NN.py` must print something else than the
committed notebook, or raise; without a mistake they print the same.
"""

from __future__ import annotations

import ast
import os
import pkgutil
from importlib import import_module
from pathlib import Path

import exercise_cases
import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
CHAPTERS = [info.name for info in pkgutil.iter_modules(exercise_cases.__path__)]
CELL_SECONDS = 120
INSTALL = """
import specdec_core as _core
from specdec_core.decode import speculative_decode as _decode, speculative_rounds as _rounds
from specdec_core.lab import museum as _museum

def _mistaken_rounds(target, drafter, prompt, **options):
    yield from _museum.decode(_mistake, target, drafter, prompt, **options).trace.rounds

def _mistaken(target, drafter, prompt, **options):
    return _museum.decode(_mistake, target, drafter, prompt, **options)

_mistake = {mistake!r}
_core.speculative_decode = _mistaken if _mistake else _decode
_core.speculative_rounds = _mistaken_rounds if _mistake else _rounds
"""


class Lesson:
    """A built notebook, its kernel, and the cases of its chapter."""

    def __init__(self, chapter: str) -> None:
        self.cases = import_module(f"exercise_cases.{chapter}")
        (file,) = NOTEBOOKS.glob(f"{chapter.removeprefix('chapter_')}_*.ipynb")
        self.code = [c for c in nbformat.read(file, 4).cells if c.cell_type == "code"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.manager, self.client = start_new_kernel(cwd=str(NOTEBOOKS), env=environment)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, source: str) -> str:
        """Run code; returns what it printed and showed, without what is live or of this run."""
        outputs: list[str] = []

        def note(message: dict) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                outputs.append(content["text"])
            elif kind in ("display_data", "execute_result"):
                outputs.append(shown(content["data"]))
            elif kind == "error":
                outputs.append(content["ename"])

        self.client.execute_interactive(source, timeout=CELL_SECONDS, output_hook=note)
        return joined(outputs)

    def with_text(self, text: str) -> nbformat.NotebookNode:
        """The one code cell whose source holds `text`."""
        found = [cell for cell in self.code if text in cell.source]
        assert len(found) == 1, f"{len(found)} cells hold {text!r}"
        return found[0]

    def begin(self, mistake: str | None) -> None:
        """Install a mistake, or none, and run what the named cells need."""
        self.run(INSTALL.format(mistake=mistake))
        for cell in [self.code[0], *map(self.with_text, self.cases.NEEDS)]:
            self.run(cell.source)


def shown(data: dict) -> str:
    """A display as text: its html, or else its plain text."""
    return "".join(data.get("text/html", data.get("text/plain", "")))


def joined(outputs: list[str]) -> str:
    return "\n".join(outputs).replace("\n\n", "\n").strip()


def committed(cell: nbformat.NotebookNode) -> str:
    """What a cell of the built notebook holds, in the form of `Lesson.run`."""
    texts = [
        output.text if output.output_type == "stream" else shown(output.get("data", {}))
        for output in cell.outputs
    ]
    return joined(texts)


@pytest.fixture(scope="module", params=CHAPTERS)
def lesson(request):
    opened = Lesson(request.param)
    yield opened
    opened.close()


def differing(lesson: Lesson, mistake: str | None, named: list[str]) -> list[str]:
    """Which of the named cells print something else with `mistake` installed."""
    lesson.begin(mistake)
    cells = [lesson.with_text(text) for text in named]
    return [c.source for c in cells if lesson.run(c.source) != committed(c)]


def test_named_cells_fail_with_a_mistake_and_only_then(lesson):
    """`make test`: the chapter's first mistake."""
    for mistake, named in list(lesson.cases.TEETH.items())[:1]:
        assert differing(lesson, None, named) == []
        wanted = [lesson.with_text(text).source for text in named]
        assert differing(lesson, mistake, named) == wanted, mistake


@pytest.mark.slow
def test_named_cells_fail_with_every_mistake(lesson):
    for mistake, named in lesson.cases.TEETH.items():
        assert differing(lesson, None, named) == []
        wanted = [lesson.with_text(text).source for text in named]
        assert differing(lesson, mistake, named) == wanted, mistake


def stubs(lesson: Lesson) -> list[str]:
    """Names of the functions a reader is asked to write."""
    return [
        node.name
        for cell in lesson.code
        for node in ast.parse(cell.source).body
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.body) == "..."
    ]


def test_every_exercise_is_right_with_its_solution(lesson):
    lesson.begin(None)
    names = stubs(lesson)
    assert names and set(names) == set(lesson.cases.SOLUTIONS)
    for name in names:
        lesson.run(lesson.cases.SOLUTIONS[name])
        checks = [c for c in lesson.code if "exercises.check" in c.source and name in c.source]
        assert checks, f"no cell checks {name}"
        for cell in checks:
            assert committed(cell).startswith("not attempted"), name
            assert lesson.run(cell.source) == "right", name


def test_every_chapter_with_a_notebook_has_cases():
    assert {f"chapter_{file.name[:2]}" for file in NOTEBOOKS.glob("*.ipynb")} == set(CHAPTERS)
