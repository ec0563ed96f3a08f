"""Speculative decoding, exact end to end: draft, verify, roll back."""

from specdec_core.batch import autoregressive_decode_batch, speculative_decode_batch
from specdec_core.decode import (
    Result,
    autoregressive_decode,
    speculative_decode,
    speculative_rounds,
)
from specdec_core.drafters import (
    Drafter,
    EarlyExitModel,
    LookupDrafter,
    LookupElse,
    MedusaDrafter,
    MedusaHeads,
    ModelDrafter,
    NGramDrafter,
    TableDrafter,
)
from specdec_core.exact import exact_law, largest_difference, marginal, total_variation
from specdec_core.models import CausalLM, LanguageModel, TableModel
from specdec_core.monitor import AcceptanceMonitor
from specdec_core.ngram import NGramTable
from specdec_core.pairs import Pair, load_pair
from specdec_core.randomness import Enumerated, Randomness, Scripted, Seeded
from specdec_core.sampling import Sampling
from specdec_core.schedules import AdaptiveGamma, Schedule, WarmUp
from specdec_core.short_head import ShortHead
from specdec_core.text import TextStream
from specdec_core.trace import Round, Stats, Trace
from specdec_core.verify import Draft, Verification, verify

__all__ = [
    "AcceptanceMonitor",
    "AdaptiveGamma",
    "CausalLM",
    "Draft",
    "Drafter",
    "EarlyExitModel",
    "Enumerated",
    "LanguageModel",
    "LookupDrafter",
    "LookupElse",
    "MedusaDrafter",
    "MedusaHeads",
    "ModelDrafter",
    "NGramDrafter",
    "NGramTable",
    "Pair",
    "Randomness",
    "Result",
    "Round",
    "Sampling",
    "Schedule",
    "Scripted",
    "Seeded",
    "ShortHead",
    "Stats",
    "TableDrafter",
    "TableModel",
    "TextStream",
    "Trace",
    "Verification",
    "WarmUp",
    "autoregressive_decode",
    "autoregressive_decode_batch",
    "exact_law",
    "largest_difference",
    "load_pair",
    "marginal",
    "speculative_decode",
    "speculative_decode_batch",
    "speculative_rounds",
    "total_variation",
    "verify",
]
