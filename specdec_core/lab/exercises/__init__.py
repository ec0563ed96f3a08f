"""Checks for the exercises: each answers *not attempted*, *wrong because ...*, or *right*."""

from specdec_core.lab.exercises.chapter_00 import check_keep, check_tokens_per_forward
from specdec_core.lab.exercises.verdicts import compare_prediction

__all__ = ["check_keep", "check_tokens_per_forward", "compare_prediction"]
