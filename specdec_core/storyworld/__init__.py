"""Storyworld: a small invented world of stories, recipes and toy code, and models of it.

Importing this package costs nothing heavy: torch and transformers are loaded only by `train`.
"""

from .grammar import KINDS, Text, log_prob, sample, texts
from .tokenizer import WEIGHTS, build_tokenizer, check_words, unknown_words, vocabulary

__all__ = [
    "KINDS",
    "WEIGHTS",
    "Text",
    "build_tokenizer",
    "check_words",
    "log_prob",
    "sample",
    "texts",
    "unknown_words",
    "vocabulary",
]
