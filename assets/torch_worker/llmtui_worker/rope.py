"""Rotary positions (Su et al., arXiv 2104.09864): halves of a head's features are paired."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Rope:
    """Cosines and sines of one rotation, computed once in f64 and kept on the device."""

    def __init__(self, rotation: dict[str, Any], context: int) -> None:
        # Allocated for the whole context at once: CUDA graphs hold the address.
        self.context = context
        self.frequencies = torch.tensor(rotation["frequencies"], dtype=torch.float64)
        self.factor = rotation["factor"]
        # (positions, half) each.
        self.cos = self.sin = torch.empty(0, len(self.frequencies))

    def reach(self, positions: int, device: torch.device) -> None:
        """Extends the tables to at least so many positions."""
        if len(self.cos) < positions or self.cos.device != device:
            angles = torch.arange(max(positions, self.context), dtype=torch.float64)[:, None] * self.frequencies
            self.cos, self.sin = ((x * self.factor).float().to(device) for x in (angles.cos(), angles.sin()))

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """For positions (rows or 1, T): (rows or 1, T, 1, half) each."""
        return self.cos[positions][:, :, None], self.sin[positions][:, :, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    """Rotates the first heads of x (rows, T, heads, width); the others, and features beyond the pairs, are unchanged. Computed in f32,
    rounded once to the dtype of x."""
    if torch.compiler.is_compiling():
        # torch.compile fuses the composite, and does not support writing through views.
        half = cos.shape[-1]
        rotary, rest_heads = x[:, :, :heads], x[:, :, heads:]
        a, b, rest = torch.split(rotary.float(), [half, half, x.shape[-1] - 2 * half], -1)
        return torch.cat([torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1).to(x.dtype), rest_heads], 2)
    found: Tensor = Rotate.apply(x, cos, sin, heads)
    return found


class Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.heads = heads
        return rotated(x, cos, sin, heads, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        # The transpose of a rotation is the rotation by the negative angle.
        return rotated(grad, cos, sin, ctx.heads, -1), None, None, None


def rotated(x: Tensor, cos: Tensor, sin: Tensor, heads: int, sign: int) -> Tensor:
    half = cos.shape[-1]
    found = torch.empty_like(x, memory_format=torch.contiguous_format)
    if heads < x.shape[2]:
        found[:, :, heads:] = x[:, :, heads:]
    if 2 * half < x.shape[3]:
        found[:, :, :heads, 2 * half :] = x[:, :, :heads, 2 * half :]
    a, b = x[:, :, :heads, :half], x[:, :, :heads, half : 2 * half]
    torch.addcmul(a * cos, b, sin, value=-sign, out=found[:, :, :heads, :half])
    torch.addcmul(b * cos, a, sin, value=sign, out=found[:, :, :heads, half : 2 * half])
    return found
