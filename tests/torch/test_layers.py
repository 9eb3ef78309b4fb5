"""Gradients that are written by hand against autograd's of the plain composite, in f64.

    PYTHONPATH=assets/torch_worker /path/to/venv/bin/python -m unittest -v tests/torch/test_layers.py

Without PyTorch what needs it is skipped, with these words.
"""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

try:
    import torch
    import torch.nn.functional as F
    from llmtui_worker import head
    from llmtui_worker.attention import Packed
    from llmtui_worker.head import Head
    from llmtui_worker.layers import SwiGlu, Table
    from llmtui_worker.linear import Linear
    from llmtui_worker.rope import Rope, Rotate
    from torch import Tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""

ROWS, WIDTH, VOCAB = 13, 8, 17


@unittest.skipIf(MISSING, MISSING)
class Heads(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(3)
        self.hidden = torch.randn(ROWS, WIDTH, requires_grad=True)
        self.weight = torch.randn(VOCAB, WIDTH, requires_grad=True)
        self.goal = torch.randint(0, VOCAB, (ROWS,))
        self.c, self.d = torch.randn(ROWS), torch.randn(ROWS)

    def composite(self, cap: float | None) -> tuple[Tensor, Tensor]:
        z = self.hidden.double() @ self.weight.double().T
        z = z if cap is None else cap * torch.tanh(z / cap)
        logp = z.log_softmax(-1)
        return logp.gather(-1, self.goal[:, None])[:, 0], -(logp.exp() * logp).sum(-1)

    def gradients(self, total: Tensor) -> list[Tensor]:
        return [x.double() for x in torch.autograd.grad(total, (self.hidden, self.weight))]

    def near(self, found: list[Tensor], wanted: list[Tensor], bound: float = 3e-5) -> None:
        for a, b in zip(found, wanted, strict=True):
            self.assertLess((a.detach().double() - b.detach().double()).abs().max().item(), bound)

    def test_values_and_gradients(self) -> None:
        plain = (Head.of_logits, Head.gradient)
        for most in (1 << 26, 5 * VOCAB):
            for cap in (None, 2.5):
                for arithmetic in (plain, (head.fused_forward, head.fused_gradient)):
                    with (
                        self.subTest(most=most, cap=cap, arithmetic=arithmetic),
                        mock.patch.object(head, "MOST_LOGITS", most),
                        mock.patch.object(Head, "of_logits", staticmethod(arithmetic[0])),
                        mock.patch.object(Head, "gradient", staticmethod(arithmetic[1])),
                    ):
                        logp, entropy = self.composite(cap)
                        found = Head.apply(self.hidden, self.weight, self.goal, cap, None)
                        self.near(list(found[:2]), [logp, entropy], 5e-6)
                        best = (self.hidden @ self.weight.T).argmax(-1) == self.goal
                        self.assertTrue(torch.equal(found[2].bool(), best))
                        with_entropy = (self.c * logp + self.d * entropy).sum()
                        wanted = self.gradients(with_entropy)
                        self.near(self.gradients((self.c * found[0] + self.d * found[1]).sum()), wanted)
                        wanted = self.gradients((self.c * self.composite(cap)[0]).sum())
                        found = Head.apply(self.hidden, self.weight, self.goal, cap, None)
                        self.near(self.gradients((self.c * found[0]).sum()), wanted)
                        # With coefficients that are known, on the way; twice the sum has twice the gradient.
                        total = Head.apply(self.hidden, self.weight, self.goal, cap, self.c)[3]
                        self.near(self.gradients(2 * total), [2 * x for x in wanted])
                        # A z-loss Σ -c · ζ lse² has a gradient, and is not in the sum.
                        z = self.hidden.double() @ self.weight.double().T
                        lse = (z if cap is None else cap * torch.tanh(z / cap)).logsumexp(-1)
                        wanted = self.gradients((self.c * (self.composite(cap)[0] - 0.3 * lse.square())).sum())
                        found = Head.apply(self.hidden, self.weight, self.goal, cap, self.c, 0.3)[3]
                        self.assertTrue(torch.equal(found, total))
                        self.near(self.gradients(found), wanted, 1e-4)

    def test_a_frozen_head_has_no_gradient(self) -> None:
        weight = self.weight.detach()
        total = Head.apply(self.hidden, weight, self.goal, None, self.c)[3]
        total.backward()
        self.assertIsNone(weight.grad)
        self.assertIsNotNone(self.hidden.grad)


@unittest.skipIf(MISSING, MISSING)
class Layers(unittest.TestCase):
    def test_gates(self) -> None:
        wide = torch.randn(3, 4, 10, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(SwiGlu.apply, (wide,)))
        gate, up = wide.chunk(2, -1)
        self.assertTrue(torch.equal(SwiGlu.apply(wide), F.silu(gate) * up))

    def test_rotations(self) -> None:
        rope = Rope({"frequencies": [1.0, 0.3], "factor": 1.5}, 2)
        rope.reach(7, torch.device("cpu"))
        cos, sin = (x.double() for x in rope.at(torch.tensor([[0, 1, 2], [4, 6, 0]])))
        self.assertEqual(tuple(cos.shape), (2, 3, 1, 2))
        x = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda it: Rotate.apply(it, cos, sin, 3), (x,)))
        found = Rotate.apply(x, cos, sin, 3)
        self.assertTrue(torch.equal(found[:, :, 3], x[:, :, 3]) and torch.equal(found[..., 4:], x[..., 4:]))
        turned = torch.view_as_complex(torch.stack([x[:, :, :3, :2], x[:, :, :3, 2:4]], -1)) * torch.complex(cos, sin)
        halves = torch.view_as_real(turned.detach()).unbind(-1)
        for at, half in enumerate(halves):
            self.assertLess((half - found[:, :, :3, 2 * at : 2 * at + 2].detach()).abs().max().item(), 1e-12)

    def test_products_of_matrices_side_by_side(self) -> None:
        """Against the composite: weights, biases and adapters of some that train, all of them or one of them; changes are seen."""
        shapes = {"q": 6, "k": 4, "v": 4}
        # Of its own rank and scale each.
        ranks, scales = {"q": 2, "k": 3, "v": 1}, {"q": 3.0, "k": 3.0, "v": 0.5}
        for frozen in (False, True):
            for biased in (False, True):
                for adapted in ((), ("v",), ("q", "v"), ("q", "k", "v")):
                    with self.subTest(frozen=frozen, biased=biased, adapted=adapted):
                        params: list[dict[str, Any]] = []
                        for name, rows in shapes.items():
                            params.append({"name": f"{name}.weight", "shape": [rows, 8], "grad": None if frozen else 0})
                            if biased:
                                params.append({"name": f"{name}.bias", "shape": [rows], "grad": None if frozen else 0})
                            if name in adapted:
                                params.append({"name": f"{name}.lora_A.weight", "shape": [ranks[name], 8], "grad": 0})
                                params.append({"name": f"{name}.lora_B.weight", "shape": [rows, ranks[name]], "grad": 0})
                        table = Table(params)
                        linear = Linear(table, list(shapes), {"scales": scales, "dropout": 0.0}, torch.device("cpu"))
                        self.assertEqual(table.made.keys(), {info["name"] for info in params})
                        x = torch.randn(2, 3, 8, requires_grad=True)
                        for _ in range(2):
                            with torch.no_grad():
                                for parameter in table.made.values():
                                    parameter.normal_()
                            for adapters in (True, False):
                                for dtype in (torch.float32, torch.bfloat16):
                                    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                                        own = linear(x, adapters)
                                        plain = linear._composite(x.to(dtype), dtype, adapters)
                                    self.near(own, plain, dtype)
                                    if not own.requires_grad:
                                        continue
                                    c = torch.randn(own.shape)
                                    trained = [x, *(p for p in table.made.values() if p.requires_grad)]
                                    pair = ((it.float() * c).sum() for it in (own, plain))
                                    own, plain = (torch.autograd.grad(it, trained, allow_unused=True) for it in pair)
                                    for a, b in zip(own, plain, strict=True):
                                        self.assertEqual(a is None, b is None)
                                        if a is not None and b is not None:
                                            self.near(a, b, dtype)

    def near(self, a: Tensor, b: Tensor, dtype: torch.dtype) -> None:
        self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
        bound = 2e-6 if dtype == torch.float32 else 2e-2
        self.assertLess((a - b).abs().max().item(), bound * (1 + b.abs().max().item()))

    def test_dropped_features_of_adapters(self) -> None:
        params = [{"name": "q.weight", "shape": [6, 8], "grad": None}]
        params += [{"name": f"q.lora_{ab}.weight", "shape": shape, "grad": 0} for ab, shape in (("A", [2, 8]), ("B", [6, 2]))]
        table = Table(params)
        linear = Linear(table, ["q"], {"scales": {"q": 2.0}, "dropout": 0.4}, torch.device("cpu"))
        with torch.no_grad():
            for parameter in table.made.values():
                parameter.normal_()
        x = torch.randn(5, 8, requires_grad=True)
        torch.manual_seed(5)
        kept, _ = torch.native_dropout(x, 0.4, True)
        a, b, w = (table.made[f"q.{name}weight"] for name in ("lora_A.", "lora_B.", ""))
        plain = x @ w.T + 2.0 * (kept @ a.T) @ b.T
        torch.manual_seed(5)
        own = linear(x, True)
        self.near(own, plain, torch.float32)
        c = torch.randn(own.shape)
        for one, other in zip(*(torch.autograd.grad((y * c).sum(), (x, a, b)) for y in (own, plain)), strict=True):
            self.near(one, other, torch.float32)
        linear.eval()
        self.near(linear(x, True), x @ w.T + 2.0 * (x @ a.T) @ b.T, torch.float32)

    def test_frozen_matrices_in_bf16_compute_what_rounding_them_each_time_does(self) -> None:
        shapes = {"q.weight": [6, 8], "k.weight": [4, 8], "q.lora_A.weight": [2, 8], "q.lora_B.weight": [6, 2]}
        params = [{"name": name, "shape": shape, "grad": 0 if "lora" in name else None} for name, shape in shapes.items()]
        values = {name: torch.randn(shape) for name, shape in shapes.items()}
        x, found = torch.randn(3, 8), []
        for frozen in (None, torch.bfloat16):
            table = Table(params, frozen)
            linear = Linear(table, ["q", "k"], {"scales": {"q": 2.0}, "dropout": 0.0}, torch.device("cpu"))
            with torch.no_grad():
                for name, value in values.items():
                    table.made[name].copy_(value)
            self.assertEqual(table.made["k.weight"].dtype, frozen or torch.float32)
            with torch.autocast("cpu", torch.bfloat16):
                y = linear(x, True)
                plain = linear(x, False)
            y.float().sum().backward()
            grads = [table.made[name].grad for name in ("q.lora_A.weight", "q.lora_B.weight")]
            found.append([y, plain, *grads])
        for a, b in zip(*found, strict=True):
            self.assertTrue(torch.equal(a, b))
        # With magnitudes the weights stay as they are.
        params.append({"name": "q.lora_magnitude_vector", "shape": [6], "grad": 0})
        table = Table(params, torch.bfloat16)
        Linear(table, ["q", "k"], {"scales": {"q": 2.0}, "dropout": 0.0}, torch.device("cpu"))
        self.assertEqual(table.made["k.weight"].dtype, torch.float32)

    def test_texts_of_rows(self) -> None:
        found = Packed.of(torch.tensor([[0, 0, 0, 3, 3], [0, 0, 0, 0, 0]]))
        assert found is not None
        self.assertEqual((found.ends.tolist(), found.ends.dtype), ([0, 3, 5, 10], torch.int32))
        found = Packed.of(torch.tensor([[0, 1, 1, 3]]))
        assert found is not None
        self.assertEqual(found.ends.tolist(), [0, 1, 3, 4])
        # Tokens that see a part of their text, or more than the token before, are no texts.
        for first in ([[0, 0, 1, 1]], [[0, 0, 2, 0]]):
            self.assertIsNone(Packed.of(torch.tensor(first)))


if __name__ == "__main__":
    unittest.main()
