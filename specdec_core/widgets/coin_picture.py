"""How a coin tape is drawn: a column for each draft, one for the token after them, and the text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from specdec_core.trace import Round
from specdec_core.widgets.coin_replay import LARGEST_COIN
from specdec_core.widgets.picture import (
    HALO,
    INK,
    LINE,
    MONOSPACE,
    MUTED,
    PAPER,
    Picture,
    clickable,
    draggable,
    html_table,
    shorten,
    svg_frame,
    svg_text,
    text_width,
)
from specdec_core.widgets.ribbon import ORIGINS

WIDTH, HEIGHT, MARGIN = 760, 454, 16
LEFT = 46  # where the first column begins, right of the scale
TOP, BOTTOM = 146, 296  # where a bar shows 1 and 0
BAR = 26
WIDEST_COLUMN = 142
LAST_COLUMN = 148  # for the token after the drafts
ROOMY = 94  # a column narrower than this has shorter labels
MOST_DRAFTS = 8
GREY = "#757575"

# A mark and a word first, a colour last; the words of `Round.verdicts` are the keys.
VERDICTS = {
    "accepted": ("✓", "kept", ORIGINS["draft"][2]),
    "rejected": ("↻", "replaced", ORIGINS["corrected"][2]),
    "unjudged": ("–", "never judged", MUTED),
    "unused": ("■", "past the end", MUTED),
}


@dataclass(frozen=True)
class Column:
    """One drafted token: place, name, p, q, coin, threshold min(1, p/q), verdict, favourite."""

    number: int
    middle: float
    width: float
    token: str
    p: float
    q: float
    u: float
    threshold: float
    verdict: str
    favourite: str | None


def draw_coin_tape(
    round: Round,
    name: Callable[[int], str],
    title: str,
    *,
    before: str = "",
    favourites: Sequence[int] | None = None,
    last_coin: float | None = None,
    stop_tokens: Collection[int] = (),
    coins: int = 0,
) -> Picture:
    """One round as a picture: what each coin decided, and where each token of the text came from.

    round: with its coins in `u`. name: token id -> the text to show. before: the end of the
    text so far. favourites: the target's most likely token at each of the
    gamma + 1 positions. last_coin: the uniform that drew the last token, where it can be set.
    stop_tokens: ids known to end a text; another last token may have ended a stop string.
    coins: how many drafts have a control for their coin; those past gamma are said to do nothing.
    """
    if round.gamma > MOST_DRAFTS:
        raise ValueError(f"A coin tape has {MOST_DRAFTS} drafts at most, not {round.gamma}.")
    columns = _columns(round, name, favourites)
    parts = [svg_text(MARGIN, 24, title, 14, font_weight="bold"), _scale(columns)]
    hint = "◀ is the coin u: drag it, or click the bar"
    parts.append(svg_text(WIDTH - MARGIN, 24, hint, 11, MUTED, text_anchor="end"))
    parts += [_head(c) + _bar(c) + _verdict(c) for c in columns]
    parts += [_last(round, name, last_coin), _text(round, name, before, stop_tokens)]
    sentence, idle = _sentence(round, name, title, columns), _idle(round.gamma, coins)
    if idle:
        parts.append(svg_text(WIDTH - MARGIN, 442, idle, 11, MUTED, text_anchor="end"))
        sentence += f" {idle}."
    svg = svg_frame(WIDTH, HEIGHT, "".join(parts))
    return Picture(svg, sentence, _table(round, name, columns))


def _idle(gamma: int, coins: int) -> str:
    """Says of the coins that have no draft to judge that they do nothing."""
    if coins <= gamma:
        return ""
    if coins == gamma + 1:
        return f"There is no draft {coins}: its coin does nothing"
    which = " and " if coins == gamma + 2 else " to "
    return f"There are no drafts {gamma + 1}{which}{coins}: their coins do nothing"


def _step(gamma: int) -> float:
    """Width of the column of one draft."""
    return min(WIDEST_COLUMN, (WIDTH - LEFT - MARGIN - LAST_COLUMN) / max(gamma, 1))


def _columns(
    round: Round, name: Callable[[int], str], favourites: Sequence[int] | None
) -> list[Column]:
    step = _step(round.gamma)
    facts = round.drafted, round.target_prob, round.draft_prob, round.u, round.verdicts
    return [
        Column(i + 1, LEFT + (i + 0.5) * step, step, name(token), p, q, u, min(1.0, p / q), verdict,
               None if favourites is None else name(favourites[i]))
        for i, (token, p, q, u, verdict) in enumerate(zip(*facts, strict=True))
    ]  # fmt: skip


def _width_of(token: str) -> float:
    """Width of a chip that holds the whole token."""
    return round(text_width(token) + 16, 1)


def _words(x: float, y: float, words: str, fill: str = INK, size: int = 11, **attributes) -> str:
    """Text centred on x."""
    return svg_text(x, y, words, size, fill, text_anchor="middle", **attributes)


def _chip(x: float, y: float, width: float, token: str, ink: str, fill: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="24" rx="5" fill="{fill}" '
        f'stroke="{ink}"{dashed}/>'
        + _words(round(x + width / 2, 1), y + 16, shorten(token, width - 8), font_family=MONOSPACE)
    )


def _scale(columns: Sequence[Column]) -> str:
    """The lines at 0, one half and 1, behind the bars."""
    if not columns:
        return ""
    right = columns[-1].middle + columns[-1].width / 2 - 6
    parts = []
    for value, words in ((0, "0"), (0.5, ".5"), (1, "1")):
        y = _y(value)
        parts.append(f'<path d="M{LEFT - 6:g} {y:g}H{right:.1f}" stroke="{LINE}"/>')
        parts.append(svg_text(LEFT - 12, y + 4, words, 11, MUTED, text_anchor="end"))
    return "".join(parts)


def _y(value: float) -> float:
    return round(BOTTOM - value * (BOTTOM - TOP), 1)


def _digits(value: float) -> str:
    """Three digits, and more where those would show a 0 or a 1 that is not one."""
    if abs(value - round(value)) < 1e-12:
        return f"{value:.0f}"
    if value < 0.0005:
        return f"{value:.2g}"
    return "0.999…" if value >= 0.9995 else f"{value:.3f}"


def _head(c: Column) -> str:
    """Number, token, p and q of a draft."""
    x = round(c.middle, 1)
    judged = c.verdict in ("accepted", "rejected")
    width = min(c.width - 8, _width_of(c.token))
    ink = INK if judged else MUTED
    parts = [
        _words(x, 54, f"draft {c.number}", MUTED),
        _chip(round(x - width / 2, 1), 60, round(width, 1), c.token,
              VERDICTS[c.verdict][2], PAPER, "" if judged else "3 3"),
        _words(x, 101, f"p {_digits(c.p)}", ink),
        _words(x, 116, f"q {_digits(c.q)}", ink),
    ]  # fmt: skip
    if c.favourite is not None:
        whose = "top" if c.width < ROOMY else "p's top"
        words = f"{whose} {c.favourite}"
        parts.append(_words(x, 131, shorten(words, c.width - 8), MUTED))
    return "".join(parts)


def _bar(c: Column) -> str:
    """The bar from 0 to 1: kept below the threshold, replaced above it, and the coin's marker."""
    left = round(c.middle - BAR / 2, 1)
    box = f'<rect x="{left:g}" y="{TOP}" width="{BAR}" height="{BOTTOM - TOP}" fill="none" '
    if c.verdict not in ("accepted", "rejected"):
        return box + f'stroke="{GREY}" stroke-dasharray="3 3"/>' + _marker(c, GREY, "none")
    edge, inside = _y(c.threshold), round(c.threshold / 2, 3)
    keep = (
        f'<rect x="{left:g}" y="{edge:g}" width="{BAR}" height="{BOTTOM - edge:g}" '
        f'fill="{ORIGINS["draft"][3]}"/>'
    )
    parts = [_choice(c, keep, "keep", inside, inside > 0)]
    if edge > TOP:
        outside = min(round((1 + c.threshold) / 2, 3), LARGEST_COIN)
        lose = _striped(left, TOP, edge)
        parts.append(_choice(c, lose, "reject", outside, outside > c.threshold))
    parts.append(box + f'stroke="{INK}"/>')
    parts.append(
        f'<path d="M{left - 5:g} {edge:g}H{left + BAR:g}" stroke="{INK}" stroke-width="2"/>'
    )
    label = {"text_anchor": "end", **HALO}
    parts.append(svg_text(left - 7, max(edge + 4, TOP + 4), _two(c.threshold), 11, **label))
    return "".join(parts) + _marker(c, INK, INK)


