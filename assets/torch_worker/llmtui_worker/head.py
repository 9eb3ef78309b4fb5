"""From hidden states to the log-probabilities of targets. The logits of a batch are its largest tensor (tokens by vocabulary): they are
computed in pieces, read a few times instead of the twenty times of their composite, and their gradient is written by hand.

With logits z, p = softmax z, entropy H = -Σ p log p, target t:  ∂ log p_t / ∂z_j = δ_jt - p_j  and  ∂H / ∂z_j = -p_j (log p_j + H).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import matmul_dtype

# Elements of logits in one piece.
MOST_LOGITS = 1 << 26


class Read(NamedTuple):
    """What logits (N, V) say of N targets, (N,) each; with exp(z - max z) (N, V) and its sum, where they are kept."""

    logp: Tensor
    entropy: Tensor
    top1: Tensor
    # log Σ exp z
    lse: Tensor
    powers: Tensor | None
    total: Tensor | None


def capped(raw: Tensor, cap: float | None) -> Tensor:
    return raw if cap is None else cap * torch.tanh(raw.float() / cap)


def read(raw: Tensor, goal: Tensor, cap: float | None) -> Read:
    z = capped(raw, cap)
    most, best = z.max(-1)
    most = most.float()
    centred = z - most[:, None]
    wanted = centred.gather(-1, goal[:, None])[:, 0]
    powers = centred.exp()
    total = powers.sum(-1)
    log_total = total.log()
    mean = torch.bmm(powers[:, None], centred[:, :, None])[:, 0, 0] / total
    return Read(wanted - log_total, log_total - mean, (best == goal).float(), most + log_total, powers, total)


def slope(raw: Tensor, it: Read, goal: Tensor, cap: float | None, of_logp: Tensor, of_entropy: Tensor | None) -> Tensor:
    """The gradient of raw logits (N, V), in their format. What `it` keeps is used up."""
    powers, total = it.powers, it.total
    if powers is None or total is None:
        powers, total = (capped(raw, cap) - it.lse[:, None]).exp_(), torch.ones_like(it.lse)
    found = torch.empty_like(raw)
    if of_entropy is None:
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


def fused_read(raw: Tensor, goal: Tensor, cap: float | None) -> Read:
    """As `read`, for the compiler: nothing of the size of the logits is written."""
    z = capped(raw, cap).float()
    lse = z.logsumexp(-1)
    logp = z.gather(-1, goal[:, None])[:, 0] - lse
    entropy = lse - ((z - lse[:, None]).exp() * z).sum(-1)
    return Read(logp, entropy, (z.argmax(-1) == goal).float(), lse, None, None)


def fused_slope(raw: Tensor, it: Read, goal: Tensor, cap: float | None, of_logp: Tensor, of_entropy: Tensor | None) -> Tensor:
    """As `slope`, for the compiler: probabilities are computed again on the way."""
    logp = capped(raw, cap).float() - it.lse[:, None]
    p = logp.exp()
    places = torch.arange(raw.shape[-1], device=raw.device)
    found = torch.where(places == goal[:, None], of_logp[:, None], 0.0) - p * of_logp[:, None]
    if of_entropy is not None:
        found = found - p * of_entropy[:, None] * (logp + it.entropy[:, None])
    if cap is not None:
        found = found * (1 - torch.tanh(raw.float() / cap).square())
    return found.to(raw.dtype)


class Pieces:
    """The product of hidden states and the head, piece by piece, in the format of matrix products."""

    def __init__(self, hidden: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
        self.hidden, self.weight = hidden.to(dtype), weight.to(dtype)
        count = max(1, math.ceil(hidden.shape[0] * weight.shape[0] / MOST_LOGITS))
        self.size = max(1, math.ceil(hidden.shape[0] / count))

    def __iter__(self) -> Iterator[slice]:
        for begin in range(0, len(self.hidden), self.size):
            yield slice(begin, begin + self.size)

    def raw(self, piece: slice) -> Tensor:
        return F.linear(self.hidden[piece], self.weight)


class Sums:
    """Gradients of hidden states and head, collected over pieces; the head's in f32."""

    def __init__(self, pieces: Pieces, of_hidden: bool, of_weight: bool) -> None:
        self.pieces = pieces
        self.hidden = torch.empty_like(pieces.hidden) if of_hidden else None
        self.weight = torch.zeros(pieces.weight.shape, device=pieces.weight.device) if of_weight else None

    def add(self, piece: slice, of_raw: Tensor) -> None:
        if self.hidden is not None:
            torch.mm(of_raw, self.pieces.weight, out=self.hidden[piece])
        if self.weight is not None:
            self.weight += of_raw.t() @ self.pieces.hidden[piece]

    def times(self, scale: Tensor | float) -> tuple[Tensor | None, Tensor | None]:
        hidden, weight = (None if x is None else x.float() * scale for x in (self.hidden, self.weight))
        return hidden, weight


class Head(torch.autograd.Function):
    """(log-probability of the target, entropy, top-1 or not) of hidden states (N, D) under a head (V, D), (N,) each, and Σ c · logp.

    With coefficients c (N,) that sum alone has a gradient; it is found on the way, and logits are computed once. Without them logits are
    computed again for the gradient, unless they are one piece.
    """

    read = staticmethod(read)
    slope = staticmethod(slope)

    @classmethod
    def fuse(cls) -> None:
        """Compiles what is done with each logit."""
        cls.read = staticmethod(torch.compile(fused_read))
        cls.slope = staticmethod(torch.compile(fused_slope))

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, goal: Tensor, cap: float | None, c: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        needs = ctx.needs_input_grad[:2]
        pieces = Pieces(hidden, weight, matmul_dtype(hidden))
        sums = Sums(pieces, *needs) if c is not None and any(needs) else None
        found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        kept = None
        with torch.autocast(hidden.device.type, enabled=False):
            for piece in pieces:
                raw = pieces.raw(piece)
                it = Head.read(raw, goal[piece], cap)
                if sums is not None and c is not None:
                    sums.add(piece, Head.slope(raw, it, goal[piece], cap, c[piece], None))
                elif pieces.size >= len(hidden):
                    kept = (raw, it)
                found.append((it.logp, it.entropy, it.top1, it.lse))
        logp, entropy, top1, lse = (torch.cat(part) for part in zip(*found, strict=True))
        total = logp.new_zeros(()) if c is None else (logp * c).sum()
        ctx.mark_non_differentiable(*([top1, total] if c is None else [logp, entropy, top1]))
        ctx.cap, ctx.pieces, ctx.kept, ctx.sums = cap, None if sums else pieces, kept, sums
        ctx.save_for_backward(goal, lse, entropy)
        return logp, entropy, top1, total

    @staticmethod
    def backward(
        ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None, _top1: None, of_total: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if ctx.sums is not None:
            return *ctx.sums.times(0.0 if of_total is None else of_total), None, None, None
        goal, lse, entropy = ctx.saved_tensors
        of_logp = torch.zeros_like(lse) if of_logp is None else of_logp
        sums = Sums(ctx.pieces, *ctx.needs_input_grad[:2])
        for piece in ctx.pieces:
            if ctx.kept is None:
                raw, it = ctx.pieces.raw(piece), Read(lse[piece], entropy[piece], lse[piece], lse[piece], None, None)
            else:
                raw, it = ctx.kept
            sums.add(piece, Head.slope(raw, it, goal[piece], ctx.cap, of_logp[piece], None if of_entropy is None else of_entropy[piece]))
        return *sums.times(1.0), None, None, None
