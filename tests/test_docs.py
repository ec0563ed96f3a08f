"""What docs/ says is so: commands, files and links exist, code runs, no word is missing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from specdec_core import cli

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
TEXTS = {page.name: page.read_text() for page in DOCS}
SOURCES = sorted((ROOT / "notebooks" / "source").glob("*.py"))
CHINESE = re.compile(r"[\u4e00-\u9fff]")
BANNED = re.compile(r"\b(simply|obviously|just)\b", re.IGNORECASE)

page = pytest.mark.parametrize("name", TEXTS)


def code_of(text: str) -> list[str]:
    """Everything set as code: fenced lines of commands, and `spans`."""
    fences = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for fence in fences for line in fence.splitlines()]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for line in lines if line] + re.findall(r"`([^`\n]+)`", outside)


def commands(text: str, program: str) -> list[list[str]]:
    """The arguments of each call of `program` in the code of a page."""
    found = []
    for code in code_of(text):
        for match in re.finditer(rf"(?:^|[\s/]){program} ([^|&`]+)", code):
            found.append(shlex.split(match.group(1)))
    return found


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_pages_are_there():
    assert {"glossary.md", "how_a_lesson_is_built.md", "instructor_guide.md"} <= TEXTS.keys()
    assert "troubleshooting.md" in TEXTS


@page
def test_make_targets_exist(name):
    for arguments in commands(TEXTS[name], "make"):
        goals = [a for a in arguments if re.fullmatch(r"[a-z-]+", a)]
        variables = [a.split("=")[0] for a in arguments if "=" in a]
        assert goals[:1], arguments
        assert set(goals) <= make_targets(), arguments
        assert all(f"$({v})" in (ROOT / "Makefile").read_text() for v in variables), arguments


@page
def test_specdec_commands_exist(name, capsys):
    for command, *flags in commands(TEXTS[name], "specdec"):
        with pytest.raises(SystemExit) as leaving:
            cli.main([command, "--help"])
        assert leaving.value.code == 0
        shown = capsys.readouterr().out
        assert all(flag in shown for flag in flags if flag.startswith("--")), (command, flags)


@page
def test_build_script_has_the_options_named(name):
    script = (ROOT / "notebooks" / "build.py").read_text()
    for code in code_of(TEXTS[name]):
        if "build.py" in code or code.startswith("make notebooks"):
            assert all(f'"{flag}"' in script for flag in re.findall(r"--[a-z]+", code)), code


@page
def test_files_it_names_exist(name):
    for code in code_of(TEXTS[name]):
        for path in re.findall(
            r"(?<![\w.$~/])(?:docs|notebooks|specdec_core|tests)/[\w./*-]*", code
        ):
            if "NN" not in path:
                assert list(ROOT.glob(path.rstrip("/"))), path
        if re.fullmatch(r"[\w./-]+\.(?:md|toml|txt|yml)", code):
            assert any((place / code).exists() for place in (ROOT, ROOT / "docs")), code


@page
def test_relative_links_lead_somewhere(name):
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", TEXTS[name]):
        file, _, heading = link.partition("#")
        target = (ROOT / "docs" / file).resolve() if file else ROOT / "docs" / name
        assert target.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in anchors, link


@page
def test_words_that_belittle_are_absent(name):
    told = TEXTS[name].replace("*simply*, *obviously* and *just*", "")
    assert not BANNED.findall(told)


def test_variables_named_are_read_by_the_code():
    named = set(re.findall(r"`(SPECDEC_\w+|CHROMIUM)", "".join(TEXTS.values())))
    code = "".join(p.read_text() for p in [*ROOT.glob("specdec_core/**/*.py"),
                                           *ROOT.glob("tests/browser/*.py")])  # fmt: skip
    assert {"SPECDEC_DATA", "SPECDEC_CACHE", "CHROMIUM"} <= named
    assert all(f'"{variable}"' in code for variable in named)


# The words of an error that a page quotes, and where the code says them.
QUOTED = {
    "This project needs Python 3.11 or newer": "Makefile",
    "The bundled weights are missing": "specdec_core/pairs.py",
    "SmolLM2 is not on this machine yet": "specdec_core/smollm2.py",
    "sees no CUDA device here": "specdec_core/loading.py",
    "their tokenizers differ": "specdec_core/tokenizer_match.py",
    "Run this cell for the controls": "specdec_core/widgets/stage.py",
}


@pytest.mark.parametrize("words", QUOTED)
def test_quoted_messages_are_the_ones_the_code_gives(words):
    assert words in TEXTS["troubleshooting.md"]
    assert words in (ROOT / QUOTED[words]).read_text()


def test_the_example_of_a_widget_runs():
    names: dict = {}
    blocks = re.findall(
        r"^```python\n(.*?)^```", TEXTS["how_a_lesson_is_built.md"], re.MULTILINE | re.DOTALL
    )
    for i, block in enumerate(blocks):
        exec(compile(block, f"how_a_lesson_is_built.md, block {i + 1}", "exec"), names)
    stage, rounds = names["stage"], names["out"].trace.rounds
    assert stage.state["number"] == 2 and stage.sentence.startswith("Round 2, draft 1")
    assert all(f"{p:.3f}" in stage.table for p in rounds[1].target_prob)
    stage.state = {"number": len(rounds) + 1, "chosen": 0}
    assert stage.problem == f"There are rounds 1 to {len(rounds)}: choose one of them."
    hostile = names["draw_verdicts"](names["out"].trace, lambda ids: '<b>&"</script>', 1, 0)
    assert "<b>" not in hostile.svg + hostile.table


def test_sections_told_are_the_sections_tested():
    from test_notebooks import SECTIONS

    for section in SECTIONS:
        assert f"`## {section}" in TEXTS["how_a_lesson_is_built.md"], section


# The glossary


def glossary() -> list[tuple[list[str], str, str, str]]:
    """Its rows: names of a word, Chinese, meaning, chapter."""
    table = re.findall(r"^\| (.+) \|$", TEXTS["glossary.md"], re.MULTILINE)[1:]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in table]
    assert all(len(row) == 4 for row in rows)
    return [(row[0].split(", "), *row[1:]) for row in rows]


def known() -> set[str]:
    return {plain(name) for names, *_ in glossary() for name in names}


def plain(word: str) -> str:
    """A word without marks of code or mathematics, or what stands in brackets."""
    return re.sub(r"\s+", " ", re.sub(r"\([^)]*\)|[`*$\\]", "", word)).strip().lower()


def is_known(word: str, words: set[str]) -> bool:
    """A word of a chapter is one of the glossary's, or begins with one, or one begins with it."""
    return any(
        word == other or word.startswith(other + " ") or other.startswith(word + " ")
        for other in words
    )


