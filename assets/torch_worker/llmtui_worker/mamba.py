"""Mamba 2 (Dao & Gu 2024, arXiv 2405.21060): each head keeps a state S (state_dim, head_dim), with groups of heads that share B and C:

    S ← exp(g) S + B (dt x)ᵀ;  y = Sᵀ C + D x;  g = -exp(A_log) dt

Tokens are computed in chunks. With G the sum of g since the chunk's start and S₀ the state before it, of pairs (i, j ≤ i) of one document

    y_i = Σ_j exp(G_i - G_j) (C_i·B_j) dt_j x_j + exp(G_i) S₀ᵀ C_i

and the next S₀ are matmuls, in f32 whatever the format of others.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .delta import CHUNK
from .layers import Table, apart
from .linear import Linear
from .mixers import causal_conv, read_conv, recomputed
from .texts import Texts


def scan(u: Tensor, g: Tensor, b: Tensor, c: Tensor, starts: Tensor | None = None, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """u = dt x (B, T, groups, heads of a group, width), g (B, T, groups, heads), B and C (B, T, groups, N) → Sᵀ C like u, and the state after
    the last token, (B, groups, N, heads, width). `starts` (B, T): where each token's document begins, at which the state is 0; `state`:
    before the first."""
    rows, length, groups, heads, width = u.shape
    padding, device = -length % CHUNK, u.device

    def chunked(x: Tensor) -> Tensor:
        """(B, T, groups, …) → (B, groups, chunks, tokens, …), filled up with tokens that change nothing."""
        x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, padding))
        return x.view(x.shape[0], -1, CHUNK, *x.shape[2:]).movedim(3, 1)

    u, g, b, c = (chunked(x) for x in (u, g, b, c))
    token = torch.arange(CHUNK, device=device)
    # Whether token i reads token j of its chunk, and what was before the chunk.
    pair, reach = token[:, None] >= token, None
    if starts is not None:
        starts = torch.cat([starts, starts[:, -1:].expand(-1, padding)], 1).view(rows, 1, -1, CHUNK)
        chunk = torch.arange(starts.shape[2], device=device)[:, None] * CHUNK
        pair = (pair & (chunk[..., None] + token >= starts[..., None]))[:, :, :, None]
        reach = (starts < chunk)[..., None]
    total = g.cumsum(3)
    by_head = total.mT
    fade = (by_head[..., :, None] - by_head[..., None, :]).masked_fill(~pair, float("-inf")).exp()
    into = total.exp() if reach is None else total.exp().masked_fill(~reach, 0.0)
    own = (fade * (c @ b.mT)[:, :, :, None]) @ u.movedim(3, 4)
    # What a chunk adds to the state behind it, and what it leaves of the one before it.
    new = apart(b.mT @ (u * fade[..., -1, :].mT[..., None]).flatten(-2), heads, width)
    left = into[:, :, :, -1, None, :, None]
    before = u.new_zeros(rows, groups, b.shape[-1], heads, width) if state is None else state
    states = []
    for added, kept in zip(new.unbind(2), left.unbind(2), strict=True):
        states.append(before)
        before = torch.addcmul(added, before, kept)
    held = torch.stack(states, 2).flatten(-2)
    y = own.movedim(3, 4) + apart(c @ held, heads, width) * into[..., None]
    return y.movedim(1, 3).flatten(1, 2)[:, :length], before


def scan_step(u: Tensor, g: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The same of one token (T = 1)."""
    u, g, b, c = (x[:, 0] for x in (u, g, b, c))
    state = torch.addcmul(b[..., None, None] * u[:, :, None], state, g.exp()[:, :, None, :, None])
    return (c[:, :, None] @ state.flatten(-2)).view(u.shape)[:, None], state


