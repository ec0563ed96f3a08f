"""What `specdec bench` prints, from numbers made up here, and what it says to bad options."""

from __future__ import annotations

import json
import re

import pytest

from specdec_core.cli import main
from specdec_core.lab.bench import report

# The report


def a_row(name: str, *times: float, same_law: bool = True) -> dict:
    rates = [100.0 * t for t in times]
    return {"name": name, "same_law": same_law, "tokens_per_second": rates, "acceptance": None,
            "times_plain": list(times)}  # fmt: skip


def test_a_loss_is_told_in_words():
    rows = [a_row("plain", 1, 1), a_row("speculative, x", 0.5, 0.7), a_row("speculative, y", 2, 3)]
    lines = list(report.methods_table("story", rows))
    assert ["slower" in line for line in lines] == [False, False, True, False]
    assert "0.60x (0.55 to 0.65)" in lines[2] and "2.50x (2.25 to 2.75)" in lines[3]
    rows += [a_row("transformers generate", 0.4, 0.4), a_row("transformers assisted, y", 1.5, 1.5)]
    rows.append(a_row("transformers assisted, its defaults: top-k 50", 9, 9, same_law=False))
    numbers = {"methods": {"story": rows}, "models": {"acceptance": None},
               "machine": {"noise": 0.2}}  # fmt: skip
    text = " ".join(report.verdict(numbers))
    assert "on story: speculative, y (2.50x plain)" in text  # the row of another law cannot win
    assert "on story: speculative, x, 1 of the 3 rows of others." in text
    assert "20% of its speed, too much for fine differences" in text
    del rows[1], rows[2]
    assert "No row is slower than our plain decoding." in " ".join(report.verdict(numbers))


def test_ours_is_set_against_the_peer_that_does_the_same():
    rows = [a_row("plain", 1, 1), a_row("speculative, x", 4, 2)]
    rows += [a_row("transformers generate", 0.5, 0.25), a_row("transformers assisted, x", 2, 2)]
    assert report.versus({"code": rows}) == {
        "plain / transformers generate": {"code": [2.0, 4.0]},
        "speculative, x / transformers assisted, x": {"code": [2.0, 1.0]},
    }
    assert list(report.versus_table({"code": rows[:2]})) == []


def test_the_best_gamma_has_the_star():
    rows = [a_row("plain", 1), a_row("1", 1.2), a_row("2", 1.5), a_row("4", 0.9)]
    found = {"drafter": "x", "gammas": [1, 2, 4], "kinds": {"code": rows}}
    lines = list(report.gammas_table(found))
    assert lines[2].split() == ["code", "1.20", "1.50*", "0.90"]
    assert lines[-1].strip() == "Slower than plain: code at gamma 4."
    assert [m.end() for m in re.finditer(r"\d+", lines[1])] == [
        m.end() for m in re.finditer(r"\d\.\d\d", lines[2])
    ]


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ({1: 2.0, 4: 1.0}, "ahead at every size up to 4"),
        ({1: 0.9, 4: 0.8}, "plain decoding is ahead at every size"),
        ({1: 1.5, 4: 1.2, 16: 0.8}, "Crossing near 8 texts: beyond, plain"),  # halfway, in logs
        ({1: 0.9, 2: 1.1}, "Crossing near 1 texts: beyond, speculative"),
    ],
)
def test_where_plain_decoding_overtakes(ratios, words):
    assert words in report.crossing_sentence(ratios)


def test_a_loop_faster_than_its_forwards_is_called_noise():
    shares = {"plain": [0.9, 0.95], "speculative, x": [0.97, 0.99]}
    assert "noise" not in " ".join(report.loop_table({"kind": "code", "shares": shares}))
    shares["plain"] = [1.02, 1.04]
    lines = list(report.loop_table({"kind": "code", "shares": shares}))
    assert len(lines) == 4 and "above 1 are noise" in lines[-1]


# The command line


def test_bench_on_the_command_line(capsys, tmp_path):
    file = tmp_path / "numbers.json"
    code = main(
        ["bench", "--acceptance", ".5", "--shape", "small", "--only", "gammas", "loop", "--gammas",
         "2", "--repeats", "1", "--max-new-tokens", "8", "--json", str(file)]
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0 and err == ""
    assert "a coin keeps each draft with probability 0.5" in out and "Loop efficiency" in out
    numbers = json.loads(file.read_text())
    assert numbers["plan"]["gammas"] == [2] and numbers["models"]["acceptance"] == 0.5
    assert "methods" not in numbers and numbers["machine"]["threads"] == 1


def test_a_bad_drafter_leaves_no_file(capsys, tmp_path):
    file = tmp_path / "x.json"
    assert main(["bench", "--draft", "nope", "--json", str(file)]) == 2
    assert "no drafter 'nope'" in capsys.readouterr().err and not file.exists()


BAD = {
    "no repeats": (["--repeats", "0"], "--repeats must be a whole number"),
    "gamma 0": (["--gamma", "0"], "--gamma must be a whole number"),
    "gamma 0 in the sweep": (["--gammas", "2", "0"], "--gammas must be one or more"),
    "look-up gamma 0": (["--lookup-gamma", "0"], "--lookup-gamma must be a whole number"),
    "batch of none": (["--batches", "0"], "--batches must be one or more"),
    "no threads": (["--threads", "0"], "--threads must be a whole number"),
    "no tokens": (["--max-new-tokens", "0"], "--max-new-tokens must be a whole number"),
    "temperature": (["--temperature", "-1"], "temperature must be"),
    "no such table": (["--only", "speed"], "invalid choice: 'speed'"),
    "no such kind": (["--kinds", "poem"], "no kind of text 'poem'"),
    "no such drafter": (["--draft", "best"], "no drafter 'best'"),
    "no such device": (["--draft-device", "gpu"], "device must be"),
    "acceptance above 1": (["--acceptance", "1.1"], "--acceptance must lie in 0 to 1"),
    "acceptance NaN": (["--acceptance", "nan"], "--acceptance must lie in 0 to 1"),
    "no such shape": (["--acceptance", ".8", "--shape", "70b"], "invalid choice: '70b'"),
    "shape alone": (["--shape", "small"], "--shape goes with --acceptance"),
    "coin and pair": (["--acceptance", ".8", "--pair", "smollm2"], "makes random models"),
    "json nowhere": (["--json", "no/such/folder/x.json"], "cannot be written"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_options_get_one_sentence(capsys, what):
    arguments, part = BAD[what]
    code = main(["bench", *arguments])
    out, err = capsys.readouterr()
    assert code == 2 and out == ""
    assert err.startswith("specdec: ") and err.count("\n") == 1 and part in err
    assert err.rstrip().endswith(".")
