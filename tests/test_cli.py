"""The command line: what it prints, how it ends, and what it says to bad input."""

import io
import math
import os
import re
import signal
import subprocess
import sys

import pytest
from model_folders import llama_config, save_folder

import specdec_core.demo as demo
from specdec_core import Round, Sampling, Seeded, Stats, load_pair, speculative_decode
from specdec_core.cli import _c_hat, _check_speed, main
from specdec_core.lab import exact_cases, measure, speed_model
from specdec_core.smollm2 import installed_folder

ESCAPE = re.compile(r"\033\[[\d;]*m")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save_folder(root / "target", llama_config(60), seed=1)
    save_folder(root / "draft", llama_config(64), seed=1)
    return root


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


# demo


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_demo_streams_the_very_text_of_the_run(capsys):
    code, out, _ = run(capsys, "demo", "--max-new-tokens", 24, "--repeats", 0, "--seed", 5)
    assert code == 0 and "\033" not in out
    pair = load_pair("storyworld")
    prompt = pair.encode("Once upon a time")
    result = speculative_decode(
        pair.target, pair.drafter, prompt, max_new_tokens=24, stop_tokens=pair.stop_tokens,
        randomness=Seeded(5),
    )  # fmt: skip
    marked = out.split("\n\n")[1]
    assert re.sub(r"[\[\]{}↵]", "", marked) == pair.decode([*prompt, *result.tokens])
    origins = [origin for round in result.trace.rounds for origin in round.origins]
    assert marked.count("[") == origins.count("corrected") > 0
    assert marked.count("{") == origins.count("bonus") > 0
    assert f"{len(result.tokens)} tokens from {result.stats.target_forwards} target forwards" in out
    assert f"{result.stats.acceptance_rate:.0%} of" in out


def test_demo_measures_its_own_gain(capsys):
    code, out, _ = run(capsys, "demo", "--max-new-tokens", 16, "--repeats", 1, "--gamma", 2)
    assert code == 0
    told = re.search(r"([\d.]+)x as fast as plain decoding.*\(([\d.]+) against ([\d.]+) tok", out)
    gain, fast, plain = map(float, told.groups())
    assert gain == pytest.approx(fast / plain, rel=0.05)
    assert ("so slower" in out) == (gain < 1)


def test_origins_have_marks_and_a_terminal_has_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    pieces = [(" fox", "draft"), (" the", "corrected"), ("\n", "corrected"), (" a", "bonus")]

    def shown(**options) -> str:
        painter = demo.Painter(Terminal(), **options)
        return "".join(painter.origin(text, origin) for text, origin in pieces)

    marked = " fox [the][↵]\n {a}"
    assert ESCAPE.sub("", shown()) == marked and len(ESCAPE.findall(shown())) == 8
    assert shown(colour=False) == marked
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown() == marked


def test_marked_text_holds_back_half_characters():
    """Two tokens make one character: it comes whole, with the origin of the token that ends it."""
    halves = {7: b"\xc3", 8: b"\xa9", 9: b"!"}

    class Bytes:
        def decode(self, ids):
            return b"".join(halves[i] for i in ids).decode(errors="replace")

    out = io.StringIO()
    text = demo.MarkedText(demo.Painter(out), Bytes(), [])
    common = {
        "token": 0, "target_prob": (), "draft_prob": (), "u": (), "residual_mass": 1.0,
        "zero_residual": False, "target_length": (0, 0), "draft_length": (0, 0),
    }  # fmt: skip
    text.show(Round(drafted=(7,), accepted=1, emitted=(7, 8), **common))
    text.show(Round(drafted=(8,), accepted=0, emitted=(9,), **common))
    text.finish()
    assert out.getvalue() == "{é}[!]\n"


def test_an_interrupted_demo_keeps_what_it_wrote(capsys, monkeypatch):
    whole = demo.speculative_rounds

    def interrupted(*arguments, **options):
        for count, round in enumerate(whole(*arguments, **options)):
            if count == 3:
                raise KeyboardInterrupt
            yield round

    monkeypatch.setattr(demo, "speculative_rounds", interrupted)
    code, out, _ = run(capsys, "demo")
    assert code == 130
    assert "Once upon a time" in out and "tokens from 3 target forwards" in out
    assert "interrupted" in out and "plain decoding" not in out


