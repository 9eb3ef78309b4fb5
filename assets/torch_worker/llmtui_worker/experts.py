"""Mixtures of experts: a router sends each token to a few of many feed-forward blocks (Shazeer et al. 2017, arXiv 1701.06538). No token is
dropped. Tokens are sorted by expert, so that each matrix is one grouped matmul over all experts.

Balancing losses depend on how many tokens each expert got in the whole micro-batch: `Balance` sums that over ranks, once a pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor

from .layers import Table, activate, apart, matmul_dtype
from .linear import Linear

GROUPED_MM = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


class Groups(NamedTuple):
    """Places (N · top_k): tokens sorted by expert, those of one expert in their own order."""

    # The token at each place, (places,); of token n its places in the order of its choice, (N, top_k).
    tokens: Tensor
    places: Tensor
    # Token · top_k + choice at each place.
    order: Tensor
    # The place after each expert's last, (experts,), int32; and on the host how many each has, if matmuls are a loop over them.
    ends: Tensor
    sizes: list[int] | None

    @staticmethod
    def of(chosen: Tensor, n_expert: int, *, on_host: bool) -> Groups:
        """Of the experts of each token, (N, top_k)."""
        experts, order = chosen.reshape(-1).sort(dim=-1, stable=True)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=order.device)
        ends = torch.searchsorted(experts, torch.arange(n_expert, device=experts.device), right=True).int()
        sizes = None
        if on_host:
            known = [0, *ends.tolist()]
            sizes = [end - begin for begin, end in zip(known, known[1:], strict=False)]
        return Groups(order // chosen.shape[1], places.view_as(chosen), order, ends, sizes)

    def experts(self) -> Tensor:
        """A row for each expert with 1 at its places, (experts, places)."""
        place = torch.arange(len(self.order), device=self.ends.device)
        begins = F.pad(self.ends, (1, -1))
        return ((place >= begins[:, None]) & (place < self.ends[:, None])).float()


@cache
def kernel_runs(device: torch.device) -> bool:
    """Whether the kernel for all experts at once runs on this GPU."""
    if GROUPED_MM is None or device.type != "cuda":
        return False
    x, w = torch.ones(16, 16, dtype=torch.bfloat16, device=device), torch.ones(2, 16, 16, dtype=torch.bfloat16, device=device)
    ends = torch.tensor([0, 16], dtype=torch.int32, device=device)
    try:
        both = GROUPED_MM(x, w, offs=ends), GROUPED_MM(x.t(), x, offs=ends)
    except RuntimeError:
        return False
    return bool((both[0] == 16).all()) and bool((both[1][1] == 16).all())


def by_expert(x: Tensor, w: Tensor, groups: Groups) -> Tensor:
    """x (places, in), w (experts, in, out) → (places, out): each place by its expert's matrix."""
    if groups.sizes is None:
        assert GROUPED_MM is not None
        found: Tensor = GROUPED_MM(x, w, offs=groups.ends)
        return found
    found, begin = x.new_empty(len(x), w.shape[2]), 0
    for size, matrix in zip(groups.sizes, w, strict=True):
        if size:
            torch.mm(x[begin : begin + size], matrix, out=found[begin : begin + size])
        begin += size
    return found


def of_experts(x: Tensor, y: Tensor, groups: Groups) -> Tensor:
    """x (places, in), y (places, out) → (experts, in, out) in f32: the sum over each expert's places of x yᵀ, 0 without any."""
    if groups.sizes is None:
        assert GROUPED_MM is not None
        found: Tensor = GROUPED_MM(x.t(), y, offs=groups.ends).float()
        # The kernel does not write what it sums nothing into.
        empty = groups.ends == F.pad(groups.ends, (1, -1))
        return found.masked_fill_(empty[:, None, None], 0.0)
    found, begin = torch.zeros(len(groups.sizes), x.shape[1], y.shape[1], device=x.device), 0
    for size, matrix in zip(groups.sizes, found, strict=True):
        if size:
            matrix.copy_(x[begin : begin + size].t() @ y[begin : begin + size])
        begin += size
    return found