def words_of(source: Path) -> list[str]:
    """The first column of the table "Words of this chapter"."""
    text = source.read_text().partition("## Words of this chapter")[2]
    rows = re.findall(r"^# \| (.+?) \|", text, re.MULTILINE)
    return [plain(w) for row in rows[1:] for w in re.split(r",|/", row) if plain(w)]


def test_glossary_is_in_alphabetical_order():
    first = [names[0].lower() for names, *_ in glossary()]
    assert first == sorted(first) and len(set(first)) == len(first) > 80


def test_every_row_of_the_glossary_is_whole():
    for names, chinese, meaning, chapter in glossary():
        assert CHINESE.search(chinese), names
        assert meaning.endswith(".") and len(meaning) > 20, names
        assert re.fullmatch(r"\d\d", chapter), names


def test_words_in_italics_have_a_row():
    words = known()
    for names, _, meaning, _ in glossary():
        for word in re.findall(r"\*([^*]+)\*", meaning):
            assert plain(word) in words, f"{names[0]} points to {word}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_glossary_has_every_word_of_the_chapter(source):
    words = words_of(source)
    assert len(words) >= 4
    assert [word for word in words if not is_known(word, known())] == []


def test_an_unknown_word_would_be_noticed():
    assert is_known("residual", {"residual distribution"})
    assert is_known("row i", {"row"})
    assert not is_known("rowing", {"row"})
    assert not is_known("snark", known())


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_instructors_guide_has_the_chapter(source):
    title = re.search(r"^# # (\d\d · .+)$", source.read_text(), re.MULTILINE)[1]
    assert f"### {title}\n" in TEXTS["instructor_guide.md"]


def minutes(text: str) -> list[str]:
    """The numbers of the first minute plan in a text."""
    plan = re.search(r"\*\*Minutes:\*\*(.*?)\n[# ]*- \*\*", text, re.DOTALL)[1]
    return re.findall(r"\d+", plan)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_minute_plans_are_those_of_the_chapter(source):
    chapter = source.read_text().rpartition("For the instructor")[2]
    guide = TEXTS["instructor_guide.md"].partition(f"### {source.stem[:2]} ·")[2]
    assert minutes(chapter) == minutes(guide)
