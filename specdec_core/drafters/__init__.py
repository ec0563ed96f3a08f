"""Who proposes: drafters that guess the next gamma tokens for the target to judge."""

from specdec_core.drafters.chain import ModelDrafter, NGramDrafter, TableDrafter
from specdec_core.drafters.early_exit import EarlyExitModel
from specdec_core.drafters.lookup import LookupDrafter, LookupElse
from specdec_core.drafters.medusa import MedusaDrafter, MedusaHeads
from specdec_core.drafters.protocol import Drafter
from specdec_core.ngram import NGramTable

__all__ = [
    "Drafter",
    "EarlyExitModel",
    "LookupDrafter",
    "LookupElse",
    "MedusaDrafter",
    "MedusaHeads",
    "ModelDrafter",
    "NGramDrafter",
    "NGramTable",
    "TableDrafter",
]
