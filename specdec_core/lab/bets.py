"""Predictions a reader made, and how they turned out: kept on the reader's own machine.

They live in one JSON file in the folder $SPECDEC_DATA, or else in Jupyter's data folder. Building
and comparing notebooks uses an empty folder, so that no prediction enters a saved notebook.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from specdec_core.lab.exercises.verdicts import as_number, compare_prediction, verdict


@dataclass(frozen=True)
class Bet:
    """A question with a number for an answer.

    name: chapter and key, such as "00-forwards". low, high: where the answer may lie. guess: the
    reader's, and measured: the run's; None before they are known.
    """

    name: str
    question: str
    low: float
    high: float
    unit: str
    guess: float | None = None
    measured: float | None = None

    def __post_init__(self) -> None:
        known = [x for x in (self.guess, self.measured) if x is not None]
        if not all(math.isfinite(x) for x in (self.low, self.high, *known)):
            raise ValueError("The numbers of a bet are finite.")
        if not self.low < self.high:
            raise ValueError("A bet asks about a range: low must lie below high.")

    @property
    def error(self) -> float:
        """How far the guess was off, as a share of the range asked about."""
        return abs(self.guess - self.measured) / (self.high - self.low)


def bets_file() -> Path:
    """Where the predictions are."""
    folder = os.environ.get("SPECDEC_DATA")
    return (Path(folder) if folder else Path(jupyter_data_dir()) / "specdec") / "bets.json"


def read_bets() -> dict[str, Bet]:
    """Every bet kept so far, by name. Raises ValueError where the file is damaged."""
    file = bets_file()
    try:
        kept = json.loads(file.read_text())
        return {name: Bet(**fields) for name, fields in kept.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (AttributeError, OSError, TypeError, ValueError):
        raise ValueError(
            f"The predictions in {file} cannot be read: mend that file, or delete it to begin anew."
        ) from None


def keep_bet(bet: Bet) -> None:
    """Write a bet down, in place of an earlier one of that name.

    Raises ValueError where the folder cannot be written to.
    """
    bets = {**read_bets(), bet.name: bet}
    file = bets_file()
    unfinished = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps({n: asdict(b) for n, b in sorted(bets.items())}, indent=1))
        unfinished.replace(file)
    except OSError as error:
        raise ValueError(
            f"Your prediction could not be kept in {file.parent} ({error.strerror}): "
            "name a folder you may write to in the variable SPECDEC_DATA."
        ) from None


def settle(bet: Bet, mine: float | None, measured: float) -> None:
    """Print a prediction beside what was measured, and keep both for the bet board.

    mine: the number in the chapter's variable; None takes the one kept with the widget. What is no
    number, or lies outside the bet's range, is answered in a sentence and not kept.
    """
    kept = read_bets().get(bet.name)
    guess = kept.guess if mine is None and kept else mine
    number = as_number(guess)
    if number is None or not math.isfinite(number):
        compare_prediction(guess, measured, bet.unit)
    elif not bet.low <= number <= bet.high:
        verdict(f"a guess goes from {bet.low:g} to {bet.high:g}, not {number:g}")
    else:
        compare_prediction(number, measured, bet.unit)
        keep_bet(replace(bet, guess=number, measured=float(measured)))
