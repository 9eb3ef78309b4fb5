"""Attention: masks, scaled dot products, and the block's part that computes it."""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import Table, matmul_dtype
from .linear import Linear
from .rope import rotate
from .texts import Texts

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:
    varlen_attn = None  # type: ignore[assignment]
VARLEN = frozenset() if varlen_attn is None else frozenset(inspect.signature(varlen_attn).parameters)
# The largest head_dim that the varlen kernels support.
MOST_WIDTH = 256
# Features that a sink adds to each head.
PADDING = 8


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


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, cap: float | None, sinks: Tensor | None = None) -> Tensor:
    """Queries (rows, T, heads, width), keys and values (rows, S, key/value heads, width) each → (rows, T, heads · width).

    Sinks (heads,) are logits of a key whose value is 0, beside those of each head (gpt-oss).
    """
    if sinks is not None and cap is None:
        return attend_with_sinks(q, k, v, mask, scale, sinks)
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
        y = shares(scores.float() + additive(bias, length, q.device), sinks).to(v.dtype) @ v
    return y.transpose(1, 2).reshape(rows, length, heads * width)


def shares(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """The softmax of scores (rows, heads, T, S); with sinks the shares that are left beside theirs."""
    if sinks is None:
        return scores.softmax(-1)
    column = sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([column, scores], -1).softmax(-1)[..., 1:]


def attend_with_sinks(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, sinks: Tensor) -> Tensor:
    """As `attend`, by its kernels: a first key has zeros but for features of its own, at which queries have the head's sink. It needs no
    bias for each head, which would be as large as the scores."""
    rows, length, heads, width = q.shape
    # Kernels want widths that are multiples of 8. What rounding to the matmul dtype takes from a sink is in a second feature.
    logits = sinks.float() / scale
    most = logits.detach().to(q.dtype)
    both = torch.stack([most.float(), logits - most.float()], -1).to(q.dtype)
    q = torch.cat([q, F.pad(both, (0, PADDING - 2)).expand(rows, length, heads, PADDING)], -1)
    key = F.pad(k.new_ones(2), (width, PADDING - 2)).expand(rows, 1, k.shape[2], width + PADDING)
    k = torch.cat([key, F.pad(k, (0, PADDING))], 1)
    v = F.pad(v, (0, PADDING, 0, 0, 1, 0))
    if mask.tensor is None:
        # A first query, whose result is dropped: a causal mask has as many of both.
        found = attend(F.pad(q, (0, 0, 0, 0, 1, 0)), k, v, Mask(), scale, None)[:, 1:]
    else:
        seen = 1.0 if mask.tensor.dtype == torch.bool else 0.0
        found = attend(q, k, v, Mask(F.pad(mask.tensor, (1, 0), value=seen)), scale, None)
    return found.reshape(rows, length, heads, -1)[..., :width].reshape(rows, length, heads * width)


def attend_texts(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, cap: float | None, sinks: Tensor | None = None) -> Tensor:
    """New tokens' queries (rows, L, heads, width), cached keys and values (rows, key/value heads, S, width) → (rows, L, heads · width)."""
    rows, length, heads, width = q.shape
    if length != 1 or cap is not None:
        return attend(q, k.transpose(1, 2), v.transpose(1, 2), mask, scale, cap, sinks)
    # Query heads of a group become extra query positions over the shared keys.
    groups = q.view(rows, k.shape[1], -1, width)
    bias = mask.tensor
    if bias is not None and bias.shape[1] != 1:
        bias = bias.reshape(rows, k.shape[1], -1, bias.shape[-1])
    if sinks is not None:
        # Scores of one token: a key more would be a copy of all.
        scores = (groups @ k.transpose(-1, -2) * scale).float() + additive(bias, length, q.device)
        own = sinks.float().view(1, k.shape[1], -1, 1).expand(rows, -1, -1, 1)
        found = torch.cat([own, scores], -1).softmax(-1)[..., 1:].to(v.dtype) @ v
        return found.reshape(rows, 1, heads * width)
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


class Attention(nn.Module):
    def __init__(self, table: Table, model: dict[str, Any], layer: int, names: tuple[list[str], str], device: torch.device) -> None:
        """`names`: of the matrices of queries, keys and values (or of the one that has all), and of the projection out."""
        super().__init__()
        config, adapter = model["config"], model["adapter"]
        self.config, self.shape, self.layer = config, model["shape"], layer
        qkv, out = names
        stem = out.rpartition(".")[0]
        gate = f"{stem}.q_gate_proj"
        self.gated = table.has(f"{gate}.weight")
        self.qkv = Linear(table, [*qkv, gate] if self.gated else qkv, adapter, device)
        self.qk_gains = None
        if config["qk_norm"]:
            self.qk_gains = nn.ParameterList([table.take(f"{stem}.{of}_norm.weight", device) for of in "qk"])
        self.out = Linear(table, [out], adapter, device)
        self.sinks = table.take(f"{stem}.sinks", device) if table.has(f"{stem}.sinks") else None
        every, first = config["global_every"], config.get("global_first", False)
        sees_all = every is not None and (layer + (not first)) % every == 0
        self.window: int | None = None if sees_all else config["sliding_window"]
        nope = config["position"].get("rope", {}).get("nope_every")
        self.rotates = nope is None or (layer + 1) % nope != 0

    def forward(self, h: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Mask, adapters: bool, texts: Texts | None) -> Tensor:
        rows, length, _ = h.shape
        heads, kv, width = self.shape["n_head"], self.shape["n_kv_head"], self.shape["head_dim"]
        wide, gate = self.qkv(h, adapters), None
        if self.gated:
            wide, gate = torch.split(wide, [(heads + 2 * kv) * width, heads * width], -1)
        all_of_them = wide.view(rows, length, heads + 2 * kv, width)
        if self.qk_gains is None:
            if rope is not None:
                all_of_them = rotate(all_of_them, *rope, heads + kv)
            q, k, v = all_of_them.split([heads, kv, kv], 2)
        else:
            q, k, v = all_of_them.split([heads, kv, kv], 2)
            q, k = (self._unit(x, gain) for x, gain in zip((q, k), self.qk_gains, strict=True))
            if rope is not None:
                q, k = rotate(q, *rope, heads), rotate(k, *rope, kv)
            q, k = q.to(v.dtype), k.to(v.dtype)
        scale, cap = self.config["attention_scale"] or 1 / math.sqrt(width), self.config["attention_softcap"]
        if texts is None:
            found = attend(q, k, v, mask, scale, cap, self.sinks)
        else:
            new = all_of_them[:, :, heads:] if self.qk_gains is None else torch.cat([k, v], 2)
            keys, values = texts.extend(self.layer, new)
            found = attend_texts(q, keys, values, mask, scale, cap, self.sinks)
        if gate is not None:
            found = found * gate.sigmoid()
        out: Tensor = self.out(found, adapters)
        return out

    def _unit(self, x: Tensor, gain: Tensor) -> Tensor:
        """Normalizes `x` (B, T, heads, head_dim): each head by itself, or with a gain for every feature all heads of a token at once."""
        ((_, settings),) = self.config["norm"].items()
        offset = 1.0 if settings.get("unit_offset") else 0.0
        vectors = x.float() if gain.numel() == x.shape[-1] else x.float().flatten(2)
        return F.rms_norm(vectors, vectors.shape[-1:], gain + offset if offset else gain, settings["eps"]).view_as(x)
