"""`specdec demo`: a text that streams with its origin shown, then what it cost and gained.

A token's origin is a mark first and a colour second, so it also reads in a file or without colour:
drafts stand as they are, [corrected] tokens in square brackets, {bonus} tokens in braces.
"""

from __future__ import annotations

import os
import statistics
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TextIO

from specdec_core.decode import autoregressive_decode, speculative_decode, speculative_rounds
from specdec_core.drafters import Drafter
from specdec_core.pairs import Pair
from specdec_core.randomness import Seeded
from specdec_core.sampling import Sampling
from specdec_core.text import TextStream
from specdec_core.trace import Round, Stats

# Opening mark, closing mark, terminal style. 256-colour codes that read on black and on white.
ORIGINS = {
    "draft": ("", "", "38;5;32"),
    "corrected": ("[", "]", "1;38;5;166"),
    "bonus": ("{", "}", "1;38;5;29"),
    "plain": ("", "", ""),
}
LEGEND = {
    "draft": "drafted and accepted",
    "corrected": "corrected by the target",
    "bonus": "bonus from the target",
}
DIM, BOLD = "2", "1"


class Painter:
    """Writes to a stream, with styles where the stream is a terminal that shows them."""

    def __init__(self, out: TextIO, colour: bool | None = None) -> None:
        """colour: True or False to choose; None for a terminal without NO_COLOR only."""
        if colour is None:
            plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
            colour = out.isatty() and not plain
        if colour and os.name == "nt":
            os.system("")  # switches a Windows console to escape codes
        self._out, self._colour = out, colour

    def style(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._colour and code and text else text

    def origin(self, text: str, origin: str) -> str:
        """A piece of text with the mark and the colour of its origin; outer spaces stay outside."""
        opening, closing, code = ORIGINS[origin]
        inner = text.strip()
        if not inner:
            if not opening or not text:
                return text
            # White space alone would hide its mark: show the line break itself.
            return self.style(f"{opening}{'↵' if chr(10) in text else ''}{closing}", code) + text
        before, _, after = text.partition(inner)
        return before + self.style(f"{opening}{inner}{closing}", code) + after

    def write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def line(self, text: str = "") -> None:
        self.write(text + "\n")


class MarkedText:
    """Streams the tokens of rounds as marked text, whole characters only."""

    def __init__(self, painter: Painter, pair: Pair, prompt: Sequence[int]) -> None:
        self._painter = painter
        self._stream = TextStream(pair.decode, context=prompt)
        self._last = "plain"

    def show(self, round: Round) -> None:
        """Write the tokens one round emitted."""
        for token, self._last in zip(round.emitted, round.origins, strict=True):
            self._painter.write(self._painter.origin(self._stream.push(token), self._last))

    def finish(self) -> None:
        """Write what was held back, and end the line."""
        self._painter.write(self._painter.origin(self._stream.finish(), self._last) + "\n")


def run_demo(pair: Pair, drafter: Drafter, options: Namespace, painter: Painter) -> int:
    """Stream one text, then sum it up; returns the exit code, 130 where it was interrupted."""
    prompt = pair.encode(options.prompt, chat=options.chat)
    settings = {
        "sampling": Sampling(options.temperature, options.top_k, options.top_p),
        "max_new_tokens": options.max_new_tokens,
        "stop_tokens": pair.stop_tokens,
    }
    seed = Seeded(options.seed).seed
    rounds = speculative_rounds(
        pair.target, drafter, prompt, gamma=options.gamma, randomness=Seeded(seed), **settings
    )
    _introduce(pair, drafter, options, seed, painter)
    painter.write(painter.style(options.prompt if options.chat else pair.decode(prompt), DIM))
    painter.write("\n\n" if options.chat else "")
    text, stats = MarkedText(painter, pair, prompt), Stats()
    reason = None
    try:
        for round in rounds:
            text.show(round)
            stats.add(round)
            reason = round.finish_reason
    except KeyboardInterrupt:
        text.finish()
        painter.line()
        _sum_up(stats, "interrupted", painter)
        return 130
    text.finish()
    painter.line()
    _sum_up(stats, reason, painter)
    if options.repeats:
        _report_speed(pair, drafter, prompt, options, settings, seed, stats.emitted, painter)
    return 0


def _introduce(
    pair: Pair, drafter: Drafter, options: Namespace, seed: int, painter: Painter
) -> None:
    name = next(name for name, known in pair.drafters.items() if known is drafter)
    sampling = f"temperature {options.temperature:g}"
    if options.top_k is not None:
        sampling += f", top-k {options.top_k}"
    if options.top_p is not None:
        sampling += f", top-p {options.top_p:g}"
    painter.line(
        painter.style(pair.name, BOLD)
        + f", drafter {name}, gamma {options.gamma}, {sampling}, seed {seed}"
    )
    if options.gamma:
        marks = (painter.origin(words, origin) for origin, words in LEGEND.items())
        painter.line("marks: " + " · ".join(marks))
    painter.line()


def _sum_up(stats: Stats, reason: str | None, painter: Painter) -> None:
    """The counts of the run, in two lines."""
    ends = {"stop": "the text ended", "length": "the length was reached"}
    forwards = f"{stats.target_forwards} target forward{'s' * (stats.target_forwards != 1)}"
    painter.line(
        f"{painter.style(str(stats.emitted), BOLD)} tokens from {forwards}"
        + (f" = {stats.block_efficiency:.2f} tokens a forward" if stats.target_forwards else "")
        + f" ({ends.get(reason, reason)})"
    )
    judged = stats.accepted + stats.rejected
    if judged:
        painter.line(
            f"{painter.style(f'{stats.acceptance_rate:.0%}', BOLD)} of {judged} judged drafts "
            f"accepted; {stats.drafted} were drafted"
        )


def _report_speed(
    pair: Pair, drafter: Drafter, prompt: list[int], options: Namespace, settings: dict,
    seed: int, tokens: int, painter: Painter,
) -> None:  # fmt: skip
    """Time the same run again beside plain decoding of as many tokens, turn by turn."""

    def speculative() -> None:
        speculative_decode(
            pair.target, drafter, prompt, gamma=options.gamma, randomness=Seeded(seed),
            record="stats", **settings,
        )  # fmt: skip

    def plain() -> None:
        # Without stop tokens, so that it writes exactly as many tokens.
        autoregressive_decode(
            pair.target, prompt, sampling=settings["sampling"], max_new_tokens=tokens,
            randomness=Seeded(seed),
        )  # fmt: skip

    try:
        spent = interleaved_medians((plain, speculative), options.repeats)
    except KeyboardInterrupt:
        painter.line("(speed not measured)")
        raise
    gain = spent[0] / spent[1]
    verdict = "" if gain >= 1 else ", so slower: drafting does not pay here"
    rates = [tokens / seconds for seconds in spent]
    painter.line(
        f"{painter.style(f'{gain:.2f}x', BOLD)} as fast as plain decoding{verdict} "
        f"({rates[1]:.1f} against {rates[0]:.1f} tokens a second)"
    )
    painter.line(
        painter.style(
            f"measured on {pair.target.device} in {str(pair.target.dtype).removeprefix('torch.')}: "
            f"medians of {options.repeats} run{'s' * (options.repeats > 1)} each, turn by turn, "
            f"{tokens} tokens",
            DIM,
        )
    )


def interleaved_medians(runs: Sequence, repeats: int) -> list[float]:
    """Median seconds of each run, taken turn by turn after one warm-up of each."""
    seconds: list[list[float]] = [[] for _ in runs]
    for i in range(repeats + 1):
        for run, spent in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            run()
            if i:
                spent.append(time.perf_counter() - started)
    return [statistics.median(spent) for spent in seconds]