class Bank(nn.Module):
    """One matrix of each expert, stacked (experts, out, in), their biases (experts, out), and LoRA's A and B of all (`Factors`)."""

    def __init__(self, table: Table, names: list[list[str]], adapted: str, scales: dict[str, float], device: torch.device) -> None:
        """`names`: of each expert's matrices with the same input, whose outputs lie side by side; `adapted`: the name of all."""
        super().__init__()
        self.table = table
        weights, biases = ([[f"{name}.{kind}" for name in own] for own in names] for kind in ("weight", "bias"))
        self.weight = table.stack(weights, device)
        self.bias = table.stack(biases, device) if table.has(biases[0][0]) else None
        self.a = self.b = None
        self.scale = 1.0
        if table.has(f"{adapted}.lora_A.weight"):
            self.a, self.b = (table.take(f"{adapted}.lora_{part}.weight", device) for part in "AB")
            self.scale = scales[adapted]
        self.rounded: Tensor | None = None
        self.version: tuple[int, int] | None = None

    def sides(self) -> list[int]:
        """The widths of its matmuls."""
        return [*self.weight.shape[1:], *([] if self.b is None else self.b.shape[1:])]

    def like(self, dtype: torch.dtype, weight: Tensor) -> Tensor:
        """The weights in a dtype. Without shards they are cast once per update, into the same buffer."""
        if weight.dtype == dtype:
            return weight
        if not self.table.joined:
            return weight.to(dtype)
        if self.rounded is None or self.rounded.dtype != dtype:
            self.rounded, self.version = torch.empty_like(weight, dtype=dtype), None
        version = self.table.changes, weight._version
        if self.version != version:
            with torch.no_grad():
                self.rounded.copy_(weight)
            self.version = version
        return self.rounded


