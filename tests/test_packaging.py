"""The project's own promises: files in step, floors, sizes, and nothing of one machine in them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "specdec_core"
MODULES = sorted(PACKAGE.rglob("*.py"))
# The public interface gathers all floors.
ON_A_FLOOR = [module for module in MODULES if module != PACKAGE / "__init__.py"]

FLOORS = {
    "sampling": 1, "randomness": 1, "trace": 1, "text": 1, "threads": 1,
    "cache": 2, "models": 2, "llama": 2, "graphs": 2, "texts": 2, "short_head": 2,
    "ngram": 2, "drafters": 2, "verify": 2,
    "request": 3, "schedules": 3, "monitor": 3, "decode": 3, "batch": 3, "exact": 3,
    "tokenizer_match": 4, "loading": 4, "smollm2": 4, "pairs": 4, "lab": 4, "storyworld": 4,
    "smollm2_draft": 4,
    "widgets": 5, "demo": 5, "cli": 5,
}  # fmt: skip
# The core reads no files and knows no notebook.
NOT_IN_CORE = {"pathlib", "os", "io", "IPython", "ipywidgets", "anywidget", "plotly", "jupyterlab"}


def requirement(text: str) -> tuple[str, str]:
    """Name and bounds of a requirement."""
    name, bounds = re.fullmatch(r"([A-Za-z0-9_-]+)\s*(.*)", text).groups()
    return name.lower().replace("_", "-"), bounds.replace(" ", "")


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    """Every requirement of pyproject.toml, the test extra included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(
        map(requirement, project["dependencies"] + project["optional-dependencies"]["test"])
    )


def test_environment_is_in_step_with_pyproject(wanted):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [item for item in environment["dependencies"] if isinstance(item, str)]
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert environment["channels"] == ["conda-forge"]
    assert {name for name, _ in map(requirement, conda)} == {"python", "pip", "pytorch"}
    assert "-e ." in pip
    named = dict(requirement(item) for item in pip if item != "-e .")
    named["torch"] = dict(map(requirement, conda))["pytorch"]
    assert named == wanted


def test_constraints_pin_every_requirement_inside_its_bounds(wanted):
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    assert not [line for line in lines if "@" in line or "+" in line]
    for name, bounds in wanted.items():
        least = tuple(map(int, bounds.removeprefix(">=").split(".")))
        pinned = tuple(int(part) for part in pins[name].split(".") if part.isdigit())
        assert pinned >= least, name


def test_makefile_has_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    wanted = {"lab", "demo", "test", "test-all", "train", "models", "notebooks", "bench"}
    assert wanted | {"lint", "clean"} <= set(targets)


def test_ci_installs_a_browser_and_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = [x for x in script.read_text().splitlines() if x and not x.startswith(("#", "set "))]
    assert lines[0] == 'cd "$(dirname "$0")/.."' and lines[-1] == "make test"
    assert {line.split()[0] for line in lines[1:-1]} == {"if", "(apt-get", "echo", "fi"}


def test_what_the_package_imports_is_required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {name.replace("-", "_") for name, _ in map(requirement, project["dependencies"])}
    # jupyterlab brings ipykernel and jupyter_core, that IPython; ipywidgets brings traitlets.
    brought = {"IPython", "jupyter_core", "traitlets"}
    known = ours | set(sys.stdlib_module_names) | {"specdec_core"} | brought
    for module in MODULES:
        assert {name.split(".")[0] for name in imported(module)} <= known, module.name


def floor(module: Path) -> int:
    """Floor of a file: that of its first part below the package."""
    return FLOORS[module.relative_to(PACKAGE).with_suffix("").parts[0]]


def imported(module: Path) -> set[str]:
    """Dotted names of the modules a file imports, relative imports resolved."""
    names = set()
    here = module.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: -node.level]) if node.level else ""
            stem = ".".join(filter(None, [base, node.module or ""]))
            names |= {stem} | {f"{stem}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("module", ON_A_FLOOR, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_imports_only_go_down_the_floors(module):
    for name in imported(module):
        parts = name.split(".")
        if parts[0] == "specdec_core" and len(parts) > 1 and parts[1] in FLOORS:
            assert FLOORS[parts[1]] <= floor(module), f"{module.name} imports {name} from above"
        if floor(module) <= 3:
            assert parts[0] not in NOT_IN_CORE, f"{module.name} imports {name}"
    if floor(module) <= 3:
        assert not re.search(r"\bopen\(", module.read_text())


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(module):
    text = module.read_text()
    assert len(text.splitlines()) <= 420
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            doc = len((ast.get_docstring(node, clean=False) or "").splitlines())
            body = node.end_lineno - node.body[0].lineno + 1 - doc
            assert body <= 45, f"{node.name} has {body} lines"


def tracked_files() -> list[Path]:
    """Text files git knows, or will know; in a copy without git, all but hidden and built ones."""
    if (ROOT / ".git").exists():
        out = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        files = [ROOT / line for line in out.stdout.splitlines()]
    else:
        hidden = re.compile(r"(^|/)(\.|build/|dist/|__pycache__/)")
        files = [f for f in ROOT.rglob("*") if not hidden.search(str(f.relative_to(ROOT)))]
    return [f for f in files if f.is_file() and f.suffix not in {".safetensors", ".png"}]


def test_nothing_names_a_machine_or_a_package_host():
    here = re.compile(
        r"/(home|root|Users)/\w|(?<![\w.])/(work|tmp)/\w|--index[-]url|pypi\.org/simple"
    )
    for file in tracked_files():
        if file == Path(__file__).resolve():
            continue
        assert not here.search(file.read_text(errors="replace")), file


def test_weights_are_never_pickles():
    assert not [f for f in tracked_files() if f.suffix in {".bin", ".pt", ".pth", ".pkl", ".ckpt"}]
    for module in MODULES:
        assert "pickle" not in imported(module)
        assert not re.search(
            r"torch\.(load|save)\(|trust_remote_code\s*=\s*True", module.read_text()
        )
