"""Distillation on a rank: divergences and gradients that are written by hand against autograd's of the plain composite in f64, and against
TRL's loss; a teacher beside a student, whole and in shards.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_distill.py

Without PyTorch or TRL what needs them is skipped, with these words.
"""

from __future__ import annotations

import struct
import unittest
from typing import Any
from unittest import mock

try:
    import test_launches as launches
    import test_worker as worker
    import torch
    from llmtui_worker import distill, head
    from llmtui_worker.distill import Beside, Distilled, compare
    from llmtui_worker.head import Head
    from torch import Tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""
try:
    from trl.experimental.gkd import GKDTrainer
except ImportError as error:
    WITHOUT = f"no TRL here: {error}"
else:
    WITHOUT = ""

ROWS, WIDTH, THEIRS, VOCAB = 13, 8, 6, 17
BETAS = (0.0, 0.3, 0.5, 1.0)


def divergence(student: Tensor, teacher: Tensor, beta: float, temperature: float) -> Tensor:
    p, q = ((z.double() / temperature).log_softmax(-1) for z in (student, teacher))

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return (a.exp() * (a - b)).sum(-1)

    if beta in (0.0, 1.0):
        return kl(q, p) if beta == 0.0 else kl(p, q)
    m = (beta * q.exp() + (1 - beta) * p.exp()).log()
    return beta * kl(q, m) + (1 - beta) * kl(p, m)


@unittest.skipIf(MISSING, MISSING)
class Heads(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(3)
        self.hidden = torch.randn(ROWS, WIDTH, requires_grad=True)
        self.weight = torch.randn(VOCAB, WIDTH, requires_grad=True)
        self.goal = torch.randint(0, VOCAB, (ROWS,))
        self.c, self.d = torch.randn(ROWS), torch.rand(ROWS)
        self.theirs = torch.randn(ROWS, THEIRS)

    def logits(self, hidden: Tensor, weight: Tensor, cap: float | None) -> Tensor:
        z = hidden.double() @ weight.double().T
        return z if cap is None else cap * torch.tanh(z / cap)

    def test_values_and_gradients(self) -> None:
        plain = (head.forward, head.gradient)
        for most in (1 << 26, 70):
            for arithmetic in (plain, (head.fused_forward, head.fused_gradient)):
                for beta in BETAS:
                    # Caps of both; more tokens here, and there.
                    for caps, vocab, temperature, ce in (
                        ((None, None), VOCAB, 1.0, False),
                        ((2.5, None), VOCAB - 3, 1.7, True),
                        ((None, 3.0), VOCAB + 4, 0.6, True),
                    ):
                        with (
                            self.subTest(most=most, beta=beta, caps=caps, vocab=vocab),
                            mock.patch.object(distill, "MOST_LOGITS", most),
                            mock.patch.object(Head, "of_logits", staticmethod(arithmetic[0])),
                            mock.patch.object(Head, "gradient", staticmethod(arithmetic[1])),
                        ):
                            self.check(beta, caps, vocab, temperature, ce=ce)

    def check(self, beta: float, caps: tuple[float | None, float | None], vocab: int, temperature: float, *, ce: bool) -> None:
        table = torch.randn(vocab, THEIRS)
        c = self.c if ce else torch.zeros(ROWS)
        beside = Beside(self.theirs, table, caps[1], beta, temperature, self.d, ce)
        student, teacher = self.logits(self.hidden, self.weight, caps[0]), self.logits(self.theirs, table, caps[1])
        common = min(vocab, VOCAB)
        student_common, teacher_common = student[:, :common], teacher[:, :common]
        apart = divergence(student_common, teacher_common, beta, temperature)
        logps = student.log_softmax(-1)
        logp = logps.gather(-1, self.goal[:, None])[:, 0]
        log_q = (teacher_common / temperature).log_softmax(-1)
        wanted = [
            logp,
            -(logps.exp() * logps).sum(-1),
            (student.argmax(-1) == self.goal).double(),
            (c * logp + self.d * apart).sum(),
            apart,
            -(log_q.exp() * log_q).sum(-1),
            (student_common.argmax(-1) == teacher_common.argmax(-1)).double(),
        ]
        found = Distilled.apply(self.hidden, self.weight, self.goal, caps[0], c, beside)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=2e-5)
        # Twice the sum has twice the gradient.
        grads = torch.autograd.grad(2 * found[3], (self.hidden, self.weight))
        for a, b in zip(grads, torch.autograd.grad(2 * wanted[3], (self.hidden, self.weight)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            found = Distilled.apply(self.hidden, self.weight, self.goal, caps[0], None, beside._replace(weights=None))
        self.assertEqual(found[3].item(), 0.0)
        torch.testing.assert_close(found[4].double(), wanted[4], rtol=1e-5, atol=2e-5)

    def test_equal_models_have_no_distance(self) -> None:
        z = 4.0 * torch.randn(ROWS, VOCAB)
        for beta in BETAS:
            found = compare(z.clone(), z.clone(), beta, 1.0, gradient=True)
            self.assertGreaterEqual(found.divergence.min().item(), 0.0)
            self.assertLess(found.divergence.max().item(), 1e-6)
            self.assertEqual(found.agrees.sum().item(), ROWS)
            assert found.gradient is not None
            self.assertLess(found.gradient.abs().max().item(), 1e-6)

    def test_logits_of_both_are_never_there_for_more_tokens_than_a_chunk_has(self) -> None:
        sizes: list[int] = []
        with mock.patch.object(distill, "MOST_LOGITS", 4 * 2 * VOCAB), mock.patch.object(distill, "compare", wraps=compare) as seen:
            table = torch.randn(VOCAB, THEIRS)
            Distilled.apply(self.hidden, self.weight, self.goal, None, self.c, Beside(self.theirs, table, None, 0.5, 1.0, self.d))
            sizes = [len(call.args[0]) for call in seen.call_args_list]
        self.assertEqual((sum(sizes), max(sizes)), (ROWS, 4))


@unittest.skipIf(MISSING or WITHOUT, MISSING or WITHOUT)
class Trl(unittest.TestCase):
    def test_losses_are_theirs(self) -> None:
        student, teacher = 2.0 * torch.randn(1, ROWS, VOCAB), 2.0 * torch.randn(1, ROWS, VOCAB)
        for beta in BETAS:
            for temperature in (1.0, 1.6):
                theirs = GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, temperature=temperature, reduction="sum")
                own = compare(student[0].clone(), teacher[0].clone(), beta, temperature, gradient=False).divergence.sum()
                torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-5)


