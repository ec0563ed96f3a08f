"""The race track: plain and speculative decoding over the same tokens, on one axis of time.

A race is drawn from real rounds, or from rounds whose verdicts the package's own `verify` gave at
a chosen acceptance; what things cost, and what that means on average, comes from the speed model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import torch

from specdec_core.lab.speed_model import Costs, best_gamma, expected_tokens, gain, speedup
from specdec_core.randomness import Seeded
from specdec_core.trace import Round, Stats, Trace
from specdec_core.verify import Draft, verify
from specdec_core.widgets.picture import Picture
from specdec_core.widgets.race_track_curve import Leg, Point, Race
from specdec_core.widgets.race_track_picture import draw_race
from specdec_core.widgets.stage import Stage, select, slider, stepper

MOST_GAMMA = 12
TOKENS = 12  # a race ends with the round that brings this token
RACES = 99
FIRST_COINS = 2  # at the first state they give corrected tokens and a bonus, and average luck
COINS, RUN = "coins", "run"
# Of the sliders: label, highest value, step.
NUMBERS = {
    "alpha": ("acceptance alpha", 1.0, 0.01),
    "c": ("draft step c", 1.5, 0.005),
    "o": ("rest of a round o", 1.0, 0.005),
    "slope": ("each more row costs", 1.0, 0.005),
}


@dataclass(frozen=True)
class Course:
    """What a race is run on, beside the state.

    v: measured cost of verifying gamma drafts, in plain steps. runs: gamma -> stretches of a real
    run. step: seconds of a plain step, None to count in steps. alpha: the one that the runs go
    with, None for any.
    """

    v: Mapping[int, float] = field(default_factory=dict)
    runs: Mapping[int, Sequence[Sequence[Leg]]] = field(default_factory=dict)
    step: float | None = None
    alpha: float | None = None

    def cost(self, gamma: int, slope: float) -> float:
        """v(gamma) in plain steps: measured where it was, else 1 + slope gamma."""
        return self.v.get(gamma, 1 + slope * gamma)


def race_track(
    *,
    alpha: float | None = None,
    c: float = 0.1,
    v: Mapping[int, float] | None = None,
    o: float = 0.05,
    gamma: int | None = None,
    trace: Trace | Mapping[int, Trace] | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
    step: float | None = None,
) -> Stage:
    """A stage: two timelines and the curve of the speed-up, with what they depend on to change.

    alpha: acceptance; by default what the traces show, or .8. c, o: cost of a draft step, and of
        the rest of a round, in plain steps. v: measured verification cost by gamma, in plain
        steps; where there is none, 1 + slope gamma, with the slope to set. gamma: the first one
        shown; by default that of the run, or 4.
    trace: a real run to race on, or several by their gamma; `decode` turns its ids into text.
    step: seconds of a plain step, to put milliseconds on the axis.

    Where alpha is moved the race runs on coins. A number beyond its slider counts as the slider's
    end. Raises ValueError for times of 0 and less, for what is no number, for a gamma in `v` that
    is not whole, and for a trace without `decode`.
    """
    traces = {_gamma_of(trace): trace} if isinstance(trace, Trace) else dict(trace or {})
    if traces and decode is None:
        raise ValueError("A trace needs decode, which turns its token ids into text.")
    v = _measured(v or {})
    if not all(0 < cost < math.inf for cost in [1.0 if step is None else step, *v.values()]):
        raise ValueError("A step, and each verification, takes time: give numbers above 0.")
    start = {"alpha": _alpha_of(traces) if alpha is None else alpha, "c": c, "o": o}
    start["slope"] = (v[max(v)] - 1) / max(v) if v else 0.0
    start = {name: _on_slider(name, value) for name, value in start.items()}
    runs = {one: stretches(traces[one], decode) for one in sorted(traces)}
    runs = {one: parts for one, parts in runs.items() if parts}
    course = Course(v, runs, step, start["alpha"])
    controls = [slider("gamma", "gamma", 0, MOST_GAMMA, 1)]
    controls += [slider(k, words, 0, most, by) for k, (words, most, by) in NUMBERS.items()]
    controls.append(stepper("race", "race", 1, RACES))
    if course.runs:
        choices = {RUN: "the run's own", COINS: "coins at alpha"}
        controls.append(select("verdicts", "verdicts", choices))
    gamma = next(iter(course.runs), 4) if gamma is None else gamma
    return Stage(
        partial(draw_race_track, course), "Race track", controls, gamma=gamma,
        race=_first_race(course.runs.get(gamma)), verdicts=RUN if course.runs else COINS, **start,
    )  # fmt: skip


def draw_race_track(
    course: Course,
    gamma: int,
    alpha: float,
    c: float,
    o: float,
    slope: float,
    race: int = 1,
    verdicts: str = COINS,
) -> Picture:
    """One race at `gamma`, and the speed-up S(gamma) for gamma 0 to 12.

    slope: what each drafted token adds to a verification whose cost was not measured. race: seed
    of the coins, or the number of the run's stretch. verdicts: "run" for the real run where there
    is one at this gamma and alpha is the one it goes with, else "coins".

    Raises ValueError for a number out of range.
    """
    numbers = {"alpha": alpha, "c": c, "o": o, "slope": slope}
    for name, value in numbers.items():
        _within(name, value, NUMBERS[name][1])
    _within("gamma", gamma, MOST_GAMMA)
    gamma, own = int(gamma), course.alpha in (None, alpha)
    real = verdicts == RUN and own and gamma in course.runs
    if real:
        parts = course.runs[gamma]
        legs = parts[(race - 1) % len(parts)]
    else:
        legs = coin_legs(alpha, gamma, race)
    points = [_point(course, k, **numbers) for k in range(MOST_GAMMA + 1)]
    tried = course.v or {k: course.cost(k, slope) for k in range(1, MOST_GAMMA + 1)}
    best = best_gamma(alpha, Costs(1.0, c, dict(tried)), o)
    # What a round costs, by the model itself: 1 token over the gain of 1 token.
    steps = tuple(1 / gain(1.0, leg.drafted, c, course.cost(leg.drafted, slope), o) for leg in legs)
    title = f"verdicts by coins, alpha {alpha:g}, race {race}"
    if real:
        title = f"a real run, part {(race - 1) % len(parts) + 1} of {len(parts)}"
    elif verdicts == RUN:
        title += f"; there is no run at {f'gamma {gamma}' if own else f'alpha {alpha:g}'}"
    return draw_race(Race(tuple(legs), steps, gamma, c, o, course.step, title, tuple(points), best))


def _point(course: Course, gamma: int, alpha: float, c: float, o: float, slope: float) -> Point:
    v = course.cost(gamma, slope)
    how = "measured" if gamma in course.v else "rule"
    return Point(gamma, expected_tokens(alpha, gamma), v, how, speedup(alpha, gamma, c, v, o))


@lru_cache(maxsize=512)
def coin_legs(alpha: float, gamma: int, seed: int) -> tuple[Leg, ...]:
    """Rounds judged by `verify` on a draft that is always token 0, which the target wants with
    probability alpha; tokens are numbered from 1 on."""
    p = torch.tensor([alpha, 1 - alpha], dtype=torch.float64).expand(gamma + 1, 2)
    q = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(gamma, 2)
    draft, randomness = Draft(torch.zeros(gamma, dtype=torch.int64), q), Seeded(seed)
    legs, made = [], 0
    while made < TOKENS:
        kept = int(verify(p, draft, randomness).accepted)
        last = "plain" if not gamma else "bonus" if kept == gamma else "corrected"
        words = tuple(str(made + i) for i in range(1, kept + 2))
        verdicts = ("accepted",) * kept + ("rejected", *("unjudged",) * gamma)
        legs.append(Leg(verdicts[:gamma], words, ("draft",) * kept + (last,)))
        made += kept + 1
    return tuple(legs)


def stretches(trace: Trace, decode: Callable[[Sequence[int]], str]) -> list[tuple[Leg, ...]]:
    """A run cut into races of whole rounds with at least 12 tokens; the last may have 6, and the
    only one any."""
    parts: list[tuple[Leg, ...]] = []
    legs: list[Leg] = []
    for one in trace.rounds:
        legs.append(_leg(one, decode))
        if _tokens(legs) >= TOKENS:
            parts.append(tuple(legs))
            legs = []
    if legs and (not parts or _tokens(legs) >= TOKENS / 2):
        parts.append(tuple(legs))
    return parts


def _tokens(legs: Sequence[Leg]) -> int:
    return sum(len(leg.words) for leg in legs)


def _first_race(parts: Sequence[Sequence[Leg]] | None) -> int:
    """The first part of a run that has a corrected token, if one has."""
    if parts is None:
        return FIRST_COINS
    has = (any("corrected" in leg.origins for leg in legs) for legs in parts)
    return next((i for i, found in enumerate(has, 1) if found), 1)


def _leg(one: Round, decode: Callable[[Sequence[int]], str]) -> Leg:
    words = tuple(decode([token]) or f"#{token}" for token in one.emitted)
    return Leg(one.verdicts, words, one.origins)


def _gamma_of(trace: Trace) -> int:
    return max((one.gamma for one in trace.rounds), default=0)


def _alpha_of(traces: Mapping[int, Trace]) -> float:
    """Pooled acceptance rate of the runs; .8 where nothing was judged."""
    stats = Stats()
    for trace in traces.values():
        for one in trace.rounds:
            stats.add(one)
    return stats.acceptance_rate if stats.accepted + stats.rejected else 0.8


def _measured(v: Mapping[int, float]) -> dict[int, float]:
    """The costs at gammas that the race has."""
    for gamma in v:
        if gamma != gamma // 1:  # of nan too
            raise ValueError(f"v maps whole gammas to their cost, and {gamma:g} is not whole.")
    return {int(k): float(cost) for k, cost in v.items() if 0 < k <= MOST_GAMMA}


def _on_slider(name: str, value: float) -> float:
    """The nearest value that the slider has."""
    _, most, by = NUMBERS[name]
    if math.isnan(value):
        raise ValueError(f"{name} is a number from 0 to {most:g} here, not {value:g}.")
    return round(round(min(max(value, 0.0), most) / by) * by, 3)


def _within(name: str, value: float, most: float) -> None:
    if not 0 <= value <= most:
        raise ValueError(f"{name} goes from 0 to {most:g} here, not {value:g}.")
