"""The coin tape: what it shows is what the core decided, for the coins that are set."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import torch
from drawn import SVG, at, cells, words

from specdec_core import (
    Draft,
    Sampling,
    Scripted,
    Seeded,
    TableDrafter,
    TableModel,
    autoregressive_decode,
    speculative_decode,
    verify,
)
from specdec_core.widgets import coin_tape
from specdec_core.widgets.coin_picture import (
    HEIGHT,
    MOST_DRAFTS,
    VERDICTS,
    WIDTH,
)
from specdec_core.widgets.coin_tape import NOT_DRAWN
from specdec_core.widgets.picture import text_width, visible
from specdec_core.widgets.ribbon import ORIGINS

HOSTILE = ['<b>&"</script>', " fox", "\n", "'>", "\t", " lantern"]
P, Q = [0.3, 0.2, 0.1, 0.1, 0.1, 0.2], [0.1, 0.3, 0.2, 0.1, 0.2, 0.1]


def models():
    return TableModel(lambda prefix: P, 6), TableDrafter(lambda prefix: Q, 6)


def run(gamma: int = 4, stop_tokens=(), seed: int = 5, tokens: int = 40):
    return speculative_decode(
        *models(), [0], gamma=gamma, max_new_tokens=tokens, stop_tokens=stop_tokens,
        randomness=Seeded(seed),
    ).trace  # fmt: skip


def decode(ids) -> str:
    return "".join(HOSTILE[i] for i in ids)


@pytest.fixture(params=["with models", "without"])
def tape(request):
    trace = run()
    return trace, coin_tape(trace, decode, *(models() if request.param == "with models" else ()))


def test_every_round_is_shown_as_it_ran(tape):
    trace, stage = tape
    for number, round in enumerate(trace.rounds, start=1):
        at(stage, round=number)
        *drafts, last = cells(stage)
        assert [row[6] for row in drafts] == [VERDICTS[v][1] for v in round.verdicts]
        assert last[6] == round.origins[-1]
        assert "as it ran" in words(stage)[0]
        shown = words(stage)
        assert sum(shown.count(word) for _, word, _ in VERDICTS.values()) == round.gamma
        marks = [ORIGINS[origin][0] for origin in round.origins]
        assert [t[0] for t in shown if t[1:2] == " " and t[0] in "✓↻+·"] == marks
        # The three digits shown decide as the coin that fell.
        assert [float(row[5]) for row in drafts] == pytest.approx(round.u, abs=1e-3)


@pytest.mark.parametrize("coins", [(0, 0, 0, 0), (0.7, 0.6, 0.2, 0.9), (0.999,) * 4])
def test_moved_coins_are_judged_by_the_core(coins):
    trace = run()
    stage = at(
        coin_tape(trace, decode, *models()), **{f"u{i}": u for i, u in enumerate(coins, 1)}, v=0
    )
    drafted = trace.rounds[0].drafted
    p, q = torch.tensor([P] * 5, dtype=torch.float64), torch.tensor([Q] * 4, dtype=torch.float64)
    verdict = verify(p, Draft(torch.tensor(drafted), q), Scripted([0], coins))
    shown = [row[6] for row in cells(stage)]
    kept = int(verdict.accepted)
    assert shown.count("kept") == kept
    assert shown.count("replaced") == (kept < 4)
    assert shown[-1] == ("bonus" if kept == 4 else "corrected")


def test_without_models_the_last_token_of_another_verdict_stays_open():
    trace = run()
    first = trace.rounds[0]
    coins = {f"u{i}": 0 for i in range(1, 5)}
    stage = at(coin_tape(trace, decode), **coins)
    assert first.accepted < 4 and cells(stage)[-1][1] == "?"
    assert "with other coins" in words(stage)[0]
    at(stage, u1=0.5)
    assert NOT_DRAWN not in first.emitted


def test_choosing_another_round_puts_its_coins_back(tape):
    trace, stage = tape
    recorded = dict(at(stage, round=2).state)
    at(stage, u1=0.123)
    at(stage, round=1)
    assert at(stage, round=2).state == recorded
    assert [recorded[f"u{i}"] for i in range(1, 5)] == pytest.approx(trace.rounds[1].u, abs=1e-3)


def test_drafts_past_a_stop_token_are_not_in_the_text():
    for seed in range(50):
        trace = run(stop_tokens=(5,), seed=seed)
        if "unused" in trace.rounds[-1].verdicts:
            break
    number = len(trace.rounds)
    stage = coin_tape(trace, decode, *models(), stop_tokens=[5], round=number)
    assert "past the end" in words(stage) and "■ end: stop token" in words(stage)
    assert cells(stage)[-1][6] == "not written" and "ends here (stop)" in stage.sentence


def test_the_last_round_knows_how_much_room_is_left(tape):
    trace, stage = tape
    number = len(trace.rounds)
    assert trace.rounds[-1].finish_reason == "length"
    assert "■ end: length" in words(at(stage, round=number))
    rejected = {f"u{i}": 0.999 for i in range(1, 5)}
    if trace.rounds[-1].gamma and "replaced" in words(at(stage, **rejected)):
        assert "■ end: length" not in words(stage) or len(trace.rounds[-1].emitted) == 1


def test_a_short_round_says_which_coins_do_nothing():
    # Four tokens are left for the last round, and the last of a run is never a draft.
    trace = toy_run(toy(), max_new_tokens=7, gamma=2, randomness=Seeded(3))
    last = trace.rounds[-1].gamma
    assert last < 2 and trace.rounds[0].gamma == 2
    stage = coin_tape(trace, letters, *toy())
    assert "do nothing" not in stage.sentence and "does nothing" not in stage.sentence
    at(stage, round=len(trace.rounds))
    assert stage.sentence.endswith("nothing.") and "nothing" in words(stage)[-1]


def test_a_text_keeps_its_end_and_its_control_characters_are_marks():
    def odd(ids):
        return "\x00日本語の" * 20 + letters(ids)

    stage = coin_tape(toy_run(toy()), odd, *toy())
    before = next(word for word in words(stage) if word.startswith("…"))
    assert before.endswith(letters([2])) and "␀日" in before and "\x00" not in stage.svg
    assert text_width(before) <= WIDTH - 2 * 16 - 64


def test_a_narrow_column_still_names_the_favourite():
    assert "top <b>&…" in words(coin_tape(run(8), decode, *models()))


def test_a_round_without_drafts_has_a_plain_token():
    trace = autoregressive_decode(
        models()[0], [0], max_new_tokens=3, randomness=Seeded(0)
    ).trace  # fmt: skip
    stage = coin_tape(trace, decode, *models())
    assert cells(stage)[-1][6] == "plain"
    token = visible(decode([trace.rounds[0].token]))
    assert stage.sentence == (
        f"Round 1 of 3, as it ran: nothing was drafted; the plain token '{token}' is drawn from p."
    )


def toy(p=(0.4, 0.4, 0.2), q=(0.4, 0.4, 0.2)):
    """A pair over the letters a, b and c."""
    return TableModel(lambda prefix: p, 3), TableDrafter(lambda prefix: q, 3)


def letters(ids) -> str:
    return "".join("abc"[i] for i in ids)


def toy_run(pair, **options):
    options = {"gamma": 2, "max_new_tokens": 12, "randomness": Seeded(1), **options}
    return speculative_decode(*pair, [2], **options).trace


@pytest.mark.parametrize("live", [True, False])
def test_a_run_that_a_stop_string_ended_is_shown_as_it_ran(live):
    trace = toy_run(toy(), stop_strings=["bb"], detokenize=letters)
    number, last = len(trace.rounds), trace.rounds[-1]
    assert letters(last.emitted) == "abb" and last.finish_reason == "stop"
    stage = coin_tape(trace, letters, *(toy() if live else ()), round=number)
    assert {"✓ a", "✓ b", "+ b", "■ end: stop"} <= set(words(stage))
    assert "as it ran" in stage.sentence and "ends here (stop)" in stage.sentence
    # Coins that write the same text end it in the same place.
    at(stage, u1=0.001, u2=0.001)
    assert "as it ran" in stage.sentence and "■ end: stop" in words(stage)
    if live:
        # Another text does not end at a token that only closed the string.
        at(stage, v=0.1)
        assert "with other coins" in stage.sentence and "+ a" in words(stage)
        assert "ends here" not in stage.sentence


def test_every_stop_token_ends_the_text_whichever_ended_the_run():
    pair = toy((0.1, 0.5, 0.4), (0.1, 0.5, 0.4))
    trace = toy_run(pair, stop_tokens=[1, 2], randomness=Scripted([0, 0, 2], [0.5, 0.5]))
    assert letters(trace.rounds[0].emitted) == "aac"
    stage = at(coin_tape(trace, letters, *pair, stop_tokens=[1, 2]), v=0.3)
    assert {"+ b", "■ end: stop token"} <= set(words(stage))
    assert "ends here" not in at(coin_tape(trace, letters, *pair), v=0.3).sentence


def test_a_last_token_without_text_is_known_to_be_a_stop_token():
    def spoken(ids):
        return letters(ids).replace("c", "")

    pair = toy((0.2, 0.4, 0.4), (0.4, 0.4, 0.2))
    trace = toy_run(pair, stop_tokens=[2], randomness=Scripted([0, 1, 2], [0.1, 0.1]))
    stage = at(coin_tape(trace, spoken, *pair), u1=0.9, v=0.9)
    assert {"↻ ⟨end⟩", "■ end: stop token"} <= set(words(stage))


@pytest.mark.parametrize(
    ("ran", "forgotten"),
    [
        ({"sampling": Sampling(temperature=0.5)}, {}),
        ({"draft_sampling": Sampling(temperature=0.5)}, {}),
        ({"draft_sampling": Sampling(top_k=1)}, {"draft_sampling": Sampling(top_k=2)}),
        ({}, {"draft_sampling": Sampling(temperature=0)}),
    ],
)
def test_another_sampling_than_the_run_had_is_refused(ran, forgotten):
    pair = toy((0.5, 0.3, 0.2), (0.2, 0.5, 0.3))
    trace = toy_run(pair, **ran)
    for number, round in enumerate(trace.rounds, start=1):
        stage = coin_tape(trace, letters, *pair, **ran, round=number)
        *drafts, _ = cells(stage)
        shown = [[float(row[i]) for row in drafts] for i in (2, 3)]
        assert shown[0] == pytest.approx(round.target_prob, abs=5e-4)
        assert shown[1] == pytest.approx(round.draft_prob, abs=5e-4)
    with pytest.raises(ValueError, match="not the models or the sampling of this run: give"):
        coin_tape(trace, letters, *pair, **forgotten)


@pytest.mark.parametrize("other", [toy((0.5, 0.4, 0.1)), toy(q=(0.4, 0.6, 0)), models()])
def test_another_pair_than_the_run_had_is_refused(other):
    trace = toy_run(toy(), randomness=Scripted([2, 0, 1] * 9, [0.5] * 9))
    with pytest.raises(ValueError, match="not the models"):
        coin_tape(trace, letters, *other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_only_a_model_that_rounds_coarsely_may_differ_from_its_run(dtype):
    class Rounding(TableModel):
        """Its logits are one bfloat16 step off where the whole text is read at once."""

        def forward(self, tokens, keep=None):
            step = 0.004 * (len(tokens) > 3)
            return (super().forward(tokens, keep) + step * torch.tensor([1, 0, 0])).to(dtype)

    pair = Rounding(lambda prefix: (0.41, 0.39, 0.2), 3), toy()[1]
    trace = toy_run(pair)
    if dtype == torch.float64:
        with pytest.raises(ValueError, match="not the models"):
            coin_tape(trace, letters, *pair, round=3)
    else:
        assert "as it ran" in coin_tape(trace, letters, *pair, round=3).sentence


@pytest.mark.parametrize("live", [True, False])
def test_other_coins_may_fill_the_text(live):
    pair = toy((0.4, 0.4, 0.2), (0.2, 0.4, 0.4))
    coins = [0.9] * 9
    trace = toy_run(pair, max_new_tokens=4, randomness=Scripted([0, 2, 0, 1, 1], coins))
    assert [len(round.emitted) for round in trace.rounds] == [2, 2]
    stage = coin_tape(trace, letters, *(pair if live else ()))
    assert "ends here" not in at(stage, u2=0).sentence
    trace = toy_run(pair, max_new_tokens=3, randomness=Scripted([2, 0, 0, 1, 2], coins))
    assert [len(round.emitted) for round in trace.rounds] == [1, 2]
    stage = at(coin_tape(trace, letters, *(pair if live else ())), u1=0, u2=0)
    assert "ends here (length)" in stage.sentence and "■ end: length" in words(stage)


def on_the_grid(stage) -> bool:
    """Whether each slider's value is one that its number field takes."""
    values = {c["name"]: c["options"] for c in stage.controls if c["kind"] == "range"}
    return all(
        options["min"] <= stage.state[name] <= options["max"]
        and stage.state[name] == round(stage.state[name], 3)
        and options["step"] == 0.001
        for name, options in values.items()
    )


