"""Layers that are written for GPUs: few kernels, each over few bytes. On a processor they are the same arithmetic."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Table:
    """The engine's list of parameters: what each is called, its shape, and where it lies in the flat buffers.

    `frozen`: the format of frozen matrices, where matmuls round them to it in any case.
    """

    def __init__(self, params: list[dict[str, Any]], frozen: torch.dtype | None = None) -> None:
        self.infos = {info["name"]: info for info in params}
        self.frozen = frozen
        self.made: dict[str, nn.Parameter] = {}

    def has(self, name: str) -> bool:
        return name in self.infos

    def take(self, name: str, device: torch.device) -> nn.Parameter:
        info = self.infos[name]
        parameter = nn.Parameter(torch.zeros(info["shape"], device=device), requires_grad=info["grad"] is not None)
        self.made[name] = parameter
        return parameter

    def take_frozen(self, names: list[str], device: torch.device) -> tuple[list[nn.Parameter], Tensor] | None:
        """Frozen matrices as parts of one in the format of matmuls, and that one; None where they train or are held as they are."""
        if self.frozen is None or any(self.infos[name]["grad"] is not None for name in names):
            return None
        shapes = [self.infos[name]["shape"] for name in names]
        whole = torch.zeros(sum(rows for rows, _ in shapes), shapes[0][1], dtype=self.frozen, device=device)
        parts = torch.split(whole, [rows for rows, _ in shapes])
        made = [nn.Parameter(part, requires_grad=False) for part in parts]
        self.made |= dict(zip(names, made, strict=True))
        return made, whole


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The number format of matrix products: that of autocast, else the tensor's own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class Linear(nn.Module):
    """y = W x + b + s · B (A x) for one or more matrices with the same input, their outputs side by side.

    With magnitudes m (DoRA): y = m / |W + s B A| · (W x + s · B (A x)) + b, the norm of each row being a constant. In training
    features of the x that goes into A are dropped, the same for all matrices of one input.
    """

    def __init__(self, table: Table, names: list[str], adapter: dict[str, float], device: torch.device) -> None:
        super().__init__()
        weights = [f"{name}.weight" for name in names]
        # DoRA takes the norms of the weights as they are.
        exact = any(table.has(f"{name}.lora_magnitude_vector") for name in names)
        held = None if exact else table.take_frozen(weights, device)
        self.whole = None if held is None else held[1]
        self.weights = nn.ParameterList([table.take(name, device) for name in weights] if held is None else held[0])
        biased = table.has(f"{names[0]}.bias")
        self.biases = nn.ParameterList([table.take(f"{name}.bias", device) for name in names]) if biased else None
        self.scale, self.dropout = adapter["scale"], adapter["dropout"]
        self.a = nn.ParameterDict()
        self.b = nn.ParameterDict()
        self.m = nn.ParameterDict()
        for at, name in enumerate(names):
            if table.has(f"{name}.lora_A.weight"):
                self.a[str(at)] = table.take(f"{name}.lora_A.weight", device)
                self.b[str(at)] = table.take(f"{name}.lora_B.weight", device)
            if table.has(f"{name}.lora_magnitude_vector"):
                self.m[str(at)] = table.take(f"{name}.lora_magnitude_vector", device)

    def forward(self, x: Tensor, adapters: bool) -> Tensor:
        dtype = matmul_dtype(x)
        x = x.to(dtype)
        if not adapters or len(self.a) == 0:
            return self._product(x, dtype, biased=True)
        y = self._product(x, dtype, biased=False)
        kept = F.dropout(x, self.dropout, self.training) if self.dropout else x
        ranks = [len(a) for a in self.a.values()]
        # One product over x for the A of all matrices.
        low = F.linear(kept, torch.cat([a.to(dtype) for a in self.a.values()]) if len(ranks) > 1 else next(iter(self.a.values())))
        lows = dict(zip(self.a, torch.split(low, ranks, -1), strict=True))
        parts = list(torch.split(y, [len(weight) for weight in self.weights], -1))
        for at, weight in enumerate(self.weights):
            key = str(at)
            if key in self.a:
                parts[at] = parts[at] + F.linear(lows[key], self.scale * self.b[key])
                if key in self.m:
                    with torch.no_grad():
                        norm = (weight + self.scale * self.b[key] @ self.a[key]).norm(dim=1)
                    parts[at] = parts[at] * (self.m[key] / norm)
            if self.biases is not None:
                parts[at] = parts[at] + self.biases[at]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _product(self, x: Tensor, dtype: torch.dtype, *, biased: bool) -> Tensor:
        """W x of all matrices. Where they are rounded anyway they become one: one product over x instead of three."""
        biases = self.biases if biased else None
        if len(self.weights) == 1:
            return F.linear(x, self.weights[0], None if biases is None else biases[0])
        if self.whole is not None:
            return F.linear(x, self.whole, None if biases is None else torch.cat([bias.to(dtype) for bias in biases]))
        if all(weight.dtype == dtype for weight in self.weights):
            each = [F.linear(x, weight, None if biases is None else biases[at]) for at, weight in enumerate(self.weights)]
            return torch.cat(each, -1)
        weight = torch.cat([weight.to(dtype) for weight in self.weights])
        return F.linear(x, weight, None if biases is None else torch.cat([bias.to(dtype) for bias in biases]))


class Norm(nn.Module):
    def __init__(self, table: Table, name: str, config: dict[str, Any], device: torch.device) -> None:
        super().__init__()
        ((self.kind, settings),) = config["norm"].items()
        self.eps = settings["eps"]
        self.offset = 1.0 if settings.get("unit_offset") else 0.0
        self.weight = table.take(f"{name}.weight", device)
        self.bias = table.take(f"{name}.bias", device) if table.has(f"{name}.bias") else None

    def forward(self, x: Tensor) -> Tensor:
        """In f32, whatever the format of matrix products is."""
        gain = self.weight + self.offset if self.offset else self.weight
        if self.kind == "layernorm":
            return F.layer_norm(x.float(), x.shape[-1:], gain, self.bias, self.eps)
        return F.rms_norm(x.float(), x.shape[-1:], gain, self.eps)


class SwiGlu(torch.autograd.Function):
    """silu(gate) · up of both side by side, (…, 2 width) → (…, width). Keeps its input alone."""

    @staticmethod
    def forward(ctx: Any, wide: Tensor) -> Tensor:
        ctx.save_for_backward(wide)
        gate, up = wide.chunk(2, -1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (wide,) = ctx.saved_tensors
        gate, up = wide.chunk(2, -1)
        found = torch.empty_like(wide)
        of_gate, of_up = found.chunk(2, -1)
        torch.mul(grad, F.silu(gate), out=of_up)
        of_gate.copy_(torch.ops.aten.silu_backward(grad * up, gate))
        return found


def swiglu(wide: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        # The compiler fuses the composite, and takes no views to write to.
        gate, up = wide.chunk(2, -1)
        return F.silu(gate) * up
    found: Tensor = SwiGlu.apply(wide)
    return found


def activate(kind: str, settings: dict[str, Any], x: Tensor) -> Tensor:
    match kind:
        case "swiglu":
            return swiglu(x)
        case "geglu":
            gate, up = x.chunk(2, -1)
            return gelu(gate, settings) * up
        case "gelu":
            return gelu(x, settings)
        case "relu":
            return F.relu(x)
        case "silu":
            return F.silu(x)
        case "leaky_relu":
            return F.leaky_relu(x, settings["slope"])
    raise ValueError(f"the feed-forward block {kind} is unknown to the worker")


def gelu(x: Tensor, settings: dict[str, Any]) -> Tensor:
    return F.gelu(x, approximate="tanh" if settings.get("approximate") == "tanh" else "none")
