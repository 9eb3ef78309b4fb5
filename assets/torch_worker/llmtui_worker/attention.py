"""Attention masks and scaled dot-product attention."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import matmul_dtype

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:
    varlen_attn = None  # type: ignore[assignment]
VARLEN = frozenset() if varlen_attn is None else frozenset(inspect.signature(varlen_attn).parameters)
# The largest head_dim that the varlen kernels support.
MOST_WIDTH = 256


class Packed(NamedTuple):
    """Packed sequences for varlen attention: cumulative lengths (texts + 1,), int32, starting at 0."""

    ends: Tensor

    @staticmethod
    def of(first: Tensor) -> Packed | None:
        """From each token's first visible position (rows, T, on the CPU); None if that is not always the start of its text."""
        rows, length = first.shape
        begins = first == torch.arange(length)[None]
        begins[:, 0] = True
        before = torch.cat([first[:, :1], first[:, :-1]], 1)
        if not bool((begins | (first == before)).all()) or bool((first[:, 0] != 0).any()):
            return None
        ends = torch.cat([begins.view(-1).nonzero()[:, 0], torch.tensor([rows * length])]).int()
        return Packed(ends)


class Mask(NamedTuple):
    """The attention mask: causal, unless a tensor (bool, or a bias to add) or packed sequences and a window restrict it."""

    tensor: Tensor | None = None
    packed: Packed | None = None
    window: int | None = None


def kernels_take(x: Tensor, width: int) -> bool:
    """Whether the varlen kernel can be used."""
    known = {"scale", "window_size"} <= VARLEN
    return known and x.is_cuda and matmul_dtype(x) is torch.bfloat16 and width % 8 == 0 and width <= MOST_WIDTH


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, cap: float | None) -> Tensor:
    """Queries (rows, T, heads, width), keys and values (rows, S, key/value heads, width) each → (rows, T, heads · width)."""
    rows, length, heads, width = q.shape
    groups = heads // k.shape[2]
    if mask.packed is not None:
        y = attend_packed(q, k, v, mask.packed, mask.window, scale)
        return y.reshape(rows, length, heads * width)
    # f32 and masked kernels do not support GQA; the fallback would materialise every score.
    ungrouped = q.is_cuda and (q.dtype == torch.float32 or mask.tensor is not None)
    if groups != 1 and (cap is not None or ungrouped):
        k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
        groups = 1
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    bias = mask.tensor
    if cap is None:
        bias = bias if bias is None or bias.dtype == torch.bool else bias.to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None, scale=scale, enable_gqa=groups != 1)
    else:
        scores = cap * torch.tanh(q @ k.transpose(-1, -2) * scale / cap)
        y = (scores.float() + additive(bias, length, q.device)).softmax(-1).to(v.dtype) @ v
    return y.transpose(1, 2).reshape(rows, length, heads * width)


def attend_texts(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, cap: float | None) -> Tensor:
    """New tokens' queries (rows, L, heads, width), cached keys and values (rows, key/value heads, S, width) → (rows, L, heads · width)."""
    rows, length, heads, width = q.shape
    if length != 1 or cap is not None:
        return attend(q, k.transpose(1, 2), v.transpose(1, 2), mask, scale, cap)
    # Query heads of a group become extra query positions over the shared keys.
    groups = q.view(rows, k.shape[1], -1, width)
    bias = mask.tensor
    if bias is not None and bias.shape[1] != 1:
        bias = bias.reshape(rows, k.shape[1], -1, bias.shape[-1])
    return F.scaled_dot_product_attention(groups, k, v, attn_mask=bias, scale=scale).reshape(rows, 1, heads * width)


def attend_packed(q: Tensor, k: Tensor, v: Tensor, packed: Packed, window: int | None, scale: float) -> Tensor:
    more: dict[str, Any] = {"scale": scale, "window_size": (-1 if window is None else window - 1, 0)}
    # Keys and values are repeated for every head: with grouped ones compiled steps took 82 ms on an H200 (PyTorch 2.11; one measurement),
    # without 57 ms (on another day).
    groups = q.shape[2] // k.shape[2]
    if groups != 1:
        k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
    # The row length is an upper bound. The longest text differs in every batch, and each length would be compiled for.
    length, ends = q.shape[1], packed.ends
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    found = varlen_attn(q, k, v, ends, ends, length, length, **more)
    assert isinstance(found, Tensor)
    return found


def additive(mask: Tensor | None, length: int, device: torch.device) -> Tensor:
    if mask is None:
        mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=device).masked_fill(~mask, float("-inf"))
