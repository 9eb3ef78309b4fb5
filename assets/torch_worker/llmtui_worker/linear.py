"""Linear layers that share an input, fused into as few matmuls as possible: launching a small kernel takes longer than running it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .layers import Table, matmul_dtype


class Stack:
    """Parameters (rows, …) stacked in one tensor, and a cached copy of it in the matmul dtype."""

    def __init__(self, table: Table, names: list[str], device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.table = table
        shapes = [table.infos[name]["shape"] for name in names]
        self.rows = [shape[0] for shape in shapes]
        self.whole = torch.zeros([sum(self.rows), *shapes[0][1:]], dtype=dtype, device=device)
        for name, part in zip(names, self.split(self.whole), strict=True):
            table.put(name, part)
        self.rounded: Tensor | None = None
        self.version: tuple[int, int] | None = None

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Splits a tensor with the rows of all into the parts of each."""
        return torch.split(x, self.rows)

    def like(self, dtype: torch.dtype) -> Tensor:
        """All of them in a dtype: cast once per update, always into the same buffer."""
        if self.whole.dtype == dtype:
            return self.whole
        if self.rounded is None or self.rounded.dtype != dtype:
            self.rounded, self.version = torch.empty_like(self.whole, dtype=dtype), None
        version = self.table.changes, self.whole._version
        if self.version != version:
            with torch.no_grad():
                self.rounded.copy_(self.whole)
            self.version = version
        return self.rounded


class Pairs:
    """LoRA's A and B of some of the matrices of a stack. All A are one matmul; the B form one block matrix (rows of all, ranks of all),
    each scaled and in its block, with zeros elsewhere."""

    def __init__(self, table: Table, names: list[str], at: list[int], rows: list[int], scales: list[float], device: torch.device) -> None:
        self.a = Stack(table, [f"{name}.lora_A.weight" for name in names], device)
        self.b = [table.take(f"{name}.lora_B.weight", device) for name in names]
        self.scales = scales
        self.shape = (sum(rows), sum(self.a.rows))
        # The block of each B, as slices of all rows and all ranks.
        ends = [sum(rows[: i + 1]) for i in at], [sum(self.a.rows[: i + 1]) for i in range(len(at))]
        self.blocks = [(slice(row - len(b), row), slice(rank - b.shape[1], rank)) for row, rank, b in zip(*ends, self.b, strict=True)]
        self.spread: Tensor | None = None
        self.versions: tuple[int, ...] | None = None

    def all_b(self, dtype: torch.dtype) -> Tensor:
        if self.spread is None or self.spread.dtype != dtype:
            self.spread, self.versions = torch.zeros(self.shape, dtype=dtype, device=self.b[0].device), None
        versions = self.a.table.changes, *(b._version for b in self.b)
        if self.versions != versions:
            with torch.no_grad():
                for block, b, scale in zip(self.blocks, self.b, self.scales, strict=True):
                    self.spread[block] = scale * b
            self.versions = versions
        return self.spread


