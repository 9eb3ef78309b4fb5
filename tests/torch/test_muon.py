"""Muon on a rank: against plain loops in f64 and torch.optim.Muon; whole matrices, stacked experts and shards; its state in the engine's
order.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_muon.py

Without PyTorch what needs it is skipped, with these words.
"""

from __future__ import annotations

import math
import unittest
from typing import Any
from unittest import mock

try:
    import test_worker as worker
    import torch
    from llmtui_worker import muon
    from llmtui_worker.meeting import Meeting
    from llmtui_worker.muon import Matrices, Muon, orthogonalize
    from llmtui_worker.trainer import Rank
    from torch import Tensor, nn
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""

SETTINGS: dict[str, Any] = {
    "kind": "muon",
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "adamw_lr_scale": 0.1,
    "momentum": 0.95,
    "nesterov": True,
    "iterations": 5,
    "scale": "original",
}
MIXTURE: dict[str, Any] = {
    "moe": {"n_expert": 4, "top_k": 2, "d_ff": 8, "norm_topk": True, "aux_loss_coef": 0.0, "z_loss_coef": 0.0, "balancing": {"loss": {}}}
}


def by_loops(x: Tensor, iterations: int) -> Tensor:
    """One matrix, in f64."""
    x = x.double() / max(float(x.double().norm()), 1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = 3.4445 * x - 4.775 * gram @ x + 2.0315 * gram @ gram @ x
    return x


def is_hidden(name: str) -> bool:
    return name.endswith("_proj.weight")


@unittest.skipIf(MISSING, MISSING)
class Steps(unittest.TestCase):
    def test_matrices_become_orthogonal(self) -> None:
        torch.manual_seed(1)
        for shape in ((3, 5, 9), (2, 9, 5), (4, 6, 6), (1, 1, 7)):
            x = torch.randn(shape)
            found = orthogonalize(x, 5, torch.float32)
            for own, of in zip(found, x, strict=True):
                torch.testing.assert_close(own.double(), by_loops(of, 5), rtol=1e-4, atol=1e-5)
        values = torch.linalg.svdvals(orthogonalize(torch.randn(1, 40, 96), 5, torch.float32))
        self.assertTrue(values.min() > 0.6 and values.max() < 1.3, values)
        self.assertEqual(orthogonalize(torch.zeros(1, 3, 4), 5, torch.float32).abs().max().item(), 0.0)

    def test_updates_are_those_of_torch_optim(self) -> None:
        """Which computes in bf16 throughout."""
        for kind, theirs in (("original", "original"), ("match_rms", "match_rms_adamw")):
            for nesterov in (True, False):
                for shape in ((24, 40), (40, 24)):
                    torch.manual_seed(2)
                    p = nn.Parameter(torch.randn(shape))
                    q = nn.Parameter(p.detach().clone())
                    settings = SETTINGS | {"scale": kind, "nesterov": nesterov}
                    group = {"params": [p], "weight_decay": 0.1, "lr_scale": 1.0, "lr": 0.02, "matrices": [Matrices(p, 1, [])]}
                    own = Muon(None, [group], settings, torch.device("cpu"), bf16=True)
                    other = torch.optim.Muon([q], lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=nesterov, adjust_lr_fn=theirs)
                    begun = p.detach().clone()
                    for _ in range(4):
                        p.grad = torch.randn(shape)
                        q.grad = p.grad.clone()
                        own.step()
                        other.step()
                    moved = (q.detach() - begun).norm()
                    self.assertLess(float((p.detach() - q.detach()).norm() / moved), 0.02, (kind, nesterov, shape))
                    torch.testing.assert_close(own.means[p], other.state[q]["momentum_buffer"])


@unittest.skipIf(MISSING, MISSING)
class Ranks(unittest.TestCase):
    def rank(self, model: dict[str, Any], **changes: Any) -> Rank:
        wire: Any = None
        rank, offset = Rank(wire, Meeting(0, 1, "127.0.0.1")), 0
        for info in model["params"]:
            decay = 0.1 if len(info["shape"]) == 2 else 0.0
            blocks = 1 if is_hidden(info["name"]) else None
            info |= {"offset": offset, "grad": offset, "decay": decay, "lr_scale": 1.0, "blocks": blocks}
            offset += math.prod(info["shape"])
        ask: dict[str, Any] = {"threads": 1, "device": "cpu", "offload": False, "precision": "f32", "compile": False, "shard": "ddp"}
        ask |= {"model": model, "average": False}
        rank.build(ask | {"optimizer": SETTINGS} | changes, bytearray())
        return rank

    def filled(self, rank: Rank, part: str, seed: int) -> Tensor:
        """Loads random numbers, and returns them."""
        torch.manual_seed(seed)
        sent: list[Tensor] = []

        def receive(_rest: bytearray, _part: str, shape: torch.Size) -> Tensor:
            values = 0.1 * torch.randn(shape)
            sent.append(values.flatten())
            return values.abs() if part == "square" else values

        with mock.patch.object(rank, "_receive", receive):
            rank.load({"part": part, "steps": 3}, bytearray())
        values = torch.cat(sent)
        return values.abs() if part == "square" else values

    def held(self, rank: Rank, part: str) -> Tensor:
        return torch.cat([x.flatten() for x in rank._whole(rank._parts(part))])

    def with_gradients(self, rank: Rank) -> dict[str, Tensor]:
        """By the engine's names."""
        torch.manual_seed(9)
        found: dict[str, Tensor] = {}
        whole = {id(p): torch.zeros_like(p.detach()) for _, p in rank.trained}
        for info, parameter, part in rank._places("grad"):
            found[info["name"]] = torch.randn(info["shape"])
            if part is None:
                whole[id(parameter)] = torch.zeros(info["shape"]) + found[info["name"]]
            else:
                to: Any = whole[id(parameter)]
                whole[id(parameter)] = to.full_tensor() if hasattr(to, "full_tensor") else to
                whole[id(parameter)][part] = found[info["name"]]
        for _, parameter in rank.trained:
            grad, p = whole[id(parameter)], parameter
            if isinstance(p, torch.distributed.tensor.DTensor):
                grad = torch.distributed.tensor.distribute_tensor(grad, p.device_mesh, p.placements)
            parameter.grad = grad
        return found

    def test_each_matrix_of_the_engine_is_orthogonalized_by_itself_and_the_rest_is_adamws(self) -> None:
        for changes in (MIXTURE, {}):
            for shards in ({}, {"shard": "fsdp2", "offload": True}):
                with self.subTest(**changes, **shards):
                    rank = self.rank(worker.described(**changes), **shards)
                    weights, mean = self.filled(rank, "weights", 1), self.filled(rank, "mean", 2)
                    square = self.filled(rank, "square", 3)
                    for part, values in (("weights", weights), ("mean", mean), ("square", square)):
                        torch.testing.assert_close(self.held(rank, part), values)
                    grads = self.with_gradients(rank)
                    infos = list(rank.decoder.table.infos.values())
                    rank.apply({"scale": 0.5, "lr": 0.02, "average": None}, bytearray())
                    found, means, at_square = self.held(rank, "weights"), self.held(rank, "mean"), 0
                    for info in infos:
                        at, n = info["offset"], math.prod(info["shape"])
                        w, m, g = (x.double() for x in (weights[at : at + n], mean[at : at + n], 0.5 * grads[info["name"]].flatten()))
                        if is_hidden(info["name"]):
                            m = m + 0.05 * (g - m)
                            x = (m + 0.05 * (g - m)).view(info["shape"])
                            scale = max(1.0, x.shape[0] / x.shape[1]) ** 0.5
                            wanted = w * (1 - 0.02 * 0.1) - 0.02 * scale * by_loops(x, 5).flatten()
                        else:
                            v = square[at_square : at_square + n].double()
                            at_square += n
                            m, v = m + 0.1 * (g - m), v + 0.05 * (g * g - v)
                            lr = 0.02 * 0.1
                            # The fourth update.
                            step = m / (1 - 0.9**4) / ((v / (1 - 0.95**4)).sqrt() + 1e-8)
                            wanted = w * (1 - lr * info["decay"]) - lr * step
                        torch.testing.assert_close(means[at : at + n].double(), m, rtol=1e-4, atol=1e-6, msg=info["name"])
                        torch.testing.assert_close(found[at : at + n].double(), wanted, rtol=1e-4, atol=2e-6, msg=info["name"])
                    self.assertEqual(at_square, len(square))

    def test_experts_are_taken_in_parts(self) -> None:
        found = []
        for most in (1 << 26, 40):
            with mock.patch.object(muon, "MOST", most):
                rank = self.rank(worker.described(**MIXTURE))
                self.filled(rank, "weights", 1)
                self.with_gradients(rank)
                rank.apply({"scale": 1.0, "lr": 0.02, "average": None}, bytearray())
                found.append(self.held(rank, "weights"))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)

    def test_stacked_queries_keys_and_values_are_three(self) -> None:
        p = nn.Parameter(torch.randn(12, 5))
        group = {"params": [p], "weight_decay": 0.0, "lr_scale": 1.0, "lr": 1.0, "matrices": [Matrices(p, 3, [])]}
        rule = Muon(None, [group], SETTINGS | {"momentum": 0.0}, torch.device("cpu"), bf16=False)
        begun, p.grad = p.detach().clone(), torch.randn(12, 5)
        rule.step()
        wanted = torch.cat([by_loops(part, 5) for part in p.grad.chunk(3)])
        torch.testing.assert_close((begun - p.detach()).double(), wanted, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
