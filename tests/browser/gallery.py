"""Every widget once on a real round of the bundled pair or on its own numbers, and what to try."""

from __future__ import annotations

from dataclasses import dataclass

IMPORT = "import specdec_core.widgets"
PAIR = f"""
{IMPORT}
from specdec_core import Sampling, Seeded, load_pair, speculative_decode
pair = load_pair("storyworld", dtype="float64")
prompt = pair.encode("Once upon a time")
out = speculative_decode(
    pair.target, pair.drafter, prompt, gamma=4, max_new_tokens=24, randomness=Seeded(1),
    stop_tokens=pair.stop_tokens,
)
"""


@dataclass(frozen=True)
class Exhibit:
    """A widget to try.

    setup, code: cells; `code` ends in the widget and calls it `stage`.
    tries: (label of a control, value, words that must appear then), in order. The value is what
        to type or to choose, or None for a click.
    control, values: what `measure.py` changes.
    """

    setup: str
    code: str
    tries: tuple[tuple[str, object, str], ...]
    control: str
    values: list[object]


GALLERY = {
    "coin tape": Exhibit(
        PAIR,
        "from specdec_core.widgets import coin_tape\nstage = coin_tape(\n"
        "    out.trace, pair.decode, target=pair.target, drafter=pair.drafter)\nstage",
        (("next round", None, "Round 2 of 6, as it ran: 4 of 4 drafts kept"),
         ("coin u of draft 2, slider", 0.9999, "Round 2 of 6"),
         ("previous round", None, "Round 1 of 6, as it ran")),
        "coin u of draft 1",
        [0.2, 0.9],
    ),
    "coin tape by hand": Exhibit(
        IMPORT,
        "from specdec_core.widgets import coin_tape_by_hand\n"
        "stage = coin_tape_by_hand()\nstage",
        (("coin u of draft 2", 0.7, "3 of 3 drafts kept; the bonus token"),
         ("p of A, B, ...", ".5 .6", "p must be probabilities that add up to 1; these"),
         ("p of A, B, ...", ".5 .5", "is not below p/q = 0.625"),
         ("drafted tokens", "B B", "2 of 2 drafts kept")),
        "coin u of draft 1",
        [0.2, 0.9],
    ),
    "mass mover": Exhibit(
        IMPORT,
        "from specdec_core.widgets import mass_mover\n"
        "stage = mass_mover((0.6, 0.4), (0.8, 0.2))\nstage",
        (("after a rejection, draw from", "p itself (M1)", "token 0 0.720, token 1 0.280: not p"),
         ("after a rejection, draw from", "the residual, max(p − q, 0) / sum", "0.400: exactly p"),
         ("draft q", ".6 .4", "Of all drafts 1.000 are kept"),
         ("draft q", ".6 .5", "q must")),
        "after a rejection, draw from",
        [1, 0],
    ),
    "proof tree": Exhibit(
        IMPORT,
        "from specdec_core.widgets import proof_tree\nstage = proof_tree()\nstage",
        (("the rule", "M1: After a rejection, draw from p", "18/25, and the target gives it 3/5"),
         ("the rule", "the right one", "9/25 + 6/25 = 3/5, and the target"),
         ("next gamma", None, "27/125"),
         ("target p", "x", "p must be numbers with spaces between")),
        "the rule",
        [1, 0],
    ),
    "staircase": Exhibit(
        PAIR,
        "from specdec_core.widgets import staircase\n"
        "stage = staircase(pair, 'Once upon a time')\nstage",
        (("Rows", "shift 0", "the toy's law is the target's"),
         ("Rows", "shift +1: one row too late", "the toy's law is off by 0.100 for one word"),
         ("next Round", None, "Shift +1"),
         ("Prompt", "Once upon a computer", "'computer' is not a word of storyworld")),
        "Rows",
        [1, 2],
    ),
    "KV ledger": Exhibit(
        PAIR,
        "from specdec_core.widgets import kv_ledger\n"
        "stage = kv_ledger(pair, 'Once upon a time', step=12)\nstage",
        (("fault", "target never rolled back (M18)", "6 rows wrong in the target cache"),
         ("fault", "none", "No row is wrong"),
         ("previous step", None, "Round 4 of 6, verify"),
         ("prompt", "Once upon a computer", "'computer' is not a word of storyworld")),
        "step",
        [2, 3, 4],
    ),
    "museum": Exhibit(
        IMPORT,
        "from specdec_core.widgets import museum_wall\nstage = museum_wall()\nstage",
        (("mistake", "M2 Argmax draft, softmax q in the ratio", "not tried yet. 4 of 28"),
         ("Run the checks", None, "total variation 0.15"),
         ("on", "my p and q", "on my p and q, total variation 0.15"),
         ("my p", "1 1", "p must be probabilities that add up to 1")),
        "mistake",
        [0, 2],
    ),
    "sample size": Exhibit(
        IMPORT,
        "from specdec_core.widgets import sample_size\nstage = sample_size()\nstage",
        (("samples, power of ten", 4, "outside the null band of 0.013"),
         ("samples, power of ten", 2, "Its power here is 0.450; power .99 needs 401 samples")),
        "samples, power of ten",
        [3, 4],
    ),
    "warping desk": Exhibit(
        PAIR,
        "from specdec_core.widgets import warping_desk\nstage = warping_desk(pair)\nstage",
        (("draft temperature", 1, "exactly p′. Of all drafts 0.750 are kept"),
         ("previous target top-k", None, "Out come A 1.000, B 0.000, C 0.000: exactly p′"),
         ("next target top-k", None, "Of all drafts 0.750 are kept"),
         ("draft temperature", 0, "Of all drafts 0.625 are kept"),
         ("the ratio uses q", "also before temperature (M12)", "not p′, total variation"),
         ("my p", "x", "p must be numbers"),
         ("p and q are", "after “Recipe: soup with”", "Out come onions")),
        "draft temperature",
        [0.5, 0.8],
    ),
    "forward race": Exhibit(
        IMPORT,
        "from specdec_core.widgets import forward_race\n"
        "stage = forward_race({'here': {n: 0.01 + n / 1e4 for n in (1, 2, 3)}}, ['a', 'b', 'c'])\n"
        "stage",
        (("previous tokens n", None, "2 tokens take"),),
        "tokens n",
        [1, 3],
    ),
    "race track": Exhibit(
        PAIR,
        "from specdec_core.widgets import race_track\n"
        "stage = race_track(trace=out.trace, decode=pair.decode, alpha=.8)\nstage",
        (("draft step c", 0.6, "the best gamma here is 1, 1.09 times"),
         ("draft step c", 0.05, "the best gamma here is 8"),
         ("gamma", 2, "there is no run at gamma 2"),
         ("verdicts", "coins at alpha", "at gamma 2: plain takes"),
         ("next race", None, "race 2"),
         ("acceptance alpha", 1, "the best gamma here is 12")),
        "acceptance alpha",
        [0.5, 0.7],
    ),
    "seismograph": Exhibit(
        PAIR + "from specdec_core.lab.acceptance import record_acceptance\n"
        "text = [*prompt, *out.tokens]\n"
        "records = {name: record_acceptance(pair.target, draft, text)\n"
        "           for name, draft in pair.drafters.items()}",
        "from specdec_core.widgets import seismograph\n"
        "stage = seismograph(records, pair.decode)\nstage",
        (("show", "weak", "weak: mean acceptance"),
         ("and below it", "strong", "Below, strong: mean"),
         ("position", 4, "At position 4"),
         ("and below it", "nothing", "weak: mean acceptance")),
        "position",
        [3, 9],
    ),
    "bet": Exhibit(
        IMPORT,
        "from specdec_core.widgets import bet\n"
        "stage = bet('00-forwards', 'How many forwards?', 1, 49, 'forwards')\nstage",
        (("your guess", 12, "12 forwards (not kept yet)"),
         ("Keep this prediction", None, "12 forwards (kept)")),
        "your guess",
        [3, 4],
    ),
    "bet board": Exhibit(
        "from specdec_core.lab.bets import Bet, keep_bet\n"
        "keep_bet(Bet('00-forwards', 'How many forwards?', 1, 49, 'forwards', 22.0, 10.0))",
        "from specdec_core.widgets import bet_board\nstage = bet_board()\nstage",
        (("show", "chapter 01", "No settled bet yet"),
         ("show", "chapter 00", "1 settled bet, off by 25%")),
        "show",
        [2, 1],
    ),
}  # fmt: skip