def listen_to_sigint():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_control_c_ends_a_real_run_cleanly():
    command = [sys.executable, "-m", "specdec_core.cli", "demo", "--max-new-tokens", "4000"]
    command += ["--gamma", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A job that a script started in the background ignores SIGINT, and its children inherit that.
    with subprocess.Popen(command, preexec_fn=listen_to_sigint, **pipes) as process:
        # Byte by byte: a whole line comes only when the story's first paragraph is finished.
        shown = b""
        while not shown.endswith(b"Once upon a time"):
            shown += process.stdout.read(1)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in err


def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "specdec_core.cli", "exact"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 0 and err == b""


# exact


def test_exact_agrees_and_shows_one_mistake(capsys):
    code, out, err = run(capsys, "exact")
    assert code == 0 and err == ""
    worst = float(re.search(r"Exact: the largest difference is (\S+),", out).group(1))
    assert worst <= 1e-12
    assert out.count("\n") > 4 * len(exact_cases.CASES)
    assert "(0.72, 0.28) instead of (0.60, 0.40), a difference of 0.12" in out


def test_exact_fails_on_a_wrong_decoder(capsys, monkeypatch):
    monkeypatch.setattr(exact_cases, "CASES", exact_cases.CASES[:1])
    # Mistake M1: after a rejection, draw from p.
    monkeypatch.setitem(sys.modules["specdec_core.verify"].__dict__, "residual_weights",
                        lambda p, q: p)  # fmt: skip
    code, out, _ = run(capsys, "exact")
    assert code == 1 and "NOT EXACT" in out


def test_target_law_is_a_law():
    for case in exact_cases.CASES:
        assert math.fsum(exact_cases.target_law(case).values()) == pytest.approx(1, abs=1e-14)


# pairs and check


def test_pairs_lists_them_all(capsys):
    code, out, _ = run(capsys, "pairs")
    assert code == 0
    names = ("storyworld", *load_pair("storyworld").drafters, "smollm2", "--target")
    for name in names:
        assert name in out
    assert "  lookup     copies what followed the last tokens" in out.partition("smollm2")[2]
    assert ("not installed: run `make models`" in out) == (installed_folder() is None)
    size = sum(p.numel() for p in load_pair("storyworld").target.model.parameters())
    assert f"{size:,} parameters" in out


def test_check_reports_tokens_memory_speed_and_advice(capsys):
    code, out, _ = run(capsys, "check", "--max-new-tokens", 32, "--max-length", 256)
    assert code == 0
    assert "same token, same id, on both sides" in out
    bill = re.findall(r"(target|draft) (weights|cache).*?([\d.]+ MB) +([\d.]+ MB)", out)
    assert len(bill) == 4
    for *_, predicted, allocated in bill:
        assert predicted == allocated
    assert re.search(r"c = 0\.\d+", out)
    assert re.search(r"Acceptance  0\.\d+, \d+ of \d+ judged", out)
    advice = re.search(r"Advice      gamma (\d)", out)
    assert advice and (advice[1] == "0" or "times the arithmetic" in out)


def test_check_of_any_two_folders(capsys, folders):
    code, out, _ = run(
        capsys, "check", "--target", folders / "target", "--draft", folders / "draft",
        "--prompt", "w1 w2", "--max-new-tokens", 12,
    )  # fmt: skip
    assert code == 0 and "logits 60 and 60 wide" in out


# The advice of gamma, worked by hand in theory: v = 1, no overhead.
@pytest.mark.parametrize(
    ("alpha", "c", "best", "gain"),
    [(0.8, 0.05, 8, 3.09), (0.8, 0.2, 4, 1.87), (0.6, 0.05, 4, 1.92), (0.5, 0.6, 0, 1.0)],
)
def test_best_gamma(alpha, c, best, gain):
    costs = speed_model.Costs(step=0.01, c=c, v=dict.fromkeys(range(1, 13), 1.0))
    gamma, predicted = speed_model.best_gamma(alpha, costs)
    assert gamma == best and predicted == pytest.approx(gain, abs=0.005)


def test_the_advice_says_what_a_token_then_costs(capsys):
    costs = speed_model.Costs(step=0.01, c=0.05, v={4: 1.0})
    stats = Stats()
    stats.accepted, stats.rejected = 8, 2
    _check_speed(costs, stats, 0.0, c_hat=0.25)
    told = " ".join(capsys.readouterr().out.split())
    # N = 1 + .8 + .64 + .512 + .4096 = 3.3616; 1 / N; (4 x .25 + 5) / N.
    assert told.endswith(
        "reads the target's weights 0.30 times, and takes 1.8 times the arithmetic."
    )
    _check_speed(costs, stats, 9.0, c_hat=0.25)
    assert "arithmetic" not in capsys.readouterr().out  # no draft pays


def test_c_hat_is_the_share_of_what_a_token_is_multiplied_with():
    pair = load_pair("storyworld")

    def maps(network, layers):
        config = network.config
        width, inner = config.hidden_size, config.intermediate_size
        return layers * (4 * width**2 + 3 * width * inner) + width * config.vocab_size

    target, draft = pair.target.model, pair.drafters["default"].model.model
    assert _c_hat(pair.target, pair.drafters["default"]) == maps(draft, 1) / maps(target, 24)
    exit_layers = pair.drafters["exit"].model.layers
    assert _c_hat(pair.target, pair.drafters["exit"]) == maps(target, exit_layers) / maps(
        target, 24
    )
    assert _c_hat(pair.target, pair.drafters["weak"]) == 0


def test_an_overhead_can_turn_the_advice_to_zero():
    costs = speed_model.Costs(step=0.01, c=0.1, v={1: 1.0, 2: 1.1})
    assert speed_model.best_gamma(0.4, costs, o=0.0)[0] > 0
    assert speed_model.best_gamma(0.4, costs, o=1.0) == (0, 1.0)


def test_costs_of_a_target_that_drafts_for_itself(folders):
    pair = load_pair(target=folders / "target")
    costs = measure.measure_costs(pair.target, pair.drafter, [1, 5, 6], (1, 2), repeats=5)
    assert 0.1 < costs.c < 10  # a draft step is a target step; wide, since machines are busy


# bench


def test_bench_of_any_two_folders(capsys, folders):
    code, out, err = run(
        capsys, "bench", "--target", folders / "target", "--draft", folders / "draft",
        "--kinds", "story", "--only", "gammas", "--gammas", 1, "--repeats", 1,
        "--max-new-tokens", 4,
    )  # fmt: skip
    assert code == 0 and err == "" and "drafter draft;" in out


# Bad input

BAD = {
    "no command": ([], "required"),
    "no such command": (["dmeo"], "invalid choice"),
    "gamma no number": (["demo", "--gamma", "x"], "invalid int value"),
    "gamma below 0": (["demo", "--gamma", "-1"], "gamma must be"),
    "temperature NaN": (["demo", "--temperature", "nan"], "temperature must be"),
    "top-p 0": (["demo", "--top-p", "0"], "top_p must lie in (0, 1]"),
    "top-k 0": (["demo", "--top-k", "0"], "top_k must be"),
    "no new tokens": (["demo", "--max-new-tokens", "0"], "max_new_tokens must be"),
    "past the context": (["demo", "--max-new-tokens", "5000"], "run past the target's 4096"),
    "unknown word": (["demo", "--prompt", "Once upon a dragn"], "near words: dragon"),
    "no template": (["demo", "--chat", "--prompt", "Once"], "no chat template"),
    "no such drafter": (["demo", "--draft", "best"], "choose default or weak or strong"),
    "no such pair": (["demo", "--pair", "storywrld"], "no pair named 'storywrld'"),
    "pair and target": (["check", "--pair", "smollm2", "--target", "x"], "exclude each other"),
    "negative repeats": (["demo", "--repeats", "-1"], "--repeats must be"),
    "no such dtype": (["check", "--dtype", "int4"], "dtype must be one of"),
    "no such device": (["check", "--device", "gpu"], "device must be"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gets_one_sentence(capsys, what):
    arguments, part = BAD[what]
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == ""
    assert err.startswith("specdec: ") and err.count("\n") == 1 and part in err
    assert err.rstrip().endswith(".")


def test_mismatched_tokenizers_get_one_sentence(capsys, folders):
    code, out, err = run(capsys, "check", "--target", "storyworld-is-no-folder")
    assert code == 2 and out == "" and "neither a folder here" in err
    from specdec_core.storyworld import WEIGHTS

    code, out, err = run(
        capsys, "check", "--target", WEIGHTS / "target", "--draft", folders / "draft"
    )
    assert code == 2 and out == "" and "their tokenizers differ" in err and err.count("\n") == 1


def test_the_installed_command_runs():
    command = [os.path.join(os.path.dirname(sys.executable), "specdec"), "demo", "--gamma", "-2"]
    if not os.path.exists(command[0]):
        pytest.skip("the package is not installed, only importable")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("specdec: gamma must be")


def test_demo_sampling_is_the_one_asked_for(capsys):
    code, out, _ = run(
        capsys, "demo", "--temperature", 0, "--top-k", 5, "--top-p", 0.9, "--repeats", 0,
        "--max-new-tokens", 8, "--draft", "weak", "--gamma", 0,
    )  # fmt: skip
    assert code == 0
    assert "drafter weak, gamma 0, temperature 0, top-k 5, top-p 0.9, seed 0" in out
    assert "judged drafts" not in out and "marks:" not in out


def test_sampling_settings_reach_the_run(monkeypatch, capsys):
    seen = {}

    def recorded(*arguments, **options):
        seen.update(options)
        raise ValueError("Enough seen.")

    monkeypatch.setattr(demo, "speculative_rounds", recorded)
    run(capsys, "demo", "--temperature", 0.5, "--top-k", 7, "--top-p", 0.8, "--gamma", 3)
    assert seen["sampling"] == Sampling(0.5, 7, 0.8) and seen["gamma"] == 3
