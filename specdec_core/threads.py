"""How many threads torch computes in: small models on a CPU are fastest in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch

Item = TypeVar("Item")


class Threads:
    """A context in which torch uses `count` threads; None leaves the number as it is.

    Waking a second thread costs more than it saves where an operation is small, and many times
    more where another program has the core. Setting the number takes under a microsecond.
    """

    def __init__(self, count: int | None) -> None:
        self.count = count

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        if self.count is not None:
            torch.set_num_threads(self.count)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._before)

    def each(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items, each computed inside this context and handed out outside of it."""
        nothing = object()
        while True:
            with self:
                item = next(items, nothing)
            if item is nothing:
                return
            yield item
