"""Tokens into text as they come, and where a text ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Detokenize = Callable[[Sequence[int]], str]

# Tokens of the prompt that the first new token is decoded behind, so that its leading space shows.
CONTEXT_TOKENS = 8
INCOMPLETE = "\ufffd"


class TextStream:
    """Text of a growing list of tokens, given out only once it is certain.

    detokenize: token ids -> text. stop_strings: the text is cut before the first of these.
    context: the tokens before the first new one.

    Held back are characters whose bytes are not all there yet, and whatever may turn out to be the
    start of a stop string. `text` is everything given out so far.
    """

    def __init__(
        self,
        detokenize: Detokenize,
        stop_strings: Iterable[str] = (),
        context: Sequence[int] = (),
    ) -> None:
        self.text = ""
        self.stopped = False
        self._detokenize = detokenize
        self._stops = tuple(stop_strings)
        self._tokens = list(context[-CONTEXT_TOKENS:])
        self._window = 0
        self._read = len(self._tokens)
        self._taken = 0
        self._held = ""

    def push(self, token: int) -> str:
        """Take one more token; returns the text that is certain now."""
        self._tokens.append(token)
        fresh = self._decode_fresh()
        whole = fresh.rstrip(INCOMPLETE)
        certain, self._taken = whole[self._taken :], len(whole)
        if fresh and whole == fresh:
            self._window, self._read, self._taken = self._read, len(self._tokens), 0
        return self._release(certain)

    def finish(self) -> str:
        """No more tokens will come; returns what was held back."""
        if self.stopped:
            return ""
        rest = self._release(self._decode_fresh()[self._taken :])
        if not self.stopped:
            rest += self._held
            self.text += self._held
        self._read, self._taken, self._held = len(self._tokens), 0, ""
        return rest

    def _decode_fresh(self) -> str:
        """Text of the tokens not yet read, decoded behind those before them."""
        known = self._detokenize(self._tokens[self._window : self._read])
        return self._detokenize(self._tokens[self._window :])[len(known) :]

    def _release(self, fresh: str) -> str:
        text = self._held + fresh
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            keep, self._held = min(found), ""
        else:
            keep = len(text) - self._possible_start(text)
            self._held = text[keep:]
        self.text += text[:keep]
        return text[:keep]

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of `text` that a stop string may begin with."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0


class Ending:
    """Decides where a run ends: a stop token, a stop string, or `max_new_tokens`.

    `reason` is None while it goes on, then "stop" or "length". A stop token is the last one kept;
    the token that completes a stop string too.
    """

    def __init__(
        self, max_new_tokens: int, stop_tokens: Iterable[int], stream: TextStream | None
    ) -> None:
        self.remaining = max_new_tokens
        self.reason: str | None = None
        self._stop_tokens = frozenset(stop_tokens)
        self._stream = stream

    def keep(self, tokens: Sequence[int]) -> list[int]:
        """The tokens of `tokens` that are still emitted; none past the end."""
        kept: list[int] = []
        for token in tokens:
            if self.reason is not None:
                break
            kept.append(token)
            self.remaining -= 1
            if self._stops(token):
                self.reason = "stop"
            elif self.remaining == 0:
                self.reason = "length"
        return kept

    def _stops(self, token: int) -> bool:
        if token in self._stop_tokens:
            return True
        if self._stream is None:
            return False
        self._stream.push(token)
        return self._stream.stopped
