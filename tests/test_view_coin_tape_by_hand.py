"""The coin tape on the reader's own numbers: what is clicked, dragged or typed decides."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qsl

import pytest
import torch
from drawn import at, cells, words

from specdec_core.widgets import coin_replay, coin_tape_by_hand
from specdec_core.widgets.coin_picture import draw_coin_tape
from specdec_core.widgets.coin_replay import Coins, Rows
from specdec_core.widgets.coin_tape import view_by_hand


def test_clicking_a_bar_does_what_it_says():
    stage = coin_tape_by_hand(".5 .3 .2", ".2 .5 .3", "B C A", u=(0.1, 0.1, 0.1))
    parts = re.findall(r'data-set="([^"]*)" aria-label="([^"]*)"', stage.svg)
    assert len(parts) == 5  # A has p above q: no coin can reject it
    for state, label in parts:
        ((name, value),) = parse_qsl(unescape(state))
        fresh = coin_tape_by_hand(".5 .3 .2", ".2 .5 .3", "B C A", u=(0.1, 0.1, 0.1))
        fate = cells(at(fresh, **{name: float(value)}))[int(name[1:]) - 1][6]
        assert fate == ("kept" if label.endswith("keep it") else "replaced")


def test_each_coin_can_be_dragged_over_its_own_bar():
    stage = coin_tape_by_hand(drafted="A B")
    assert re.findall(r'data-drag="(\w+)"', stage.svg) == ["u1", "u2"]
    assert set(re.findall(r'data-value="([^"]*)"', stage.svg)) == {"0,0.999"}
    assert "local.reduce" in stage._esm


def test_the_sentence_says_why_and_who_the_favourite_was():
    stage = coin_tape_by_hand(".6 .4", ".4 .6", "B B A", u=(0.5, 0.9, 0.1), v=0.2)
    assert stage.sentence == (
        "One round on your numbers: 1 of 3 drafts kept; draft 2 'B' is replaced, since its coin "
        "0.900 is not below p/q = 0.667; 1 never judged; the corrected token 'A' is drawn from "
        "max(p − q, 0) in place of draft 2; draft 1 is kept though the target's favourite is 'A'. "
        "There are no drafts 4 to 6: their coins do nothing."
    )


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"p": ".6 .5"}, "add up to 1; these add up to 1.1"),
        ({"p": ".6 four"}, "numbers with spaces"),
        ({"p": "1"}, "needs 2 to 10 numbers"),
        ({"p": ".5 .3 .2"}, "p has 3 numbers and q has 2"),
        ({"q": "1 0", "drafted": "B"}, "its q is 0"),
        ({"drafted": "A C"}, "no token 'C'"),
        ({"drafted": "A A A A A A A"}, "at most 6"),
        ({"p": "nan nan"}, "must be numbers"),
        ({"u1": 1.0}, "coin u of draft 1"),
        ({"v": 1.0}, "coin v"),
    ],
)
def test_what_makes_no_round_is_said_in_a_sentence(numbers, said):
    stage = coin_tape_by_hand()
    picture = stage.svg
    stage.state = {**stage.state, **numbers}
    assert said in stage.problem and stage.problem.endswith(".")
    assert stage.svg == picture


def test_the_same_state_gives_the_same_bytes():
    def picture():
        return view_by_hand(".6 .4", ".8 .2", "A B", v=0.3, u1=0.9, u2=0.1)

    assert picture() == picture()


def test_a_picture_is_of_the_round_it_is_given():
    rows = Rows(torch.tensor([[0.6, 0.4]] * 2), torch.tensor([[0.8, 0.2]]), (0,))
    played = rows.play([0.76], 0.5)
    picture = draw_coin_tape(played, "AB".__getitem__, "By hand")
    assert [row[6] for row in cells(picture)] == ["replaced", "corrected"]
    assert cells(picture)[0][4] == "0.750"


@pytest.mark.parametrize(
    ("drafted", "said"),
    [
        ("A A A", "There are no drafts 4 to 6: their coins do nothing"),
        ("A A A A", "There are no drafts 5 and 6: their coins do nothing"),
        ("A A A A A", "There is no draft 6: its coin does nothing"),
    ],
)
def test_the_coins_of_drafts_that_are_not_there_are_said_to_do_nothing(drafted, said):
    stage = coin_tape_by_hand(drafted=drafted)
    assert said in words(stage) and stage.sentence.endswith(f" {said}.")
    picture = stage.svg
    assert at(stage, u6=0.123).svg == picture
    full = at(stage, drafted="A A A A A A")
    assert "do nothing" not in full.sentence + full.svg


def test_a_round_is_played_in_one_thread():
    seen, threads = [], torch.get_num_threads()

    class Watched(Coins):
        def categorical(self, probs):
            seen.append(torch.get_num_threads())
            return super().categorical(probs)

    rows = Rows(torch.tensor([[0.6, 0.4]] * 2), torch.tensor([[0.8, 0.2]]), (0,))
    torch.set_num_threads(2)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coin_replay, "Coins", Watched)
            rows.play([0.76], 0.5)
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_letters_need_no_spaces_between():
    stage = coin_tape_by_hand(drafted="A B A")
    assert at(stage, drafted="aba").svg == at(stage, drafted="A, B, A").svg
