"""Checks for the exercises: each answers *not attempted*, *wrong because ...*, or *right*."""

from specdec_core.lab.exercises.chapter_00 import check_keep, check_order, check_tokens_per_forward
from specdec_core.lab.exercises.chapter_01 import (
    check_greedy_loop,
    check_most_tokens,
    check_rows_fed,
)
from specdec_core.lab.exercises.chapter_02 import (
    check_draft_chain,
    check_greedy_verdict,
    check_row_duty,
)
from specdec_core.lab.exercises.chapter_03 import (
    check_expected_acceptance,
    check_one_token,
    check_residual,
)
from specdec_core.lab.exercises.chapter_04 import check_count_kept, check_cut_block
from specdec_core.lab.exercises.chapter_05 import (
    check_find_fault,
    check_rows_after,
    check_write_rows,
)
from specdec_core.lab.exercises.chapter_06 import check_distance, check_plan, check_right_law
from specdec_core.lab.exercises.chapter_07 import check_draft_one, check_prefixes, check_warped
from specdec_core.lab.exercises.chapter_08 import (
    check_alpha_of_fraction,
    check_best_gamma,
    check_expected_tokens,
)
from specdec_core.lab.exercises.chapter_09 import (
    check_best_draft,
    check_drafts_in_round,
    check_look_up,
)
from specdec_core.lab.exercises.verdicts import compare_choice, compare_prediction
from specdec_core.lab.exercises.whole_loop import check_my_decode

__all__ = [
    "check_alpha_of_fraction",
    "check_best_draft",
    "check_best_gamma",
    "check_count_kept",
    "check_cut_block",
    "check_distance",
    "check_draft_chain",
    "check_draft_one",
    "check_drafts_in_round",
    "check_expected_acceptance",
    "check_expected_tokens",
    "check_find_fault",
    "check_greedy_loop",
    "check_greedy_verdict",
    "check_keep",
    "check_look_up",
    "check_most_tokens",
    "check_my_decode",
    "check_one_token",
    "check_order",
    "check_plan",
    "check_prefixes",
    "check_residual",
    "check_right_law",
    "check_row_duty",
    "check_rows_after",
    "check_rows_fed",
    "check_tokens_per_forward",
    "check_warped",
    "check_write_rows",
    "compare_choice",
    "compare_prediction",
]
