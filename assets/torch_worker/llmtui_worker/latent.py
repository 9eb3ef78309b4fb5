"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads come from one latent vector of each token.

Training computes whole heads. Texts keep the normalized latent vector and the rotated key that all heads share, and attend to these: with
W = W_k | W_v the matrix of a head's keys and values, q · (W_k c) = (W_kᵀ q) · c, and Σ p W_v c = W_v Σ p c.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Mask, attend, attend_texts
from .layers import Table, apart
from .linear import Linear
from .rope import rotate
from .texts import Texts


def pairs_apart(x: Tensor) -> Tensor:
    """Features that are paired with their neighbor: the first of all pairs, then the second ones, as `rotate` pairs them."""
    return apart(x, -1, 2).transpose(-1, -2).flatten(-2)


class LatentAttention(nn.Module):
    # Of no block with it: a sliding window.
    window: int | None = None

    def __init__(self, table: Table, model: dict[str, Any], layer: int, at: str, device: torch.device) -> None:
        super().__init__()
        config, adapter = model["config"], model["adapter"]
        mla = config["mla"]
        self.layer, self.heads = layer, model["shape"]["n_head"]
        self.rank, self.nope, self.rope, self.values = mla["kv_rank"], mla["nope_dim"], mla["rope_dim"], mla["v_dim"]
        self.eps = mla.get("norm_eps", 1e-6)
        self.cap: float | None = config["attention_softcap"]
        self.scale: float = model["score_scale"]
        q_rank = mla.get("q_rank")
        self.wide = Linear(table, [f"{at}.q_a_proj" if q_rank else f"{at}.q_proj", f"{at}.kv_a_proj_with_mqa"], adapter, device)
        self.q = self.q_gain = None
        if q_rank:
            self.q_gain = table.take(f"{at}.q_a_layernorm.weight", device)
            self.q = Linear(table, [f"{at}.q_b_proj"], adapter, device)
        self.gain = table.take(f"{at}.kv_a_layernorm.weight", device)
        self.kv = Linear(table, [f"{at}.kv_b_proj"], adapter, device)
        self.out = Linear(table, [f"{at}.o_proj"], adapter, device)
        nope_every = config["position"].get("rope", {}).get("nope_every")
        self.rotates = nope_every is None or (layer + 1) % nope_every != 0

    def forward(self, h: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Mask, adapters: bool, texts: Texts | None) -> Tensor:
        wide = self.wide(h, adapters)
        q, latent, key = torch.split(wide, [wide.shape[-1] - self.rank - self.rope, self.rank, self.rope], -1)
        if self.q is not None:
            q = self.q(self._norm(q, self.q_gain), adapters)
        latent = self._norm(latent, self.gain)
        q_nope, q_rope = torch.split(apart(q, self.heads, -1), [self.nope, self.rope], -1)
        q_rope, key = pairs_apart(q_rope), pairs_apart(key)[:, :, None]
        if rope is not None:
            q_rope, key = rotate(q_rope, *rope, self.heads), rotate(key, *rope, 1)
        found = (
            self._whole(q_rope, q_nope, key, latent, mask, adapters)
            if texts is None
            else self._read(q_rope, q_nope, key, latent, mask, adapters, texts)
        )
        out: Tensor = self.out(found, adapters)
        return out

    def _whole(self, q_rope: Tensor, q_nope: Tensor, key: Tensor, latent: Tensor, mask: Mask, adapters: bool) -> Tensor:
        """(B, T, heads · v_dim). Queries, keys and values have one width, which kernels want: zeros change neither scores nor sums."""
        k_nope, v = torch.split(apart(self.kv(latent, adapters), self.heads, -1), [self.nope, self.values], -1)
        q, k = torch.cat([q_rope, q_nope], -1), torch.cat([key.expand_as(q_rope), k_nope], -1)
        more = self.values - q.shape[-1]
        if more > 0:
            q, k = F.pad(q, (0, more)), F.pad(k, (0, more))
        elif more < 0:
            v = F.pad(v, (0, -more))
        found = apart(attend(q, k, v, mask, self.scale, self.cap), self.heads, -1)
        return found[..., : self.values].flatten(2)

    def _read(self, q_rope: Tensor, q_nope: Tensor, key: Tensor, latent: Tensor, mask: Mask, adapters: bool, texts: Texts) -> Tensor:
        # As the layer with its adapters has it: a column of the identity gives a column of the matrix.
        eye = torch.eye(self.rank, dtype=q_nope.dtype, device=q_nope.device)
        of_keys, of_values = torch.split(apart(self.kv(eye, adapters), self.heads, -1), [self.nope, self.values], -1)
        q = torch.cat([q_rope, torch.einsum("rlhn,khn->rlhk", q_nope, of_keys)], -1)
        (kept,) = texts.extend(self.layer, torch.cat([key, latent.to(key.dtype)[:, :, None]], -1), 1)
        found = apart(attend_texts(q, kept, kept, mask, self.scale, self.cap), self.heads, -1)
        return torch.einsum("rlhk,khv->rlhv", found[..., self.rope :], of_values).flatten(2)

    def _norm(self, x: Tensor, gain: Tensor | None) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], gain, self.eps)