RARE = (0.4993, 0.0004, 0.5003)


@pytest.mark.parametrize("p", [RARE, (0.9996, 0.0004, 0.0), (0.9, 0.0998, 0.0002)])
def test_a_token_that_no_short_coin_draws_is_shown_as_it_ran(p):
    rare = p.index(min(x for x in p if x > 0))
    trace = toy_run(toy(p, p), randomness=Scripted([0, 0, rare] * 9, [0.5] * 99))
    stage = coin_tape(trace, letters, *toy(p, p))
    assert on_the_grid(stage) and "as it ran" in stage.sentence
    assert cells(stage)[-1][1] == "abc"[rare]
    # While v is left alone it draws the same token from the same row.
    assert "as it ran" in at(stage, u1=0.25).sentence
    assert "with other coins" in at(stage, v=0.1).sentence


@pytest.mark.parametrize("live", [True, False])
def test_a_coin_too_near_1_to_be_set_still_rejects(live):
    pair = toy((0.49975, 0.3, 0.20025), (0.5, 0.3, 0.2))
    script = Scripted([0, 1, 2, 0, 2, 2], [0.9999, 0.5, 0.9999])
    trace = toy_run(pair, max_new_tokens=3, randomness=script)
    assert trace.rounds[0].accepted == 0
    stage = coin_tape(trace, letters, *(pair if live else ()))
    assert on_the_grid(stage) and "as it ran" in stage.sentence
    assert [row[6] for row in cells(stage)] == ["replaced", "never judged", "corrected"]
    assert "with other coins" not in at(stage, u2=0.25).sentence
    assert cells(at(stage, u1=0.99))[0][6] == "kept"


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError])
def test_an_error_in_another_round_is_said_and_does_not_last(error):
    pair = toy()
    trace = toy_run(pair)
    stage = coin_tape(trace, letters, *pair)
    picture, forward, drawn = stage.svg, pair[0].forward, stage.drawn

    def fail(tokens, keep=None):
        raise error("out of memory")

    pair[0].forward = fail
    stage.state = {**stage.state, "round": 2}
    assert stage.problem and stage.svg == picture and stage.drawn == drawn + 1
    at(stage, round=1)
    pair[0].forward = forward
    assert "Round 2 of" in at(stage, round=2).sentence