class Mamba2(nn.Module):
    """x, B and C pass a causal convolution with SiLU; RMSNorm(y ∘ SiLU(z)) over each group goes out."""

    def __init__(self, table: Table, model: dict[str, Any], layer: int, at: str, device: torch.device) -> None:
        super().__init__()
        self.layer = layer
        net = model["config"]["mixer"]["mamba2"]
        self.heads, self.width = net["n_head"], net["head_dim"]
        self.state, self.groups = net["state_dim"], net["n_group"]
        self.limits = net.get("dt_min", 0.0), net.get("dt_max")
        ((_, norm),) = model["config"]["norm"].items()
        self.eps = norm["eps"]
        self.wide = Linear(table, [f"{at}.in_proj"], model["adapter"], device)
        self.weight = table.take(f"{at}.conv1d.weight", device)
        self.bias = table.take(f"{at}.conv1d.bias", device) if table.has(f"{at}.conv1d.bias") else None
        names = ("dt_bias", "A_log", "D", "norm.weight")
        self.dt_bias, self.a_log, self.skip, self.gain = (table.take(f"{at}.{name}", device) for name in names)
        self.out = Linear(table, [f"{at}.out_proj"], model["adapter"], device)

    def forward(self, h: Tensor, starts: Tensor | None, adapters: bool, texts: Texts | None) -> Tensor:
        wide = self.wide(h, adapters)
        mixed = self._train(wide, starts) if texts is None else self._read(wide, texts)
        out: Tensor = self.out(mixed, adapters)
        return out

    # A graph of all chunks of a row would take minutes to compile.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _train(self, wide: Tensor, starts: Tensor | None) -> Tensor:
        return recomputed(self._mixed, wide, (self.weight, self.bias, self.dt_bias, self.a_log, self.skip, self.gain), starts)

    def _mixed(
        self,
        wide: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        dt_bias: Tensor,
        a_log: Tensor,
        skip: Tensor,
        gain: Tensor,
        starts: Tensor | None,
    ) -> Tensor:
        z, xbc, dt = self._parts(wide)
        x, b, c = self._heads(causal_conv(xbc, weight, bias, starts))
        dt = self._steps(dt, dt_bias)
        y, _ = scan(x * dt[..., None], -self._grouped(a_log.exp()) * dt, b, c, starts)
        return self._gated(y + x * self._grouped(skip)[..., None], z, gain).to(wide.dtype)

    def _read(self, wide: Tensor, texts: Texts) -> Tensor:
        with torch.autocast(wide.device.type, enabled=False):
            z, xbc, dt = self._parts(wide)
            x, b, c = self._heads(read_conv(xbc, self.weight, self.bias, texts, self.layer))
            dt, rate = self._steps(dt, self.dt_bias), -self._grouped(self.a_log.exp())
            state = texts.recall(self.layer, "state", x.new_empty(self.groups, self.state, *x.shape[3:]))
            if wide.shape[1] == 1:
                y, state = scan_step(x * dt[..., None], rate * dt, b, c, state)
            else:
                # Padding takes no time.
                padding = torch.arange(wide.shape[1], device=wide.device) > texts.last[:, None]
                passed = dt.masked_fill(padding[..., None, None], 0.0)
                y, state = scan(x * passed[..., None], rate * passed, b, c, None, state)
            texts.keep(self.layer, "state", state)
            return self._gated(y + x * self._grouped(self.skip)[..., None], z, self.gain)

    def _parts(self, wide: Tensor) -> tuple[Tensor, ...]:
        """z; x, B and C; and each head's step of time. In f32."""
        inner = self.heads * self.width
        return torch.split(wide.float(), [inner, inner + 2 * self.groups * self.state, self.heads], -1)

    def _grouped(self, x: Tensor) -> Tensor:
        """(…, heads) → (…, groups, heads of a group)."""
        return apart(x, self.groups, -1)

    def _heads(self, xbc: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of (B, T, channels): x (B, T, groups, heads, head_dim), B and C (B, T, groups, state_dim)."""
        each = self.groups * self.state
        x, b, c = torch.split(F.silu(xbc), [self.heads * self.width, each, each], -1)
        return apart(x, self.groups, -1, self.width), self._grouped(b), self._grouped(c)

    def _steps(self, dt: Tensor, bias: Tensor) -> Tensor:
        """Steps of time within limits, (B, T, groups, heads)."""
        least, most = self.limits
        dt = F.softplus(dt + bias)
        if least > 0.0 or most is not None:
            dt = dt.clamp(min=least, max=most)
        return self._grouped(dt)

    def _gated(self, y: Tensor, z: Tensor, gain: Tensor) -> Tensor:
        y = self._grouped(y.flatten(2) * F.silu(z))
        return (F.rms_norm(y, y.shape[-1:], None, self.eps) * gain.view(self.groups, -1)).flatten(2)
