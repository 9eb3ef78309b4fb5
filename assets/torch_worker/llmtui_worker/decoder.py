"""The decoder in plain torch: the same parameters, names and arithmetic as the engine's own (its `composite` is the oracle of both)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .attention import Attention, Mask, Packed, kernels_take
from .distill import Beside, Distilled
from .experts import Balance, Experts
from .head import Head, capped
from .latent import LatentAttention
from .layers import Norm, Table, activate, matmul_dtype
from .linear import Linear
from .mamba import Mamba2
from .mixers import GatedDeltaNet, ShortConv
from .rope import Rope
from .texts import Texts


class Block(nn.Module):
    def __init__(self, table: Table, model: dict[str, Any], layer: int, device: torch.device) -> None:
        super().__init__()
        config = model["config"]
        self.config = config
        # What sub-layers add to the residual stream is multiplied by it.
        self.residual_scale: float | None = config.get("residual_scale")
        # Absent in specs without it.
        self.parallel = config.get("parallel_residual", False)
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
                "reordered": ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
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
        self.attention: Attention | LatentAttention | None = None
        self.mixer: ShortConv | GatedDeltaNet | Mamba2 | None = None
        if table.has(f"{at}conv.in_proj.weight"):
            self.mixer = ShortConv(table, model, layer, f"{at}conv", device)
        elif table.has(f"{at}linear_attn.out_proj.weight"):
            self.mixer = GatedDeltaNet(table, model, layer, f"{at}linear_attn", device)
        elif table.has(f"{at}mamba.out_proj.weight"):
            self.mixer = Mamba2(table, model, layer, f"{at}mamba", device)
        elif config.get("mla"):
            self.attention = LatentAttention(table, model, layer, f"{at}self_attn", device)
        else:
            self.attention = Attention(table, model, layer, ([at + name for name in qkv], at + out), device)
        self.before2, self.after2 = norm(before2), norm(after2)
        self.experts: Experts | None = None
        if table.has(f"{at}mlp.gate.weight"):
            self.experts = Experts(table, model, f"{at}mlp", device)
        else:
            self.wide = Linear(table, [at + name for name in wide], adapter, device)
            self.down = Linear(table, [at + down], adapter, device)
        ((self.mlp_kind, self.mlp_settings),) = config["mlp"].items()

    def forward(
        self,
        x: Tensor,
        rope: tuple[Tensor, Tensor] | None,
        mask: Mask | None,
        starts: Tensor | None,
        adapters: bool,
        texts: Texts | None = None,
    ) -> Tensor:
        h = self._norm(self.before1, x)
        if self.attention is not None:
            assert mask is not None
            h = self.attention(h, rope, mask, adapters, texts)
        elif self.mixer is not None:
            h = self.mixer(h, starts, adapters, texts)
        after = self._join(x, h, self.after1)
        # With a parallel residual both read the stream before attention (arXiv 2204.06745).
        h = self._norm(self.before2, x if self.parallel else after)
        if self.experts is not None:
            h = self.experts(h, adapters)
        else:
            h = self.down(activate(self.mlp_kind, self.mlp_settings, self.wide(h, adapters)), adapters)
        return self._join(after, h, self.after2)

    def sight(
        self, ropes: list[tuple[Tensor, Tensor] | None], masks: dict[int | None, Mask]
    ) -> tuple[tuple[Tensor, Tensor] | None, Mask | None]:
        """Its rotation and its mask, if it has attention: without a sliding window the first rotation, with one the second."""
        if self.attention is None:
            return None, None
        window = self.attention.window
        return ropes[0 if window is None else 1] if self.attention.rotates else None, masks[window]

    @staticmethod
    def _norm(norm: Norm | None, x: Tensor) -> Tensor:
        return x if norm is None else norm(x)

    def _join(self, x: Tensor, added: Tensor, after: Norm | None) -> Tensor:
        if self.config["norm_placement"] in ("both", "reordered"):
            return self._sum(x, self._drop(self._norm(after, added)))
        return self._norm(after, self._sum(x, self._drop(added)))

    def _sum(self, x: Tensor, added: Tensor) -> Tensor:
        # One kernel, as without a scale.
        return x + added if self.residual_scale is None else torch.add(x, added, alpha=self.residual_scale)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config["dropout"], self.training) if self.config["dropout"] else x


class Decoder(nn.Module):
    def __init__(self, model: dict[str, Any], device: torch.device, frozen: torch.dtype | None = None, *, joined: bool = True) -> None:
        super().__init__()
        self.config, self.shape = model["config"], model["shape"]
        self.table = Table(model["params"], frozen, joined=joined)
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
        # The sliding window of each layer with attention; None is full attention.
        self.windows = {block.attention.window for block in blocks if block.attention is not None}
        self.mixes = any(block.mixer is not None for block in blocks)
        self.balance: Balance | None = None
        experts = self.experts = [block.experts for block in blocks if block.experts is not None]
        if experts:
            self.balance = Balance(self.config["moe"], len(experts), device)
            for number, own in enumerate(experts):
                own.block, own.balance = number, self.balance
        self.blocks = nn.ModuleList(blocks)
        self.norm = Norm(table, norm, self.config, device) if table.has(f"{norm}.weight") else None
        self.score = table.take("score.weight", device) if table.has("score.weight") else None
        self.head = table.take("lm_head.weight", device) if table.has("lm_head.weight") else None
        # A critic on this trunk.
        self.value = table.take("v_head.summary.weight", device) if table.has("v_head.summary.weight") else None
        left = sorted(set(table.infos) - set(table.made) - set(table.parts))
        if left:
            raise ValueError(f"the worker has no place for {left[0]} and {len(left) - 1} others")
        self.ropes = [None if rotation is None else Rope(rotation, self.shape["seq_len"]) for rotation in model["rotations"]]
        slopes = model["slopes"]
        self.slopes = None if slopes is None else torch.tensor(slopes, dtype=torch.float32, device=device)
        self.recompute = model["recompute"]
        # The z-loss, and the size of the noise on embeddings (NEFTune, Jain et al. 2023, arXiv 2310.05914), both in training alone; 0 is off.
        self.z_loss: float = model.get("logit_z_loss", 0.0)
        self.noise: float = model.get("embedding_noise", 0.0)
        self.waves: Tensor | None = None
        if model["waves"]:
            at = torch.arange(self.shape["seq_len"], dtype=torch.float64)[:, None]
            i = torch.arange(self.shape["d_model"], dtype=torch.float64)[None]
            angle = at * 10_000.0 ** (-(i - i % 2) / self.shape["d_model"])
            self.waves = torch.where(i % 2 == 0, angle.sin(), angle.cos()).float().to(device)

    def changed(self) -> None:
        """Invalidates cached casts after an update."""
        self.table.changes += 1

    def rope_len(self) -> int:
        """The length of the RoPE tables."""
        return max((len(rope.cos) for rope in self.ropes if rope is not None), default=0)

    def fuse(self) -> None:
        """Compiles one block (reused for all) and the per-logit epilogue."""
        # One graph for every combination of lengths, masks, training or not.
        torch._dynamo.config.recompile_limit = 64
        for block in self.blocks:
            block.compile()
        Head.fuse()

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor,
        first: Tensor | None,
        adapters: bool = True,
        packed: Packed | None = None,
        c: Tensor | None = None,
        temperature: float = 1.0,
        beside: Beside | None = None,
    ) -> tuple[Tensor, ...]:
        """(B, T) each: log-probability of the targets, entropy, whether the target was the top-1 token; and Σ c · logp.

        `first` (B, T) is the first position that a token attends to; `packed` has the same as cumulative lengths. With `c` (B, T) only that
        sum has a gradient. Log-probabilities and entropies are those of the softmax of logits / temperature. With a teacher beside it also
        divergence, the teacher's entropy and whether both have the same top-1 token, and the sum is that of `Distilled`; with a value head the
        value of each token.
        """
        rows, length = inputs.shape
        flat, goal = self._states(inputs, first, adapters, packed).flatten(0, 1), targets.reshape(-1)
        if self.score is not None:
            scores = F.linear(flat, self.score)[:, 0].float().view(rows, length)
            none = torch.zeros_like(scores)
            return scores, none, none, scores.new_zeros(()) if c is None else (scores * c).sum()
        values = [] if self.value is None else [self._values(flat, self.value)]
        flat, cap = self._scaled(flat, temperature), self.config["logit_softcap"]
        if cap is not None:
            cap = cap / temperature
        flat_c = None if c is None else c.reshape(-1)
        found = (
            Head.apply(flat, self._head(), goal, cap, flat_c, self.z_loss)
            if beside is None
            else Distilled.apply(flat, self._head(), goal, cap, flat_c, beside)
        )
        if values and c is not None:
            # A loss without values has a gradient of 0 for their head, not none: DDP waits for one, and weight decay goes on.
            found = (*found[:3], found[3] + 0.0 * values[0].sum(), *found[4:])
        return tuple(x.view(rows, length) if x.dim() else x for x in (*found, *values))

    def teach(self, inputs: Tensor, first: Tensor | None, packed: Packed | None, beta: float, temperature: float) -> Beside:
        """This model's side of a pass that learns from it."""
        states = self._scaled(self._states(inputs, first, True, packed).flatten(0, 1), 1.0)
        return Beside(states, self._head(), self.config["logit_softcap"], beta, temperature)

    @staticmethod
    def _values(flat: Tensor, head: Tensor) -> Tensor:
        """In f32, whatever the matmul dtype."""
        with torch.autocast(flat.device.type, enabled=False):
            return F.linear(flat.float(), head)[:, 0]

    def _head(self) -> Tensor:
        return self.tokens if self.head is None else self.head

    def _scaled(self, flat: Tensor, temperature: float) -> Tensor:
        """States whose logits are divided by a temperature, and multiplied by the model's own scale."""
        scale = self.config.get("logit_scale") or 1.0
        # The head is linear, and c · tanh(s z / c) / T is (c / T) · tanh((s z / T) / (c / T)).
        return flat if temperature == scale else flat / (temperature / scale)

    def _states(self, inputs: Tensor, first: Tensor | None, adapters: bool, packed: Packed | None) -> Tensor:
        """What the head reads, (B, T, D)."""
        length = inputs.shape[1]
        positions = torch.arange(length, device=inputs.device)[None]
        at = positions if first is None else positions - first
        x = self._embedded(inputs, at)
        if self.noise and self.training:
            # Uniform within ± noise / √(T D).
            x = x + torch.empty_like(x).uniform_(-1.0, 1.0) * (self.noise / x[0].numel() ** 0.5)
        if self.config["dropout"]:
            x = F.dropout(x, self.config["dropout"], self.training)
        ropes = self._rope(at, length)
        needs_mask = self.slopes is not None or self.config["attention_softcap"] or self.config.get("attention_sinks")
        if needs_mask or not kernels_take(x, self.shape["head_dim"]):
            packed = None
        masks = {
            window: Mask(self._mask(window, first, length, x.device)) if packed is None else Mask(None, packed, window)
            for window in self.windows
        }
        blocks: Any = self.blocks
        for block in blocks:
            given = *block.sight(ropes, masks), first if self.mixes else None, adapters
            x = checkpoint(block, x, *given, use_reentrant=False) if self.recompute and self.training else block(x, *given)
        return x if self.norm is None else self.norm(x)

    def read(self, ids: Tensor, texts: Texts) -> Tensor:
        """Logits (R, V) after the last of the new tokens (R, L) of texts, whose keys and values are cached."""
        at = texts.at
        x = self._embedded(ids, at)
        ropes = self._rope(at, texts.tokens)
        kind = torch.float32 if self.config["attention_softcap"] else matmul_dtype(x)
        masks = {window: Mask(texts.mask(window, self.slopes, kind)) for window in self.windows}
        blocks: Any = self.blocks
        for block in blocks:
            x = block(x, *block.sight(ropes, masks), None, True, texts)
        x = x[torch.arange(len(ids), device=x.device), texts.last]
        if self.norm is not None:
            x = self.norm(x)
        if scale := self.config.get("logit_scale"):
            x = x * scale
        return capped(F.linear(x, self._head()), self.config["logit_softcap"]).float()

    def _embedded(self, ids: Tensor, at: Tensor) -> Tensor:
        x = F.embedding(ids, self.tokens)
        if self.config["embedding_scale"]:
            x = x * self.config["embedding_scale"]
        if self.positions is not None:
            return x + F.embedding(at, self.positions)
        return x if self.waves is None else x + self.waves[at]

    def _rope(self, at: Tensor, positions: int) -> list[tuple[Tensor, Tensor] | None]:
        found: list[tuple[Tensor, Tensor] | None] = []
        for rope in self.ropes:
            if rope is None:
                found.append(None)
                continue
            rope.reach(positions, at.device)
            found.append(rope.at(at))
        return found

    def _mask(self, window: int | None, first: Tensor | None, length: int, device: torch.device) -> Tensor | None:
        """The mask tensor; None is plain causal attention."""
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
        far = self.slopes[None, :, None, None] * (k - q)[None, None]
        return far.masked_fill(~seen, float("-inf"))
