"""Passes over one token of every text, recorded as CUDA graphs: their kernels end before a processor has launched the next."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Rows, keys that are looked at, whether the rows are all texts in order, and places that have rotations: more of them lie elsewhere.
Shape = tuple[int, int, bool, int]
# Bytes of logits that recordings keep, one after the other; shapes beyond are computed.
MOST_KEPT = 512 << 20


class Graphs:
    """One recorded pass for each shape. A recording holds addresses: of weights, which are updated in place, and of what is kept of texts,
    so that it serves as long as these lie where they are."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool: Any = torch.cuda.graph_pool_handle()
        # Shapes that were met once: their kernels are chosen and loaded.
        self.met: set[Shape] = set()
        self.recorded: dict[Shape, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.kept = 0
        self.broken = False

    def run(self, shape: Shape, table: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
        """What `work` gives for the table: computed the first time that a shape comes, recorded the second time, then played. What it
        gives is overwritten by the next pass of this shape."""
        if self.broken or shape not in self.met:
            self.met.add(shape)
            return work(table)
        if shape not in self.recorded:
            if self.kept >= MOST_KEPT:
                return work(table)
            try:
                self._record(shape, table, work)
            except RuntimeError as error:
                # Once, into the rank's log: tokens are computed as before.
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
            # Other threads may go on using the device.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                found = work(given)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        self.kept += found.nbytes
        self.recorded[shape] = graph, given, found


def rows_for(rows: int, texts: int) -> int:
    """Rows of a pass over one token of so many of the texts: few different numbers, so that few passes are recorded."""
    return min(1 << (rows - 1).bit_length(), texts)
