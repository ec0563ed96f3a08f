"""Draws the pictures of README.md from the code as it is: `python docs/images/draw.py`."""

from __future__ import annotations

from pathlib import Path

from specdec_core import Seeded, load_pair, speculative_decode
from specdec_core.widgets import coin_tape, mass_mover, origin_ribbon

HERE = Path(__file__).parent


def pictures() -> dict[str, str]:
    """File name -> SVG: a run of chapter 00, one round of it, and the law under mistake M1."""
    pair = load_pair("storyworld", dtype="float64")
    out = speculative_decode(
        pair.target, pair.drafter, pair.encode("Once upon a time"), gamma=4, max_new_tokens=48,
        stop_tokens=pair.stop_tokens, randomness=Seeded(1),
    )  # fmt: skip
    tape = coin_tape(out.trace, pair.decode, pair.target, pair.drafter, round=10)
    mover = mass_mover((0.6, 0.4), (0.8, 0.2), draw="M1")
    ribbon = origin_ribbon(out.trace, pair.decode)
    named = {"origin_ribbon": ribbon.svg, "coin_tape": tape.svg, "mass_mover": mover.svg}
    return {f"{name}.svg": svg + "\n" for name, svg in named.items()}


if __name__ == "__main__":
    for name, svg in pictures().items():
        (HERE / name).write_text(svg)
