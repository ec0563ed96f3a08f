"""One target forward in words, and what happens where its rows are read one place off.

One forward over [newest, x1 .. x_gamma] gives gamma + 1 rows. Row i sees the text up to x_i, so it
judges x_(i+1), and the last row gives the bonus token. A reader who places the rows on the tokens
has one of them in hand until all are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from torch import Tensor

from specdec_core.decode import autoregressive_decode, speculative_decode, speculative_rounds
from specdec_core.drafters import TableDrafter
from specdec_core.exact import Law, exact_law, marginal
from specdec_core.models import LanguageModel, TableModel
from specdec_core.pairs import Pair
from specdec_core.sampling import Sampling
from specdec_core.trace import Round
from specdec_core.widgets.picture import visible

GREEDY = Sampling(temperature=0)
SHIFTS = (-1, 0, 1)


class ShiftedRows:
    """A target whose rows are read one place off: asked for row i, it gives row i + shift.

    A row past either end is the row at that end. With shift 1 this is the museum's M11.
    """

    def __init__(self, target: LanguageModel, shift: int) -> None:
        self.target, self.shift = target, shift
        self.vocab_size, self.max_length = target.vocab_size, target.max_length
        self.device, self.threads = target.device, target.threads

    @property
    def length(self) -> int:
        return self.target.length

    @property
    def forwards(self) -> int:
        return self.target.forwards

    def forward(self, tokens: Sequence[int] | Tensor, keep: int | None = None) -> Tensor:
        rows = self.target.forward(tokens, keep)
        last = rows.shape[0] - 1
        return rows[[row_read(i, self.shift, last) for i in range(last + 1)]]

    def rollback(self, length: int) -> None:
        self.target.rollback(length)


def row_read(row: int, shift: int, last: int) -> int:
    """The row that is read where row `row` of 0 to `last` is meant."""
    return min(max(row + shift, 0), last)


@dataclass(frozen=True)
class OnePass:
    """One target forward of a greedy run, in text.

    tail: the newest tokens of the text before it. drafted: x1 to x_gamma. top: for each of the
    gamma + 1 rows its two most likely tokens with p. prob: p of each drafted token in each row,
    [gamma + 1][gamma]. rounds: for each shift what the loop made of it. emitted: its text.
    plain: what plain greedy decoding writes here, gamma + 1 tokens at most.
    """

    tail: tuple[str, ...]
    drafted: tuple[str, ...]
    top: tuple[tuple[tuple[str, float], ...], ...]
    prob: tuple[tuple[float, ...], ...]
    rounds: dict[int, Round]
    emitted: dict[int, tuple[str, ...]]
    plain: tuple[str, ...]

    @property
    def gamma(self) -> int:
        return len(self.drafted)

    def name(self, place: int) -> str:
        """What stands at 1 to gamma + 1 after the newest token."""
        return f"x{place}" if place <= self.gamma else "the bonus token"


def waiting_rows(placed: Sequence[int]) -> list[int]:
    """The rows that are not on the token they judge.

    placed: for each row the place it was dropped on, 1 to gamma + 1, or 0.
    """
    return [i for i, place in enumerate(placed) if place != i + 1]


def in_hand(placed: Sequence[int], row: int) -> int | None:
    """The row last taken while one is left to place, and none once all are right."""
    waiting = waiting_rows(placed)
    return (row if row < len(placed) else waiting[0]) if waiting else None


def after_drop(placed: Sequence[int], row: int, place: int) -> int:
    """The row to take next: a wrong one stays in hand, a right one hands on to the next."""
    waiting = waiting_rows([*placed[:row], place, *placed[row + 1 :]])
    return min(waiting, key=lambda i: (i < row, i), default=len(placed))


def placing_words(one: OnePass, placed: Sequence[int], hand: int | None) -> str:
    """What is right, what is in hand, and why it is wrong where it was dropped."""
    waiting = waiting_rows(placed)
    if hand is None:
        return (
            f"All {len(placed)} rows are right: each judges the first token it does not see, and "
            f"row {one.gamma}, which sees every draft, gives the bonus token."
        )
    score = f"{len(placed) - len(waiting)} of {len(placed)} rows right."
    sees = f"up to x{hand}" if hand else "up to the newest token and no draft"
    place, others = placed[hand], [i for i in waiting if placed[i] and i != hand]
    if hand not in waiting:
        score += f" Row {hand} is in hand, and right on {one.name(place)}: take another row."
    elif place:
        why = f"it has not seen x{hand + 1}, so it cannot say what follows that"
        if place <= hand:
            why = f"it has seen x{place}, so it says what comes later"
        score += f" Row {hand} is wrong on {one.name(place)}: {why}. It stays in hand."
    else:
        score += (
            f" Row {hand} is in hand: it sees the text {sees}, and expects "
            f"“{visible(one.top[hand][0][0])}”. Which token does it judge?"
        )
    return score + "".join(f" Row {i} is wrong on {one.name(placed[i])}." for i in others)


def token_text(pair: Pair, token: int) -> str:
    """A token as text; one that decodes to nothing by its name in the tokenizer."""
    return pair.decode([token]) or str(pair.tokenizer.convert_ids_to_tokens(token))


def greedy_run(pair: Pair, prompt: str, gamma: int, rounds: int) -> list[tuple[list[int], Round]]:
    """The first rounds of a greedy speculative run, at most `rounds`, each with the ids before it.

    Uses the pair's models, so not between two rounds of another run. Raises ValueError for a
    prompt that cannot be encoded.
    """
    context, made = pair.encode(prompt), []
    run = speculative_rounds(
        pair.target, pair.drafter, context, gamma=gamma, sampling=GREEDY,
        max_new_tokens=(gamma + 1) * (rounds + 1), stop_tokens=pair.stop_tokens,
    )  # fmt: skip
    for round in islice(run, rounds):
        made.append((context, round))
        context = [*context, *round.emitted]
    return made


def one_pass(pair: Pair, context: list[int], round: Round) -> OnePass:
    """The target forward of a greedy `round` after `context`, and of the same round shifted."""

    def words(tokens: Sequence[int]) -> tuple[str, ...]:
        return tuple(token_text(pair, token) for token in tokens)

    end = {"max_new_tokens": round.gamma + 1, "stop_tokens": pair.stop_tokens}
    pair.target.rollback(0)
    logits = pair.target.forward([*context, *round.drafted], keep=round.gamma + 1)
    p = Sampling().probs(logits)
    best = p.topk(2, dim=-1)
    top = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    rounds = {}
    for shift in SHIFTS:
        target = ShiftedRows(pair.target, shift)
        run = speculative_rounds(
            target, pair.drafter, context, gamma=round.gamma, sampling=GREEDY, **end
        )
        rounds[shift] = next(run)
    return OnePass(
        tail=words(context[-2:]),
        drafted=words(round.drafted),
        top=tuple(tuple(zip(words(ids), values, strict=True)) for ids, values in top),
        prob=tuple(map(tuple, p[:, list(round.drafted)].tolist())),
        rounds=rounds,
        emitted={shift: words(made.emitted) for shift, made in rounds.items()},
        plain=words(autoregressive_decode(pair.target, context, sampling=GREEDY, **end).tokens),
    )


Row = tuple[float, float]


@lru_cache(maxsize=64)
def toy_law(p: tuple[Row, Row, Row], q: tuple[Row], shift: int) -> Law:
    """Exact law of two tokens, gamma 2, with rows read `shift` places off.

    p: at the first token, after token 0, after token 1. q: the draft's, everywhere.
    """
    target = ShiftedRows(TableModel(lambda t: p[1 + t[-1]] if len(t) > 1 else p[0], 2), shift)
    drafter = TableDrafter(lambda t: q[0], 2)
    options = {"gamma": 2, "max_new_tokens": 3}
    whole = exact_law(
        lambda coins: speculative_decode(target, drafter, [0], randomness=coins, **options).tokens
    )
    return marginal(whole, 2)
