"""Checks of chapter 08: tokens a round emits, alpha read from counts, the best gamma."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

from specdec_core.lab import speed_model
from specdec_core.lab.exercises.verdicts import as_number, as_whole, attempted, call, over

SLACK = 1e-6

# alpha, gamma
CHAINS = ((0.7, 4), (0.5, 2), (0.9, 1), (0.0, 4), (0.7, 0), (1.0, 4))


@attempted
def check_expected_tokens(function: Callable[[float, int], float]) -> None:
    """Exercise 1: N, the mean number of tokens a round emits."""
    over(
        CHAINS,
        function,
        _explain_tokens,
        "alpha={}, gamma={}".format,
        {"ZeroDivisionError": "at alpha = 1 add the terms up instead of dividing"},
    )


def _explain_tokens(answer: object, alpha: float, gamma: int) -> str | None:
    mine, right = as_number(answer), speed_model.expected_tokens(alpha, gamma)
    if mine is None:
        return f"it returns {answer!r}, which is not a number"
    if abs(mine - right) <= SLACK:
        return None
    slips = {
        right
        - 1: "these are the accepted drafts; a round emits one token more, corrected or bonus",
        1 + alpha * gamma: "a draft is judged only if all before it were kept: draft i counts with "
        "alpha to the power i",
        1 + alpha**gamma * gamma: "this counts full accepts alone: a round that keeps two of five "
        "emits three tokens",
        right + alpha ** (gamma + 1): "this is one draft too many: the last power is gamma",
        float(gamma + 1): "this is the most a round can emit, not the mean",
        1 / (1 - alpha) if alpha < 1 else -1.0: "this is a round without end: it stops after gamma "
        "drafts",
    }
    if gamma > 0 and abs(mine - (right - alpha**gamma)) <= SLACK:
        return "the bonus token is missing: a round of which all is kept emits gamma + 1 tokens"
    return _named(mine, slips) or f"it is {right:.4f}, not {mine:.4f}"


def _named(mine: float, slips: dict[float, str]) -> str | None:
    """What is said of the first slip that gives this number."""
    return next((why for value, why in slips.items() if abs(mine - value) <= SLACK), None)


# alpha, gamma; the exercise is given accepted / drafted.
READ = ((0.8, 5), (0.87, 10), (0.4, 4), (0.55, 1), (0.0, 3), (1.0, 6))
ALPHA_SLACK = 0.002


@attempted
def check_alpha_of_fraction(function: Callable[[float, int], float]) -> None:
    """Exercise 2: alpha from accepted / drafted."""
    cases = [(speed_model.accepted_fraction(alpha, gamma), gamma) for alpha, gamma in READ]
    over(cases, function, _explain_alpha, lambda f, gamma: f"fraction={f:.4f}, gamma={gamma}")


def _explain_alpha(answer: object, fraction: float, gamma: int) -> str | None:
    mine, right = as_number(answer), speed_model.alpha_of_fraction(fraction, gamma)
    if mine is None:
        return f"it returns {answer!r}, which is not a number"
    if abs(mine - right) <= ALPHA_SLACK:
        return None
    slips = {
        fraction: "accepted / drafted is not alpha: drafts after a rejection were never judged",
        1 + gamma * fraction: "this is N; look for the alpha that gives this N",
        gamma
        * fraction: "these are the drafts kept in a round; look for the alpha that gives them",
        fraction ** (1 / gamma): "this reads the fraction as the chance of a full accept, "
        "alpha to the power gamma",
    }
    if why := _named(mine, slips):
        return why
    if not 0 <= mine <= 1:
        return f"alpha is a probability, not {mine:.4f}"
    side = "smaller" if mine > right else "larger"
    given = speed_model.accepted_fraction(mine, gamma)
    return f"alpha = {mine:.4f} would give {given:.4f}: look for a {side} one"


# alpha, c, v by gamma, o. In the first the speed-up has two peaks; in the third nothing pays, nor
# in the last, for its o. The best is at least 2 % ahead in each.
CASES = (
    (0.85, 0.06, {1: 1.0, 2: 1.9, 4: 1.2, 8: 1.9}, 0.1),
    (0.9, 0.3, {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}, 0.0),
    (0.5, 0.6, {1: 1.0, 2: 1.0, 4: 1.1}, 0.0),
    (0.6, 0.05, {1: 1.0, 2: 1.5, 3: 1.9, 4: 2.4}, 0.0),
    (0.75, 0.05, {2: 1.4, 4: 1.75, 1: 1.0}, 0.65),
    (0.7, 0.12, {2: 1.1, 4: 1.2, 1: 1.0, 8: 1.4}, 1.6),
)


@attempted
def check_best_gamma(function: Callable[[float, float, dict[int, float], float], int]) -> None:
    """Exercise 3: the gamma with the largest predicted speed-up, 0 where none gains."""
    explain = partial(_explain_gamma, _slip_of(function))
    over(CASES, function, explain, "alpha={}, c={}, v={}, o={}".format)


def _explain_gamma(
    slip: str | None, answer: object, alpha: float, c: float, v: dict[int, float], o: float
) -> str | None:
    gains = {0: 1.0, **_gains(alpha, c, v, o)}
    right, best = speed_model.best_gamma(alpha, speed_model.Costs(1.0, c, v), o)
    mine = as_whole(answer)
    if mine == right:
        return None
    if mine is None:
        near = as_number(answer)
        if near is not None and abs(near - best) <= SLACK:
            return "this is the speed-up; return the gamma that gives it"
        return f"it returns {answer!r}, which is not a whole number"
    if mine and mine not in v:
        return f"v was never measured at gamma {mine}: choose among {sorted(v)}, or 0"
    if slip:
        return f"{slip}: gamma {mine} gives {gains[mine]:.2f}x, gamma {right} {best:.2f}x"
    if right == 0:
        return f"plain decoding is faster: gamma {mine} gives {gains[mine]:.2f}x, so return 0"
    if mine == 0:
        return f"gamma {right} gives {best:.2f}x, which is faster than plain decoding"
    return (
        f"this is not the fastest: gamma {mine} gives {gains[mine]:.2f}x, gamma {right} {best:.2f}x"
    )


def _slip_of(function: Callable[[float, float, dict[int, float], float], int]) -> str | None:
    """The slip that gives this function's answers, all of them: one answer alone fits many."""
    fitting = None
    for case in CASES:
        mine = as_whole(call(function, *deepcopy(case))[0])
        fit = {why for why, answers in _slips(*case).items() if mine in answers}
        fitting = fit if fitting is None else fitting & fit
        if not fitting:
            return None
    return next(iter(fitting)) if len(fitting) == 1 else None


