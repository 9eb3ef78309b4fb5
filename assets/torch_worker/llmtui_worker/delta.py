"""The gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464). Per head, a matrix S (keys, values) goes from token to token:

    S ← exp(g) S;  u = β (v - Sᵀ k);  S ← S + k uᵀ;  o = Sᵀ q

Tokens are computed in chunks. With G the sum of g since the chunk's start, S₀ the state before it, and pairs (i, j ≤ i) of one document:

    u_i + β_i Σ_{j<i} exp(G_i - G_j) (k_i·k_j) u_j = β_i (v_i - exp(G_i) S₀ᵀ k_i)

is a triangular system, solved for v and k at once; o and the next S₀ are matmuls.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Tokens of a chunk.
CHUNK = 64


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, starts: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """q, k (B, T, heads, keys), v (B, T, heads, values), g, β (B, T, heads) → o (B, T, heads, values) and the state after the last token,
    (B, heads, keys, values). `starts` (B, T): where each token's document begins, at which the state is 0; `state`: before the first."""
    rows, length, heads, keys = q.shape
    padding, device = -length % CHUNK, q.device

    def chunked(x: Tensor) -> Tensor:
        """(B, T, heads, …) → (B, heads, chunks, tokens, …), filled up with tokens that change nothing."""
        x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, padding))
        return x.view(x.shape[0], -1, CHUNK, *x.shape[2:]).movedim(3, 1)

    q, k, v, g, beta = (chunked(x) for x in (q, k, v, g, beta))
    token = torch.arange(CHUNK, device=device)
    # Whether token i reads token j of its chunk, and what was before the chunk.
    pair, reach = token[:, None] >= token, None
    if starts is not None:
        starts = torch.cat([starts, starts[:, -1:].expand(-1, padding)], 1).view(rows, 1, -1, CHUNK)
        chunk = torch.arange(starts.shape[2], device=device)[:, None] * CHUNK
        pair, reach = pair & (chunk[..., None] + token >= starts[..., None]), starts < chunk
    total = g.cumsum(-1)
    fade = (total[..., :, None] - total[..., None, :]).masked_fill(~pair, float("-inf")).exp()
    into = total.exp() if reach is None else total.exp().masked_fill(~reach, 0.0)
    weighted = k * beta[..., None]
    both = torch.cat([v * beta[..., None], weighted * into[..., None]], -1)
    # Only what lies below the diagonal is read.
    solved = torch.linalg.solve_triangular((weighted @ k.mT) * fade, both, upper=False, unitriangular=True)
    fresh, seen = torch.split(solved, [v.shape[-1], keys], -1)
    leaving, kept = (k * fade[..., -1, :, None]).mT, into[..., -1, None, None]
    # Of all rows and heads, chunk by chunk: three kernels each.
    chunks = zip(*(x.flatten(0, 1).unbind(1) for x in (fresh, seen, leaving, kept)), strict=True)
    before = q.new_zeros(rows * heads, keys, v.shape[-1]) if state is None else state.flatten(0, 1)
    states, updates = [], []
    for new, read, out, left in chunks:
        update = torch.baddbmm(new, read, before, alpha=-1)
        states.append(before)
        updates.append(update)
        before = torch.baddbmm(before * left, out, update)
    held, change = (torch.stack(x, 1).view(rows, heads, -1, *x[0].shape[1:]) for x in (states, updates))
    o = (q * into[..., None]) @ held + ((q @ k.mT) * fade) @ change
    return o.movedim(1, 3).flatten(1, 2)[:, :length], before.view(rows, heads, keys, -1)


def delta_step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The same of one token (T = 1)."""
    q, k, v, g, beta = (x[:, 0, :, None] for x in (q, k, v, g, beta))
    state = state * g[..., None].exp()
    state = state + k.mT @ (beta[..., None] * (v - k @ state))
    return (q @ state)[:, None, :, 0], state
