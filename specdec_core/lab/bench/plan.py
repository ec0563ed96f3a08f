"""What a run of the bench measures: the settings, and the models with their prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdec_core.drafters import Drafter, LookupDrafter
from specdec_core.lab.bench.ours import Work
from specdec_core.lab.checks import check_whole, check_wholes
from specdec_core.lab.measure import draft_network
from specdec_core.loading import parse_device
from specdec_core.models import CausalLM
from specdec_core.pairs import Pair
from specdec_core.randomness import Randomness, Seeded
from specdec_core.sampling import Sampling

LOOKUP = "lookup"
SECTIONS = ("methods", "gammas", "batches", "loop")

STORYWORLD = {
    "story": ["Once upon a time, there was a", "Once upon a time"],
    "recipe": ["Recipe: soup with", "Recipe: pie with"],
    "code": ["def add(", "def scale("],
}
PASSAGE = (
    "The lighthouse stood at the end of a long stone pier. Every evening at six the keeper "
    "climbed one hundred and forty steps, cleaned the great lens with a soft cloth, and lit the "
    "lamp. Ships from nine countries knew its light: two short flashes, then one long. When fog "
    "came in from the north, he rang the bell as well, once a minute, until the morning."
)
CHAT = {
    "story": ["Tell me a short story about a fox and an owl.", "Tell me a story about a lost key."],
    "explanation": ["Explain why the sky is blue.", "Explain how a refrigerator works."],
    "code": [
        "Write a Python function that checks whether a number is prime.",
        "Write a Python function that reverses the words of a sentence.",
    ],
    "e-mail": [
        "Write an email to a friend about a lost key.",
        "Write an email to my landlord about a broken window.",
    ],
    "copy": [f"Repeat this text word for word:\n\n{PASSAGE}"],
    "edit": [f"Repeat this text, but write tower instead of lighthouse:\n\n{PASSAGE}"],
}
# For a model without a chat template, texts to go on with.
BEGINNINGS = {
    "story": ["Once upon a time, there was a fox who", "The key had been lost for a year when"],
    "explanation": ["The sky is blue because", "A refrigerator works by"],
    "code": ["def is_prime(n):\n", "def reverse_words(sentence):\n"],
    "copy": [f"{PASSAGE}\n\nOnce more, word for word:\n\nThe lighthouse stood at"],
}


@dataclass(frozen=True)
class Plan:
    """The settings of a run.

    gamma: drafted tokens a round; lookup_gamma: for look-up in the text, whose drafts cost nothing,
    alone or with a model that drafts where there is none.
    gammas, batches: what the sweeps go through. sections: which tables are made. draft: the drafter
    of the sweeps, None for the pair's first that is not the target itself. threads: of torch, for
    every row; None for as many as the target is fastest in.

    Raises ValueError, in one sentence, for a setting that cannot be run.
    """

    gamma: int = 4
    lookup_gamma: int = 10
    gammas: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    temperature: float = 1.0
    max_new_tokens: int = 64
    repeats: int = 5
    threads: int | None = None
    sections: tuple[str, ...] = SECTIONS
    draft: str | None = None
    draft_device: str | None = None

    def __post_init__(self) -> None:
        for option in ("gamma", "lookup_gamma", "max_new_tokens", "repeats", "threads"):
            if getattr(self, option) is not None:
                check_whole(_flag(option), getattr(self, option), least=1)
        for option in ("gammas", "batches"):
            check_wholes(_flag(option), getattr(self, option), least=1)
        unknown = [name for name in self.sections if name not in SECTIONS]
        if unknown or not self.sections:
            raise ValueError(f"--only must name tables among {', '.join(SECTIONS)}, not {unknown}.")
        Sampling(self.temperature)
        if self.draft_device is not None:
            parse_device(self.draft_device)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


@dataclass
class Subject:
    """The models of a run, and what they are to write.

    prompts: token ids by kind of text. randomness: makes our rows' random choices from a seed.
    coin: how often a coin keeps a draft, where one sets the verdicts; else None. notes: sentences
    for the head of the report.
    """

    name: str
    target: CausalLM
    drafters: dict[str, Drafter]
    prompts: dict[str, list[list[int]]]
    stop_tokens: tuple[int, ...] = ()
    randomness: Callable[[int], Randomness] = Seeded
    coin: float | None = None
    notes: list[str] = field(default_factory=list)

    def work(self, plan: Plan, kind: str | None = None) -> Work:
        """The task of one kind of text; None for all kinds in turn."""
        kinds = [kind] if kind else list(self.prompts)
        return Work(
            _in_turn([self.prompts[name] for name in kinds]), plan.temperature,
            plan.max_new_tokens, self.stop_tokens, self.randomness,
        )  # fmt: skip

    def chosen(self, plan: Plan) -> str:
        """The drafter of the sweeps. Raises ValueError where there is none of this name."""
        if plan.draft is not None:
            if plan.draft not in self.drafters:
                raise ValueError(
                    f"{self.name} has no drafter {plan.draft!r}: choose "
                    f"{' or '.join(self.drafters)}."
                )
            return plan.draft
        others = [name for name, drafter in self.drafters.items() if not self.is_target(drafter)]
        return next(iter(others or self.drafters))

    def rows(self, plan: Plan) -> dict[str, Drafter]:
        """The drafters that get rows: the target itself, always a loss, only where it is chosen."""
        chosen = self.chosen(plan)
        return {
            name: drafter
            for name, drafter in self.drafters.items()
            if name == chosen or not self.is_target(drafter)
        }

    def is_target(self, drafter: Drafter) -> bool:
        """Whether a drafter runs the target's own weights."""
        network = draft_network(drafter)
        return network is not None and network.model is self.target.model


def _in_turn(lists: Sequence[list[list[int]]]) -> list[list[int]]:
    """One prompt of each list, then the next of each; short lists begin again."""
    rounds = math.lcm(*(len(prompts) for prompts in lists))
    return [prompts[i % len(prompts)] for i in range(rounds) for prompts in lists]


def subject_of(pair: Pair, kinds: Sequence[str] | None = None) -> Subject:
    """A pair with its prompts, and with look-up in the text as one more drafter.

    kinds: the kinds of text to write; None for all. Raises ValueError for one that is not there.
    """
    chat = bool(pair.tokenizer.chat_template)
    texts = STORYWORLD if pair.name == "storyworld" else CHAT if chat else BEGINNINGS
    unknown = [kind for kind in kinds or () if kind not in texts]
    if unknown:
        raise ValueError(
            f"There is no kind of text {unknown[0]!r} for {pair.name}: choose among "
            f"{', '.join(texts)}."
        )
    prompts = {
        kind: [pair.encode(text, chat=chat and texts is CHAT) for text in texts[kind]]
        for kind in kinds or texts
    }
    lookup = {LOOKUP: LookupDrafter(pair.target.vocab_size)}
    drafters = {**pair.drafters, **(lookup if LOOKUP not in pair.drafters else {})}
    return Subject(pair.name, pair.target, drafters, prompts, tuple(pair.stop_tokens))
