"""Mixtures of experts: against each token's own experts one by one, transformers' classes, and the formulas of balancing losses; passes of two
ranks against one pass over the rows of both.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_experts.py

Without PyTorch or transformers what needs them is skipped, with these words.
"""

from __future__ import annotations

import math
import unittest
from typing import Any
from unittest import mock

try:
    import test_worker as worker
    import torch
    import torch.nn.functional as F
    from llmtui_worker import experts
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.experts import Balance, Experts, Groups, Mixed
    from llmtui_worker.layers import Table, activate
    from torch import Tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""
try:
    import transformers
except ImportError as error:
    WITHOUT = f"no transformers here: {error}"
else:
    WITHOUT = ""

CPU = "cpu"


def mixture(changes: dict[str, Any], seed: int = 1, kind: str = "swiglu") -> tuple[Experts, dict[str, Tensor]]:
    """A block of experts with random weights, and these by the engine's names."""
    described = worker.described(**(changes | {"mlp": {kind: {}}}))
    names = {info["name"] for info in described["params"]}
    at = "model.layers.0.mlp"
    if kind not in ("swiglu", "geglu"):
        described["params"] = [info for info in described["params"] if not info["name"].startswith(f"{at}.") or "gate_proj" not in info["name"]]
    table = Table(described["params"])
    torch.manual_seed(seed)
    block = Experts(table, described, at, torch.device(CPU))
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(0.0, 0.5)
    own = [name for name in sorted(names) if name.startswith(f"{at}.") and table.has(name)]
    found = {}
    for name in own:
        parameter, part = table.place(name)
        found[name.removeprefix(f"{at}.")] = parameter if part is None else parameter[part]
    return block, found


