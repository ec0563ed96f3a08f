"""Small things every chapter uses: a self-check of the set-up, and code printed from the core."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from specdec_core.decode import speculative_decode
from specdec_core.drafters import TableDrafter
from specdec_core.exact import exact_law, marginal
from specdec_core.models import TableModel
from specdec_core.pairs import load_pair

NEEDED = ("torch", "transformers", "ipywidgets", "anywidget", "plotly")


def show_source(thing: Callable) -> None:
    """Print the source of a function or class, as it runs."""
    print(inspect.getsource(thing).rstrip())


def self_check() -> None:
    """Print one line for each thing a chapter needs, and how to mend what is missing."""
    results = list(_findings())
    for good, what, mend in results:
        print(f"ok       {what}" if good else f"MISSING  {what}: {mend}")
    ready = all(good for good, _, _ in results)
    print("You are ready." if ready else "Mend the lines above, restart the kernel, run again.")


def _findings() -> Iterator[tuple[bool, str, str]]:
    """(is it there, what it is, how to mend it) for each need."""
    yield sys.version_info >= (3, 11), "Python 3.11 or newer", "install a newer Python"
    missing = [name for name in NEEDED if find_spec(name) is None]
    reinstall = f"run `pip install -e .` again ({', '.join(missing)})"
    yield not missing, "the packages this workbook uses", reinstall
    try:
        pair = load_pair("storyworld")
        text = pair.decode(pair.encode("Once upon a time"))
        yield text == "Once upon a time", "the bundled pair of models", "clone the project again"
    except (OSError, ValueError) as error:
        yield False, "the bundled pair of models", str(error)
    law = exact_law(
        lambda coins: (
            speculative_decode(
                TableModel(lambda _: [0.6, 0.4], 2),
                TableDrafter(lambda _: [0.8, 0.2], 2),
                [0],
                gamma=2,
                max_new_tokens=1,
                randomness=coins,
            ).tokens
        )
    )
    exact = abs(marginal(law, 1)[(0,)] - 0.6) < 1e-12
    yield exact, "speculative decoding writes by the target's law", "report this as a bug"
