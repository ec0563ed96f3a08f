"""Tokens into text as they come: whole characters, stop strings, spaces."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from specdec_core import (
    TableDrafter,
    TableModel,
    TextStream,
    speculative_decode,
    speculative_rounds,
)
from specdec_core.text import Ending

# Text as it comes


def byte_level():
    """A byte-level tokenizer with one token a byte: every accent is split over two tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


BYTES = byte_level()


def streamed(text, stops=(), context=()):
    stream = TextStream(BYTES.decode, stops, context)
    pieces = [stream.push(token) for token in BYTES.encode(text).ids]
    return stream, pieces


@pytest.mark.parametrize("text", ["plain words", "naïve café", "日本語 🙂 done", "🙂", "e\u0301"])
def test_streamed_pieces_join_to_the_text_and_no_character_is_broken(text):
    stream, pieces = streamed(text, context=BYTES.encode("before ").ids)
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + stream.finish() == text == stream.text


def test_a_character_shows_with_its_last_byte():
    _, pieces = streamed("a🙂b")
    assert pieces == ["a", "", "", "", "🙂", "b"]


def test_bytes_that_never_become_a_character_come_out_at_the_end():
    stream = TextStream(BYTES.decode)
    ids = BYTES.encode("x🙂").ids[:3]
    assert [stream.push(i) for i in ids] == ["x", "", ""]
    assert stream.finish() == "\ufffd" and stream.text == "x\ufffd"


def test_the_possible_start_of_a_stop_string_is_held_back_until_it_is_certain():
    stream, pieces = streamed("ab##c", stops=["###"])
    assert pieces == ["a", "b", "", "", "##c"]
    stream, pieces = streamed("ab##", stops=["###"])
    assert pieces == ["a", "b", "", ""] and not stream.stopped
    assert stream.finish() == "##" and stream.text == "ab##"


def test_a_stop_string_cuts_the_stream_before_it():
    stream, pieces = streamed("ab###", stops=["zz", "###"])
    assert "".join(pieces) == stream.text == "ab"
    assert stream.stopped and stream.finish() == ""


def test_a_stop_string_is_seen_although_the_same_token_begins_a_broken_character():
    first = BYTES.encode("é").ids[0]
    pieces = {0: BYTES.encode("ab").ids, 1: [*BYTES.encode("END").ids, first], 2: [first]}
    stream = TextStream(lambda ids: BYTES.decode([b for i in ids for b in pieces[i]]), ["END"])
    assert stream.push(0) == "ab" and stream.push(1) == ""
    assert stream.stopped and stream.text == "ab"


def test_a_leading_space_shows_behind_the_prompt():
    """A decoder that drops the first space of what it is given, as sentencepiece's do."""
    stream = TextStream(lambda ids: "".join(f" {i}" for i in ids)[1:], context=[1, 2])
    assert [stream.push(3), stream.push(4)] == [" 3", " 4"]


def test_a_token_without_text_keeps_the_space_of_the_next():
    def words(ids):
        return " ".join(str(i) for i in ids if i)

    stream = TextStream(words, context=[1])
    assert [stream.push(0), stream.push(2), stream.push(0), stream.push(3)] == ["", " 2", "", " 3"]


def test_streaming_a_run_gives_the_text_of_the_run():
    ids = BYTES.encode("ça va? oui 🙂 FIN et plus").ids

    def row(prefix):
        at = len(prefix) - 1
        return torch.eye(256, dtype=torch.float64)[ids[at] if at < len(ids) else 0]

    options = {
        "gamma": 3,
        "max_new_tokens": 60,
        "stop_strings": ["FIN"],
        "detokenize": BYTES.decode,
    }
    target, drafter = TableModel(row, 256), TableDrafter(row, 256)
    stream = TextStream(BYTES.decode, ["FIN"], [0])
    shown = "".join(
        stream.push(token)
        for round in speculative_rounds(target, drafter, [0], **options)
        for token in round.emitted
    )
    run = speculative_decode(target, drafter, [0], **options)
    assert shown + stream.finish() == run.text == "ça va? oui 🙂 "
    assert run.finish_reason == "stop" and BYTES.decode(run.tokens).endswith("FIN")


def test_an_ending_keeps_nothing_past_the_end():
    ending = Ending(5, [9], None)
    assert ending.keep([1, 2]) == [1, 2] and ending.reason is None and ending.remaining == 3
    assert ending.keep([3, 9, 4]) == [3, 9] and ending.reason == "stop"
    assert ending.keep([5]) == []
    short = Ending(1, [], None)
    assert short.keep([1, 2]) == [1] and short.reason == "length"