@unittest.skipIf(MISSING, MISSING)
class Ranks(unittest.TestCase):
    def test_a_rank_learns_from_a_teacher_of_another_shape(self) -> None:
        """Its values and gradients are those of both models' logits; a teacher in shards as one that is whole."""
        grads: list[list[Tensor]] = []
        for changes in ({"shard": "ddp"}, {"shard": "fsdp2", "offload": True}):
            with self.subTest(**changes):
                rank = worker.Updates().rank(lora=False, precision="f32", **changes)
                model = launches.described(2, False)
                offset = 0
                for info in model["params"]:
                    info |= {"offset": offset, "grad": None}
                    offset += torch.Size(info["shape"]).numel()
                rank.teacher_here({"model": model}, bytearray())
                assert rank.teacher is not None
                self.assertTrue(all(not p.requires_grad for p in rank.teacher.parameters()))
                torch.manual_seed(5)
                values = mock.Mock(side_effect=lambda _rest, _part, shape: 0.3 * torch.randn(shape))
                with mock.patch.object(rank, "_receive", values):
                    rank.load({"part": "weights", "steps": 0}, bytearray())
                    rank.load({"part": "teacher", "steps": 0}, bytearray())
                ask = {
                    "rows": 1,
                    "seq_len": 8,
                    "first": False,
                    "linear": True,
                    "train": True,
                    "varied": False,
                    "draws": 1,
                    "micro": 0,
                    "of": 1,
                }
                ask |= {"model": "policy", "adapters": True, "temperature": 1.0, "distill": {"beta": 0.5, "temperature": 1.5, "ce": True}}
                weights = [0.0, 1.0, 0.5, 2.0, 0.0, 1.0, 1.0, 0.25]
                payload = bytearray(struct.pack("<16i16f", *range(8), *range(1, 9), *[-0.5] * 8, *weights))
                answer = rank.forward(ask, payload)
                found = torch.frombuffer(bytearray(answer["payload"]), dtype=torch.float32).view(6, 8)
                own = [p.grad for _, p in rank.trained]
                grads.append([getattr(g, "full_tensor", lambda g=g: g)() for g in own])
                ids = torch.arange(8)[None]

                def logps(decoder: Any, ids: Tensor = ids) -> Tensor:
                    vocab = decoder.table.infos["model.embed_tokens.weight"]["shape"][0]
                    every = torch.arange(vocab)[:, None].expand(-1, 8)
                    found: Tensor = decoder.eval()(ids.expand(vocab, -1), every, None)[0]
                    return found.T

                with torch.no_grad():
                    student, teacher = logps(rank.decoder), logps(rank.teacher)
                    rank._as_shards(rank.decoder)
                    rank._as_shards(rank.teacher)
                torch.testing.assert_close(found[3].double(), divergence(student, teacher, 0.5, 1.5), rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(found[0], student[torch.arange(8), torch.arange(1, 9)], rtol=1e-4, atol=1e-5)
                # Without a gradient it says the same.
                again = rank.forward(ask | {"train": False, "linear": False}, payload[: 4 * 16])
                again = torch.frombuffer(bytearray(again["payload"]), dtype=torch.float32).view(6, 8)
                torch.testing.assert_close(again, found, rtol=1e-5, atol=1e-6)
                if changes["shard"] == "ddp":
                    rank.decoder.zero_grad()
                    loss = (divergence(logps(rank.decoder), teacher, 0.5, 1.5) * torch.tensor(weights)).sum()
                    loss = loss - 0.5 * rank.decoder(ids, ids + 1, None)[0].sum()
                    wanted = torch.autograd.grad(loss, [p for _, p in rank.trained])
                    for a, b in zip(grads[0], wanted, strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
        for a, b in zip(*grads, strict=True):
            self.assertGreater(a.abs().max().item(), 0.0)
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
