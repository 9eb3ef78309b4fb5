"""CUDA graphs of single-token decode steps, which are bound by launch latency."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Graph key: rows, keys attended to, identity order or not, length of the RoPE table (growing it moves it).
Shape = tuple[int, int, bool, int]
# Bytes of logits that all graphs together may hold; further shapes run eagerly.
MOST_KEPT = 512 << 20


class Graphs:
    """One graph for each shape. A graph holds addresses: of weights, which are updated in place, and of the KV cache. It is valid as long
    as these do not move."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool: Any = torch.cuda.graph_pool_handle()
        # Shapes already warmed up.
        self.met: set[Shape] = set()
        self.recorded: dict[Shape, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.kept = 0
        self.broken = False

    def run(self, shape: Shape, table: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
        """The result of `work` for the table: eager the first time that a shape occurs, captured the second time, then replayed. The result
        is overwritten by the next pass of this shape."""
        if self.broken or shape not in self.met:
            self.met.add(shape)
            return work(table)
        if shape not in self.recorded:
            if self.kept >= MOST_KEPT:
                return work(table)
            try:
                self._record(shape, table, work)
            except RuntimeError as error:
                # Log once and fall back to eager.
                print(f"no CUDA graphs for texts: {error}", file=sys.stderr, flush=True)
                self.broken = True
                return work(table)
        graph, given, found = self.recorded[shape]
        given.copy_(table)
        graph.replay()
        return found

    def _record(self, shape: Shape, table: Tensor, work: Callable[[Tensor], Tensor]) -> None:
        graph, given = torch.cuda.CUDAGraph(), table.clone()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            # Other threads may keep using the device.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                found = work(given)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        self.kept += found.nbytes
        self.recorded[shape] = graph, given, found


def rows_for(rows: int, texts: int) -> int:
    """The number of rows of a decode step for so many texts, rounded up to a power of two so that few graphs are captured."""
    return min(1 << (rows - 1).bit_length(), texts)
