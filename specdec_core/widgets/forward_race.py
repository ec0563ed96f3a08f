"""One after the other, or together: the time n tokens take, on one axis of milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdec_core.widgets.figure import nice_step
from specdec_core.widgets.picture import (
    BLUE,
    INK,
    LINE,
    MONOSPACE,
    MUTED,
    PALE_BLUE,
    PALE_VERMILION,
    PAPER,
    VERMILION,
    Picture,
    clickable,
    html_table,
    shorten,
    svg_frame,
    svg_text,
    visible,
)
from specdec_core.widgets.stage import Stage, select, stepper

WIDTH, HEIGHT = 760, 268
LEFT, TRACK = 16, 728
ALONE, TOGETHER = (VERMILION, PALE_VERMILION), (BLUE, PALE_BLUE)
BAR, TOP, STEP = 34, 58, 84
MOST = 12  # tokens on the track

Times = Mapping[int, float]


def forward_race(curves: Mapping[str, Times], tokens: Sequence[str]) -> Stage:
    """A stage: choose how many of `tokens` are read, and whose clock counts.

    curves: name -> seconds of one forward over n tokens, for every n from 1 to len(tokens).
    tokens: their texts, 12 at most.

    Raises ValueError where a curve lacks an n, or for too many tokens.
    """
    if not 1 <= len(tokens) <= MOST:
        raise ValueError(f"Give 1 to {MOST} tokens, not {len(tokens)}.")
    for name, times in curves.items():
        missing = [n for n in range(1, len(tokens) + 1) if n not in times]
        if missing:
            raise ValueError(f"{name!r} has no time for n = {', '.join(map(str, missing))}.")

    def view(n: int, clock: str) -> Picture:
        return draw_forward_race(curves[clock], tokens, n, clock)

    controls = [
        stepper("n", "tokens n", 1, len(tokens)),
        select("clock", "whose clock", tuple(curves)),
    ]
    return Stage(view, "Forward race", controls, n=min(5, len(tokens)), clock=next(iter(curves)))


def draw_forward_race(times: Times, tokens: Sequence[str], n: int, clock: str) -> Picture:
    """n of `tokens` read by n forwards over one, above one forward over n, by the same clock.

    The axis ends where all tokens would have been read one by one, so that pictures of other n
    compare. Raises ValueError for an n there is no token for.
    """
    if not 1 <= n <= len(tokens):
        raise ValueError(f"Choose between 1 and {len(tokens)} tokens, not {n}.")
    scale = TRACK / max(len(tokens) * times[1], times[n])
    body = _alone(times[1] * scale, tokens, n) + _together(times[n] * scale, tokens, n)
    one_by_one = n * times[1]
    heads = (f"{n} forwards over 1 token, each waits for the last: {_ms(one_by_one)}",
             f"1 forward over {n} tokens: {_ms(times[n])}")  # fmt: skip
    if n == 1:
        heads = (f"1 forward over 1 token: {_ms(one_by_one)}", f"the same: {_ms(times[1])}")
    body += svg_text(LEFT, TOP - 10, heads[0], 13, ALONE[0], font_weight="bold")
    body += svg_text(LEFT, TOP + STEP - 10, heads[1], 13, TOGETHER[0], font_weight="bold")
    body += svg_text(LEFT, 22, clock, 13, font_weight="bold") + _axis(scale)
    sentence = f"{clock}: 1 token takes {_ms(times[1])}."
    if n > 1:
        sentence = (
            f"{clock}: {n} tokens take {_ms(one_by_one)} one after the other and {_ms(times[n])} "
            f"together, {one_by_one / times[n]:.3g} times as quick."
        )
    rows = [
        (k, _ms(k * times[1]), _ms(times[k]), f"{times[k] / times[1]:.2f}")
        for k in range(1, len(tokens) + 1)
    ]
    header = ("tokens n", "n forwards over 1", "1 forward over n", "in forwards over 1")
    return Picture(svg_frame(WIDTH, HEIGHT, body), sentence, html_table(header, rows))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _alone(width: float, tokens: Sequence[str], n: int) -> str:
    """One block a forward; those past n are ghosts, and choose their n when clicked."""
    parts = []
    for k, token in enumerate(tokens, start=1):
        x, read = round(LEFT + (k - 1) * width, 1), k <= n
        ink, fill = ALONE if read else (LINE, PAPER)
        dash = "" if read else ' stroke-dasharray="3 3"'
        block = (
            f'<rect x="{x:g}" y="{TOP}" width="{round(width - 2, 1):g}" height="{BAR}" rx="4" '
            f'fill="{fill}" stroke="{ink}"{dash}/>'
        )
        words = svg_text(
            round(x + width / 2 - 1, 1), TOP + 22, shorten(visible(token), width - 8), 11,
            INK if read else MUTED, text_anchor="middle", font_family=MONOSPACE,
        )  # fmt: skip
        name = f"read {k} {'token' if k == 1 else 'tokens'}"
        parts.append(clickable(block + words, name, n=k))
    return "".join(parts)


def _together(width: float, tokens: Sequence[str], n: int) -> str:
    """One block for all n tokens; a stripe for each of them inside."""
    y = TOP + STEP
    ink, fill = TOGETHER
    parts = [
        f'<rect x="{LEFT}" y="{y}" width="{round(max(width - 2, 1), 1):g}" height="{BAR}" rx="4" '
        f'fill="{fill}" stroke="{ink}" stroke-width="2"/>'
    ]
    for k in range(1, n):
        x = round(LEFT + k * (width - 2) / n, 1)
        parts.append(f'<path d="M{x:g} {y + 5}V{y + BAR - 5}" stroke="{ink}"/>')
    # The words of all tokens fit one line.
    words = " ".join(shorten(visible(token), TRACK / len(tokens) - 8) for token in tokens[:n])
    parts.append(svg_text(LEFT, y + BAR + 16, words, 11, font_family=MONOSPACE))
    return "".join(parts)


def _axis(scale: float) -> str:
    """Milliseconds from 0 on, at round numbers."""
    y, end = HEIGHT - 34, 1e3 * TRACK / scale
    step = nice_step(end / 8)
    parts = [f'<path d="M{LEFT} {y}H{LEFT + TRACK}" stroke="{MUTED}"/>']
    for i in range(int(end / step) + 1):
        x = round(LEFT + i * step * scale / 1e3, 1)
        parts.append(f'<path d="M{x:g} {y}v6" stroke="{MUTED}"/>')
        name, anchor = f"{i * step:.4g}" if i else "0 ms", "middle" if i else "start"
        parts.append(svg_text(x, y + 20, name, 11, MUTED, text_anchor=anchor))
    return "".join(parts)
