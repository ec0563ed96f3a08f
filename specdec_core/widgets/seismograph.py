"""The acceptance seismograph: how likely a draft is kept at each position of a real text.

The line is quiet where draft and target agree; each shock is a token on which they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

from specdec_core.lab.acceptance import AcceptanceRecord
from specdec_core.widgets.picture import Picture
from specdec_core.widgets.seismograph_picture import Strip, draw_strips
from specdec_core.widgets.stage import Stage, select, slider

NOTHING = "nothing"
MOST_RECORDS = 8
START = "▷"  # a text's first token, where it has no text of its own


class Seismograph(Stage):
    """A stage whose position stays inside the text that is shown."""

    def __init__(self, strips: Mapping[str, Strip], *arguments: object, **state: object) -> None:
        self._strips = strips
        super().__init__(partial(draw_seismograph, strips), *arguments, **state)

    def settled(self, before: dict, now: dict) -> dict:
        return {**now, "position": min(now["position"], self._strips[now["shown"]].length)}


def seismograph(
    records: Mapping[str, AcceptanceRecord],
    decode: Callable[[Sequence[int]], str],
    *,
    window: int = 10,
) -> Stage:
    """A stage: acceptance along a text; choose a record, another one below it, a position.

    records: a kind of text, or a draft, -> its record, 1 to 8 of them. decode: token ids -> text.
    window: positions that the rolling mean spans.

    Raises ValueError for no record or more than 8, and for one without positions.
    """
    if not 1 <= len(records) <= MOST_RECORDS:
        raise ValueError(f"Give 1 to {MOST_RECORDS} records, not {len(records)}.")
    for name, record in records.items():
        if not record.beta:
            raise ValueError(f"The record {name!r} has no position.")
    strips = {name: strip(name, record, decode, window) for name, record in records.items()}
    names, first = list(strips), next(iter(strips.values()))
    controls = [select("shown", "show", names)]
    if len(names) > 1:
        controls.append(select("below", "and below it", [NOTHING, *names]))
    longest = max(one.length for one in strips.values())
    controls.append(slider("position", "position", 1, longest, 1))
    return Seismograph(
        strips, "Acceptance seismograph", controls, shown=names[0],
        below=names[1] if len(names) > 1 else NOTHING, position=first.lowest(first.page(1)),
    )  # fmt: skip


def strip(
    name: str, record: AcceptanceRecord, decode: Callable[[Sequence[int]], str], window: int = 10
) -> Strip:
    """A record with the texts of its tokens, ready to be drawn."""
    tops = chain(*record.target_top, *record.draft_top)
    tokens = {*record.tokens, *(token for token, _ in tops)}
    texts = {token: decode([token]) or f"#{token}" for token in tokens}
    if record.tokens and not decode([record.tokens[0]]):
        texts[record.tokens[0]] = START
    return Strip(name, record, texts, tuple(record.rolling(window)), window)


def draw_seismograph(strips: Mapping[str, Strip], shown: str, below: str, position: int) -> Picture:
    """The page of `strips[shown]` that holds `position`, counted from 1 at the first judged token.

    below: the name of a second strip, on the same page, or "nothing".

    Raises ValueError for a name or a position that is not there.
    """
    for name in (shown, below):
        if name not in strips and (name != NOTHING or name == shown):
            raise ValueError(f"There is no record {name!r} here.")
    one = strips[shown]
    if position != int(position) or not 1 <= position <= one.length:
        raise ValueError(f"{shown!r} has positions 1 to {one.length}, not {position}.")
    second = strips[below] if below in strips and below != shown else None
    return draw_strips(one, second, list(strips.values()), int(position))
