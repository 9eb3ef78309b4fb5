"""The decoder in plain torch: the same parameters, names and arithmetic as the engine's own (its `composite` is the oracle of both)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .texts import Texts

# Elements of logits above which the head works in pieces and computes them again in the backward pass.
MOST_LOGITS = 1 << 26


class Table:
    """The engine's list of parameters: what each is called, its shape, and where it lies in the flat buffers."""

    def __init__(self, params: list[dict[str, Any]]) -> None:
        self.infos = {info["name"]: info for info in params}
        self.made: dict[str, nn.Parameter] = {}

    def has(self, name: str) -> bool:
        return name in self.infos

    def take(self, name: str, device: torch.device) -> nn.Parameter:
        info = self.infos[name]
        parameter = nn.Parameter(torch.zeros(info["shape"], device=device), requires_grad=info["grad"] is not None)
        self.made[name] = parameter
        return parameter


class Linear(nn.Module):
    """y = W x + b + s · B (A x) for one or more matrices with the same input, their outputs side by side.

    With magnitudes m (DoRA): y = m / |W + s B A| · (W x + s · B (A x)) + b, the norm of each row being a constant. In training
    features of the x that goes into A are dropped, the same for all matrices of one input.
    """

    def __init__(self, table: Table, names: list[str], adapter: dict[str, float], device: torch.device) -> None:
        super().__init__()
        self.weights = nn.ParameterList([table.take(f"{name}.weight", device) for name in names])
        biased = table.has(f"{names[0]}.bias")
        self.biases = nn.ParameterList([table.take(f"{name}.bias", device) for name in names]) if biased else None
        self.scale, self.dropout = adapter["scale"], adapter["dropout"]
        self.a = nn.ParameterDict()
        self.b = nn.ParameterDict()
        self.m = nn.ParameterDict()
        for at, name in enumerate(names):
            if table.has(f"{name}.lora_A.weight"):
                self.a[str(at)] = table.take(f"{name}.lora_A.weight", device)
                self.b[str(at)] = table.take(f"{name}.lora_B.weight", device)
            if table.has(f"{name}.lora_magnitude_vector"):
                self.m[str(at)] = table.take(f"{name}.lora_magnitude_vector", device)

    def forward(self, x: Tensor, adapters: bool) -> Tensor:
        parts = []
        adapters = adapters and len(self.a) > 0
        kept = F.dropout(x, self.dropout, self.training) if adapters else x
        for at, weight in enumerate(self.weights):
            y, key = F.linear(x, weight), str(at)
            if adapters and key in self.a:
                y = y + self.scale * F.linear(F.linear(kept, self.a[key]), self.b[key])
                if key in self.m:
                    with torch.no_grad():
                        norm = (weight + self.scale * self.b[key] @ self.a[key]).norm(dim=1)
                    y = y * (self.m[key] / norm)
            parts.append(y if self.biases is None else y + self.biases[at])
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


class Norm(nn.Module):
    def __init__(self, table: Table, name: str, config: dict[str, Any], device: torch.device) -> None:
        super().__init__()
        ((self.kind, settings),) = config["norm"].items()
        self.eps = settings["eps"]
        self.offset = 1.0 if settings.get("unit_offset") else 0.0
        self.weight = table.take(f"{name}.weight", device)
        self.bias = table.take(f"{name}.bias", device) if table.has(f"{name}.bias") else None

    def forward(self, x: Tensor) -> Tensor:
        gain = self.weight + self.offset
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            if self.kind == "layernorm":
                return F.layer_norm(x, x.shape[-1:], gain.float(), None if self.bias is None else self.bias.float(), self.eps)
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * gain.float()


def activate(kind: str, settings: dict[str, Any], x: Tensor) -> Tensor:
    if kind in ("swiglu", "geglu"):
        gate, up = x.chunk(2, -1)
        return (F.silu(gate) if kind == "swiglu" else gelu(gate, settings)) * up
    match kind:
        case "gelu":
            return gelu(x, settings)
        case "relu":
            return F.relu(x)
        case "silu":
            return F.silu(x)
        case "leaky_relu":
            return F.leaky_relu(x, settings["slope"])
    raise ValueError(f"the feed-forward block {kind} is unknown to the worker")


