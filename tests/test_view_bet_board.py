"""Bets: kept on the reader's machine, settled beside what was measured, and never in a notebook."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from specdec_core.lab.bets import Bet, bets_file, keep_bet, read_bets, settle
from specdec_core.widgets.bet_board import bet, bet_board, draw_bet, draw_bet_board

ASKED = Bet("00-forwards", "How many <b>forwards</b>?", 1, 49, "forwards")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_DATA", str(tmp_path / "reader"))


def test_a_kept_bet_is_read_back_and_replaced():
    assert read_bets() == {}
    keep_bet(replace(ASKED, guess=20.0))
    keep_bet(replace(ASKED, guess=15.0))
    assert read_bets() == {ASKED.name: replace(ASKED, guess=15.0)}
    assert [f.name for f in bets_file().parent.iterdir()] == ["bets.json"]


def test_settling_prints_and_keeps(capsys):
    settle(ASKED, None, 10)
    assert read_bets() == {}
    settle(ASKED, 22, 10)
    assert read_bets()[ASKED.name].error == 0.25
    keep_bet(replace(ASKED, guess=16.0))
    settle(ASKED, None, 10)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "not attempted: no prediction; measured 10 forwards",
        "you said 22, measured 10 forwards: off by 12",
        "you said 16, measured 10 forwards: off by 6",
    ]


def test_a_bet_that_is_no_number_is_said_and_not_kept(capsys):
    settle(ASKED, "many", 10)
    assert "a prediction is a number" in capsys.readouterr().out
    assert read_bets() == {}


@pytest.mark.parametrize("guess", [1e6, 0, -3, 49.5])
def test_a_bet_outside_its_range_is_said_and_not_kept(guess, capsys):
    keep_bet(replace(ASKED, guess=16.0))
    settle(ASKED, guess, 10)
    said = f"wrong because a guess goes from 1 to 49, not {guess:g}"
    assert capsys.readouterr().out.strip() == said
    assert read_bets() == {ASKED.name: replace(ASKED, guess=16.0)}


@pytest.mark.parametrize("guess", [1, 49])
def test_the_ends_of_the_range_are_guesses(guess):
    settle(ASKED, guess, 10)
    assert read_bets()[ASKED.name].guess == guess


WRONG = {**asdict(ASKED), "low": 49}


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": {"name": "a"}}', json.dumps({"a": WRONG}), '{"a": 3}']
)
def test_a_damaged_file_is_named_and_left_alone(text):
    bets_file().parent.mkdir()
    bets_file().write_text(text)
    for touch in (read_bets, lambda: keep_bet(ASKED)):
        with pytest.raises(ValueError, match=r"bets\.json cannot be read"):
            touch()
    assert bets_file().read_text() == text


def test_a_folder_in_the_files_place_is_said():
    bets_file().mkdir(parents=True)
    with pytest.raises(ValueError, match="cannot be read"):
        read_bets()


@pytest.mark.parametrize("mine", [float("nan"), float("inf"), True])
def test_a_bet_that_is_no_finite_number_is_not_kept(mine):
    settle(ASKED, mine, 10)
    assert read_bets() == {}


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECDEC_DATA", str(tmp_path / "file" / "inside"))
    with pytest.raises(ValueError, match="SPECDEC_DATA"):
        keep_bet(ASKED)


def test_the_widget_keeps_only_when_asked_to():
    stage = bet("00-forwards", "How many forwards?", 1, 49, "forwards")
    assert "You say" not in stage.sentence and stage.state["guess"] == 25
    stage.state = {"guess": 12, "presses": 0}
    assert read_bets() == {} and "12 forwards (not kept yet)" in stage.sentence
    stage.state = {"guess": 25, "presses": 0}
    assert "25 forwards (not kept yet)" in stage.sentence
    stage.state = {"guess": 12, "presses": 1}
    assert read_bets()["00-forwards"].guess == 12 and "(kept)" in stage.sentence
    stage.state = {"guess": 13, "presses": 1}
    assert read_bets()["00-forwards"].guess == 12 and "not kept yet" in stage.sentence
    again = bet("00-forwards", "How many forwards?", 1, 49, "forwards")
    assert again.state["guess"] == 12 and "(kept)" in again.sentence
    again.settle(None, 18)
    assert read_bets()["00-forwards"].error == 0.125


def test_a_bet_that_cannot_be_kept_is_said_in_the_widget():
    stage = bet("00-forwards", "How many forwards?", 1, 49, "forwards")
    bets_file().parent.mkdir()
    bets_file().write_text("{")
    stage.state = {"guess": 12, "presses": 1}
    assert "cannot be read" in stage.problem


def test_the_board_shows_what_was_settled():
    bets = [
        replace(ASKED, guess=22.0, measured=10.0),
        replace(ASKED, name="01-flat", guess=2.0, measured=500.0),
        replace(ASKED, name="01-later", guess=2.0),
        replace(ASKED, name="02-asked"),
    ]
    picture = draw_bet_board(bets)
    assert picture.sentence.startswith("2 settled bets") and "1 kept, not" in picture.sentence
    assert "00-forwards, off by 25%" in picture.sentence
    assert "<b>" not in picture.svg + picture.table and "&lt;b&gt;" in picture.table
    assert picture.table.count("<tr>") == 3
    assert draw_bet_board(bets, "00").sentence.startswith("1 settled bet,")
    assert draw_bet_board(bets, "07").sentence.startswith("No settled bet yet")
    assert draw_bet_board(bets) == draw_bet_board(bets)


def test_the_board_reads_anew():
    board = bet_board()
    assert board.sentence.startswith("No settled bet yet")
    keep_bet(replace(ASKED, guess=22.0, measured=10.0))
    board.state = {"chapter": "all", "presses": 1}
    assert board.sentence.startswith("1 settled bet,")


def test_the_question_never_holds_the_answer():
    settled = replace(ASKED, guess=22.0, measured=10.0)
    assert "10" not in draw_bet(settled, 22, kept=True).sentence
    assert "10" not in json.dumps(bet(*list(vars(ASKED).values())[:5]).get_state()["sentence"])


def test_halfway_can_be_kept_without_moving_the_slider():
    stage = bet("00-forwards", "How many forwards?", 1, 49, "forwards")
    stage.state = {"guess": 25, "presses": 1}
    assert read_bets()["00-forwards"].guess == 25 and "(kept)" in stage.sentence
