"""How many samples? What a sampled check can see: null band, observed distance, power."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from specdec_core.exact import Law, marginal, total_variation
from specdec_core.lab.law_check import (
    LawCheck,
    check_law,
    draw,
    null_band,
    power,
    samples_needed,
)
from specdec_core.lab.museum import MISTAKES, Example
from specdec_core.lab.museum.checks import law_of_tokens
from specdec_core.widgets.museum_wall import own_pair
from specdec_core.widgets.picture import (
    BLUE,
    GREEN,
    INK,
    LINE,
    MUTED,
    PALE_BLUE,
    PAPER,
    VERMILION,
    Picture,
    html_table,
    svg_frame,
    svg_text,
)
from specdec_core.widgets.rows import floats, read_row
from specdec_core.widgets.stage import Stage, button, select, slider, stepper, text

WANTED = 0.99
ROUNDING = 1e-12  # two laws closer than this are one law, computed along two ways
LEVELS = (0.05, 0.01, 0.001)
MOST = 8  # the axis ends at 10**8 samples
GRID = [1 + i / 2 for i in range(2 * (MOST - 1) + 1)]
FINE_GRID = [1 + i / 8 for i in range(8 * (MOST - 1) + 1)]
RIGHT = "none"
CHOICES = {RIGHT: "no mistake"} | {
    id: f"{id} {mistake.title}" for id, mistake in MISTAKES.items() if mistake.breaks != "crash"
}
WIDTH, LEFT, RIGHT_EDGE = 760, 64, 744
BAND_TOP, BAND_BOTTOM, POWER_TOP, POWER_BOTTOM = 62, 218, 262, 392
HEIGHT = 440


@dataclass(frozen=True)
class Plan:
    """What is known before a text is drawn; `needed` is None where no number of texts will do."""

    right: Law
    wrong: Law
    distance: float
    needed: int | None


@cache
def plan(toy: Example, mistake: str, length: int, level: float) -> Plan:
    """The laws of the first `length` tokens, their distance, and the samples for power .99."""
    right = marginal(law_of_tokens(toy, None), length)
    wrong = marginal(law_of_tokens(toy, None if mistake == RIGHT else mistake), length)
    try:
        needed = samples_needed(right, wrong, level, WANTED)
    except ValueError:
        needed = None
    distance = total_variation(right, wrong)
    return Plan(right, wrong, distance if distance > ROUNDING else 0.0, needed)


@cache
def _band(toy: Example, mistake: str, length: int, level: float, samples: int) -> float:
    return null_band(plan(toy, mistake, length, level).right, samples, level)


@cache
def _band_curve(toy: Example, mistake: str, length: int, level: float) -> list[tuple]:
    """The band over all numbers of samples; coarser, since a line hides the noise."""
    right, repeats = plan(toy, mistake, length, level).right, math.ceil(20 / level)
    return [(x, null_band(right, samples_at(x), level, repeats)) for x in GRID]


@cache
def _power_curve(toy: Example, mistake: str, length: int, level: float) -> list[float]:
    known = plan(toy, mistake, length, level)
    return [power(known.right, known.wrong, samples_at(x), level) for x in FINE_GRID]


def samples_at(exponent: float) -> int:
    """10 to the `exponent`, to two digits: 3.3 -> 2000."""
    return int(float(f"{10**exponent:.1e}"))


def draw_sample_size(
    examples: Mapping[str, Example],
    mistake: str,
    toy: str,
    length: int,
    level: float,
    exponent: float,
    seed: int,
    p: str = ".6 .4",
    q: str = ".8 .2",
) -> Picture:
    """One sampled check, planned and drawn.

    examples: further toys by name, beside "own" (the mistake's) and "mine" (p and q).
    length: tokens of each text that are looked at. level: false alarms allowed. exponent: of ten,
        the number of texts. seed: which texts are drawn.

    Raises ValueError for a toy, mistake or number that is not on offer.
    """
    if mistake not in CHOICES:
        raise ValueError(f"There is no mistake {mistake!r} to sample.")
    level = float(level)
    if level not in LEVELS or not 1 <= exponent <= MOST:
        raise ValueError(f"Choose a level of {LEVELS} and 10 to {10**MOST:,} samples.")
    example = _example(examples, mistake, toy, p, q)
    known = plan(example, mistake, length, level)
    samples = samples_at(exponent)
    band = _band(example, mistake, length, level, samples)
    check = check_law(draw(known.wrong, samples, seed), known.right)
    strength = power(known.right, known.wrong, samples, level)
    curve = _band_curve(example, mistake, length, level)
    powers = _power_curve(example, mistake, length, level)
    body = _distances(known, curve) + _powers(known, powers, exponent, strength)
    body += _observed(exponent, check, band)
    verdict = "rejects" if not check.passes(level) else "passes"
    sentence = _sentence(known, check, band, strength, level, verdict, mistake)
    body = svg_text(LEFT, 20, _title(mistake, length), 13, font_weight="bold") + body
    return Picture(svg_frame(WIDTH, HEIGHT, body), sentence, _table(known, check, band, strength))


def _example(examples: Mapping[str, Example], mistake: str, toy: str, p: str, q: str) -> Example:
    exhibit = "M1" if mistake == RIGHT else mistake
    if toy == "own":
        return MISTAKES[exhibit].example
    if toy == "mine":
        return own_pair(exhibit, floats(read_row(p, "p")), floats(read_row(q, "q")))
    if toy not in examples:
        raise ValueError(f"There is no pair {toy!r} here.")
    return examples[toy]


def _x(exponent: float) -> float:
    return round(LEFT + (RIGHT_EDGE - LEFT) * (exponent - 1) / (MOST - 1), 1)


# Distances are shown on a logarithmic axis too: from 1 down to this.
LEAST = -6


def _y(distance: float) -> float:
    height = BAND_BOTTOM - BAND_TOP
    share = min(1.0, max(0.0, math.log10(max(distance, 1e-30)) / LEAST))
    return round(BAND_TOP + height * share, 1)


def _title(mistake: str, length: int) -> str:
    tokens = "first token" if length == 1 else f"first {length} tokens"
    return f"{CHOICES[mistake]}: the {tokens} of each text"


def _distances(known: Plan, curve: list[tuple[float, float]]) -> str:
    """The null band over N, and the true distance."""
    points = [(_x(x), _y(value)) for x, value in curve]
    edge = "L".join(f"{x:g} {y:g}" for x, y in points)
    parts = [
        svg_text(LEFT, BAND_TOP - 12, "total variation from the target's law", 11, MUTED),
        _frame(BAND_TOP, BAND_BOTTOM),
        f'<path d="M{edge}L{RIGHT_EDGE} {BAND_BOTTOM}L{LEFT} {BAND_BOTTOM}Z" fill="{PALE_BLUE}"/>',
        f'<path d="M{edge}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
        svg_text(LEFT + 8, BAND_BOTTOM - 8, "null band: where right decoders fall", 11, BLUE),
    ]
    for power_of_ten in range(0, LEAST - 1, -2):
        y = _y(10.0**power_of_ten)
        label = "1" if power_of_ten == 0 else f"1e{power_of_ten}"
        parts.append(svg_text(LEFT - 6, y + 4, label, 11, MUTED, text_anchor="end"))
    words = f"true distance: {known.distance:.3g}"
    if known.distance <= 10.0**LEAST:
        words += ", below this plot" if known.distance else ": these tokens keep the target's law"
        parts.append(
            svg_text(RIGHT_EDGE - 4, BAND_BOTTOM - 8, words, 11, VERMILION, text_anchor="end")
        )
    else:
        y = _y(known.distance)
        parts.append(
            f'<path d="M{LEFT} {y:g}H{RIGHT_EDGE}" stroke="{VERMILION}" stroke-width="2" '
            f'stroke-dasharray="7 4"/>'
        )
        parts.append(svg_text(RIGHT_EDGE - 4, y - 6, words, 11, VERMILION, text_anchor="end"))
    return "".join(parts)


def _observed(exponent: float, check: LawCheck, band: float) -> str:
    """What the drawn texts gave, on a line through both plots."""
    x, y = _x(exponent), _y(check.total_variation)
    inside = check.total_variation <= band
    words = "◇ seen: inside the band" if inside else "◆ seen: outside the band"
    lines = f"M{x:g} {BAND_TOP}V{BAND_BOTTOM}M{x:g} {POWER_TOP}V{POWER_BOTTOM}"
    return (
        f'<path d="{lines}" stroke="{INK}"/>'
        f'<path d="M{x:g} {y - 7:g}L{x + 7:g} {y:g}L{x:g} {y + 7:g}L{x - 7:g} {y:g}Z" '
        f'fill="{PAPER if inside else INK}" stroke="{INK}" stroke-width="2"/>'
        + svg_text(RIGHT_EDGE, BAND_TOP - 12, words, 12, text_anchor="end")
    )


def _powers(known: Plan, powers: list[float], exponent: float, strength: float) -> str:
    """The probability that the check fails this decoder, over N."""
    parts = [
        svg_text(LEFT, POWER_TOP - 10, "probability that the check rejects (power)", 11, MUTED),
        _frame(POWER_TOP, POWER_BOTTOM),
    ]
    height = POWER_BOTTOM - POWER_TOP
    points = [
        f"{_x(at):g} {POWER_BOTTOM - height * value:.1f}"
        for at, value in zip(FINE_GRID, powers, strict=True)
    ]
    parts.append(f'<path d="M{"L".join(points)}" fill="none" stroke="{GREEN}" stroke-width="2"/>')
    for value in (0, 0.5, 1):
        y = POWER_BOTTOM - height * value
        parts.append(svg_text(LEFT - 6, y + 4, f"{value:g}", 11, MUTED, text_anchor="end"))
    y = POWER_BOTTOM - height * strength
    parts.append(f'<circle cx="{_x(exponent):g}" cy="{y:.1f}" r="5" fill="{GREEN}"/>')
    for at in range(1, MOST + 1):
        parts.append(
            svg_text(_x(at), POWER_BOTTOM + 18, f"{10**at:,}" if at < 6 else f"1e{at}", 11, MUTED,
                     text_anchor="end" if at == MOST else "middle")
        )  # fmt: skip
    parts.append(svg_text(LEFT, POWER_BOTTOM + 38, "samples", 11, MUTED))
    parts.append(_needed(known))
    return "".join(parts)


def _needed(known: Plan) -> str:
    """A mark at the planned number of samples, where it is on the axis."""
    if known.needed is None:
        words = "power .99: no number of samples"
    elif known.needed > 10**MOST:
        words = f"power .99: {known.needed:.2g} samples, off to the right"
    else:
        words = f"power .99: {known.needed:,} samples"
    drawn = svg_text(RIGHT_EDGE, POWER_BOTTOM + 38, words, 12, text_anchor="end")
    if known.needed is None or known.needed > 10**MOST:
        return drawn
    x = _x(max(1.0, math.log10(known.needed)))
    mark = f'<path d="M{x:g} {POWER_TOP}V{POWER_BOTTOM}" stroke="{GREEN}" stroke-dasharray="3 3"/>'
    return mark + drawn


def _frame(top: float, bottom: float) -> str:
    return (
        f'<rect x="{LEFT}" y="{top}" width="{RIGHT_EDGE - LEFT}" height="{bottom - top}" '
        f'fill="{PAPER}" stroke="{LINE}"/>'
    )


def _sentence(
    known: Plan, check: LawCheck, band: float, strength: float, level: float, verdict: str,
    mistake: str,
) -> str:  # fmt: skip
    inside = "inside" if check.total_variation <= band else "outside"
    plan_words = (
        "no number of samples would reach power .99" if known.needed is None
        else f"power .99 needs {known.needed:,} samples" if known.needed < 1e7
        else f"power .99 needs {known.needed:.2g} samples"
    )  # fmt: skip
    name = "a right decoder" if mistake == RIGHT else mistake
    chance = "below 1e-12" if check.p_value < 1e-12 else f"{check.p_value:.2g}"
    return (
        f"{check.samples:,} texts of {name}: distance {check.total_variation:.2g}, {inside} the "
        f"null band of {band:.2g}; at level {level:g} the check {verdict} (p-value {chance}). "
        f"Its power here is {strength:.3f}; {plan_words}."
    )


def _table(known: Plan, check: LawCheck, band: float, strength: float) -> str:
    rows = [
        ("samples", f"{check.samples:,}"),
        ("observed total variation", f"{check.total_variation:.3g}"),
        ("null band", f"{band:.3g}"),
        ("true total variation", f"{known.distance:.3g}"),
        ("chi-square, degrees", f"{check.statistic:.2f}, {check.degrees}"),
        ("p-value", f"{check.p_value:.2e}"),
        ("power", f"{strength:.4f}"),
        ("samples for power .99", "none" if known.needed is None else f"{known.needed:.3g}"),
    ]
    return html_table(("what", "value"), rows)


def sample_size(real: Example | None = None, mistake: str = "M1", exponent: float = 2.0) -> Stage:
    """The view, with controls; with `real`, a pair seen through a keyhole, also on that.

    The texts are drawn from the exact law that the enumeration of the decoder's code gives, so a
    hundred million of them cost no time.
    """
    examples = {} if real is None else {"pair": real}
    toys = {"own": "the exhibit's own toy", "mine": "my p and q"}
    if real is not None:
        toys["pair"] = "the bundled pair, 3 tokens in view"

    def view(**state: object) -> Picture:
        return draw_sample_size(examples, **state)

    return Stage(
        view,
        "How many samples?",
        [
            select("mistake", "decoder", CHOICES),
            select("toy", "on", toys),
            stepper("length", "tokens looked at", 1, 3),
            select("level", "false alarms", {level: f"{level:g}" for level in LEVELS}),
            slider("exponent", "samples, power of ten", 1, MOST, 0.1),
            button("seed", "Draw again"),
            text("p", "my p", 12),
            text("q", "my q", 12),
        ],
        mistake=mistake, toy="own", length=1, level=0.01, exponent=exponent, seed=1, p=".6 .4",
        q=".8 .2",
    )  # fmt: skip
