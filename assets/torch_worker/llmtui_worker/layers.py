"""Layers written for GPUs: few kernels, each over few bytes. On a CPU the arithmetic is the same."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Table:
    """The engine's list of parameters: what each is called, its shape, and where it lies in the flat buffers.

    `frozen`: the dtype of frozen matrices, if matmuls would round them to it anyway. `joined`: matrices with the same input are stacked
    in one tensor, which sharding does not allow.
    """

    def __init__(self, params: list[dict[str, Any]], frozen: torch.dtype | None = None, *, joined: bool = True) -> None:
        self.infos = {info["name"]: info for info in params}
        self.frozen, self.joined = frozen, joined
        # By the engine's name, or by that of the first of several which are one parameter.
        self.made: dict[str, nn.Parameter] = {}
        # The engine's name of a part of a parameter -> its name in `made`, its index in the first dimension and its rows.
        self.parts: dict[str, tuple[str, tuple[int, slice]]] = {}
        # Counts updates of the parameters: fused optimizers do not increase their `_version`.
        self.changes = 0

    def has(self, name: str) -> bool:
        return name in self.infos

    def take(self, name: str, device: torch.device) -> nn.Parameter:
        return self.put(name, torch.zeros(self.infos[name]["shape"], device=device))

    def put(self, name: str, values: Tensor) -> nn.Parameter:
        """Makes `values` the storage of the parameter of this name."""
        self.made[name] = nn.Parameter(values, requires_grad=self.infos[name]["grad"] is not None)
        return self.made[name]

    def stack(self, names: list[list[str]], device: torch.device) -> nn.Parameter:
        """One parameter (len(names), rows of each, …) for the parts named. Their gradients are one, and so is their update."""
        infos = [[self.infos[name] for name in own] for own in names]
        first, rows = infos[0][0], sum(info["shape"][0] for info in infos[0])
        trains = first["grad"] is not None
        for info in (info for own in infos for info in own):
            if (info["grad"] is not None) != trains or any(info.get(key) != first.get(key) for key in ("decay", "lr_scale")):
                raise ValueError(f"{info['name']} and {first['name']} are one parameter, and must be trained alike")
        dtype = torch.float32 if trains or self.frozen is None or len(first["shape"]) == 1 else self.frozen
        values = torch.zeros([len(names), rows, *first["shape"][1:]], dtype=dtype, device=device)
        for at, own in enumerate(infos):
            begin = 0
            for info in own:
                end = begin + info["shape"][0]
                self.parts[info["name"]] = first["name"], (at, slice(begin, end))
                begin = end
        return self.put(first["name"], values)

    def place(self, name: str) -> tuple[nn.Parameter, tuple[int, slice] | None]:
        """The parameter of the engine's name, and which part of it is meant."""
        key, part = self.parts.get(name, (name, None))
        return self.made[key], part


def apart(x: Tensor, *sizes: int) -> Tensor:
    """The last dimension as several."""
    return x.reshape(*x.shape[:-1], *sizes)


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The matmul dtype: autocast's, else the tensor's."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class Norm(nn.Module):
    def __init__(self, table: Table, name: str, config: dict[str, Any], device: torch.device) -> None:
        super().__init__()
        ((self.kind, settings),) = config["norm"].items()
        self.eps = settings["eps"]
        self.offset = 1.0 if settings.get("unit_offset") else 0.0
        self.weight = table.take(f"{name}.weight", device)
        self.bias = table.take(f"{name}.bias", device) if table.has(f"{name}.bias") else None

    def forward(self, x: Tensor) -> Tensor:
        """In f32, whatever the matmul dtype."""
        gain = self.weight + self.offset if self.offset else self.weight
        if self.kind == "layernorm":
            return F.layer_norm(x.float(), x.shape[-1:], gain, self.bias, self.eps)
        return F.rms_norm(x.float(), x.shape[-1:], gain, self.eps)


class SwiGlu(torch.autograd.Function):
    """silu(gate) · up of both side by side, (…, 2 width) → (…, width). Saves only its input."""

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
        # torch.compile fuses the composite, and does not support writing through views.
        gate, up = wide.chunk(2, -1)
        return F.silu(gate) * up
    found: Tensor = SwiGlu.apply(wide)
    return found


class ClampedSwiGlu(torch.autograd.Function):
    """g · sigmoid(slope · g) · (u + 1) of both side by side, (…, 2 width) → (…, width), with g = min(gate, limit) and u = up within ±limit
    (gpt-oss). Saves only its input."""

    @staticmethod
    def forward(ctx: Any, wide: Tensor, limit: float, slope: float) -> Tensor:
        ctx.save_for_backward(wide)
        ctx.limit, ctx.slope = limit, slope
        return clamped_composite(wide, limit, slope)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (wide,) = ctx.saved_tensors
        with torch.enable_grad():
            wide = wide.detach().requires_grad_()
            found = torch.autograd.grad(clamped_composite(wide, ctx.limit, ctx.slope), wide, grad)
        return found[0], None, None


def clamped_composite(wide: Tensor, limit: float, slope: float) -> Tensor:
    gate, up = wide.chunk(2, -1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(slope * gate) * (up + 1)


def clamped_swiglu(wide: Tensor, settings: dict[str, Any]) -> Tensor:
    limit, slope = settings["limit"], settings["slope"]
    if torch.compiler.is_compiling():
        return clamped_composite(wide, limit, slope)
    found: Tensor = ClampedSwiGlu.apply(wide, limit, slope)
    return found


def activate(kind: str, settings: dict[str, Any], x: Tensor) -> Tensor:
    match kind:
        case "swiglu":
            return swiglu(x)
        case "clamped_swiglu":
            return clamped_swiglu(x, settings)
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
