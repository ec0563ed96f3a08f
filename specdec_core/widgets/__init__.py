"""Views: pure functions from data to a picture and a sentence, shown in notebooks."""

from specdec_core.widgets.bet_board import bet, bet_board
from specdec_core.widgets.coin_tape import coin_tape, coin_tape_by_hand
from specdec_core.widgets.figure import line_figure
from specdec_core.widgets.forward_race import forward_race
from specdec_core.widgets.kv_ledger import draw_kv_ledger, kv_ledger
from specdec_core.widgets.mass_mover import mass_mover
from specdec_core.widgets.museum_wall import museum_wall
from specdec_core.widgets.picture import Picture
from specdec_core.widgets.proof_tree import proof_tree, real_rows
from specdec_core.widgets.race_track import race_track
from specdec_core.widgets.ribbon import origin_ribbon
from specdec_core.widgets.sample_size import sample_size
from specdec_core.widgets.seismograph import seismograph
from specdec_core.widgets.staircase import staircase
from specdec_core.widgets.warping_desk import warping_desk

__all__ = [
    "Picture",
    "bet",
    "bet_board",
    "coin_tape",
    "coin_tape_by_hand",
    "draw_kv_ledger",
    "forward_race",
    "kv_ledger",
    "line_figure",
    "mass_mover",
    "museum_wall",
    "origin_ribbon",
    "proof_tree",
    "race_track",
    "real_rows",
    "sample_size",
    "seismograph",
    "staircase",
    "warping_desk",
]
