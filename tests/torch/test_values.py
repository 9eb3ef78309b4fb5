"""A critic on the policy's trunk: values beside log-probabilities, and the gradients of both.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_values.py

Without PyTorch what needs it is skipped, with these words.
"""

from __future__ import annotations

import struct
import unittest
from typing import Any

try:
    import test_worker as worker
    import torch
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.meeting import Meeting
    from llmtui_worker.trainer import Rank
    from torch import Tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""

ROWS, LENGTH = 2, 6
COUNT = ROWS * LENGTH


def described() -> dict[str, Any]:
    model = worker.described(logit_scale=1.5)
    model["params"].append({"name": "v_head.summary.weight", "shape": [1, worker.WIDTH]})
    offset = 0
    for info in model["params"]:
        info |= {"offset": offset, "grad": offset, "decay": 0.1, "lr_scale": 1.0}
        offset += torch.Size(info["shape"]).numel()
    return model


@unittest.skipIf(MISSING, MISSING)
class Values(unittest.TestCase):
    def rank(self, **changes: Any) -> Rank:
        wire: Any = None
        rank = Rank(wire, Meeting(0, 1, "127.0.0.1"))
        ask: dict[str, Any] = {"threads": 1, "device": "cpu", "offload": False, "precision": "f32", "compile": False, "shard": "ddp"}
        ask |= {"model": described(), "average": False}
        adamw = {"kind": "adamw", "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
        rank.build(ask | {"optimizer": adamw} | changes, bytearray())
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in rank.decoder.parameters():
                local = getattr(parameter, "to_local", lambda parameter=parameter: parameter)()
                local.normal_(0.0, 0.3)
        return rank

    def passed(self, rank: Rank, coefficients: list[float] | None, upstream: list[float] | None = None, *, entropy: bool = False) -> Tensor:
        """What a pass answers, (4, rows, T): log-probabilities, entropies, top-1 marks, values."""
        ask = {
            "rows": ROWS,
            "seq_len": LENGTH,
            "first": False,
            "linear": coefficients is not None,
            "train": True,
            "varied": False,
            "draws": 1,
        }
        ask |= {"micro": 0, "of": 1, "model": "policy", "adapters": True, "temperature": 0.8}
        ids = [n % worker.VOCAB for n in range(3, 3 + 2 * COUNT)]
        payload = bytearray(struct.pack(f"<{2 * COUNT}i", *ids) + struct.pack(f"<{len(coefficients or [])}f", *(coefficients or [])))
        answer = rank.forward(ask, payload)
        if upstream is not None:
            rank.backward({"entropy": entropy}, bytearray(struct.pack(f"<{len(upstream)}f", *upstream)))
        return torch.frombuffer(bytearray(answer["payload"]), dtype=torch.float32).view(-1, ROWS, LENGTH)

    def gradients(self, rank: Rank) -> dict[str, Tensor]:
        return {info["name"]: p.grad.clone() for info, p in rank.trained if p.grad is not None}

    def wanted(self, rank: Rank, c: Tensor, d: Tensor | None, e: Tensor | None) -> dict[str, Tensor]:
        """Gradients of Σ c · logp + d · value + e · entropy, the values from the states in front of the head."""
        decoder: Decoder = rank.decoder
        ids = torch.tensor([n % worker.VOCAB for n in range(3, 3 + 2 * COUNT)]).view(2, ROWS, LENGTH)
        states = decoder._states(ids[0], None, True, None)
        z = (states @ decoder._head().T) * 1.5 / 0.8
        logps = z.log_softmax(-1)
        loss = (logps.gather(-1, ids[1][..., None])[..., 0] * c).sum()
        if d is not None:
            loss = loss + ((states @ rank.decoder.table.made["v_head.summary.weight"][0]) * d).sum()
        if e is not None:
            loss = loss - ((logps.exp() * logps).sum(-1) * e).sum()
        names = [info["name"] for info, _ in rank.trained]
        found = torch.autograd.grad(loss, [p for _, p in rank.trained], allow_unused=True, materialize_grads=True)
        return dict(zip(names, found, strict=True))

    def test_values_and_all_gradients(self) -> None:
        torch.manual_seed(3)
        c, e, d = (torch.randn(ROWS, LENGTH) for _ in range(3))
        for entropy in (False, True):
            rank = self.rank()
            upstream = torch.stack([c, e, d] if entropy else [c, d]).flatten().tolist()
            found = self.passed(rank, None, upstream, entropy=entropy)
            self.assertEqual(found.shape, (4, ROWS, LENGTH))
            grads, wanted = self.gradients(rank), self.wanted(rank, c, d, e if entropy else None)
            self.assertEqual(grads.keys(), wanted.keys())
            for name, grad in wanted.items():
                torch.testing.assert_close(grads[name], grad, rtol=1e-3, atol=1e-4, msg=name)
            states = rank.decoder._states(torch.arange(3, 3 + COUNT).view(ROWS, LENGTH) % worker.VOCAB, None, True, None)
            torch.testing.assert_close(found[3], states @ rank.decoder.table.made["v_head.summary.weight"][0])

    def test_a_loss_without_values_has_a_gradient_of_zero_for_their_head(self) -> None:
        torch.manual_seed(3)
        c = torch.randn(ROWS, LENGTH)
        for linear in (False, True):
            for shards in ({}, {"shard": "fsdp2", "offload": True}):
                with self.subTest(linear=linear, **shards):
                    rank = self.rank(**shards)
                    given = c.flatten().tolist()
                    self.passed(rank, given if linear else None, None if linear else given)
                    grads = self.gradients(rank)
                    head: Any = grads["v_head.summary.weight"]
                    whole = head.full_tensor() if hasattr(head, "full_tensor") else head
                    self.assertEqual(whole.abs().max().item(), 0.0)
                    self.assertEqual(len(grads), len(rank.trained))
                    if not shards:
                        for name, grad in self.wanted(rank, c, None, None).items():
                            torch.testing.assert_close(grads[name], grad, rtol=1e-3, atol=1e-4, msg=name)


if __name__ == "__main__":
    unittest.main()
