"""The museum of mistakes: each known way to get speculative decoding wrong, ready to run.

    MISTAKES["M1"].example.law("M1")            the exact law of the mistaken decoder on a toy
    decode("M1", target, drafter, prompt, ...)  any run with the mistake installed
    seen_by("M1")                               the checks that notice
    MISTAKES["M1"].source, .link                where it was met

A mistake is a stand-in for one piece of a run. The core itself has no switch for it.
"""

from specdec_core.lab.museum import caches, drafting, verdicts, vocabulary  # noqa: F401  (fill MISTAKES)
from specdec_core.lab.museum.checks import CHECKS, distance, mean, seen_by
from specdec_core.lab.museum.pieces import (
    MISTAKES,
    Example,
    Mistake,
    Pieces,
    always,
    by_last,
    by_parity,
    decode,
    exhibit,
    installed,
)

# M2 before M10, M6 before M6b.
for _id in sorted(MISTAKES, key=lambda id: (int(id.strip("Mbc")), id)):
    MISTAKES[_id] = MISTAKES.pop(_id)

__all__ = [
    "CHECKS", "MISTAKES", "Example", "Mistake", "Pieces", "always", "by_last", "by_parity",
    "decode", "distance", "exhibit", "installed", "mean", "seen_by",
]  # fmt: skip