def _choice(c: Column, shape: str, fate: str, coin: float, possible: bool) -> str:
    """A part of the bar; a click sets a coin that falls there, if there is one."""
    label = f"let the coin of draft {c.number} {fate} it"
    return clickable(shape, label, **{f"u{c.number}": coin}) if possible else shape


def _two(value: float) -> str:
    """A number on a bar: two digits, without the zero."""
    if value > 1 - 1e-12:
        return "1"
    return ".99" if value >= 0.995 else f"{value:.2f}".lstrip("0")


def _striped(left: float, top: float, bottom: float) -> str:
    """The part of a bar in which a draft is rejected: stripes, so that it needs no colour."""
    middle = left + BAR / 2
    ink, fill = ORIGINS["corrected"][2:]
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{BAR}" height="{bottom - top:g}" fill="{fill}"/>'
        f'<path d="M{middle:g} {top + 2:g}V{bottom:g}" stroke="{ink}" stroke-width="{BAR}" '
        f'stroke-dasharray="1 5"/>'
    )


def _marker(c: Column, ink: str, fill: str) -> str:
    """The coin u: a triangle that points at the bar, and can be dragged along it."""
    x, y = round(c.middle + BAR / 2, 1), _y(c.u)
    words = _two(c.u) if c.width < ROOMY else f"u {_two(c.u)}"
    body = (
        f'<path d="M{x - BAR:g} {y:g}H{x:g}" stroke="{ink}" stroke-dasharray="4 2"/>'
        f'<path d="M{x - 2:g} {y:g}l9 -6v12z" fill="{fill}" stroke="{ink}"/>'
        + svg_text(x + 9, y + 4, words, 11, INK if fill != "none" else MUTED, **HALO)
    )
    area = f'<rect x="{x - 4:g}" y="{y - 12:g}" width="38" height="24" fill="#ffffff00"/>'
    label, name = f"coin u of draft {c.number}, on its bar", f"u{c.number}"
    return draggable(body + area, label, name, c.u, (BOTTOM, TOP), (0, LARGEST_COIN))


