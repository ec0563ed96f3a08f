"""Every notebook keeps the contract of a lesson; nothing here starts a kernel."""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "notebooks"))
import build  # noqa: E402

SOURCES = sorted((ROOT / "notebooks" / "source").glob("*.py"))
BANNED = re.compile(r"\b(simply|obviously|just)\b", re.IGNORECASE)
SECTIONS = [
    "What you will be able to do",
    "Predict",
    "Run",
    "See",
    "Explain",
    "Implement",
    "Break it",
    "Try it yourself",
    "What was shown, and what was not",
    "Five questions to recall",
    "Words of this chapter",
]


@pytest.fixture(params=SOURCES, ids=lambda s: s.stem)
def notebook(request):
    """The built notebook of one source."""
    return nbformat.read(request.param.parents[1] / f"{request.param.stem}.ipynb", 4)


def markdown(notebook) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def html_outputs(notebook) -> str:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)


def test_there_is_a_notebook_to_start_with():
    assert SOURCES[0].stem == "00_start_here"


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_notebook_is_in_step_with_its_source(source):
    assert build.problems(source) == []


def test_every_notebook_has_a_source():
    assert build.orphans() == []


def test_sections_are_there_and_in_order(notebook):
    text = markdown(notebook)
    places = [text.find(f"\n## {title}") for title in SECTIONS]
    assert -1 not in places, SECTIONS[places.index(-1)]
    assert places == sorted(places)
    assert re.match(r"# \d\d · [A-Z]", notebook.cells[0].source)
    assert "For the instructor" in notebook.cells[-1].source


def test_size_of_a_lesson(notebook):
    words = len(re.findall(r"\w+", re.sub(r"<[^>]+>|```.*?```", " ", markdown(notebook))))
    lines = [len(cell.source.splitlines()) for cell in code_cells(notebook)]
    assert 35 <= len(notebook.cells) <= 70
    assert 900 <= words <= 1800
    assert statistics.median(lines) <= 6


def test_words_that_belittle_are_absent(notebook):
    assert not BANNED.findall(markdown(notebook))


def test_most_printing_cells_are_compared(notebook):
    printing = [cell for cell in code_cells(notebook) if cell.outputs]
    loose = [cell for cell in printing if "nbval-ignore-output" in tags(cell)]
    assert len(loose) <= 0.4 * len(printing)
    assert not [
        c for c in printing if "NBVAL" in c.source or "nbval-skip" in c.metadata.get("tags", [])
    ]


def test_pictures_speak(notebook):
    html = html_outputs(notebook)
    images = re.findall(r"<img[^>]*>", html)
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in images)
    assert not re.search(r"<(script|style|svg)\b", html)


def test_outputs_hold_nothing_of_one_machine(notebook):
    compared = [
        c for c in code_cells(notebook) if "nbval-ignore-output" not in c.metadata.get("tags", [])
    ]
    text = str([cell.outputs for cell in compared])
    assert not re.search(r"0x[0-9a-f]{6,}|\b(?:Warning|Traceback)\b", text)
    assert not [c for c in code_cells(notebook) if c.source.rstrip().endswith(";")]
    assert "widgets" not in notebook.metadata


def cell_with(outputs: list, tags: list[str]):
    """A code cell that printed `outputs`."""
    streams = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in outputs]
    return nbformat.v4.new_code_cell("measure()", outputs=streams, metadata={"tags": tags})


def test_building_twice_gives_the_same_bytes():
    flushed_once = nbformat.v4.new_notebook(cells=[cell_with(["one\ntwo\n"], [])])
    flushed_twice = nbformat.v4.new_notebook(cells=[cell_with(["one", "\ntwo\n"], [])])
    once, twice = (build.normalise(n).cells[0].outputs for n in (flushed_once, flushed_twice))
    assert once == twice


def test_only_measuring_cells_keep_their_earlier_output():
    for tag, kept in ((build.MEASURES, "58 tokens"), ("other", "30 tokens")):
        earlier = nbformat.v4.new_notebook(cells=[cell_with(["58 tokens"], [tag])])
        now = nbformat.v4.new_notebook(cells=[cell_with(["30 tokens"], [tag])])
        build.keep_measured(now, earlier)
        assert now.cells[0].outputs[0].text == kept


@pytest.mark.slow
@pytest.mark.parametrize("capability", [None, "default"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_building_again_gives_the_committed_bytes(source, capability, monkeypatch, tmp_path):
    """Also on a CPU without vector instructions: no printed digit depends on the machine."""
    for name, value in {**build.REPEATABLE, "SPECDEC_DATA": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    if capability:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", capability)
    again = tmp_path / "again.ipynb"
    nbformat.write(build.rebuilt(source), again)
    assert again.read_bytes() == (build.HERE / f"{source.stem}.ipynb").read_bytes()