def _slips(alpha: float, c: float, v: dict[int, float], o: float) -> dict[str, tuple[int, ...]]:
    """What each usual slip answers: where 0 is allowed, and where it is not."""

    def best(c: float, v: dict[int, float], o: float) -> tuple[int, int]:
        gains = _gains(alpha, c, v, o)
        return _largest(gains, 1.0), _largest(gains, 0.0)

    gains = _gains(alpha, c, v, o)
    return {
        "this stops at the first peak, and v may fall again": (_first_peak(gains),),
        "verification is not free: v(gamma) differs from 1": best(c, dict.fromkeys(v, 1.0), o),
        "the overhead o is left out": best(c, v, 0.0),
        "the draft's own time, gamma times c, is left out": best(0.0, v, o),
        "a plain step is no round and pays no o: it takes 1": (_largest(gains, 1 / (1 + o)),),
    }


def _gains(alpha: float, c: float, v: dict[int, float], o: float) -> dict[int, float]:
    return {gamma: speed_model.speedup(alpha, gamma, c, cost, o) for gamma, cost in v.items()}


def _largest(gains: dict[int, float], plain: float) -> int:
    """The gamma of the largest gain, or 0 where plain decoding has more."""
    best = max(gains, key=gains.__getitem__)
    return best if gains[best] > plain else 0


def _first_peak(gains: dict[int, float]) -> int:
    best, gain = 0, 1.0
    for gamma in sorted(gains):
        if gains[gamma] < gain:
            break
        best, gain = gamma, gains[gamma]
    return best