def _verdict(c: Column) -> str:
    mark, words, ink = VERDICTS[c.verdict]
    x = round(c.middle, 1)
    lines = [words] if c.width > ROOMY else words.split(" ", 1)
    return _words(x, 318, mark, ink, 16, font_weight="bold") + "".join(
        _words(x, 336 + 14 * i, line, ink, 12, font_weight="bold") for i, line in enumerate(lines)
    )


def _origin(round: Round) -> str:
    """Where the token after the drafts comes from: corrected, bonus or plain."""
    if not round.gamma:
        return "plain"
    return "bonus" if round.accepted == round.gamma else "corrected"


def _from_what(round: Round) -> tuple[str, str]:
    """Two short lines: the distribution of the last token, and its place."""
    if not round.gamma:
        return "drawn from p", "nothing was drafted"
    if round.accepted == round.gamma:
        after = f"all {round.gamma} drafts" if round.gamma > 1 else "the kept draft"
        return "drawn from p", f"after {after}"
    what = "p (p = q here)" if round.zero_residual else "max(p − q, 0)"
    return f"drawn from {what}", f"in place of draft {round.accepted + 1}"


def _last(round_: Round, name: Callable[[int], str], coin: float | None) -> str:
    """The column of the token after the drafts."""
    x = round(LEFT + round_.gamma * _step(round_.gamma) + LAST_COLUMN / 2, 1)
    mark, _, ink, fill = ORIGINS[_origin(round_)]
    token = name(round_.token)
    width = min(_width_of(token), 132)
    used = len(round_.emitted) > round_.accepted
    lines = [*_from_what(round_)] if used else ["not written:", "the text has ended"]
    if coin is not None and used:
        lines.append(f"by its coin v {_digits(coin)}")
    parts = [
        _words(x, 54, "then", MUTED),
        _chip(round(x - width / 2, 1), 60, round(width, 1), token, ink if used else GREY,
              fill if used else PAPER, "" if used else "3 3"),
        *(_words(x, 101 + 15 * i, line) for i, line in enumerate(lines)),
    ]  # fmt: skip
    if used:
        parts.append(_words(x, 318, mark, ink, 16, font_weight="bold"))
        parts.append(_words(x, 336, _origin(round_), ink, 12, font_weight="bold"))
    return "".join(parts)


