"""The LM head: from hidden states to the log-probabilities of targets. The logits of a batch are its largest tensor (tokens by
vocabulary): they are computed in chunks, read a few times instead of the composite's twenty, and their gradient is written by hand.

With logits z, p = softmax z, entropy H = -Σ p log p, target t:  ∂ log p_t / ∂z_j = δ_jt - p_j  and  ∂H / ∂z_j = -p_j (log p_j + H).
PaLM's z-loss (Chowdhery et al. 2022, arXiv 2204.02311) adds ζ Σ w · lse² to a loss -Σ w · log p_t, with lse = log Σ exp z:
∂ lse² / ∂z_j = 2 lse p_j.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import matmul_dtype

# Logits (elements) in one chunk.
MOST_LOGITS = 1 << 26


class Stats(NamedTuple):
    """Statistics of N targets under logits (N, V), (N,) each; with exp(z - max z) (N, V) and its sum, if kept for the backward."""

    logp: Tensor
    entropy: Tensor
    top1: Tensor
    # log Σ exp z
    lse: Tensor
    powers: Tensor | None
    total: Tensor | None


def capped(raw: Tensor, cap: float | None) -> Tensor:
    return raw if cap is None else cap * torch.tanh(raw.float() / cap)


def forward(raw: Tensor, goal: Tensor, cap: float | None) -> Stats:
    """Statistics of the targets under raw logits."""
    z = capped(raw, cap)
    most, best = z.max(-1)
    most = most.float()
    centred = z - most[:, None]
    wanted = centred.gather(-1, goal[:, None])[:, 0]
    powers = centred.exp()
    total = powers.sum(-1)
    log_total = total.log()
    mean = torch.bmm(powers[:, None], centred[:, :, None])[:, 0, 0] / total
    return Stats(wanted - log_total, log_total - mean, (best == goal).float(), most + log_total, powers, total)


def gradient(
    raw: Tensor, it: Stats, goal: Tensor, cap: float | None, of_logp: Tensor, of_entropy: Tensor | None, zeta: float = 0.0
) -> Tensor:
    """The gradient with respect to raw logits (N, V), in their dtype. Consumes the buffers in `it`."""
    powers, total = it.powers, it.total
    if powers is None or total is None:
        powers, total = (capped(raw, cap) - it.lse[:, None]).exp_(), torch.ones_like(it.lse)
    found = torch.empty_like(raw)
    if of_entropy is None:
        if zeta:
            powers.mul_((1.0 + 2.0 * zeta * it.lse)[:, None])
        powers.scatter_add_(-1, goal[:, None], -total[:, None])
        torch.mul(powers, (-of_logp / total)[:, None], out=found)
    else:
        p = powers.div_(total[:, None])
        logp = p.clamp(min=torch.finfo(p.dtype).tiny).log_()
        steep = -p * (of_logp[:, None] + of_entropy[:, None] * (logp + it.entropy[:, None]))
        found.copy_(steep.scatter_add_(-1, goal[:, None], of_logp[:, None]))
    if cap is not None:
        found.mul_(1 - torch.tanh(raw.float() / cap).square())
    return found


def fused_forward(raw: Tensor, goal: Tensor, cap: float | None) -> Stats:
    """As `forward`, for torch.compile: writes no tensor of the logits' size."""
    z = capped(raw, cap).float()
    lse = z.logsumexp(-1)
    logp = z.gather(-1, goal[:, None])[:, 0] - lse
    entropy = lse - ((z - lse[:, None]).exp() * z).sum(-1)
    return Stats(logp, entropy, (z.argmax(-1) == goal).float(), lse, None, None)


def fused_gradient(
    raw: Tensor, it: Stats, goal: Tensor, cap: float | None, of_logp: Tensor, of_entropy: Tensor | None, zeta: float = 0.0
) -> Tensor:
    """As `gradient`, for torch.compile: recomputes the probabilities."""
    logp = capped(raw, cap).float() - it.lse[:, None]
    p = logp.exp()
    tokens = torch.arange(raw.shape[-1], device=raw.device)
    spread = of_logp * (1.0 + 2.0 * zeta * it.lse) if zeta else of_logp
    found = torch.where(tokens == goal[:, None], of_logp[:, None], 0.0) - p * spread[:, None]
    if of_entropy is not None:
        found = found - p * of_entropy[:, None] * (logp + it.entropy[:, None])
    if cap is not None:
        found = found * (1 - torch.tanh(raw.float() / cap).square())
    return found.to(raw.dtype)


