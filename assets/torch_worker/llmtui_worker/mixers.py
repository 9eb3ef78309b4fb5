"""What blocks have in the place of attention: gated short convolutions (LFM2) and gated delta nets (Qwen 3.5). Nothing leaks between
documents that are packed in a row: `starts` (B, T) is the position in its row at which each token's document begins; None is 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .delta import delta_rule, delta_step
from .layers import Table
from .linear import Linear
from .texts import Texts

# Added to the sum of squares before the root, where queries and keys get length 1.
LENGTH_EPS = 1e-6
# Tokens of rows that are recomputed at once. A gated delta net of Qwen 3.5 0.8B's takes 0.35 MB for each.
MOST_TOKENS = 4096


class Recomputed(torch.autograd.Function):
    """`work(*given)` without autocast. Keeps only what it was given, and computes the rest again for the gradient."""

    @staticmethod
    def forward(ctx: Any, work: Callable[..., Tensor], *given: Tensor | None) -> Tensor:
        ctx.work = work
        ctx.save_for_backward(*given)
        with torch.autocast(_first(given).device.type, enabled=False):
            return work(*given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        given = [x if x is None else x.detach().requires_grad_(need) for x, need in zip(ctx.saved_tensors, needs, strict=True)]
        with torch.enable_grad(), torch.autocast(grad.device.type, enabled=False):
            found = ctx.work(*given)
        wanted = [x for x, need in zip(given, needs, strict=True) if x is not None and need]
        grads = iter(torch.autograd.grad(found, wanted, grad))
        return None, *(next(grads) if need else None for need in needs)


def _first(given: tuple[Tensor | None, ...]) -> Tensor:
    return next(x for x in given if x is not None)


def recomputed(work: Callable[..., Tensor], wide: Tensor, parameters: tuple[Tensor | None, ...], starts: Tensor | None) -> Tensor:
    """`work(wide, *parameters, starts)` of rows wide (B, T, …), a few rows at a time: what is computed again of these is all there is."""
    rows = max(1, MOST_TOKENS // wide.shape[1])
    groups = zip(torch.split(wide, rows), [None] * len(wide) if starts is None else torch.split(starts, rows), strict=False)
    parts: list[Tensor] = [Recomputed.apply(work, part, *parameters, begins) for part, begins in groups]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, starts: Tensor | None) -> Tensor:
    """A causal depthwise convolution of x (B, T, channels) by weight (channels, taps), whose last tap is the current token's."""
    return behind(F.pad(x, (0, 0, weight.shape[1] - 1, 0)), weight, bias, starts)


def behind(x: Tensor, weight: Tensor, bias: Tensor | None, starts: Tensor | None) -> Tensor:
    """The same of the tokens behind the first taps - 1 of x."""
    taps = weight.shape[1]
    length = x.shape[1] - taps + 1
    found = x[:, taps - 1 :] * weight[:, -1]
    token = torch.arange(length, device=x.device)
    for back in range(1, taps):
        earlier = x[:, taps - 1 - back :][:, :length]
        if starts is not None:
            earlier = earlier.masked_fill((token - back < starts)[:, :, None], 0.0)
        found = found + earlier * weight[:, -1 - back]
    return found if bias is None else found + bias


def read_conv(x: Tensor, weight: Tensor, bias: Tensor | None, texts: Texts, layer: int) -> Tensor:
    """The same of new tokens x (R, L, channels) of texts, whose last inputs are cached."""
    before = weight.shape[1] - 1
    if before == 0:
        return behind(x, weight, bias, None)
    both = torch.cat([texts.recall(layer, "conv", x.new_empty(before, x.shape[-1])), x], 1)
    # Inputs up to the last token of each text; columns beyond it are padding.
    own = texts.last[:, None] + torch.arange(1, before + 1, device=x.device)
    texts.keep(layer, "conv", both[torch.arange(len(x), device=x.device)[:, None], own])
    return behind(both, weight, bias, None)


class ShortConv(nn.Module):
    """out(c ∘ conv(b ∘ x)), with b, c and x from one projection of the input."""

    def __init__(self, table: Table, model: dict[str, Any], layer: int, at: str, device: torch.device) -> None:
        super().__init__()
        self.layer = layer
        self.wide = Linear(table, [f"{at}.in_proj"], model["adapter"], device)
        self.weight = table.take(f"{at}.conv.weight", device)
        self.bias = table.take(f"{at}.conv.bias", device) if table.has(f"{at}.conv.bias") else None
        self.out = Linear(table, [f"{at}.out_proj"], model["adapter"], device)

    def forward(self, h: Tensor, starts: Tensor | None, adapters: bool, texts: Texts | None) -> Tensor:
        wide = self.wide(h, adapters)
        if texts is not None:
            b, c, x = wide.float().chunk(3, -1)
            mixed = c * read_conv(b * x, self.weight, self.bias, texts, self.layer)
        elif torch.compiler.is_compiling():
            # torch.compile fuses it, and decides what to keep.
            mixed = gated_conv(wide, self.weight, self.bias, starts)
        else:
            mixed = recomputed(gated_conv, wide, (self.weight, self.bias), starts)
        out: Tensor = self.out(mixed, adapters)
        return out


