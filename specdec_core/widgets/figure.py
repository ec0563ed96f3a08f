"""Line figures: live in a notebook (hover, zoom), and an image that says the same elsewhere.

A bare plotly figure vanishes where its script does not run: in an exported page, in a code host's
preview. Here both are drawn from the same numbers, the same axes and the same labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go
from IPython.display import display

from specdec_core.widgets.picture import (
    BLUE,
    GREEN,
    HALO,
    INK,
    LINE,
    MUTED,
    PAPER,
    SANS,
    VERMILION,
    Picture,
    html_table,
    svg_frame,
    svg_text,
)

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 74, 176, 52, 56
LABEL_STEP = 17  # least distance of two labels at the ends of lines

END_LABEL = {"font_weight": "bold", **HALO}

Series = Mapping[str, Sequence[tuple[float, float]]]

# Told apart by mark and dash first, by colour (Okabe-Ito) last: plotly's names, then SVG's dashes.
STYLES = (
    ("circle", "solid", "none", BLUE),
    ("square", "dash", "9 4", VERMILION),
    ("triangle-up", "dot", "2 4", GREEN),
    ("diamond", "dashdot", "9 4 2 4", "#7a4a6a"),
)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` on `pixels` of paper, with marked `ticks`."""

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool
    start: float
    pixels: float

    def place(self, value: float) -> float:
        """Where a value lies on the paper, in SVG units."""
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + self.pixels * (value - low) / (high - low), 1)

    def for_plotly(self) -> dict:
        ends = [round(math.log10(v), 6) if self.log else v for v in (self.low, self.high)]
        return {
            "title": {"text": plotly_text(self.title), "font": {"size": 13}},
            "type": "log" if self.log else "linear", "range": ends, "tickvals": list(self.ticks),
            "ticktext": [label(v) for v in self.ticks], "gridcolor": LINE, "linecolor": MUTED,
            "zeroline": False, "automargin": False,
        }  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A live plotly figure and the picture that stands for it where no script runs."""

    live: go.Figure
    picture: Picture

    def __repr__(self) -> str:
        return self.picture.sentence

    def _ipython_display_(self) -> None:
        # The words come as an output of their own, so that a live figure has them too.
        image, _, words = self.picture._repr_html_().partition("<p>")
        bundle = {
            "application/vnd.plotly.v1+json": {
                **self.live.to_plotly_json(),
                # Not responsive: a change of theme in JupyterLab would leave it without height.
                "config": {"displaylogo": False},
            },
            "text/html": image,
            "text/plain": repr(self),
        }
        display(bundle, raw=True)
        display({"text/html": f"<p>{words}", "text/plain": repr(self)}, raw=True)


def line_figure(
    series: Series, *, title: str, x_title: str, y_title: str, log: bool = False
) -> Figure:
    """One line for each of `series`, up to four: name -> points (x, y), drawn in order of x.

    log: both axes logarithmic, so a straight line that doubles with x stays straight.

    Numbers are rounded to four digits. Raises ValueError for no points, for numbers that are not
    finite, and on logarithmic axes for numbers that are not positive.
    """
    points = {name: _clean(name, line, log) for name, line in series.items()}
    if not 1 <= len(points) <= len(STYLES):
        raise ValueError(f"Give 1 to {len(STYLES)} series, not {len(points)}.")
    xs = [x for line in points.values() for x, _ in line]
    ys = [y for line in points.values() for _, y in line]
    x_axis = _axis(x_title, xs, log, horizontal=True)
    y_axis = _axis(y_title, ys, log, horizontal=False)
    shifts = _label_shifts(points, y_axis)
    sentence = _sentence(points, title, x_title, y_title)
    picture = Picture(
        _svg(points, x_axis, y_axis, title, shifts), sentence, _table(points, x_title)
    )
    return Figure(_plotly(points, x_axis, y_axis, title, shifts), picture)


def label(value: float) -> str:
    """A number as it is written on the figure: up to four digits, thousands set apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def plotly_text(text: str) -> str:
    """`text` for plotly, which reads tags; of quotes it knows no escape."""
    return escape(text, quote=False)