class Chunks:
    """Logits in chunks, in the matmul dtype."""

    def __init__(self, hidden: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
        self.hidden, self.weight = hidden.to(dtype), weight.to(dtype)
        count = max(1, math.ceil(hidden.shape[0] * weight.shape[0] / MOST_LOGITS))
        self.size = max(1, math.ceil(hidden.shape[0] / count))

    def __iter__(self) -> Iterator[slice]:
        for begin in range(0, len(self.hidden), self.size):
            yield slice(begin, begin + self.size)

    def raw(self, chunk: slice) -> Tensor:
        return F.linear(self.hidden[chunk], self.weight)


class Sums:
    """Gradients of hidden states and head, summed over chunks; the head's in f32."""

    def __init__(self, chunks: Chunks, of_hidden: bool, of_weight: bool) -> None:
        self.chunks = chunks
        self.hidden = torch.empty_like(chunks.hidden) if of_hidden else None
        self.weight = torch.zeros(chunks.weight.shape, device=chunks.weight.device) if of_weight else None

    def add(self, chunk: slice, of_raw: Tensor) -> None:
        if self.hidden is not None:
            torch.mm(of_raw, self.chunks.weight, out=self.hidden[chunk])
        if self.weight is not None:
            self.weight += of_raw.t() @ self.chunks.hidden[chunk]

    def times(self, scale: Tensor | float) -> tuple[Tensor | None, Tensor | None]:
        hidden, weight = (None if x is None else x.float() * scale for x in (self.hidden, self.weight))
        return hidden, weight


class Head(torch.autograd.Function):
    """(log-probability of the target, entropy, top-1 or not) of hidden states (N, D) under a head (V, D), (N,) each, and Σ c · logp.

    With coefficients c (N,) only that sum has a gradient, which the forward pass computes along with it, and with it that of a z-loss: logits
    are computed once. Without them logits are recomputed for the gradient, unless they are one chunk.
    """

    of_logits = staticmethod(forward)
    gradient = staticmethod(gradient)

    @classmethod
    def fuse(cls) -> None:
        """Compiles the per-logit epilogue."""
        cls.of_logits = staticmethod(torch.compile(fused_forward))
        cls.gradient = staticmethod(torch.compile(fused_gradient))

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, goal: Tensor, cap: float | None, c: Tensor | None, zeta: float = 0.0
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        needs = ctx.needs_input_grad[:2]
        chunks = Chunks(hidden, weight, matmul_dtype(hidden))
        sums = Sums(chunks, *needs) if c is not None and any(needs) else None
        found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        kept = None
        with torch.autocast(hidden.device.type, enabled=False):
            for chunk in chunks:
                raw = chunks.raw(chunk)
                it = Head.of_logits(raw, goal[chunk], cap)
                if sums is not None and c is not None:
                    sums.add(chunk, Head.gradient(raw, it, goal[chunk], cap, c[chunk], None, zeta))
                elif chunks.size >= len(hidden):
                    kept = (raw, it)
                found.append((it.logp, it.entropy, it.top1, it.lse))
        logp, entropy, top1, lse = (torch.cat(part) for part in zip(*found, strict=True))
        total = logp.new_zeros(()) if c is None else (logp * c).sum()
        ctx.mark_non_differentiable(*([top1, total] if c is None else [logp, entropy, top1]))
        ctx.cap, ctx.chunks, ctx.kept, ctx.sums = cap, None if sums else chunks, kept, sums
        ctx.save_for_backward(goal, lse, entropy)
        return logp, entropy, top1, total

    @staticmethod
    def backward(
        ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None, _top1: None, of_total: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if ctx.sums is not None:
            return *ctx.sums.times(0.0 if of_total is None else of_total), None, None, None, None
        goal, lse, entropy = ctx.saved_tensors
        of_logp = torch.zeros_like(lse) if of_logp is None else of_logp
        sums = Sums(ctx.chunks, *ctx.needs_input_grad[:2])
        for chunk in ctx.chunks:
            if ctx.kept is None:
                raw, it = ctx.chunks.raw(chunk), Stats(lse[chunk], entropy[chunk], lse[chunk], lse[chunk], None, None)
            else:
                raw, it = ctx.kept
            sums.add(chunk, Head.gradient(raw, it, goal[chunk], ctx.cap, of_logp[chunk], None if of_entropy is None else of_entropy[chunk]))
        return *sums.times(1.0), None, None, None, None
