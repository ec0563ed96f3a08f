"""Whole words as tokens: the vocabulary of storyworld and its tokenizer.

A token is a word, a punctuation mark, a line break or one step of indentation. Every space belongs
to the token after it, so decoding a prefix of the ids gives a prefix of the text (streaming).
"""

from __future__ import annotations

import difflib
import random
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from . import lexicon as lex
from .grammar import sample

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WEIGHTS = Path(__file__).parent / "weights"
UNKNOWN, START, STOP = SPECIAL = ("<unk>", "<s>", "</s>")
MARKS = (".", ",", "!", "?", ":", "(", ")", "“", "”", "\n", "\t")
WORD = r"[A-Za-z]+|\d|==|[^\sA-Za-z\d]|\n|\t"


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """Every token, by id: specials, marks, then words in alphabetical order."""
    rng, words = random.Random(0), set()
    # Every word list is used up in far fewer texts; the tests hold fresh texts against this.
    for _ in range(4000):
        words.update(sample(rng).tokens)
    for name, value in vars(lex).items():
        if name.isupper():
            words.update(_words_in(value))
    return (*SPECIAL, *MARKS, *sorted(words - set(MARKS)))


def _words_in(value: object) -> set[str]:
    """All words of a lexicon entry, however deep it nests; sub-words of phrases too."""
    if isinstance(value, str):
        return set(value.split()) if re.fullmatch(r"[A-Za-z ]+", value) else set()
    if isinstance(value, dict):
        value = (*value.keys(), *value.values())
    if isinstance(value, tuple):
        return set().union(*map(_words_in, value)) if value else set()
    return set()


def build_tokenizer() -> Tokenizer:
    """The tokenizer as the `tokenizers` library has it; `encode` starts with the start token."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    ids = {token: i for i, token in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("    ", "\t"),
            # Straight quotes, as people type them, open before a word and close after one.
            normalizers.Replace(Regex(r'"(?=\w)'), "“"),
            normalizers.Replace('"', "”"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD), "isolated"),
            pre_tokenizers.Split(Regex(r"[ \r]+"), "removed"),
        ]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{START} $A", pair=f"{START} $A $B", special_tokens=[(START, ids[START])]
    )
    glued_left = (".", ",", "!", "?", ":", ")", "(", "”", "\n", "\t")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix="##", cleanup=False),  # a space before all but the first
            *(decoders.Replace(f" {mark}", mark) for mark in glued_left),
            decoders.Fuse(),
            *(decoders.Replace(f"{mark} ", mark) for mark in ("\n", "\t", "(", "“")),
            decoders.Replace("\t", "    "),
        ]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def save_tokenizer(folder: Path) -> None:
    """Write an ordinary transformers tokenizer into `folder`."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer(),
        unk_token=UNKNOWN,
        bos_token=START,
        eos_token=STOP,
        pad_token=STOP,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


def unknown_words(text: str) -> list[str]:
    """The words of `text` that storyworld does not have, in order, each once."""
    known = set(vocabulary())
    clean = re.sub(r"</?s>", " ", text).replace("    ", "\t").replace('"', "”")
    found = [word for word in re.findall(WORD, clean) if word not in known]
    return list(dict.fromkeys(found))


def check_words(text: str) -> None:
    """Raise ValueError, in one sentence with near words, if a word of `text` is unknown."""
    for word in unknown_words(text):
        words = [token for token in vocabulary() if token.isalnum()]
        same = [token for token in words if token.lower() == word.lower()]
        close = difflib.get_close_matches(word.lower(), words, n=3, cutoff=0.5)
        near = ", ".join(dict.fromkeys(same + close))
        hint = f"near words: {near}" if near else "it knows, for example, Once upon a time"
        raise ValueError(f"'{word}' is not a word of storyworld; {hint}.")