def gelu(x: Tensor, settings: dict[str, Any]) -> Tensor:
    return F.gelu(x, approximate="tanh" if settings.get("approximate") == "tanh" else "none")


class Block(nn.Module):
    def __init__(self, table: Table, model: dict[str, Any], layer: int, device: torch.device) -> None:
        super().__init__()
        config, shape = model["config"], model["shape"]
        self.config, self.shape, self.layer = config, shape, layer
        gpt2 = table.has(f"transformer.h.{layer}.attn.c_attn.weight")
        at = f"transformer.h.{layer}." if gpt2 else f"model.layers.{layer}."
        adapter = model["adapter"]
        if gpt2:
            qkv, out = ["attn.c_attn"], "attn.c_proj"
            wide, down = ["mlp.c_fc"], "mlp.c_proj"
            before1, after1, before2, after2 = "ln_1", "", "ln_2", ""
        else:
            qkv, out = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "self_attn.o_proj"
            gated = table.has(f"{at}mlp.gate_proj.weight")
            wide, down = (["mlp.gate_proj", "mlp.up_proj"] if gated else ["mlp.up_proj"]), "mlp.down_proj"
            before1, after1, before2, after2 = {
                "pre": ("input_layernorm", "", "post_attention_layernorm", ""),
                "post": ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
                "both": (
                    "input_layernorm",
                    "post_attention_layernorm",
                    "pre_feedforward_layernorm",
                    "post_feedforward_layernorm",
                ),
            }[config["norm_placement"]]

        def norm(name: str) -> Norm | None:
            return Norm(table, at + name, config, device) if name else None

        self.before1, self.after1 = norm(before1), norm(after1)
        self.qkv = Linear(table, [at + name for name in qkv], adapter, device)
        self.qk_gains = None
        if config["qk_norm"]:
            names = (f"{at}self_attn.q_norm.weight", f"{at}self_attn.k_norm.weight")
            self.qk_gains = nn.ParameterList([table.take(name, device) for name in names])
        self.out = Linear(table, [at + out], adapter, device)
        self.before2, self.after2 = norm(before2), norm(after2)
        self.wide = Linear(table, [at + name for name in wide], adapter, device)
        self.down = Linear(table, [at + down], adapter, device)
        ((self.mlp_kind, self.mlp_settings),) = config["mlp"].items()
        every = config["global_every"]
        sees_all = every is not None and (layer + 1) % every == 0
        self.window = None if sees_all else config["sliding_window"]

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None, adapters: bool, texts: Texts | None = None
    ) -> Tensor:
        x = self._join(x, self._attend(self._norm(self.before1, x), rope, mask, adapters, texts), self.after1)
        h = self._norm(self.before2, x)
        h = self.down(activate(self.mlp_kind, self.mlp_settings, self.wide(h, adapters)), adapters)
        return self._join(x, h, self.after2)

    @staticmethod
    def _norm(norm: Norm | None, x: Tensor) -> Tensor:
        return x if norm is None else norm(x)

    def _join(self, x: Tensor, added: Tensor, after: Norm | None) -> Tensor:
        if self.config["norm_placement"] == "both":
            return x + self._drop(self._norm(after, added))
        return self._norm(after, x + self._drop(added))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config["dropout"], self.training)

    def _attend(self, h: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None, adapters: bool, texts: Texts | None) -> Tensor:
        rows, length, _ = h.shape
        heads, kv, width = self.shape["n_head"], self.shape["n_kv_head"], self.shape["head_dim"]
        q, k, v = self.qkv(h, adapters).split([heads * width, kv * width, kv * width], -1)
        q, k, v = (x.view(rows, length, -1, width).transpose(1, 2) for x in (q, k, v))
        if self.qk_gains is not None:
            q, k = (self._unit(x, gain) for x, gain in zip((q, k), self.qk_gains, strict=True))
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        q, k = q.to(v.dtype), k.to(v.dtype)
        if texts is not None:
            k, v = texts.extend(self.layer, k, v)
        scale = self.config["attention_scale"] or 1 / math.sqrt(width)
        cap = self.config["attention_softcap"]
        if cap is None:
            bias = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=mask is None, scale=scale, enable_gqa=heads != kv)
        else:
            k, v = (x.repeat_interleave(heads // kv, 1) for x in (k, v))
            scores = cap * torch.tanh(q @ k.transpose(-1, -2) * scale / cap)
            y = (scores.float() + additive(mask, length, h.device)).softmax(-1).to(v.dtype) @ v
        out: Tensor = self.out(y.transpose(1, 2).reshape(rows, length, heads * width), adapters)
        return out

    def _unit(self, x: Tensor, gain: Tensor) -> Tensor:
        ((_, settings),) = self.config["norm"].items()
        offset = 1.0 if settings.get("unit_offset") else 0.0
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + settings["eps"]) * (gain + offset)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Halves are paired; features beyond the pairs stay as they are. cos, sin: (rows or 1, 1, T, half)."""
    half = cos.shape[-1]
    a, b, rest = torch.split(x.float(), [half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def additive(mask: Tensor | None, length: int, device: torch.device) -> Tensor:
    if mask is None:
        mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=device).masked_fill(~mask, float("-inf"))


class Decoder(nn.Module):
    def __init__(self, model: dict[str, Any], device: torch.device) -> None:
        super().__init__()
        self.config, self.shape = model["config"], model["shape"]
        self.table = Table(model["params"])
        table = self.table
        gpt2 = table.has("transformer.wte.weight")
        wte, wpe, norm = (
            ("transformer.wte", "transformer.wpe", "transformer.ln_f")
            if gpt2
            else ("model.embed_tokens", "model.embed_positions", "model.norm")
        )
        self.tokens = table.take(f"{wte}.weight", device)
        self.positions = table.take(f"{wpe}.weight", device) if table.has(f"{wpe}.weight") else None
        layers = range(self.shape["n_layer"])
        blocks = [Block(table, model, layer, device) for layer in layers]
        # How far each layer sees; None is all.
        self.windows: list[int | None] = [block.window for block in blocks]
        self.blocks = nn.ModuleList(blocks)
        self.norm = Norm(table, norm, self.config, device) if table.has(f"{norm}.weight") else None
        self.score = table.take("score.weight", device) if table.has("score.weight") else None
        self.head = table.take("lm_head.weight", device) if table.has("lm_head.weight") else None
        left = sorted(set(table.infos) - set(table.made))
        if left:
            raise ValueError(f"the worker has no place for {left[0]} and {len(left) - 1} others")
        self.rotations = model["rotations"]
        slopes = model["slopes"]
        self.slopes = None if slopes is None else torch.tensor(slopes, dtype=torch.float32)
        self.recompute = model["recompute"]
        self.waves: Tensor | None = None
        if model["waves"]:
            at = torch.arange(self.shape["seq_len"], dtype=torch.float64)[:, None]
            i = torch.arange(self.shape["d_model"], dtype=torch.float64)[None]
            angle = at * 10_000.0 ** (-(i - i % 2) / self.shape["d_model"])
            self.waves = torch.where(i % 2 == 0, angle.sin(), angle.cos()).float()

    def forward(self, inputs: Tensor, targets: Tensor, first: Tensor | None, adapters: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T) each: log-probability of the targets, entropy, whether the target was the top-1 token."""
        rows, length = inputs.shape
        places = torch.arange(length, device=inputs.device)[None]
        at = places if first is None else places - first
        x = F.embedding(inputs, self.tokens) * (self.config["embedding_scale"] or 1.0)
        if self.positions is not None:
            x = x + F.embedding(at, self.positions)
        elif self.waves is not None:
            x = x + self.waves.to(x.device)[at]
        x = F.dropout(x, self.config["dropout"], self.training)
        ropes = [self._rope(rotation, at) for rotation in self.rotations]
        masks: dict[int | None, Tensor | None] = {}
        for block, window in zip(self.blocks, self.windows, strict=True):
            if window not in masks:
                masks[window] = self._mask(window, first, length, x.device)
            rope, mask = ropes[0 if window is None else 1], masks[window]
            if self.recompute and self.training:
                x = checkpoint(block, x, rope, mask, adapters, use_reentrant=False)
            else:
                x = block(x, rope, mask, adapters)
        if self.norm is not None:
            x = self.norm(x)
        flat, goal = x.reshape(rows * length, -1), targets.reshape(-1)
        if self.score is not None:
            values = F.linear(flat, self.score)[:, 0].float()
            return values.view(rows, length), torch.zeros_like(inputs, dtype=torch.float32), torch.zeros_like(inputs, dtype=torch.float32)
        weight = self.tokens if self.head is None else self.head
        pieces = max(1, math.ceil(flat.shape[0] * weight.shape[0] / MOST_LOGITS))
        found = []
        for hidden, wanted in zip(flat.chunk(pieces), goal.chunk(pieces), strict=True):
            if pieces > 1 and self.training:
                found.append(checkpoint(self._read, hidden, weight, wanted, use_reentrant=False))
            else:
                found.append(self._read(hidden, weight, wanted))
        logp, entropy, top1 = (torch.cat(part).view(rows, length) for part in zip(*found, strict=True))
        return logp, entropy, top1

    def read(self, ids: Tensor, texts: Texts) -> Tensor:
        """Logits (R, V) behind the last of the new tokens (R, L) of texts, whose keys and values are kept."""
        at = texts.at
        x = F.embedding(ids, self.tokens) * (self.config["embedding_scale"] or 1.0)
        if self.positions is not None:
            x = x + F.embedding(at, self.positions)
        elif self.waves is not None:
            x = x + self.waves.to(x.device)[at]
        ropes = [self._rope(rotation, at) for rotation in self.rotations]
        slopes = None if self.slopes is None else self.slopes.to(x.device)
        masks = {window: texts.mask(window, slopes) for window in set(self.windows)}
        for block, window in zip(self.blocks, self.windows, strict=True):
            x = block(x, ropes[0 if window is None else 1], masks[window], True, texts)
        x = x[torch.arange(len(ids), device=x.device), texts.last]
        if self.norm is not None:
            x = self.norm(x)
        return self._logits(x, self.tokens if self.head is None else self.head)

    def _logits(self, hidden: Tensor, weight: Tensor) -> Tensor:
        logits = F.linear(hidden, weight).float()
        cap = self.config["logit_softcap"]
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _read(self, hidden: Tensor, weight: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self._logits(hidden, weight)
        lse = logits.logsumexp(-1)
        logp = logits.gather(-1, goal[:, None])[:, 0] - lse
        p = (logits - lse[:, None]).exp()
        entropy = lse - (p * logits).sum(-1)
        top1 = (logits.detach().argmax(-1) == goal).float()
        return logp, entropy, top1

    def _rope(self, rotation: dict[str, Any] | None, at: Tensor) -> tuple[Tensor, Tensor] | None:
        if rotation is None:
            return None
        frequencies = torch.tensor(rotation["frequencies"], dtype=torch.float64, device="cpu")
        angles = at.cpu().double()[..., None] * frequencies
        cos, sin = angles.cos() * rotation["factor"], angles.sin() * rotation["factor"]
        return tuple(x.float().to(at.device)[:, None] for x in (cos, sin))

    def _mask(self, window: int | None, first: Tensor | None, length: int, device: torch.device) -> Tensor | None:
        """What a token sees: None is every token up to itself."""
        if window is None and first is None and self.slopes is None:
            return None
        q = torch.arange(length, device=device)[:, None]
        k = torch.arange(length, device=device)[None]
        seen = (k <= q) if window is None else (k <= q) & (q - k < window)
        seen = seen[None, None]
        if first is not None:
            seen = seen & (k[None, None] >= first[:, None, :, None])
        if self.slopes is None:
            return seen
        far = self.slopes.to(device)[None, :, None, None] * (k - q)[None, None]
        return far.masked_fill(~seen, float("-inf"))
