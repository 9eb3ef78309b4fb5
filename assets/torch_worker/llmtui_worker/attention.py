"""What a token sees, and attention over it."""

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
# Features of a head up to which its kernels go.
MOST_WIDTH = 256


class Packed(NamedTuple):
    """Rows as texts one behind the other: where each ends, (texts + 1,) int32 that begin with 0."""

    ends: Tensor

    @staticmethod
    def of(first: Tensor) -> Packed | None:
        """Of the first place that each token sees (rows, T), on the processor; None where that is not always the begin of its text."""
        rows, length = first.shape
        begins = first == torch.arange(length)[None]
        begins[:, 0] = True
        before = torch.cat([first[:, :1], first[:, :-1]], 1)
        if not bool((begins | (first == before)).all()) or bool((first[:, 0] != 0).any()):
            return None
        ends = torch.cat([begins.view(-1).nonzero()[:, 0], torch.tensor([rows * length])]).int()
        return Packed(ends)


class Seen(NamedTuple):
    """What tokens see: every one up to themselves, unless a mask (bool, or distances to add) or texts and a window say less."""

    mask: Tensor | None = None
    packed: Packed | None = None
    window: int | None = None


def kernels_take(x: Tensor, width: int) -> bool:
    """Whether texts of different lengths need no mask here."""
    known = {"scale", "window_size"} <= VARLEN
    return known and x.is_cuda and matmul_dtype(x) is torch.bfloat16 and width % 8 == 0 and width <= MOST_WIDTH


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float, cap: float | None) -> Tensor:
    """(rows, T, heads, width) under (rows, S, key/value heads, width) each → (rows, T, heads · width)."""
    rows, length, heads, width = q.shape
    groups = heads // k.shape[2]
    if seen.packed is not None:
        y = of_texts(q, k, v, seen.packed, seen.window, scale)
        return y.reshape(rows, length, heads * width)
    # Kernels for f32 and those with masks know no groups; without one every score would be kept.
    ungrouped = q.is_cuda and (q.dtype == torch.float32 or seen.mask is not None)
    if groups != 1 and (cap is not None or ungrouped):
        k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
        groups = 1
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    mask = seen.mask
    if cap is None:
        bias = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=mask is None, scale=scale, enable_gqa=groups != 1)
    else:
        scores = cap * torch.tanh(q @ k.transpose(-1, -2) * scale / cap)
        y = (scores.float() + additive(mask, length, q.device)).softmax(-1).to(v.dtype) @ v
    return y.transpose(1, 2).reshape(rows, length, heads * width)


def attend_texts(q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float, cap: float | None) -> Tensor:
    """New tokens (rows, L, heads, width) under all tokens of texts (rows, key/value heads, S, width) each → (rows, L, heads · width)."""
    rows, length, heads, width = q.shape
    if length != 1 or cap is not None:
        return attend(q, k.transpose(1, 2), v.transpose(1, 2), seen, scale, cap)
    # The heads of a group are as many questions to the same keys.
    groups = q.view(rows, k.shape[1], -1, width)
    mask = seen.mask
    if mask is not None and mask.shape[1] != 1:
        mask = mask.reshape(rows, k.shape[1], -1, mask.shape[-1])
    return F.scaled_dot_product_attention(groups, k, v, attn_mask=mask, scale=scale).reshape(rows, 1, heads * width)


def of_texts(q: Tensor, k: Tensor, v: Tensor, packed: Packed, window: int | None, scale: float) -> Tensor:
    more: dict[str, Any] = {"scale": scale, "window_size": (-1 if window is None else window - 1, 0)}
    # Keys and values for every head: compiled steps with shared ones took 82 ms on an H200 (PyTorch 2.11), once, and 57 ms without, on
    # another day.
    groups = q.shape[2] // k.shape[2]
    if groups != 1:
        k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
    # No text is longer than a row. The length of the longest would be another in each batch, and compiled for.
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