def gated_conv(wide: Tensor, weight: Tensor, bias: Tensor | None, starts: Tensor | None) -> Tensor:
    """c ∘ conv(b ∘ x) of b, c, x side by side (B, T, 3 · channels), computed in f32."""
    b, c, x = wide.float().chunk(3, -1)
    return (c * causal_conv(b * x, weight, bias, starts)).to(wide.dtype)


class GatedDeltaNet(nn.Module):
    """Linear attention with the gated delta rule (`delta.py`): q, k and v pass a convolution, and RMSNorm(o) ∘ SiLU(z) goes out."""

    def __init__(self, table: Table, model: dict[str, Any], layer: int, at: str, device: torch.device) -> None:
        super().__init__()
        self.layer = layer
        net = model["config"]["mixer"]["gated_delta_net"]
        self.key_heads, self.heads = net["n_key_head"], net["n_value_head"]
        self.key_dim, self.value_dim = net["key_dim"], net["value_dim"]
        ((_, norm),) = model["config"]["norm"].items()
        self.eps = norm["eps"]
        self.wide = Linear(table, [f"{at}.in_proj_{part}" for part in ("qkv", "z", "b", "a")], model["adapter"], device)
        names = ("conv1d.weight", "dt_bias", "A_log", "norm.weight")
        self.weight, self.dt_bias, self.a_log, self.gain = (table.take(f"{at}.{name}", device) for name in names)
        self.out = Linear(table, [f"{at}.out_proj"], model["adapter"], device)

    def forward(self, h: Tensor, starts: Tensor | None, adapters: bool, texts: Texts | None) -> Tensor:
        wide = self.wide(h, adapters)
        mixed = self._train(wide, starts) if texts is None else self._read(wide, texts)
        out: Tensor = self.out(mixed, adapters)
        return out

    # A graph of all chunks of a row would take minutes to compile.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _train(self, wide: Tensor, starts: Tensor | None) -> Tensor:
        return recomputed(self._mixed, wide, (self.weight, self.dt_bias, self.a_log, self.gain), starts)

    def _mixed(self, wide: Tensor, weight: Tensor, dt_bias: Tensor, a_log: Tensor, gain: Tensor, starts: Tensor | None) -> Tensor:
        qkv, z, b, a = self._parts(wide)
        q, k, v = self._heads(causal_conv(qkv, weight, None, starts))
        o, _ = delta_rule(q, k, v, forgetting(a, dt_bias, a_log), b.sigmoid(), starts)
        return self._gated(o, z, gain).to(wide.dtype)

    def _read(self, wide: Tensor, texts: Texts) -> Tensor:
        with torch.autocast(wide.device.type, enabled=False):
            qkv, z, b, a = self._parts(wide)
            q, k, v = self._heads(read_conv(qkv, self.weight, None, texts, self.layer))
            g, beta = forgetting(a, self.dt_bias, self.a_log), b.sigmoid()
            state = texts.recall(self.layer, "state", v.new_empty(self.heads, self.key_dim, self.value_dim))
            if wide.shape[1] == 1:
                o, state = delta_step(q, k, v, g, beta, state)
            else:
                # Padding neither forgets nor replaces anything.
                padding = (torch.arange(wide.shape[1], device=wide.device) > texts.last[:, None])[:, :, None]
                o, state = delta_rule(q, k, v, g.masked_fill(padding, 0.0), beta.masked_fill(padding, 0.0), None, state)
            texts.keep(self.layer, "state", state)
            return self._gated(o, z, self.gain)

    def _parts(self, wide: Tensor) -> tuple[Tensor, ...]:
        """q, k, v of all heads; z; and b and a, of which each value head has one of its own. In f32."""
        values = self.heads * self.value_dim
        return torch.split(wide.float(), [2 * self.key_heads * self.key_dim + values, values, self.heads, self.heads], -1)

    def _heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of (B, T, channels): q, k (B, T, heads, key_dim) and v (B, T, heads, value_dim)."""
        keys = self.key_heads * self.key_dim
        q, k, v = torch.split(F.silu(qkv), [keys, keys, self.heads * self.value_dim], -1)
        q, k = (self._unit(x) for x in (q, k))
        return q / self.key_dim**0.5, k, v.view(*v.shape[:2], self.heads, self.value_dim)

    def _unit(self, x: Tensor) -> Tensor:
        """Vectors of length 1, each for as many value heads in turn."""
        x = x.view(*x.shape[:2], self.key_heads, self.key_dim)
        x = x * (x.square().sum(-1, keepdim=True) + LENGTH_EPS).rsqrt()
        return x.repeat_interleave(self.heads // self.key_heads, 2)

    def _gated(self, o: Tensor, z: Tensor, gain: Tensor) -> Tensor:
        return (F.rms_norm(o, o.shape[-1:], gain, self.eps) * F.silu(z).view_as(o)).flatten(2)


def forgetting(a: Tensor, dt_bias: Tensor, a_log: Tensor) -> Tensor:
    """The logarithm of what a token leaves of the state, (B, T, heads), at most 0."""
    return -a_log.exp() * F.softplus(a + dt_bias)
