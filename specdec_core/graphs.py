"""On CUDA, a forward over few tokens as one CUDA graph, which the host starts by one call.

Such a forward takes a GPU less time than its hundreds of kernels take the host to start one by one.
In a graph every shape is fixed, so the keys are those of the whole cache, and a mask hides the rows
that are not there. Graphs: pytorch.org/blog/accelerating-pytorch-with-cuda-graphs.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.llama import LlamaForward

# More tokens than this (a prompt) keep a GPU busy without a graph.
MOST_TOKENS = 17
WARM_UPS = 3


class Graph(NamedTuple):
    """A recorded forward: fill ids [1, n], replay, and read the hidden rows [1, n, width]."""

    graph: torch.cuda.CUDAGraph
    ids: Tensor
    hidden: Tensor


class GraphedForward:
    """`LlamaForward` with a graph for each number of tokens up to `MOST_TOKENS`, recorded at first
    need. A graph that cannot be recorded, or computes something else, is not used; a warning says
    so."""

    def __init__(self, run: LlamaForward) -> None:
        self.run, self.head = run, run.head
        self.graphs: dict[int, Graph | None] = {}
        self._rows = [layer.rows[:, None] for layer in run.layers]
        self._length = torch.zeros(1, dtype=torch.int64, device=run.device)

    def __call__(self, ids: Tensor, length: int) -> Tensor:
        """As `LlamaForward`; the rows are the caller's own."""
        count = ids.shape[0]
        if count not in self.graphs:
            few = 1 <= count <= MOST_TOKENS
            self.graphs[count] = self._checked(ids, length) if few else None
        graph = self.graphs[count]
        if graph is None:
            return self.run(ids, length)
        return self._replay(graph, ids, length)

    def fixed(self, ids: Tensor) -> Tensor:
        """Hidden rows [1, n, width] of ids int64 [1, n]; every shape depends on n alone."""
        capacity = self._rows[0].shape[-2]
        return self.run.many(ids, self._length, capacity, self._rows)

    def _replay(self, graph: Graph, ids: Tensor, length: int) -> Tensor:
        graph.ids.copy_(ids[None])
        self._length.fill_(length)
        graph.graph.replay()
        return graph.hidden[0].clone()

    def _checked(self, ids: Tensor, length: int) -> Graph | None:
        """A graph for as many tokens, once it is known to compute what the plain forward does."""
        expected = self.head(self.run(ids, length))
        try:
            graph = self._record(ids, length)
            found = self.head(self._replay(graph, ids, length))
            torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02 * _scale(expected))
        except (RuntimeError, AssertionError) as error:
            warnings.warn(
                f"No CUDA graph for {len(ids)} tokens, so they run slower: "
                f"{str(error).splitlines()[0]}",
                stacklevel=2,
            )
            return None
        return graph

    def _record(self, ids: Tensor, length: int) -> Graph:
        """Record `fixed`, after a few runs on a stream of their own, as recording requires."""
        own = ids[None].clone()
        self._length.fill_(length)
        stream = torch.cuda.Stream(self.run.device)
        stream.wait_stream(torch.cuda.current_stream(self.run.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self.fixed(own)
        torch.cuda.current_stream(self.run.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            hidden = self.fixed(own)
        return Graph(graph, own, hidden)


def _scale(logits: Tensor) -> float:
    return logits[logits.isfinite()].abs().max().item()