def one_by_one(block: Experts, w: dict[str, Tensor], moe: dict[str, Any], h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What each token's experts give, token by token; with the probabilities (N, E) and the choice as 0 and 1."""

    def feed(name: str, x: Tensor) -> Tensor:
        parts = [
            F.linear(x, w[f"{name}.{part}.weight"], w.get(f"{name}.{part}.bias"))
            for part in ("gate_proj", "up_proj")
            if f"{name}.{part}.weight" in w
        ]
        return F.linear(activate(block.kind, {}, torch.cat(parts, -1)), w[f"{name}.down_proj.weight"], w.get(f"{name}.down_proj.bias"))

    rows, shares, taken = [], [], torch.zeros(len(h), moe["n_expert"])
    for n, x in enumerate(h):
        z = w["gate.weight"] @ x
        sigmoid = moe.get("scoring") == "sigmoid"
        scores = z.sigmoid() if sigmoid else z.softmax(-1)
        shares.append(scores / (scores.sum() + 1e-6) if sigmoid else scores)
        wanted = (scores + w.get("gate.e_score_correction_bias", torch.zeros(()))).tolist()
        order = list(range(len(wanted)))
        if "n_group" in moe:
            size = len(wanted) // moe["n_group"]
            groups = [order[i : i + size] for i in range(0, len(order), size)]
            worth = lambda group: sum(sorted((wanted[e] for e in group), reverse=True)[: 2 if sigmoid else 1])  # noqa: E731
            order = [e for group in sorted(groups, key=worth, reverse=True)[: moe["top_group"]] for e in group]
        chosen = sorted(order, key=lambda e: -wanted[e])[: moe["top_k"]]
        total = sum(scores[e] for e in chosen) + (1e-6 if sigmoid else 0.0) if moe["norm_topk"] else 1.0
        y = sum(scores[e] / total * moe.get("gate_scale", 1.0) * feed(f"experts.{e}", x) for e in chosen)
        if "shared_d_ff" in moe:
            gate = (w["shared_expert_gate.weight"] @ x).sigmoid() if moe.get("shared_gate") else 1.0
            y = y + gate * feed("shared_expert", x)
        taken[n, chosen] = 1.0
        rows.append(y)
    return torch.stack(rows), torch.stack(shares), taken


def by_formula(w: dict[str, Tensor], moe: dict[str, Any], h: Tensor, shares: Tensor, taken: Tensor) -> Tensor:
    """aux · E · Σ f P + z · mean lse²."""
    lse = (h @ w["gate.weight"].T).logsumexp(-1)
    aux = moe["n_expert"] * (taken.mean(0) * shares.mean(0)).sum()
    return moe["aux_loss_coef"] * aux + moe["z_loss_coef"] * lse.square().mean()


@unittest.skipIf(MISSING, MISSING)
class Blocks(unittest.TestCase):
    def test_all_at_once_give_what_each_token_gets_alone(self) -> None:
        variants = [(changes, kind) for changes in worker.MIXTURES for kind in ("swiglu",)]
        variants += [(worker.MIXTURES[1], kind) for kind in ("geglu", "gelu", "relu", "silu")]
        for changes, kind in variants:
            with self.subTest(**changes, kind=kind):
                block, w = mixture(changes, kind=kind)
                moe = changes["moe"]
                h = torch.randn(3, 5, worker.WIDTH, requires_grad=True)
                of, world = 4, 2
                # Of the second row two tokens are padding, and of the third all.
                filled = torch.tensor([5, 3, 0])
                counts = (torch.arange(5) < filled[:, None]).reshape(-1)
                block.balance.begin(filled, 5, micro=0, of=of, world=world)
                y = block(h, True)
                block.balance.end(1)
                flat = h.reshape(-1, worker.WIDTH)
                wanted, shares, taken = one_by_one(block, w, moe, flat)
                torch.testing.assert_close(y.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)
                c = torch.randn_like(wanted)
                losses = by_formula(w, moe, flat[counts], shares[counts], taken[counts]) * world / of
                trained = [h, *(p for p in block.parameters() if p.requires_grad)]
                expected = torch.autograd.grad((wanted * c).sum() + losses, trained, retain_graph=True)
                found = torch.autograd.grad((y.reshape(c.shape) * c).sum(), trained)
                for a, b in zip(found, expected, strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
                plain = torch.autograd.grad((wanted * c).sum(), h)[0]
                self.assertGreater((plain - found[0]).abs().max().item(), 1e-3, "the losses have a gradient")
                # What is reported.
                row, n = block.balance.step[0], moe["n_expert"]
                torch.testing.assert_close(row[:n].float(), taken[counts].sum(0))
                torch.testing.assert_close(row[n : 2 * n].float(), shares[counts].sum(0).detach())
                self.assertEqual(row[-1].item(), 8.0)

    def test_adapters_of_experts_give_what_merged_matrices_give(self) -> None:
        """W + s · B A of each expert: values, and gradients of A and B through the sum; with adapters off the base alone."""
        at, rank, scale = "model.layers.0.mlp.experts", 3, 1.5
        for changes in worker.MIXTURES:
            for adapted in (("gate_up_proj", "down_proj"), ("down_proj",)):
                with self.subTest(**changes, adapted=adapted):
                    moe = changes["moe"]
                    n, width = moe["n_expert"], moe["d_ff"]
                    sides = {"gate_up_proj": (worker.WIDTH, 2 * width), "down_proj": (width, worker.WIDTH)}
                    block, w = mixture(changes)
                    described = worker.described(**changes)
                    for name in adapted:
                        inner, out = sides[name]
                        described["params"].append({"name": f"{at}.{name}.lora_A.weight", "shape": [n * rank, inner], "grad": 0})
                        described["params"].append({"name": f"{at}.{name}.lora_B.weight", "shape": [n * out, rank], "grad": 0})
                        described["adapter"]["scales"][f"{at}.{name}"] = scale
                    own = Experts(Table(described["params"]), described, "model.layers.0.mlp", torch.device(CPU))
                    torch.manual_seed(5)
                    with torch.no_grad():
                        base = dict(block.named_parameters())
                        for name, parameter in own.named_parameters():
                            parameter.copy_(base[name]) if name in base else parameter.normal_(0.0, 0.5)
                    h = torch.randn(3, 5, worker.WIDTH, requires_grad=True)
                    for bank in (block.wide, block.down):
                        bank.weight.requires_grad_(False)
                    factors = [x for bank in (own.wide, own.down) if bank.a is not None for x in (bank.a, bank.b)]
                    found = own(h, True)
                    c = torch.randn_like(found)
                    grads = torch.autograd.grad((found * c).sum(), [h, *factors])
                    torch.testing.assert_close(own(h, False), block(h, True))
                    # The same by autograd: each expert's matrix with its own factors.
                    merged = dict(w)
                    for bank, parts in ((own.wide, ("gate_proj", "up_proj")), (own.down, ("down_proj",))):
                        if bank.a is None:
                            continue
                        rows = len(bank.b) // n // len(parts)
                        for e in range(n):
                            a = bank.a[e * rank : (e + 1) * rank]
                            for i, part in enumerate(parts):
                                first = (e * len(parts) + i) * rows
                                key = f"experts.{e}.{part}.weight"
                                merged[key] = w[key].detach() + scale * bank.b[first : first + rows] @ a
                    wanted, *_ = one_by_one(own, merged, moe, h.reshape(-1, worker.WIDTH))
                    torch.testing.assert_close(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)
                    expected = torch.autograd.grad((wanted.reshape(c.shape) * c).sum(), [h, *factors])
                    for a, b in zip(grads, expected, strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
                    self.assertGreater((found - own(h, False)).abs().max().item(), 1e-2)

    def test_experts_without_tokens_have_a_gradient_of_0(self) -> None:
        block, w = mixture({"moe": worker.experts(n_expert=6, top_k=1)})
        with torch.no_grad():
            block.router.weight.zero_()
            # All tokens go to the first of equals.
        y = block(torch.randn(1, 7, worker.WIDTH), True)
        y.sum().backward()
        for bank in (block.wide, block.down):
            assert bank.weight.grad is not None
            self.assertTrue(bool((bank.weight.grad[1:] == 0).all()))
            self.assertGreater(bank.weight.grad[0].abs().max().item(), 0.0)

    def test_the_kernel_of_all_experts_gives_what_a_loop_over_them_gives(self) -> None:
        """PyTorch's grouped matmul as it is on a CPU, in bf16."""
        for changes in worker.MIXTURES[:2]:
            with self.subTest(**changes):
                changes = {**changes, "moe": changes["moe"] | {"n_expert": 5, "top_k": 2}}
                found = []
                for on_host in (True, False):
                    block, _ = mixture(changes)
                    for bank in (block.wide, block.down):
                        # Factors of rank 8 of each expert.
                        rows, columns = bank.weight.shape[1:]
                        bank.scale = 0.5
                        bank.a, bank.b = (torch.nn.Parameter(0.3 * torch.randn(5 * n, m)) for n, m in ((8, columns), (rows, 8)))
                    h = torch.randn(2, 9, worker.WIDTH, generator=torch.Generator().manual_seed(3)).requires_grad_()
                    with torch.no_grad():
                        # Nobody wants the third.
                        block.router.weight[2] = 0.0
                        h[..., 0] = 1.0
                        block.router.weight[2, 0] = -50.0
                    with mock.patch.object(Experts, "on_host", return_value=on_host), torch.autocast(CPU, torch.bfloat16):
                        y = block(h, True)
                    grads = torch.autograd.grad(y.float().square().sum(), [h, *(p for p in block.parameters() if p.requires_grad)])
                    found.append((y, *grads))
                for a, b in zip(*found, strict=True):
                    self.assertTrue(bool(a.isfinite().all()))
                    torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2 * b.abs().max().item())

    def test_frozen_experts_pass_gradients_on(self) -> None:
        described = worker.described(moe=worker.experts())
        described["params"] = [info | {"grad": None if ".experts." in info["name"] else 0} for info in described["params"]]
        torch.manual_seed(2)
        whole, part = Decoder(worker.described(moe=worker.experts()), torch.device(CPU)), Decoder(described, torch.device(CPU))
        with torch.no_grad():
            for a, b in zip(whole.parameters(), part.parameters(), strict=True):
                b.copy_(a.normal_(0.0, 0.4))
        ids = torch.randint(0, worker.VOCAB, (2, 12))
        for decoder in (whole, part):
            logp, *_ = decoder(ids, ids, None)
            logp.sum().backward()
        for (name, a), (_, b) in zip(whole.table.made.items(), part.table.made.items(), strict=True):
            if ".experts." in name:
                self.assertIsNone(b.grad)
            else:
                assert a.grad is not None and b.grad is not None
                self.assertTrue(torch.equal(a.grad, b.grad), name)

    def test_recomputed_blocks_count_once_and_have_the_same_gradients(self) -> None:
        ids = torch.randint(0, worker.VOCAB, (2, 13), generator=torch.Generator().manual_seed(3))
        for changes in worker.MIXTURES:
            with self.subTest(**changes):
                found = []
                for recompute in (False, True):
                    torch.manual_seed(1)
                    decoder = Decoder(worker.described(**changes) | {"recompute": recompute}, torch.device(CPU)).train()
                    with torch.no_grad():
                        for parameter in decoder.parameters():
                            parameter.normal_(0.0, 0.4)
                    balance = decoder.balance
                    assert balance is not None
                    balance.begin(torch.tensor([13, 9]), 13, micro=0, of=1, world=1)
                    logp, *_ = decoder(ids, ids, None)
                    balance.end(1)
                    trained = [p for p in decoder.parameters() if p.requires_grad]
                    found.append((logp, balance.step.clone(), *torch.autograd.grad(logp.sum(), trained)))
                    self.assertEqual(balance.step[:, -1].tolist(), [22.0] * worker.LAYERS)
                    self.assertTrue(torch.equal(balance.step, found[-1][1]))
                for a, b in zip(*found, strict=True):
                    self.assertTrue(torch.equal(a, b))

    def test_biases_move_against_the_load_and_loads_add_up_over_a_step(self) -> None:
        block, _ = mixture(worker.MIXTURES[3])
        bias = block.router.bias
        assert bias is not None
        self.assertFalse(bias.requires_grad)
        for micro in (0, 1):
            block.balance.begin(torch.tensor([4]), 4, micro=micro, of=2, world=1)
            block(torch.randn(1, 4, worker.WIDTH), True)
            block.balance.end(1)
        counts = block.balance.step[0, :8]
        self.assertEqual(counts.sum().item(), 2 * 4 * 2)
        before = bias.clone()
        block.move_bias(0.25)
        wanted = [0.25 if n < 2 else -0.25 if n > 2 else 0.0 for n in counts.tolist()]
        torch.testing.assert_close(bias - before, torch.tensor(wanted))
        block.balance.begin(torch.tensor([4]), 4, micro=0, of=2, world=1)
        self.assertEqual(block.balance.step.abs().sum().item(), 0.0)

    def test_equal_scores_go_to_the_earlier_experts(self) -> None:
        for changes in worker.MIXTURES:
            block, _ = mixture(changes)
            router = block.router
            if router.bias is not None:
                router.bias.zero_()
            chosen = router.choose(torch.full((3, router.weight.shape[0]), 0.5))
            self.assertEqual(chosen.tolist(), [list(range(router.top_k))] * 3)

    def test_what_is_kept_of_a_block(self) -> None:
        """x, gates and what the first matrices give; of routing logits, scores and places. Nothing of the second matrices."""
        block, _ = mixture({"moe": worker.experts(norm_topk=False)})
        kept: dict[int, Tensor] = {}

        def keep(x: Tensor) -> Tensor:
            kept[x.data_ptr()] = x
            return x

        h = torch.randn(2, 9, worker.WIDTH, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            block(h, True)
        of_tokens = sorted(tuple(x.shape) for x in kept.values() if x.dim() and len(x) in (18, 36))
        # x, which the router reads too; logits, scores; the choice, gates, places; tokens, order; wide.
        self.assertEqual(of_tokens, sorted([(18, 16)] + [(18, 4)] * 2 + [(18, 2)] * 3 + [(36,)] * 2 + [(36, 16)]))


@unittest.skipIf(MISSING or WITHOUT, MISSING or WITHOUT)
class Transformers(unittest.TestCase):
    def test_blocks_are_theirs(self) -> None:
        from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3
        from transformers.models.mixtral import modeling_mixtral as mixtral
        from transformers.models.qwen2_moe import modeling_qwen2_moe as qwen

        d = worker.WIDTH
        common: dict[str, Any] = {"hidden_size": d, "moe_intermediate_size": 8, "intermediate_size": 8, "num_experts_per_tok": 2}
        kinds = [
            (mixtral.MixtralSparseMoeBlock(transformers.MixtralConfig(**common, num_local_experts=4)), worker.MIXTURES[0]["moe"]),
            (
                qwen.Qwen2MoeSparseMoeBlock(
                    transformers.Qwen2MoeConfig(**common, num_experts=4, norm_topk_prob=False, shared_expert_intermediate_size=12)
                ),
                worker.MIXTURES[1]["moe"],
            ),
            (
                v3.DeepseekV3MoE(
                    transformers.DeepseekV3Config(
                        **common,
                        n_routed_experts=8,
                        n_group=4,
                        topk_group=2,
                        routed_scaling_factor=2.5,
                        n_shared_experts=1,
                        norm_topk_prob=True,
                    )
                ),
                worker.MIXTURES[3]["moe"] | {"shared_d_ff": 8},
            ),
        ]
        for theirs, moe in kinds:
            with self.subTest(type(theirs).__name__), torch.no_grad():
                block, w = mixture({"moe": moe})
                state = dict(theirs.named_parameters()) | dict(theirs.named_buffers())
                for name, tensor in state.items():
                    if name == "experts.gate_up_proj":
                        tensor.copy_(block.wide.weight)
                    elif name == "experts.down_proj":
                        tensor.copy_(block.down.weight)
                    else:
                        tensor.copy_(w[name.replace("shared_experts.", "shared_expert.")])
                h = torch.randn(2, 7, d)
                found = theirs(h)
                found = found[0] if isinstance(found, tuple) else found
                torch.testing.assert_close(block(h, True), found, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