def _text(
    round: Round, name: Callable[[int], str], before: str, stop_tokens: Collection[int]
) -> str:
    """What was written: the text so far, then this round's tokens by origin."""
    parts = [
        f'<path d="M{MARGIN} 362H{WIDTH - MARGIN}" stroke="{LINE}"/>',
        svg_text(MARGIN, 384, "The text", 12, MUTED),
    ]
    x = float(MARGIN)
    if before:
        # What is too long loses its beginning.
        words = shorten(f"… {before}"[::-1], WIDTH - 2 * MARGIN - 64)[::-1]
        parts.append(svg_text(MARGIN + 64, 384, words, 11, MUTED, font_family=MONOSPACE))
    most = (WIDTH - 2 * MARGIN - 130) / len(round.emitted) - 4
    for token, origin in zip(round.emitted, round.origins, strict=True):
        mark, _, ink, fill = ORIGINS[origin]
        shown = f"{mark} {name(token)}"
        width = min(_width_of(shown), most)
        parts.append(_chip(x, 398, width, shown, ink, fill))
        x += width + 4
    if round.finish_reason:
        known = round.finish_reason == "stop" and round.emitted[-1] in stop_tokens
        why = f"■ end: {round.finish_reason}" + (" token" if known else "")
        parts.append(svg_text(x + 6, 414, why, 12, font_weight="bold"))
    parts.append(
        svg_text(MARGIN, 442, f"{len(round.emitted)} new from one target forward", 11, MUTED)
    )
    return "".join(parts)


def _sentence(
    round: Round, name: Callable[[int], str], title: str, columns: Sequence[Column]
) -> str:
    kept = [c for c in columns if c.verdict == "accepted"]
    fate = f"{len(kept)} of {round.gamma} drafts kept" if round.gamma else "nothing was drafted"
    parts = [f"{title}: {fate}"]
    for c in columns:
        if c.verdict == "rejected":
            parts.append(
                f"draft {c.number} '{c.token}' is replaced, since its coin {_digits(c.u)} is not "
                f"below p/q = {_digits(c.threshold)}"
            )
    unjudged = round.verdicts.count("unjudged")
    if unjudged:
        parts.append(f"{unjudged} never judged")
    past = [c.token for c in columns if c.verdict == "unused"]
    if past:
        parts.append(f"{len(past)} past the end of the text")
    if len(round.emitted) > round.accepted:
        what, where = _from_what(round)
        source = f"{what} {where}" if round.gamma else what
        parts.append(f"the {_origin(round)} token '{name(round.token)}' is {source}")
    if round.finish_reason:
        parts.append(f"the text ends here ({round.finish_reason})")
    surprise = [c for c in kept if c.favourite not in (None, c.token)]
    if surprise:
        c = surprise[0]
        parts.append(f"draft {c.number} is kept though the target's favourite is '{c.favourite}'")
    return "; ".join(parts) + "."


def _table(round: Round, name: Callable[[int], str], columns: Sequence[Column]) -> str:
    header = ["position", "token", "p", "q", "threshold min(1, p/q)", "coin u", "verdict"]
    with_favourite = any(c.favourite is not None for c in columns)
    rows = [
        [f"draft {c.number}", c.token, _digits(c.p), _digits(c.q), _digits(c.threshold),
         _digits(c.u), VERDICTS[c.verdict][1], *([c.favourite] if with_favourite else [])]
        for c in columns
    ]  # fmt: skip
    fate = _origin(round) if len(round.emitted) > round.accepted else "not written"
    rows.append(["then", name(round.token), "", "", "", "", fate, *([""] * with_favourite)])
    return html_table([*header, *(["target's favourite"] * with_favourite)], rows)