def _clean(name: str, line: Sequence[tuple[float, float]], log: bool) -> list[tuple[float, float]]:
    """Points as plain rounded numbers: an array would be saved as unreadable bytes."""
    rounded = sorted((float(f"{x:.4g}"), float(f"{y:.4g}")) for x, y in line)
    if not rounded:
        raise ValueError(f"The series {name!r} has no points.")
    numbers = [number for point in rounded for number in point]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"The series {name!r} has a number that is not finite.")
    if log and min(numbers) <= 0:
        raise ValueError(f"The series {name!r} has {min(numbers):g}, which no log axis can show.")
    return rounded


def _axis(title: str, values: list[float], log: bool, horizontal: bool) -> Axis:
    """An axis around the values: from 0 where it is linear, from a tick to a tick elsewhere."""
    low, high = min(values), max(values)
    span = (LEFT, WIDTH - LEFT - RIGHT) if horizontal else (HEIGHT - BOTTOM, TOP + BOTTOM - HEIGHT)
    if log:
        ticks = _powers_of_two(low, high) if horizontal else _one_two_five(low, high)
        low, high = min(low, ticks[0]), max(high, ticks[-1])
        if low == high:
            low, high = low / 2, high * 2
        return Axis(title, low, high, tuple(ticks), True, *span)
    low, high = min(low, 0.0), max(high, 0.0) or 1.0
    step = nice_step((high - low) / 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = [float(f"{i * step:.10g}") for i in range(first, last + 1)]
    if horizontal:  # lines run to the edge, so that the labels at their ends lie beside the grid
        ticks = [tick for tick in ticks if low <= tick <= high]
        return Axis(title, low, high, tuple(ticks), False, *span)
    return Axis(title, ticks[0], ticks[-1], tuple(ticks), False, *span)


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))


