"""The LM head beside a teacher's: the divergence between both distributions at each token, and its gradient, written by hand. Logits of
student and teacher exist for one chunk of tokens at a time.

With p of the student, q of the teacher, both softmax(logits / T), m = β q + (1 - β) p (GKD, Agarwal et al. 2024, arXiv 2306.13649):

    D = β KL(q | m) + (1 - β) KL(p | m);   β = 0: KL(q | p);   β = 1: KL(p | q)
    dD/dz = (1 - β) p (ln(p / m) - KL(p | m)) / T;   (p - q) / T;   p (ln(p / q) - KL(p | q)) / T
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .head import MOST_LOGITS, Chunks, Head, Sums, capped
from .layers import matmul_dtype


class Beside(NamedTuple):
    """A teacher's side of a pass: its hidden states (N, D) of the same tokens, its head (V, D), and what is compared how.

    Of two vocabularies, the first tokens that both have are compared. `weights` (N,): what each token's divergence counts in the loss; `ce`:
    whether log-probabilities count too.
    """

    hidden: Tensor
    weight: Tensor
    cap: float | None
    beta: float
    temperature: float
    weights: Tensor | None = None
    ce: bool = False


class Compared(NamedTuple):
    """Of N tokens, (N,) each: divergence and entropy of the teacher in nats, 1 where both have the same top-1 token; and the divergence's
    gradient with respect to the student's logits (N, V), before a cap, if wanted."""

    divergence: Tensor
    entropy: Tensor
    agrees: Tensor
    gradient: Tensor | None


def compare(student: Tensor, teacher: Tensor, beta: float, temperature: float, *, gradient: bool) -> Compared:
    """Of logits of one vocabulary, (N, V) each, f32."""
    agrees = student.gather(-1, teacher.argmax(-1, keepdim=True))[:, 0] >= student.amax(-1)
    log_p, log_q = ((z / temperature).log_softmax(-1) for z in (student, teacher))
    q = log_q.exp()
    entropy = -(q * log_q).sum(-1)
    found = None
    if beta == 0.0:
        divergence = (q * (log_q - log_p)).sum(-1)
        if gradient:
            found = log_p.exp_().sub_(q)
    else:
        p = log_p.exp()
        if beta == 1.0:
            ratio = log_p.sub_(log_q)
            mean = divergence = (p * ratio).sum(-1)
        else:
            log_m = torch.logaddexp(log_q + math.log(beta), log_p + math.log1p(-beta))
            ratio = log_p.sub_(log_m)
            mean = (p * ratio).sum(-1)
            divergence = beta * (q * (log_q - log_m)).sum(-1) + (1.0 - beta) * mean
        if gradient:
            found = ratio.sub_(mean[:, None]).mul_(p)
            if beta != 1.0:
                found.mul_(1.0 - beta)
    if found is not None:
        found.div_(temperature)
    # Rounding may leave a little below 0, and a NaN stays one.
    return Compared(divergence.clamp(min=0.0), entropy, agrees.float(), found)


class Pair(Chunks):
    """Chunks small enough for the logits of both."""

    def __init__(self, hidden: Tensor, weight: Tensor, dtype: torch.dtype, beside: Beside) -> None:
        super().__init__(hidden, weight, dtype)
        self.theirs, self.head = beside.hidden.to(dtype), beside.weight.to(dtype)
        count = max(1, math.ceil(len(hidden) * (len(weight) + len(beside.weight)) / MOST_LOGITS))
        self.size = max(1, math.ceil(len(hidden) / count))


class Distilled(torch.autograd.Function):
    """Of hidden states (N, D) under a head (V, D), (N,) each: log-probability of the target, entropy, top-1 or not, and `Compared`'s three;
    the fourth is Σ c · logp + Σ weights · divergence, which alone has a gradient; the forward pass computes it along."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, goal: Tensor, cap: float | None, c: Tensor | None, beside: Beside
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        needs = ctx.needs_input_grad[:2]
        chunks = Pair(hidden, weight, matmul_dtype(hidden), beside)
        sums = Sums(chunks, *needs) if beside.weights is not None and any(needs) else None
        common = min(len(weight), len(beside.weight))
        found: list[tuple[Tensor, ...]] = []
        with torch.autocast(hidden.device.type, enabled=False):
            for chunk in chunks:
                raw = chunks.raw(chunk)
                it = Head.of_logits(raw, goal[chunk], cap)
                student = capped(raw[:, :common], cap).float()
                teacher = capped(F.linear(chunks.theirs[chunk], chunks.head[:common]), beside.cap).float()
                both = compare(student, teacher, beside.beta, beside.temperature, gradient=sums is not None)
                found.append((it.logp, it.entropy, it.top1, both.divergence, both.entropy, both.agrees))
                del teacher
                if sums is None or both.gradient is None or beside.weights is None:
                    continue
                of_common = both.gradient.mul_(beside.weights[chunk][:, None])
                if cap is not None:
                    of_common.mul_(1 - (student / cap).square())
                del student
                # Without a cross entropy there is nothing to take from all of the row.
                of_raw = torch.zeros_like(raw)
                if beside.ce and c is not None:
                    of_raw = Head.gradient(raw, it, goal[chunk], cap, c[chunk], None)
                of_raw[:, :common] += of_common
                sums.add(chunk, of_raw)
        logp, entropy, top1, divergence, theirs, agrees = (torch.cat(part) for part in zip(*found, strict=True))
        total = logp.new_zeros(())
        if beside.weights is not None:
            total = (divergence * beside.weights).sum()
            if c is not None:
                total = total + (logp * c).sum()
        ctx.mark_non_differentiable(logp, entropy, top1, divergence, theirs, agrees)
        ctx.sums = sums
        return logp, entropy, top1, total, divergence, theirs, agrees

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.sums is None:
            return (None,) * 6
        of_total = grads[3]
        return *ctx.sums.times(0.0 if of_total is None else of_total), None, None, None, None
