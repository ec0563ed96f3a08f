"""Bets: a widget that takes one prediction, and the board that shows how all of them turned out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec_core.lab.bets import Bet, keep_bet, read_bets, settle
from specdec_core.widgets.picture import (
    BLUE,
    GREEN,
    INK,
    LINE,
    MUTED,
    PAPER,
    VERMILION,
    Picture,
    html_table,
    svg_frame,
    svg_text,
)
from specdec_core.widgets.stage import Stage, button, select, slider

WIDTH, LEFT, RIGHT = 760, 40, 560
ROW = 56


def _x(bet: Bet, value: float) -> float:
    """Where a value lies on the bet's own scale; values outside it stand at its ends."""
    share = (value - bet.low) / (bet.high - bet.low)
    return round(LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, share)), 1)


def _scale(bet: Bet, y: float) -> str:
    ends = svg_text(LEFT, y + 22, f"{bet.low:g}", 11, MUTED, text_anchor="middle")
    ends += svg_text(RIGHT, y + 22, f"{bet.high:g}", 11, MUTED, text_anchor="middle")
    return f'<path d="M{LEFT} {y:g}H{RIGHT}" stroke="{LINE}" stroke-width="3"/>{ends}'


def _guess(x: float, y: float) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="{PAPER}" stroke="{BLUE}" stroke-width="3"/>'


def _measured(x: float, y: float) -> str:
    return (
        f'<path d="M{x:g} {y - 10:g}l10 10l-10 10l-10 -10z" fill="{VERMILION}" '
        f'stroke="{PAPER}" stroke-width="1"/>'
    )


def draw_bet(bet: Bet, guess: float | None, kept: bool) -> Picture:
    """One question and where the reader puts the answer; the answer is not in it.

    guess: None while nothing has been said.
    """
    y = 64
    body = svg_text(LEFT - 20, 26, bet.question, 14) + _scale(bet, y)
    if guess is None:
        body += svg_text(RIGHT + 24, y + 5, "no prediction yet", 12, MUTED)
        sentence = f"{bet.question} Move the slider, then keep your prediction."
        return Picture(svg_frame(WIDTH, 100, body), sentence)
    state = "✓ kept" if kept else "not kept yet"
    body += _guess(_x(bet, guess), y)
    body += svg_text(RIGHT + 24, y - 2, f"{guess:g} {bet.unit}", 13)
    body += svg_text(RIGHT + 24, y + 16, state, 12, GREEN if kept else MUTED)
    sentence = f"{bet.question} You say {guess:g} {bet.unit} ({state.removeprefix('✓ ')})."
    return Picture(svg_frame(WIDTH, 100, body), sentence)


def bet(
    name: str, question: str, low: float, high: float, unit: str, step: float = 1.0
) -> BetStage:
    """A widget that takes a prediction between `low` and `high` and keeps it on this machine."""
    return BetStage(Bet(name, question, low, high, unit), step)


class BetStage(Stage):
    """A question, a slider, and a button that keeps the answer. bet: the question as data."""

    def __init__(self, asked: Bet, step: float) -> None:
        self.bet = asked
        earlier = read_bets().get(asked.name)
        known = earlier is not None and earlier.guess is not None
        # The slider starts halfway, so that its place says nothing about the answer.
        middle = round(asked.low + round((asked.high - asked.low) / 2 / step) * step, 6)
        self._kept = earlier.guess if known else None
        self._untouched = None if known else middle
        controls = [slider("guess", "your guess", asked.low, asked.high, step),
                    button("presses", "Keep this prediction")]  # fmt: skip
        super().__init__(
            self._view, "Your bet", controls, guess=earlier.guess if known else middle, presses=0
        )

    def settle(self, mine: float | None, measured: float) -> None:
        """Print the prediction, `mine` or else the one kept here, beside what was measured."""
        settle(self.bet, mine, measured)

    def _redraw(self, change: dict) -> None:
        guess = change["new"]["guess"]
        if guess != self._untouched:
            self._untouched = None
        if change["new"]["presses"] > change["old"]["presses"]:
            try:
                keep_bet(replace(self.bet, guess=float(guess)))
            except ValueError as error:
                self.problem = str(error)
                return
            self._kept = guess
        super()._redraw(change)

    def _view(self, guess: float, presses: int) -> Picture:
        kept = guess == self._kept
        return draw_bet(self.bet, guess if kept or guess != self._untouched else None, kept)


def draw_bet_board(bets: Sequence[Bet], chapter: str = "all") -> Picture:
    """Guesses (circles) beside what was measured (diamonds), each on its own scale."""
    asked = [b for b in bets if chapter in ("all", b.name.split("-")[0]) and b.guess is not None]
    rows = [b for b in asked if b.measured is not None]
    waiting = len(asked) - len(rows)
    later = f" {waiting} kept, not measured yet." if waiting else ""
    if not rows:
        words = "No settled bet yet: keep a prediction in a chapter and run on."
        body = _guess(LEFT, 40) + svg_text(LEFT + 18, 45, "your guess", 13)
        body += _measured(LEFT + 160, 40) + svg_text(LEFT + 178, 45, "what was measured", 13)
        return Picture(
            svg_frame(WIDTH, 90, body + svg_text(LEFT - 8, 76, words, 13)), words + later
        )
    body = _guess(LEFT, 26) + svg_text(LEFT + 16, 31, "your guess")
    body += _measured(LEFT + 130, 26) + svg_text(LEFT + 148, 31, "what was measured")
    body += "".join(_row(b, 84 + i * ROW) for i, b in enumerate(rows))
    mean = sum(b.error for b in rows) / len(rows)
    best = min(rows, key=lambda b: b.error)
    bets_word = "bet" if len(rows) == 1 else "bets"
    words = (
        f"{len(rows)} settled {bets_word}, off by {mean:.0%} of the range asked about on average; "
        f"the best is {best.name}, off by {best.error:.0%}.{later}"
    )
    table = html_table(
        ("bet", "question", "you said", "measured", "unit", "off by, of the range"),
        [(b.name, b.question, f"{b.guess:g}", f"{b.measured:.4g}", b.unit, f"{b.error:.0%}")
         for b in rows],
    )  # fmt: skip
    return Picture(svg_frame(WIDTH, 84 + len(rows) * ROW, body), words, table)


def _row(b: Bet, y: float) -> str:
    guess, measured = _x(b, b.guess), _x(b, b.measured)
    span = f'<path d="M{guess:g} {y:g}H{measured:g}" stroke="{INK}" stroke-width="3"/>'
    said = svg_text(RIGHT + 24, y - 2, f"said {b.guess:g}, was {b.measured:.4g}", 12)
    off = svg_text(RIGHT + 24, y + 15, f"off by {b.error:.0%} of the range", 11, MUTED)
    title = svg_text(LEFT - 12, y - 16, f"{b.name}: {b.question}", 12)
    return title + _scale(b, y) + span + _guess(guess, y) + _measured(measured, y) + said + off


def bet_board(chapter: str = "all") -> Stage:
    """How the reader's predictions turned out; read anew with every change."""
    chapters = {"all": "all chapters", **{f"{i:02d}": f"chapter {i:02d}" for i in range(13)}}

    def view(chapter: str, presses: int) -> Picture:
        return draw_bet_board(list(read_bets().values()), chapter)

    controls = [select("chapter", "show", chapters), button("presses", "Look again")]
    return Stage(view, "Bet board", controls, chapter=chapter, presses=0)