def _one_two_five(low: float, high: float) -> list[float]:
    """Ticks 1, 2, 5, 10, ... from the last one below `low` to the first one above `high`."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return _around([float(f"{m}e{k}") for k in decades for m in (1, 2, 5)], low, high)


def _powers_of_two(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
    every = max(1, math.ceil((last - first) / 12))
    return [2.0**i for i in range(first, last + every, every)]


def _around(ticks: list[float], low: float, high: float) -> list[float]:
    inside = [i for i, tick in enumerate(ticks) if low < tick < high]
    below = max(i for i, tick in enumerate(ticks) if tick <= low)
    above = min((i for i, tick in enumerate(ticks) if tick >= high), default=len(ticks) - 1)
    return [ticks[i] for i in sorted({below, *inside, above})]


def _label_shifts(
    points: Mapping[str, list[tuple[float, float]]], y_axis: Axis
) -> dict[str, float]:
    """How far down to move each label at the end of its line, so that none covers another."""
    ends = sorted((y_axis.place(line[-1][1]), name) for name, line in points.items())
    shifts, floor = {}, -math.inf
    for y, name in ends:
        place = max(y, floor)
        shifts[name] = round(place - y, 1)
        floor = place + LABEL_STEP
    return shifts


def _sentence(
    points: Mapping[str, list[tuple[float, float]]], title: str, x_title: str, y_title: str
) -> str:
    parts = [
        f"{name}, from {label(line[0][1])} at {label(line[0][0])} "
        f"to {label(line[-1][1])} at {label(line[-1][0])}"
        for name, line in points.items()
    ]
    return f"{title}, {y_title} against {x_title}: {'; '.join(parts)}."


def _table(points: Mapping[str, list[tuple[float, float]]], x_title: str) -> str:
    columns = {name: dict(line) for name, line in points.items()}
    xs = sorted({x for line in columns.values() for x in line})
    rows = [(label(x), *(label(c[x]) if x in c else "" for c in columns.values())) for x in xs]
    return html_table((x_title, *points), rows)


def _svg(
    points: Mapping[str, list[tuple[float, float]]],
    x_axis: Axis,
    y_axis: Axis,
    title: str,
    shifts: Mapping[str, float],
) -> str:
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [svg_text(LEFT, 26, title, 15, font_weight="bold")]
    for tick in x_axis.ticks:
        x = x_axis.place(tick)
        parts.append(f'<path d="M{x:g} {TOP}V{floor}" stroke="{LINE}"/>')
        parts.append(svg_text(x, floor + 18, label(tick), text_anchor="middle"))
    for tick in y_axis.ticks:
        y = y_axis.place(tick)
        parts.append(f'<path d="M{LEFT} {y:g}H{right}" stroke="{LINE}"/>')
        parts.append(svg_text(LEFT - 8, y + 4, label(tick), text_anchor="end"))
    parts.append(svg_text((LEFT + right) / 2, HEIGHT - 14, x_axis.title, text_anchor="middle"))
    middle = (TOP + floor) / 2
    parts.append(
        svg_text(
            20, middle, y_axis.title, text_anchor="middle", transform=f"rotate(-90 20 {middle:g})"
        )
    )
    for (name, line), style in zip(points.items(), STYLES, strict=False):
        parts.append(_svg_line(name, line, style, x_axis, y_axis, shifts[name]))
    return svg_frame(WIDTH, HEIGHT, "".join(parts))


def _svg_line(
    name: str,
    line: list[tuple[float, float]],
    style: tuple,
    x_axis: Axis,
    y_axis: Axis,
    shift: float,
) -> str:
    symbol, _, dash, colour = style
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in line]
    path = "L".join(f"{x:g} {y:g}" for x, y in places)
    x, y = places[-1]
    return (
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dash}"/>'
        + "".join(_mark(symbol, x, y, colour) for x, y in places)
        + svg_text(x + 10, y + shift + 4, name, fill=colour, **END_LABEL)
    )


def _mark(symbol: str, x: float, y: float, colour: str) -> str:
    corners = {
        "square": "-4 -4 4 -4 4 4 -4 4",
        "triangle-up": "0 -5 5 4 -5 4",
        "diamond": "0 -6 5 0 0 6 -5 0",
    }
    if symbol == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{colour}"/>'
    return (
        f'<polygon points="{corners[symbol]}" transform="translate({x:g} {y:g})" fill="{colour}"/>'
    )


def _plotly(
    points: Mapping[str, list[tuple[float, float]]],
    x_axis: Axis,
    y_axis: Axis,
    title: str,
    shifts: Mapping[str, float],
) -> go.Figure:
    """The same figure for plotly; names are escaped, since plotly reads tags in texts."""
    traces, labels = [], []
    for (name, line), (symbol, dash, _, colour) in zip(points.items(), STYLES, strict=False):
        xs, ys = [x for x, _ in line], [y for _, y in line]
        traces.append({
            "type": "scatter", "mode": "lines+markers", "name": plotly_text(name), "x": xs, "y": ys,
            "line": {"color": colour, "dash": dash, "width": 2},
            "marker": {"symbol": symbol, "size": 9, "color": colour},
            "hovertemplate": "%{y}", "cliponaxis": False,
        })  # fmt: skip
        end = [math.log10(v) if x_axis.log else v for v in line[-1]]
        labels.append({
            "text": f"<b>{plotly_text(name)}</b>", "x": round(end[0], 6), "y": round(end[1], 6),
            "xanchor": "left", "xshift": 8, "yshift": -shifts[name], "showarrow": False,
            "font": {"color": colour}, "bgcolor": "rgba(255,255,255,0.8)",
        })  # fmt: skip
    layout = {
        "template": {}, "title": {"text": plotly_text(title), "x": 0.02, "font": {"size": 16}},
        "xaxis": x_axis.for_plotly(), "yaxis": y_axis.for_plotly(), "annotations": labels,
        "showlegend": False, "hovermode": "x unified", "height": HEIGHT, "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER, "font": {"color": INK, "family": SANS, "size": 13},
        "margin": {"l": LEFT, "r": RIGHT, "t": TOP, "b": BOTTOM},
    }  # fmt: skip
    return go.Figure(data=traces, layout=layout)