@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_everything_stays_inside_the_frame(gamma):
    trace = run(gamma)
    stage = coin_tape(trace, decode, *models())
    for number in range(1, len(trace.rounds) + 1):
        root = ET.fromstring(at(stage, round=number).svg)
        for box in root.iter(f"{SVG}rect"):
            assert float(box.get("x", 0)) + float(box.get("width")) <= WIDTH
            assert float(box.get("y", 0)) + float(box.get("height")) <= HEIGHT
        for text in root.iter(f"{SVG}text"):
            assert int(text.get("font-size")) >= 11
            assert 0 <= float(text.get("x")) <= WIDTH and float(text.get("y")) < HEIGHT


def test_hostile_tokens_are_text(tape):
    _, stage = tape
    for number in range(1, 6):
        at(stage, round=number)
        for part in (stage.svg, stage.table):
            assert "<b>" not in part and "</script" not in part
    assert "&lt;b&gt;" in stage.svg


def test_a_round_the_run_lacks_is_refused(tape):
    _, stage = tape
    stage.state = {**stage.state, "round": 99}
    assert "no 99" in stage.problem


def test_too_many_drafts_are_refused():
    trace = run(MOST_DRAFTS + 1)
    with pytest.raises(ValueError, match="8 drafts at most, not 9"):
        coin_tape(trace, decode)