class Matmul(torch.autograd.Function):
    """W x + b + s · B (A x). The trainable tensors follow as arguments, in gradient order: weights, biases, A, B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, of: Linear, adapters: bool, *_trained: Tensor) -> Tensor:
        assert of.stack is not None
        flat, dtype = x.reshape(-1, x.shape[-1]), x.dtype
        w = of.stack.like(dtype)
        y = F.linear(flat, w, None if of.bias is None else of.bias.like(dtype))
        kept, dropped, low, a, b = flat, None, None, None, None
        if adapters and of.pairs is not None:
            if of.dropout and of.training:
                kept, dropped = torch.native_dropout(flat, of.dropout, True)
            a, b = of.pairs.a.like(dtype), of.pairs.all_b(dtype)
            low = F.linear(kept, a)
            y.addmm_(low, b.t())
        ctx.of, ctx.trains = of, any(ctx.needs_input_grad[3 : 3 + len(of.stack.rows)])
        ctx.save_for_backward(flat if ctx.trains else None, None if low is None else kept, dropped, low, w, a, b)
        return y.view(*x.shape[:-1], y.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        flat, kept, dropped, low, w, a, b = ctx.saved_tensors
        of, needs = ctx.of, ctx.needs_input_grad
        g = grad.reshape(-1, grad.shape[-1])
        found: list[Tensor | None] = []
        of_x = g @ w if needs[0] else None
        if ctx.trains:
            found += of.stack.split((g.t() @ flat).float())
        else:
            found += [None] * len(of.stack.rows)
        if of.bias is not None:
            found += of.bias.split(g.sum(0).float())
        if of.pairs is not None and low is None:
            found += [None] * (2 * len(of.pairs.b))
        elif of.pairs is not None:
            of_low = g @ b
            found += of.pairs.a.split((of_low.t() @ kept).float())
            # Usually all scales are equal and go into `alpha`.
            first, scales = of.pairs.scales[0], of.pairs.scales
            whole = torch.addmm(g.new_empty(()), g.t(), low, beta=0, alpha=first)
            parts = [whole[block].float() for block in of.pairs.blocks]
            found += [part if scale == first else part * (scale / first) for part, scale in zip(parts, scales, strict=True)]
            if of_x is not None and dropped is None:
                of_x.addmm_(of_low, a)
            elif of_x is not None:
                of_x.addcmul_(of_low @ a, dropped, value=1 / (1 - of.dropout))
        every = [None if x is None or not need else x for x, need in zip(found, needs[3:], strict=True)]
        return None if of_x is None else of_x.view(*grad.shape[:-1], -1), None, None, *every


class Linear(nn.Module):
    """y = W x + b + s · B (A x) for one or more matrices with the same input, their outputs side by side.

    With magnitudes m (DoRA): y = m / |W + s B A| · (W x + s · B (A x)) + b, the norm of each row being a constant. In training
    dropout applies to the input of A, with the same mask for all matrices of one input.
    """

    def __init__(self, table: Table, names: list[str], adapter: dict[str, Any], device: torch.device) -> None:
        super().__init__()
        self.dropout: float = adapter["dropout"]
        weights, biases = ([f"{name}.{kind}" for name in names] for kind in ("weight", "bias"))
        biased = table.has(biases[0])
        adapted = [at for at, name in enumerate(names) if table.has(f"{name}.lora_A.weight")]
        # Ranks and alphas may differ between modules.
        self.scales: dict[str, float] = {str(at): adapter["scales"][names[at]] for at in adapted}
        # DoRA needs the norms of the unrounded weights.
        exact = any(table.has(f"{name}.lora_magnitude_vector") for name in names)
        frozen = all(table.infos[name]["grad"] is None for name in weights)
        self.stack = self.bias = self.pairs = None
        if table.joined and not exact:
            self.stack = Stack(table, weights, device, table.frozen if frozen and table.frozen else torch.float32)
            self.bias = Stack(table, biases, device) if biased else None
            scales = list(self.scales.values())
            self.pairs = Pairs(table, [names[at] for at in adapted], adapted, self.stack.rows, scales, device) if adapted else None
        # The stacked weights, if none of them has a gradient.
        self.frozen = self.stack.whole if self.stack is not None and frozen else None

        def parameter(name: str) -> nn.Parameter:
            return table.made[name] if name in table.made else table.take(name, device)

        self.weights = nn.ParameterList([parameter(name) for name in weights])
        self.biases = nn.ParameterList([parameter(name) for name in biases]) if biased else None
        self.a = nn.ParameterDict({str(at): parameter(f"{names[at]}.lora_A.weight") for at in adapted})
        self.b = nn.ParameterDict({str(at): parameter(f"{names[at]}.lora_B.weight") for at in adapted})
        magnitudes = {str(at): f"{name}.lora_magnitude_vector" for at, name in enumerate(names)}
        self.m = nn.ParameterDict({at: parameter(name) for at, name in magnitudes.items() if table.has(name)})
        # In the order of `Matmul`'s arguments.
        self.trained = list(self.parameters())

    def forward(self, x: Tensor, adapters: bool) -> Tensor:
        dtype = matmul_dtype(x)
        x = x.to(dtype)
        if self.stack is None or torch.compiler.is_compiling():
            return self._composite(x, dtype, adapters)
        y: Tensor = Matmul.apply(x, self, adapters, *self.trained)
        return y

    def _composite(self, x: Tensor, dtype: torch.dtype, adapters: bool) -> Tensor:
        """For torch.compile, which fuses it, for sharded weights and for DoRA."""
        if not adapters or len(self.a) == 0:
            return self._matmul(x, dtype, biased=True)
        y = self._matmul(x, dtype, biased=False)
        kept = F.dropout(x, self.dropout, self.training) if self.dropout else x
        ranks = [len(a) for a in self.a.values()]
        # One matmul over x for the A of all matrices.
        low = F.linear(kept, torch.cat([a.to(dtype) for a in self.a.values()]) if len(ranks) > 1 else next(iter(self.a.values())))
        lows = dict(zip(self.a, torch.split(low, ranks, -1), strict=True))
        parts = list(torch.split(y, [len(weight) for weight in self.weights], -1))
        for at, weight in enumerate(self.weights):
            key = str(at)
            if key in self.a:
                parts[at] = parts[at] + F.linear(lows[key], self.scales[key] * self.b[key])
                if key in self.m:
                    with torch.no_grad():
                        norm = (weight + self.scales[key] * self.b[key] @ self.a[key]).norm(dim=1)
                    parts[at] = parts[at] * (self.m[key] / norm)
            if self.biases is not None:
                parts[at] = parts[at] + self.biases[at].to(dtype)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _matmul(self, x: Tensor, dtype: torch.dtype, *, biased: bool) -> Tensor:
        """W x of all matrices. If they have to be cast anyway they are joined: one matmul over x instead of three."""
        biases = self.biases if biased else None
        if len(self.weights) == 1:
            return F.linear(x, self.weights[0], None if biases is None else biases[0])
        if self.frozen is not None and self.frozen.dtype == dtype:
            return F.linear(x, self.frozen, None if biases is None else torch.cat([bias.to(dtype) for bias in biases]))
        if all(weight.dtype == dtype for weight in self.weights):
            each = [F.linear(x, weight, None if biases is None else biases[at]) for at, weight in enumerate(self.weights)]
            return torch.cat(each, -1)
        weight = torch.cat([weight.to(dtype) for weight in self.weights])
        return F.linear(x, weight, None if biases is None else torch.cat([bias.to(dtype) for bias in biases]))
