"""Texts read by recorded passes (CUDA graphs) against the same texts read without.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_graphs.py

Without a GPU a stand-in plays what was recorded: it computes it again, from what was kept rounded then, as a graph does.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

try:
    import torch
    from llmtui_worker import trainer
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.graphs import Graphs, Shape
    from llmtui_worker.linear import Pairs, Stack
    from llmtui_worker.meeting import Meeting
    from llmtui_worker.trainer import Rank
    from test_launches import VOCAB, described
    from torch import Tensor

    DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
    Graphs = object  # type: ignore[assignment, misc]
else:
    MISSING = ""

LAYERS, TEXTS, TOKENS = 2, 6, 200


class StandIn(Graphs):
    def __init__(self, _device: Any) -> None:
        self.met: set[Shape] = set()
        self.recorded: dict[Shape, Any] = {}
        self.kept = 0
        self.broken = False

    def _record(self, shape: Shape, table: Tensor, work: Callable[[Tensor], Tensor]) -> None:
        given = table.clone()
        found = work(given)

        def replay() -> None:
            as_kept = mock.patch.object(Stack, "like", lambda it, dtype: it.whole if it.whole.dtype == dtype else it.rounded)
            with as_kept, mock.patch.object(Pairs, "all_b", lambda it, _dtype: it.spread):
                found.copy_(work(given))

        self.recorded[shape] = mock.Mock(replay=replay), given, found


@unittest.skipIf(MISSING, MISSING)
class Recorded(unittest.TestCase):
    def rank(self, *, lora: bool, recorded: bool) -> Any:
        torch.manual_seed(1)
        wire: Any = None
        rank = Rank(wire, Meeting(0, 1, "127.0.0.1"))
        rank.device, rank.autocast, rank.records = DEVICE, True, recorded
        rank.decoder = Decoder(described(LAYERS, lora), rank.device, torch.bfloat16).train()
        self.change(rank)
        return rank

    def change(self, rank: Any) -> None:
        with torch.no_grad():
            for parameter in rank.decoder.parameters():
                parameter.normal_(0.0, 0.3)
        rank.decoder.changed()

    def train(self, rank: Any) -> None:
        """A pass over more tokens than any text has."""
        ids = torch.zeros(2, TOKENS + 100, dtype=torch.long, device=rank.device)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            rank.decoder(ids, ids, None)[0].sum().backward()
        rank.decoder.zero_grad()

    def read(self, rank: Any, pieces: dict[int, int], draw: torch.Generator, **more: Any) -> Tensor:
        ids = torch.randint(0, VOCAB, (sum(pieces.values()),), generator=draw).int()
        ask = {"begin": False, "texts": TEXTS, "tokens": TOKENS, "copies": [], "forget": [], "pieces": list(pieces.items())} | more
        answer = rank.read(ask, bytearray(ids.numpy().tobytes()))
        return torch.frombuffer(bytearray(answer["payload"]), dtype=torch.float32).view(len(pieces), VOCAB).clone()

    def story(self, rank: Any) -> list[Tensor]:
        """Groups of answers, with an update between, texts that end at different times and one that another takes over."""
        draw = torch.Generator().manual_seed(2)
        found = []
        # The third group begins with a pass over one token, of a shape that is recorded.
        whole = {0: 5, 1: 3, 2: 9, 3: 1, 4: 2}
        for seed, first in enumerate((whole, whole, dict.fromkeys([0, 2, 3, 4], 1))):
            found.append(self.read(rank, first, draw, begin=True))
            found.append(self.read(rank, {5: 1}, draw, copies=[(2, 5)]))
            for left in ([0, 1, 2, 3, 4, 5], [0, 2, 3, 5], [5], [1, 2, 4]):
                for _ in range(40 if len(left) == 6 else 5):
                    found.append(self.read(rank, dict.fromkeys(left, 1), draw))
            torch.manual_seed(seed)
            self.train(rank)
            self.change(rank)
        return found

    def test_they_say_what_passes_say_that_are_launched(self) -> None:
        graphs = Graphs if DEVICE.type == "cuda" else StandIn
        for lora in (False, True):
            with self.subTest(lora=lora), mock.patch.object(trainer, "Graphs", graphs):
                rank = self.rank(lora=lora, recorded=True)
                found = self.story(rank)
                self.assertFalse(rank.graphs.broken)
                self.assertGreater(len(rank.graphs.recorded), 2)
                expected = self.story(self.rank(lora=lora, recorded=False))
                for number, (one, other) in enumerate(zip(found, expected, strict=True)):
                    self.assertLess((one - other).abs().max().item(), 0.05 * other.abs().max().item(), number)


if __name__ == "__main__":
    unittest.main()