class Factors(NamedTuple):
    """LoRA's factors of one matrix of each expert: a (experts, rank, in), b (experts, out, rank); y += scale · b (a x)."""

    a: Tensor
    b: Tensor
    scale: float

    @staticmethod
    def of(a: Tensor | None, b: Tensor | None, bank: Bank, dtype: torch.dtype) -> Factors | None:
        """Of the engine's tensors: the factors of all experts, one below the other, (experts · rank, in) and (experts · out, rank)."""
        if a is None or b is None:
            return None
        n = len(bank.weight)
        return Factors(a.to(dtype).unflatten(0, (n, -1)), b.to(dtype).unflatten(0, (n, -1)), bank.scale)

    def add(self, y: Tensor, x: Tensor, groups: Groups) -> None:
        """x (places, in), y (places, out)."""
        y.add_(by_expert(by_expert(x, self.a.mT, groups), self.b.mT, groups), alpha=self.scale)

    def back(self, dy: Tensor, groups: Groups) -> Tensor:
        """dy (places, out) → the gradient of a x, (places, rank)."""
        return by_expert(dy, self.b, groups) * self.scale

    def gradients(self, x: Tensor, dy: Tensor, of_low: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
        """As the engine's tensors; x (places, in), dy (places, out), of_low (places, rank)."""
        of_b = of_experts(dy, by_expert(x, self.a.mT, groups), groups) * self.scale
        return of_experts(of_low, x, groups).flatten(0, 1), of_b.flatten(0, 1)


class Mixed(torch.autograd.Function):
    """Σ gate · down(act(wide(x))) over the experts of each token: x (N, D) and gates (N, top_k) → (N, D) in f32.

    Keeps x, gates and what the first matrices give, (places, width). The gradient of a gate is (downᵀ dy) · act: what the second matrices
    give is neither kept nor computed again. Parameters: weight and bias of wide and down, then LoRA's A and B of both.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, of: Experts, groups: Groups, *parameters: Tensor | None) -> Tensor:
        wide_w, wide_b, down_w, down_b, *factors = parameters
        assert wide_w is not None and down_w is not None
        of_wide, of_down = Factors.of(*factors[:2], of.wide, x.dtype), Factors.of(*factors[2:], of.down, x.dtype)
        each = x[groups.tokens]
        wide = by_expert(each, of.wide.like(x.dtype, wide_w).mT, groups)
        if wide_b is not None:
            wide += spread(wide_b, groups).to(wide.dtype)
        if of_wide is not None:
            of_wide.add(wide, each, groups)
        del each
        active = of.act(wide)
        out = by_expert(active, of.down.like(x.dtype, down_w).mT, groups)
        if down_b is not None:
            out += spread(down_b, groups).to(out.dtype)
        if of_down is not None:
            of_down.add(out, active, groups)
        del active
        y = torch.zeros(x.shape, device=x.device)
        for choice in range(gates.shape[1]):
            y.addcmul_(out[groups.places[:, choice]], gates[:, choice, None])
        ctx.of, ctx.sizes = of, groups.sizes
        ctx.save_for_backward(x, gates, wide, *parameters, groups.tokens, groups.places, groups.order, groups.ends)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, wide, wide_w, wide_b, down_w, down_b, wide_a, wide_low, down_a, down_low, *places = ctx.saved_tensors
        of, groups, needs = ctx.of, Groups(*places, ctx.sizes), ctx.needs_input_grad
        on_wide, on_down = Factors.of(wide_a, wide_low, of.wide, x.dtype), Factors.of(down_a, down_low, of.down, x.dtype)
        dy = grad.to(x.dtype)[groups.tokens]
        gate = gates.reshape(-1)[groups.order][:, None]
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            wide = wide.requires_grad_()
            active = of.act(wide)
        low = by_expert(dy, of.down.like(x.dtype, down_w), groups)
        found: list[Tensor | None] = [None] * 8
        if on_down is not None:
            of_low = on_down.back(dy, groups)
            low += by_expert(of_low, on_down.a, groups)
            if needs[10]:
                found[6], found[7] = on_down.gradients(active.detach(), (dy * gate).to(x.dtype), (of_low * gate).to(x.dtype), groups)
        of_gate = (low.float() * active.detach().float()).sum(-1)
        if down_b is not None:
            of_gate += (dy.float() * spread(down_b, groups)).sum(-1)
        of_gates = of_gate[groups.places] if needs[1] else None
        (of_wide,) = torch.autograd.grad(active, wide, (low * gate).to(x.dtype))
        del low
        if needs[6]:
            found[2] = of_experts(dy, (active.detach() * gate).to(x.dtype), groups)
        if needs[7]:
            found[3] = groups.experts() @ (dy.float() * gate)
        if needs[4]:
            found[0] = of_experts(of_wide, x[groups.tokens], groups)
        if needs[5]:
            found[1] = groups.experts() @ of_wide.float()
        of_x = None
        if needs[0]:
            by_place = by_expert(of_wide, of.wide.like(x.dtype, wide_w), groups)
        if on_wide is not None:
            of_low = on_wide.back(of_wide, groups)
            if needs[0]:
                by_place += by_expert(of_low, on_wide.a, groups)
            if needs[8]:
                found[4], found[5] = on_wide.gradients(x[groups.tokens], of_wide, of_low, groups)
        if needs[0]:
            sums = torch.zeros(x.shape, device=x.device)
            for choice in range(gates.shape[1]):
                sums += by_place[groups.places[:, choice]]
            of_x = sums.to(x.dtype)
        return of_x, of_gates, None, None, *found


def spread(bias: Tensor, groups: Groups) -> Tensor:
    """Biases (experts, out) of each place, (places, out)."""
    place = torch.arange(len(groups.order), dtype=torch.int32, device=bias.device)
    return bias[torch.searchsorted(groups.ends, place, right=True)]


class Router(nn.Module):
    """The scores of experts, and each token's choice of them."""

    def __init__(self, table: Table, moe: dict[str, Any], at: str, device: torch.device) -> None:
        super().__init__()
        self.top_k, self.sigmoid = moe["top_k"], moe.get("scoring") == "sigmoid"
        self.normalizes, self.scale = moe["norm_topk"], moe.get("gate_scale") or 1.0
        n, top = moe.get("n_group"), moe.get("top_group")
        self.groups = (n, top) if n and top and top < n else None
        # Added to sums that scores are divided by: sigmoids may all be near 0.
        self.eps = 1e-6 if self.sigmoid else 0.0
        self.weight = table.take(f"{at}.weight", device)
        # Added to the logits (gpt-oss).
        self.logit_bias = table.take(f"{at}.bias", device) if table.has(f"{at}.bias") else None
        # What balances loads without a loss has no gradient: it moves after each update (arXiv 2408.15664).
        name = f"{at}.e_score_correction_bias"
        self.bias = table.take(name, device).requires_grad_(False) if table.has(name) else None
        self.moves = self.bias is not None and table.infos[name]["grad"] is not None

    def scores(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.sigmoid else logits.softmax(-1)

    def shares(self, logits: Tensor) -> Tensor:
        """Scores over their sum, of which a balancing loss takes the mean."""
        scores = self.scores(logits)
        return scores / (scores.sum(-1, keepdim=True) + self.eps) if self.sigmoid else scores

    def choose(self, scores: Tensor) -> Tensor:
        """The experts of each token (N, top_k), the best first, of ties the earlier one."""
        wanted = scores if self.bias is None else scores + self.bias
        if self.groups is not None:
            # DeepSeek-V2 takes the groups with the best expert, V3 those with the best two.
            n, top = self.groups
            parts = apart(wanted, n, -1)
            best = parts.topk(min(2, parts.shape[-1]), -1).values.sum(-1) if self.sigmoid else parts.amax(-1)
            reached = best.sort(dim=-1, descending=True, stable=True).indices[:, :top]
            is_open = torch.zeros_like(best, dtype=torch.bool).scatter_(1, reached, True)
            wanted = parts.masked_fill(~is_open[..., None], float("-inf")).flatten(1)
        return wanted.sort(dim=-1, descending=True, stable=True).indices[:, : self.top_k]

    def gates(self, scores: Tensor, chosen: Tensor) -> Tensor:
        gates = scores.gather(-1, chosen)
        if self.normalizes:
            gates = gates / (gates.sum(-1, keepdim=True) + self.eps)
        return gates if self.scale == 1.0 else gates * self.scale


class Balance:
    """How many tokens each expert of each block got, over all ranks: what balancing losses and biases depend on, and what is reported.

    A row for a block: the tokens of each expert, the sums of their shares, the sum of squared log-sum-exps of logits, the tokens.
    """

    def __init__(self, moe: dict[str, Any], blocks: int, device: torch.device) -> None:
        self.n_expert, self.blocks = moe["n_expert"], blocks
        self.aux, self.z = moe["aux_loss_coef"], moe["z_loss_coef"]
        self.now = torch.zeros(blocks, 2 * self.n_expert + 2, dtype=torch.float64, device=device)
        # Of all micro-batches of a step.
        self.step = torch.zeros_like(self.now)
        self.open = False
        self.counted = torch.zeros(0, device=device)
        self.weight = 0.0

    def has_no_loss(self) -> bool:
        return len(self.counted) == 0 or (self.aux == 0.0 and self.z == 0.0)

    def begin(self, filled: Tensor, length: int, *, micro: int, of: int, world: int) -> None:
        """Before a training pass: of each row so many tokens are no padding; the pass is one of `of` of a step."""
        if micro == 0:
            self.step.zero_()
        self.now.zero_()
        at = torch.arange(length, device=self.now.device)
        self.counted = (at < filled.to(at.device)[:, None]).reshape(-1).float()
        # Ranks average gradients.
        self.weight = world / of / self.blocks
        self.open = True

    def end(self, world: int) -> None:
        """After the pass, before its gradient."""
        self.open = False
        if world > 1:
            dist.all_reduce(self.now)
        self.step += self.now

    def count(self, block: int, logits: Tensor, shares: Tensor, chosen: Tensor) -> None:
        row, n, counted = self.now[block], self.n_expert, self.counted.double()
        row[:n].index_add_(0, chosen.reshape(-1), counted.repeat_interleave(chosen.shape[1]))
        row[n : 2 * n] += counted @ shares.double()
        row[2 * n] += counted @ logits.logsumexp(-1).double().square()
        row[2 * n + 1] += counted.sum()

    def loss(self, block: int, logits: Tensor, shares: Tensor) -> Tensor:
        """What this rank's tokens add to the balancing losses, as far as it has a gradient."""
        row, n = self.now[block], self.n_expert
        tokens = row[-1].clamp(min=1.0)
        by_share = (self.aux * self.weight * n * row[:n] / tokens / tokens).float()
        by_lse = (self.z * self.weight / tokens).float()
        loss: Tensor = (self.counted * (shares @ by_share + by_lse * logits.logsumexp(-1).square())).sum()
        return loss


class Balanced(torch.autograd.Function):
    """Logits as they are; adds the gradient of the balancing losses to theirs, which is known when all blocks and ranks have counted."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, balance: Balance, router: Router, block: int) -> Tensor:
        ctx.balance, ctx.router, ctx.block = balance, router, block
        ctx.save_for_backward(logits)
        return logits.view_as(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        if ctx.balance.has_no_loss():
            return grad, None, None, None
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            loss = ctx.balance.loss(ctx.block, logits, ctx.router.shares(logits))
        return grad + torch.autograd.grad(loss, logits)[0], None, None, None


class Experts(nn.Module):
    """A feed-forward block of experts, and a shared one that every token passes (arXiv 2401.06066)."""

    def __init__(self, table: Table, model: dict[str, Any], at: str, device: torch.device) -> None:
        super().__init__()
        config, moe = model["config"], model["config"]["moe"]
        ((self.kind, self.settings),) = config["mlp"].items()
        self.router = Router(table, moe, f"{at}.gate", device)
        gated = table.has(f"{at}.experts.0.gate_proj.weight")
        wide = ["gate_proj", "up_proj"] if gated else ["up_proj"]
        each = [f"{at}.experts.{e}" for e in range(moe["n_expert"])]
        scales, all_of_them = model["adapter"]["scales"], f"{at}.experts"
        # The names of PEFT's target_parameters.
        stacked = f"{all_of_them}.gate_up_proj" if gated else f"{all_of_them}.up_proj"
        self.wide = Bank(table, [[f"{name}.{part}" for part in wide] for name in each], stacked, scales, device)
        self.down = Bank(table, [[f"{name}.down_proj"] for name in each], f"{all_of_them}.down_proj", scales, device)
        self.shared_wide = self.shared_down = self.shared_gate = None
        shared = f"{at}.shared_expert"
        if table.has(f"{shared}.down_proj.weight"):
            self.shared_wide = Linear(table, [f"{shared}.{part}" for part in wide], model["adapter"], device)
            self.shared_down = Linear(table, [f"{shared}.down_proj"], model["adapter"], device)
            if table.has(f"{shared}_gate.weight"):
                self.shared_gate = table.take(f"{shared}_gate.weight", device)
        # Its row of `Balance`, which all blocks share.
        self.block, self.balance = 0, Balance(moe, 1, device)

    def act(self, wide: Tensor) -> Tensor:
        return activate(self.kind, self.settings, wide)

    def on_host(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether the sizes of groups must be known on the host."""
        sides = self.wide.sides() + self.down.sides()
        # The kernel reads 16 bytes at once.
        return not (dtype == torch.bfloat16 and all(side % 8 == 0 for side in sides) and kernel_runs(device))

    # Sizes of groups are data, which a graph cannot hold.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, h: Tensor, adapters: bool) -> Tensor:
        flat, dtype = h.reshape(-1, h.shape[-1]), matmul_dtype(h)
        with torch.autocast(h.device.type, enabled=False):
            logits = F.linear(flat.float(), self.router.weight, self.router.logit_bias)
            logits = Balanced.apply(logits, self.balance, self.router, self.block)
            scores = self.router.scores(logits)
            chosen = self.router.choose(scores.detach())
            if self.balance.open:
                with torch.no_grad():
                    self.balance.count(self.block, logits, self.router.shares(logits), chosen)
            gates = self.router.gates(scores, chosen)
            groups = Groups.of(chosen, self.balance.n_expert, on_host=self.on_host(dtype, h.device))
            parameters = self.wide.weight, self.wide.bias, self.down.weight, self.down.bias
            factors = (self.wide.a, self.wide.b, self.down.a, self.down.b) if adapters else (None,) * 4
            y: Tensor = Mixed.apply(flat.to(dtype), gates, self, groups, *parameters, *factors)
        if self.shared_wide is not None and self.shared_down is not None:
            out = self.shared_down(self.act(self.shared_wide(flat, adapters)), adapters)
            if self.shared_gate is not None:
                with torch.autocast(h.device.type, enabled=False):
                    out = out.float() * F.linear(flat.float(), self.shared_gate).sigmoid()
            y = y + out
        return y.view(h.shape)

    @torch.no_grad()
    def move_bias(self, rate: float) -> None:
        """After an update: up for experts with fewer tokens than the mean, down for those with more (arXiv 2412.19437, section 2.1.2)."""
        bias = self.router.bias
        if bias is None or not self.router.moves or rate == 0.0:
            return
        counts = self.balance.step[self.block, : self.balance.n_expert]
        step = ((counts.mean() - counts).sign() * rate).float()
        if isinstance(bias, DTensor):
            local = bias.to_local()
            first = dist.get_rank() * -(-len(step) // dist.get_world_size())
            local += step[first : first + len(local)].to(local.device)
        else:
            bias += step
