"""What README.md says works: its Python runs, and its commands, targets and folders exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from specdec_core import cli

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_python_blocks_run_one_after_the_other():
    names: dict = {}
    for i, block in enumerate(blocks("python")):
        exec(compile(block, f"README.md, python block {i + 1}", "exec"), names)
    out, first = names["out"], names["first"]
    assert out.tokens
    assert 0 < out.stats.acceptance_rate <= 1
    assert out.stats.block_efficiency >= 1
    assert first[(0,)] == pytest.approx(0.6, abs=1e-12)
    assert first[(1,)] == pytest.approx(0.4, abs=1e-12)


def test_first_thing_is_the_two_commands():
    assert re.match(r"# .+\n\n```bash\n", README)
    commands = [line.split("#")[0].strip() for line in blocks("bash")[0].splitlines()]
    assert commands == ["make lab", "make test"]


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", README, re.MULTILINE)) <= targets


def test_commands_exist(capsys):
    commands = set(re.findall(r"\bspecdec ([a-z]+)\b", "\n".join(blocks("bash"))))
    assert {"demo", "exact", "pairs", "check"} <= commands
    for command in commands:
        with pytest.raises(SystemExit) as leaving:
            cli.main([command, "--help"])
        assert leaving.value.code == 0
        shown = capsys.readouterr().out
        used = re.findall(rf"specdec {command}([^#\n]*)", README)
        for flag in re.findall(r"--[a-z-]+", " ".join(used)):
            assert flag in shown, f"specdec {command} has no {flag}"


def test_files_it_names_exist():
    named = re.findall(r"`([\w./-]+/)`", README) + re.findall(r"\]\((?!https?:)([^)#]+)", README)
    named += re.findall(r"notebooks/[\w]+\.ipynb", README)
    for name in named:
        places = [ROOT / name, ROOT / "notebooks" / name]
        assert any(place.exists() for place in places), name


def test_pictures_are_what_the_code_draws_today():
    """Run `python docs/images/draw.py` after a change that is meant."""
    folder = ROOT / "docs" / "images"
    drawn = runpy.run_path(str(folder / "draw.py"))["pictures"]()
    assert {file.name for file in folder.glob("*.svg")} == set(drawn)
    for name, svg in drawn.items():
        assert (folder / name).read_text() == svg, name
        assert f"](docs/images/{name})" in README
