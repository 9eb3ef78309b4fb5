"""The worker by itself: frames, and texts that are read piece by piece against the same texts read whole.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_worker.py

Without PyTorch what needs it is skipped, with these words.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from llmtui_worker import wire
from llmtui_worker.adamw8bit import AdamW8bit
from llmtui_worker.meeting import Meeting

try:
    import test_launches as launches
    import torch
    from llmtui_worker.attention import Mask
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.layers import activate
    from llmtui_worker.texts import Texts
    from llmtui_worker.trainer import Rank
    from torch import Tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""

VOCAB, WIDTH, LAYERS, HEADS, KV, CONTEXT = 19, 16, 2, 4, 2, 24


def described(**changes: Any) -> dict[str, Any]:
    """A small decoder as the engine describes it."""
    config: dict[str, Any] = {
        "norm": {"rmsnorm": {"eps": 1e-5}},
        "norm_placement": "pre",
        "qk_norm": False,
        "position": {"rope": {}},
        "mlp": {"swiglu": {}},
        "global_every": None,
        "sliding_window": None,
        "attention_scale": None,
        "attention_softcap": None,
        "dropout": 0.0,
        "embedding_scale": None,
        "logit_softcap": None,
    }
    rope = changes.pop("rope", True)
    slopes = changes.pop("slopes", None)
    waves = changes.pop("waves", False)
    config |= changes
    each = WIDTH // HEADS
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [VOCAB, WIDTH], "model.norm.weight": [WIDTH]}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        mixer = config.get("mixer") if layer not in config.get("attention_blocks", []) else None
        shapes |= {
            f"{at}input_layernorm.weight": [WIDTH],
            f"{at}post_attention_layernorm.weight": [WIDTH],
            f"{at}mlp.gate_proj.weight": [32, WIDTH],
            f"{at}mlp.up_proj.weight": [32, WIDTH],
            f"{at}mlp.down_proj.weight": [WIDTH, 32],
        }
        if config.get("moe"):
            for part in ("gate", "up", "down"):
                del shapes[f"{at}mlp.{part}_proj.weight"]
            shapes |= of_experts(f"{at}mlp.", config["moe"], bias=config.get("bias", False) or config["moe"].get("bias", False))
        if config["norm_placement"] == "reordered":
            del shapes[f"{at}input_layernorm.weight"]
            shapes[f"{at}post_feedforward_layernorm.weight"] = [WIDTH]
        if mixer is not None:
            shapes |= of_mixer(at, mixer)
            continue
        if config.get("mla"):
            shapes |= of_latents(f"{at}self_attn.", config["mla"])
            continue
        shapes |= {
            f"{at}self_attn.q_proj.weight": [WIDTH, WIDTH],
            f"{at}self_attn.k_proj.weight": [KV * each, WIDTH],
            f"{at}self_attn.v_proj.weight": [KV * each, WIDTH],
            f"{at}self_attn.o_proj.weight": [WIDTH, WIDTH],
        }
        if config.get("attention_bias") == "all":
            own = [name for name in shapes if name.startswith(f"{at}self_attn.")]
            shapes |= {name.replace(".weight", ".bias"): shapes[name][:1] for name in own}
        if config.get("attention_sinks"):
            shapes[f"{at}self_attn.sinks"] = [HEADS]
        if config.get("attention_gate"):
            shapes[f"{at}self_attn.q_gate_proj.weight"] = [WIDTH, WIDTH]
        if config["qk_norm"]:
            over_all = config.get("qk_norm_over") == "all_heads"
            shapes[f"{at}self_attn.q_norm.weight"] = [WIDTH if over_all else each]
            shapes[f"{at}self_attn.k_norm.weight"] = [KV * each if over_all else each]
    mla = config.get("mla")
    turned = mla["rope_dim"] if mla else each
    width = max(mla["nope_dim"] + mla["rope_dim"], mla["v_dim"]) if mla else each
    frequencies = [10_000.0 ** (-2 * i / turned) for i in range(turned // 2)]
    rotation = {"frequencies": frequencies, "factor": 1.0} if rope else None
    return {
        "params": [{"name": name, "shape": shape, "grad": 0} for name, shape in shapes.items()],
        "shape": {"n_layer": LAYERS, "n_head": HEADS, "n_kv_head": KV, "head_dim": width, "d_model": WIDTH, "seq_len": CONTEXT},
        "config": config,
        "rotations": [rotation, rotation],
        "slopes": slopes,
        "waves": waves,
        "score_scale": 0.9 / math.sqrt(mla["nope_dim"] + mla["rope_dim"]) if mla else None,
        "adapter": {"scales": {}, "dropout": 0.0},
        "recompute": False,
    }


def of_experts(at: str, moe: dict[str, Any], *, bias: bool) -> dict[str, list[int]]:
    """The parameters of a block of experts."""
    shapes = {f"{at}gate.weight": [moe["n_expert"], WIDTH]}
    if moe.get("bias"):
        shapes[f"{at}gate.bias"] = [moe["n_expert"]]
    if "bias" in moe.get("balancing", {}):
        shapes[f"{at}gate.e_score_correction_bias"] = [moe["n_expert"]]
    blocks = {f"experts.{e}": moe["d_ff"] for e in range(moe["n_expert"])}
    if "shared_d_ff" in moe:
        blocks["shared_expert"] = moe["shared_d_ff"]
    for name, width in blocks.items():
        sizes = {"gate_proj": [width, WIDTH], "up_proj": [width, WIDTH], "down_proj": [WIDTH, width]}
        for part, shape in sizes.items():
            shapes[f"{at}{name}.{part}.weight"] = shape
        for part, shape in sizes.items() if bias else ():
            shapes[f"{at}{name}.{part}.bias"] = shape[:1]
    if moe.get("shared_gate"):
        shapes[f"{at}shared_expert_gate.weight"] = [1, WIDTH]
    return shapes


def of_latents(at: str, mla: dict[str, Any]) -> dict[str, list[int]]:
    """The parameters of latent attention."""
    rank, q_rank = mla["kv_rank"], mla.get("q_rank")
    queries = HEADS * (mla["nope_dim"] + mla["rope_dim"])
    q = {f"{at}q_proj.weight": [queries, WIDTH]}
    if q_rank:
        q = {f"{at}q_a_proj.weight": [q_rank, WIDTH], f"{at}q_a_layernorm.weight": [q_rank], f"{at}q_b_proj.weight": [queries, q_rank]}
    return q | {
        f"{at}kv_a_proj_with_mqa.weight": [rank + mla["rope_dim"], WIDTH],
        f"{at}kv_a_layernorm.weight": [rank],
        f"{at}kv_b_proj.weight": [HEADS * (mla["nope_dim"] + mla["v_dim"]), rank],
        f"{at}o_proj.weight": [WIDTH, HEADS * mla["v_dim"]],
    }


def of_mixer(at: str, mixer: dict[str, Any]) -> dict[str, list[int]]:
    """The parameters of what a block has in the place of attention."""
    if "short_conv" in mixer:
        config, at = mixer["short_conv"], f"{at}conv."
        shapes = {
            f"{at}in_proj.weight": [3 * WIDTH, WIDTH],
            f"{at}conv.weight": [WIDTH, config["conv_len"]],
            f"{at}out_proj.weight": [WIDTH, WIDTH],
        }
        biases = {f"{at}in_proj.bias": [3 * WIDTH], f"{at}conv.bias": [WIDTH], f"{at}out_proj.bias": [WIDTH]}
        return shapes | biases if config["bias"] else shapes
    if "mamba2" in mixer:
        net, at = mixer["mamba2"], f"{at}mamba."
        inner, heads = net["n_head"] * net["head_dim"], net["n_head"]
        channels = inner + 2 * net["n_group"] * net["state_dim"]
        shapes = {
            f"{at}in_proj.weight": [inner + channels + heads, WIDTH],
            f"{at}conv1d.weight": [channels, net["conv_len"]],
            f"{at}out_proj.weight": [WIDTH, inner],
            f"{at}norm.weight": [inner],
        }
        return (
            shapes
            | {f"{at}{name}": [heads] for name in ("dt_bias", "A_log", "D")}
            | ({f"{at}conv1d.bias": [channels]} if net["conv_bias"] else {})
        )
    net, at = mixer["gated_delta_net"], f"{at}linear_attn."
    heads, values = net["n_value_head"], net["n_value_head"] * net["value_dim"]
    channels = 2 * net["n_key_head"] * net["key_dim"] + values
    return {
        f"{at}in_proj_qkv.weight": [channels, WIDTH],
        f"{at}in_proj_z.weight": [values, WIDTH],
        f"{at}in_proj_b.weight": [heads, WIDTH],
        f"{at}in_proj_a.weight": [heads, WIDTH],
        f"{at}conv1d.weight": [channels, net["conv_len"]],
        f"{at}dt_bias": [heads],
        f"{at}A_log": [heads],
        f"{at}norm.weight": [net["value_dim"]],
        f"{at}out_proj.weight": [WIDTH, values],
    }


def experts(**changes: Any) -> dict[str, Any]:
    return {
        "n_expert": 4,
        "top_k": 2,
        "d_ff": 8,
        "norm_topk": True,
        "aux_loss_coef": 0.1,
        "z_loss_coef": 0.01,
        "balancing": {"loss": {}},
    } | changes


# Mixtral's, Qwen2-MoE's, DeepSeek-V2's and V3's kinds.
MIXTURES: list[dict[str, Any]] = [
    {"moe": experts()},
    {"moe": experts(norm_topk=False, shared_d_ff=12, shared_gate=True), "bias": True},
    {"moe": experts(n_expert=8, n_group=4, top_group=2, top_k=3, norm_topk=False, gate_scale=1.5, shared_d_ff=8)},
    {"moe": experts(n_expert=8, n_group=4, top_group=2, scoring="sigmoid", gate_scale=2.5, balancing={"bias": {"rate": 0.01}})},
]
CLAMPED: dict[str, Any] = {"clamped_swiglu": {"limit": 0.7, "slope": 1.702}}
# gpt-oss, with limits that many values pass.
GPT_OSS: dict[str, Any] = {
    "moe": experts(bias=True),
    "mlp": CLAMPED,
    "attention_sinks": True,
    "attention_bias": "all",
    "sliding_window": 3,
    "global_every": 2,
}
SHORT: dict[str, Any] = {"short_conv": {"conv_len": 3, "bias": True}}
DELTA: dict[str, Any] = {"gated_delta_net": {"n_key_head": 2, "n_value_head": 4, "key_dim": 6, "value_dim": 5, "conv_len": 4}}
MAMBA: dict[str, Any] = {"mamba2": {"n_head": 4, "head_dim": 4, "state_dim": 5, "n_group": 2, "conv_len": 4, "conv_bias": True}}
SLOW: dict[str, Any] = {"mamba2": MAMBA["mamba2"] | {"n_group": 1, "conv_len": 2, "conv_bias": False, "dt_min": 0.1, "dt_max": 0.9}}
# Values narrower than keys, as DeepSeek's; wider ones.
LATENTS: list[dict[str, Any]] = [
    {"mla": {"kv_rank": 10, "nope_dim": 6, "rope_dim": 4, "v_dim": 7}},
    {"mla": {"kv_rank": 6, "q_rank": 9, "nope_dim": 3, "rope_dim": 2, "v_dim": 8, "norm_eps": 1e-5}, "attention_softcap": 5.0},
]
HYBRIDS: list[dict[str, Any]] = [
    {"mixer": SHORT, "attention_blocks": [1], "qk_norm": True},
    {"mixer": DELTA, "attention_blocks": [0], "attention_gate": True},
    {"mixer": {"short_conv": {"conv_len": 1, "bias": False}}, "attention_blocks": [1]},
    {"mixer": DELTA, "norm_placement": "reordered"},
    {"mixer": MAMBA, "attention_blocks": [1]},
    {"mixer": SLOW},
]


@unittest.skipIf(MISSING, MISSING)
class Reading(unittest.TestCase):
    def decoder(self, **changes: Any) -> Decoder:
        torch.manual_seed(1)
        decoder = Decoder(described(**changes), torch.device("cpu")).eval()
        with torch.no_grad():
            for parameter in decoder.parameters():
                parameter.normal_(0.0, 0.4)
        return decoder

    def whole(self, decoder: Decoder, text: list[int]) -> Tensor:
        """Log-probabilities of every token behind a text that is read at once."""
        inputs = torch.tensor([text]).expand(VOCAB, -1)
        targets = torch.zeros_like(inputs)
        targets[:, -1] = torch.arange(VOCAB)
        logp, *_ = decoder(inputs, targets, None)
        return logp[:, -1]

    def read(self, decoder: Decoder, texts: Texts, pieces: dict[int, list[int]]) -> dict[int, Tensor]:
        ids = torch.tensor([token for new in pieces.values() for token in new])
        # Passes over one token are filled up with rows of nobody's.
        filled = len(pieces) + 2 if all(len(new) == 1 for new in pieces.values()) else None
        table = texts.plan([(text, len(new)) for text, new in pieces.items()], ids, filled)
        logits = decoder.read(texts.take_up(table), texts)
        self.assertEqual(len(logits), filled or len(pieces))
        texts.done()
        return dict(zip(pieces, logits.log_softmax(-1), strict=False))

    def test_pieces_give_what_whole_texts_give(self) -> None:
        variants: list[dict[str, Any]] = [
            {},
            {"sliding_window": 3},
            {"sliding_window": 3, "global_every": 2},
            {"position": {"rope": {"nope_every": 2}}},
            {"position": {"rope": {"nope_every": 2}}, "sliding_window": 3, "global_every": 2},
            {"sliding_window": 3, "global_every": 2, "global_first": True},
            {"rope": False, "slopes": [0.5, 0.25, 0.125, 0.0625]},
            {"rope": False, "waves": True},
            {"attention_softcap": 5.0, "logit_softcap": 3.0, "embedding_scale": 4.0},
            {"parallel_residual": True},
            # Granite's.
            {"attention_scale": 0.3, "embedding_scale": 6.0, "residual_scale": 0.22, "logit_scale": 0.625},
            {"residual_scale": 0.5, "logit_scale": 1.7, "logit_softcap": 3.0},
            {"qk_norm": True},
            {"qk_norm": True, "qk_norm_over": "all_heads", "norm_placement": "reordered"},
            {"attention_gate": True},
            *HYBRIDS,
            *MIXTURES,
            *LATENTS,
            GPT_OSS,
            {"attention_sinks": True, "mlp": CLAMPED},
            {"attention_sinks": True, "attention_softcap": 5.0},
            {"attention_sinks": True, "rope": False, "slopes": [0.5, 0.25, 0.125, 0.0625]},
        ]
        for changes in variants:
            with self.subTest(**changes), torch.no_grad():
                # A state is computed in another order.
                bound = 1e-5 if "mixer" in changes else 2e-6
                decoder = self.decoder(**dict(changes))
                texts = Texts(3, CONTEXT, torch.device("cpu"))
                seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
                steps: list[dict[int, list[int]]] = [
                    {0: [3, 1, 4, 1, 5], 2: [9]},
                    {0: [2], 2: [6, 5, 3, 5]},
                    {2: [8]},
                    {0: [9, 7], 1: [9, 3], 2: [2]},
                ]
                for number, step in enumerate(steps):
                    found = self.read(decoder, texts, step)
                    for text, new in step.items():
                        seen[text] += new
                        apart = (found[text] - self.whole(decoder, seen[text])).abs().max().item()
                        self.assertLess(apart, bound, (number, text))
                # One that holds another's tokens goes its own way.
                texts.copy(0, 1)
                seen[1] = list(seen[0])
                found = self.read(decoder, texts, {0: [1], 1: [2]})
                for text, new in ((0, 1), (1, 2)):
                    seen[text].append(new)
                    self.assertLess((found[text] - self.whole(decoder, seen[text])).abs().max().item(), bound)
                texts.forget(0)
                found = self.read(decoder, texts, {0: [7, 2]})
                self.assertLess((found[0] - self.whole(decoder, [7, 2])).abs().max().item(), bound)
                # The bound sees a mistake: a text that is one token short.
                self.assertGreater((found[0] - self.whole(decoder, [2])).abs().max().item(), 1e-3)

    def test_a_parallel_residual_is_the_stream_and_what_both_read_of_it(self) -> None:
        x, at = torch.randn(1, 5, WIDTH), torch.arange(5)[None]
        decoder = self.decoder(parallel_residual=True)
        block, rope = decoder.blocks[0], decoder._rope(at, 5)[0]
        mask = Mask(None)
        with torch.no_grad():
            found = block(x, rope, mask, None, True)
            attended = block.attention(block.before1(x), rope, mask, True, None)
            wide = activate(block.mlp_kind, block.mlp_settings, block.wide(block.before2(x), True))
            apart = (found - (x + attended + block.down(wide, True))).abs().max().item()
        self.assertLess(apart, 1e-5)
        sequential = self.decoder()
        with torch.no_grad():
            self.assertGreater((found - sequential.blocks[0](x, rope, mask, None, True)).abs().max().item(), 1e-2)

    def test_norms_of_olmo_2_are_those_of_its_formula(self) -> None:
        decoder = self.decoder(qk_norm=True, qk_norm_over="all_heads", norm_placement="reordered", rope=False)
        weights = {name: decoder.table.made[name] for name in decoder.table.infos}
        ids = torch.tensor([[3, 1, 4, 1, 5]])

        def norm(x: Tensor, name: str) -> Tensor:
            return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weights[f"{name}.weight"]

        def heads(x: Tensor) -> Tensor:
            found = x.view(1, ids.shape[1], -1, WIDTH // HEADS).transpose(1, 2)
            return found.repeat_interleave(HEADS // found.shape[1], 1)

        x = weights["model.embed_tokens.weight"][ids]
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            q, k, v = (x @ weights[f"{at}self_attn.{name}_proj.weight"].T for name in "qkv")
            q, k = norm(q, f"{at}self_attn.q_norm"), norm(k, f"{at}self_attn.k_norm")
            scores = heads(q) @ heads(k).transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
            future = torch.ones(5, 5).triu(1).bool()
            mixed = (scores.masked_fill(future, -math.inf).softmax(-1) @ heads(v)).transpose(1, 2).reshape(1, 5, WIDTH)
            x = x + norm(mixed @ weights[f"{at}self_attn.o_proj.weight"].T, f"{at}post_attention_layernorm")
            gate, up = (x @ weights[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            down = (torch.nn.functional.silu(gate) * up) @ weights[f"{at}mlp.down_proj.weight"].T
            x = x + norm(down, f"{at}post_feedforward_layernorm")
        expected = (norm(x, "model.norm") @ weights["model.embed_tokens.weight"].T).log_softmax(-1)
        targets = torch.tensor([[1, 4, 1, 5, 9]])
        logp, *_ = decoder(ids, targets, None)
        torch.testing.assert_close(logp, expected.gather(-1, targets[..., None])[..., 0], atol=2e-5, rtol=2e-5)

    def test_a_temperature_divides_logits(self) -> None:
        decoder = self.decoder(logit_softcap=3.0)
        inputs, targets = torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 4]])
        goal = targets.reshape(-1, 1)
        logp, *_ = decoder(inputs, targets, None, temperature=0.6)
        raw = [decoder(inputs, torch.full_like(inputs, token), None)[0] for token in range(VOCAB)]
        expected = (torch.stack(raw, -1).view(3, -1) / 0.6).log_softmax(-1).gather(-1, goal)
        torch.testing.assert_close(logp.view(-1, 1), expected, atol=1e-5, rtol=1e-5)

    def test_logits_are_scaled_then_capped_then_divided(self) -> None:
        text = [3, 1, 4, 1, 5]
        plain, scaled = self.decoder(), self.decoder(logit_scale=1.7, logit_softcap=3.0)
        texts = Texts(1, CONTEXT, torch.device("cpu"))
        with torch.no_grad():
            z = plain.read(texts.take_up(texts.plan([(0, len(text))], torch.tensor(text))), texts)[0]
            inputs = torch.tensor([text]).expand(VOCAB, -1)
            targets = torch.arange(VOCAB)[:, None].expand(-1, len(text))
            for temperature in (1.0, 0.6, 1.7):
                found = scaled(inputs, targets, None, temperature=temperature)[0][:, -1]
                expected = (3 * torch.tanh(1.7 * z / 3) / temperature).log_softmax(-1)
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    def test_what_is_added_to_the_residual_stream_is_scaled(self) -> None:
        text = [3, 1, 4, 1, 5]
        scaled, folded = self.decoder(residual_scale=0.22), self.decoder()
        with torch.no_grad():
            for name, parameter in folded.table.made.items():
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    parameter.mul_(0.22)
            folded.changed()
            found, expected = self.whole(scaled, text), self.whole(folded, text)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
            self.assertGreater((found - self.whole(self.decoder(), text)).abs().max().item(), 1e-2)

    def test_a_text_that_has_no_room_is_refused(self) -> None:
        texts = Texts(1, 3, torch.device("cpu"))
        with self.assertRaisesRegex(ValueError, "a text of 4 tokens"):
            texts.plan([(0, 4)], torch.zeros(4, dtype=torch.long))


@unittest.skipIf(MISSING, MISSING)
class Updates(unittest.TestCase):
    """What is kept of weights in another format, or side by side, is what the weights are after an update."""

    def rank(self, *, lora: bool, kind: str = "adamw", **changes: Any) -> Rank:
        wire: Any = None
        rank, model = Rank(wire, Meeting(0, 1, "127.0.0.1")), launches.described(1, lora)
        offset = 0
        for info in model["params"]:
            info |= {"offset": offset, "decay": 0.1, "lr_scale": 1.0}
            offset += math.prod(info["shape"])
        ask: dict[str, Any] = {"threads": 1, "device": "cpu", "offload": False, "precision": "bf16", "compile": False, "shard": "ddp"}
        ask |= {"model": model, "average": False} | changes
        rank.build(ask | {"optimizer": {"kind": kind, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}}, bytearray())
        return rank

    def said(self, rank: Rank) -> Tensor:
        ids = torch.arange(8)[None]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            logp, *_ = rank.decoder.eval()(ids, ids, None)
        assert isinstance(logp, Tensor)
        return logp

    def test_passes_behind_an_update_read_the_new_weights(self) -> None:
        for lora in (False, True):
            with self.subTest(lora=lora):
                torch.manual_seed(1)
                rank = self.rank(lora=lora)
                with torch.no_grad():
                    for parameter in rank.decoder.parameters():
                        parameter.normal_(0.0, 0.3)
                before = self.said(rank)
                for _, parameter in rank.trained:
                    parameter.grad = torch.randn_like(parameter)
                rank.apply({"scale": 1.0, "lr": 0.1, "average": None}, bytearray())
                fresh = self.rank(lora=lora)
                with torch.no_grad():
                    for to, of in zip(fresh.decoder.parameters(), rank.decoder.parameters(), strict=True):
                        to.copy_(of)
                self.assertGreater((self.said(rank) - before).abs().max().item(), 0.1)
                self.assertTrue(torch.equal(self.said(rank), self.said(fresh)))

    def test_an_update_says_what_memory_the_rank_holds(self) -> None:
        rank = self.rank(lora=False)
        for _, parameter in rank.trained:
            parameter.grad = torch.zeros_like(parameter)
        memory = rank.apply({"scale": 1.0, "lr": 0.1, "average": None}, bytearray())["memory"]
        # PyTorch alone takes so much of main memory; on a processor there is nothing else.
        self.assertGreater(memory.pop("rss_bytes"), 50_000_000)
        self.assertEqual(memory, {})

    def test_weights_alone_leave_the_count_of_updates(self) -> None:
        """A reference that moves comes and goes as weights; Adam's bias correction goes on."""
        for kind in ("adamw", "adamw8bit"):
            with self.subTest(kind=kind):
                rank = self.rank(lora=False, kind=kind)

                def counts(rank: Rank = rank) -> set[float]:
                    if isinstance(rank.optimizer, AdamW8bit):
                        return {float(rank.optimizer.steps)}
                    return {float(state["step"]) for state in rank.optimizer.state.values()}

                for _, parameter in rank.trained:
                    parameter.grad = torch.ones_like(parameter)
                rank.apply({"scale": 1.0, "lr": 0.1, "average": None}, bytearray())
                zeros = mock.Mock(side_effect=lambda _rest, _part, shape: torch.zeros(shape))
                with mock.patch.object(rank, "_receive", zeros):
                    rank.load({"part": "weights", "steps": 0}, bytearray())
                    self.assertEqual(counts(), {1.0})
                    rank.load({"part": "mean" if kind == "adamw" else "mean_scales", "steps": 7}, bytearray())
                self.assertEqual(counts(), {7.0})

    def test_lion_moves_weights_by_the_sign_of_its_mean(self) -> None:
        """By hand: u = sign(β1 m + (1 - β1) g), w ← w (1 - lr λ) - lr u, m ← β2 m + (1 - β2) g; whole and in shards."""
        for changes in ({"shard": "ddp"}, {"shard": "fsdp2", "offload": True}):
            with self.subTest(**changes):
                rank = self.rank(lora=False, kind="lion", precision="f32", **changes)
                own = lambda x: getattr(x, "to_local", lambda: x)()  # noqa: E731
                torch.manual_seed(1)
                weights = []
                for _, p in rank.trained:
                    own(p.detach()).normal_(0.0, 0.3)
                    weights.append(own(p.detach()).double())
                means = [torch.zeros_like(w) for w in weights]
                for step in range(3):
                    for i, (_, p) in enumerate(rank.trained):
                        p.grad = torch.zeros_like(p) if step == 0 else torch.randn_like(p)
                        g = own(p.grad).double() * 0.5
                        direction = (0.9 * means[i] + 0.1 * g).sign()
                        weights[i] = weights[i] * (1.0 - 0.01 * 0.1) - 0.01 * direction
                        means[i] = 0.99 * means[i] + 0.01 * g
                    rank.apply({"scale": 0.5, "lr": 0.01, "average": None}, bytearray())
                for (_, p), w, m in zip(rank.trained, weights, means, strict=True):
                    torch.testing.assert_close(own(p.detach()).double(), w, rtol=1e-5, atol=1e-6)
                    torch.testing.assert_close(own(rank.optimizer.state[p]["exp_avg"]).double(), m, rtol=1e-5, atol=1e-7)

    def test_an_average_follows_the_weights_and_changes_places_with_them(self) -> None:
        for changes in ({"shard": "ddp"}, {"shard": "fsdp2", "offload": True}, {"kind": "adamw8bit"}):
            with self.subTest(**changes):
                rank = self.rank(lora=False, average=True, precision="f32", **changes)
                own = lambda x: getattr(x, "to_local", lambda: x)().clone()  # noqa: E731
                for _, p in rank.trained:
                    getattr(p.detach(), "to_local", lambda p=p: p.detach())().normal_(0.0, 0.3)
                wanted = [own(p.detach()) for _, p in rank.trained]
                for gain in (0.8, 0.25):
                    for _, p in rank.trained:
                        p.grad = torch.ones_like(p)
                    rank.apply({"scale": 1.0, "lr": 0.1, "average": {"begins": gain == 0.8, "gain": gain}}, bytearray())
                    wanted = [a + gain * (own(p.detach()) - a) for a, (_, p) in zip(wanted, rank.trained, strict=True)]
                trained = [own(p.detach()) for _, p in rank.trained]
                rank.show_average({}, bytearray())
                for (_, p), average, weights in zip(rank.trained, wanted, trained, strict=True):
                    torch.testing.assert_close(own(p.detach()), average)
                    self.assertTrue(torch.equal(own(rank.average[p]), weights))
                self.assertEqual(len(rank._parts("other")), len(rank._places("grad")))
                rank.show_average({}, bytearray())
                for (_, p), weights in zip(rank.trained, trained, strict=True):
                    self.assertTrue(torch.equal(own(p.detach()), weights))

    def test_noise_is_on_embeddings_of_training_passes_alone(self) -> None:
        ids = torch.arange(8)[None]
        plain, noisy = self.rank(lora=False, precision="f32").decoder, self.rank(lora=False, precision="f32").decoder
        noisy.noise = 5.0
        for decoder in (plain, noisy):
            torch.manual_seed(1)
            with torch.no_grad():
                for parameter in decoder.parameters():
                    parameter.normal_(0.0, 0.3)

        def embedded(decoder: Decoder, seed: int) -> Tensor:
            torch.manual_seed(seed)
            found: list[Tensor] = []
            with mock.patch.object(type(decoder.blocks[0]), "forward", lambda _self, x, *_rest: found.append(x) or x), torch.no_grad():
                decoder(ids, ids, None)
            return found[0]

        exact = embedded(plain.train(), 1)
        self.assertTrue(torch.equal(embedded(noisy.eval(), 1), exact))
        noise = embedded(noisy.train(), 1) - exact
        most = 5.0 / exact[0].numel() ** 0.5
        self.assertLessEqual(noise.abs().max().item(), most * 1.0001)
        self.assertGreater(noise.abs().max().item(), most * 0.9)
        self.assertLess(noise.mean().abs().item(), most * 0.1)
        self.assertTrue(torch.equal(embedded(noisy, 1) - exact, noise))
        self.assertFalse(torch.equal(embedded(noisy, 2) - exact, noise))

    def test_a_reference_takes_new_weights_in_place(self) -> None:
        for changes in ({"shard": "ddp"}, {"shard": "fsdp2", "offload": True}):
            with self.subTest(**changes):
                rank = self.rank(lora=False, precision="f32", **changes)
                ids = torch.arange(8)[None]
                seen: list[Any] = []
                for seed in (1, 2):
                    torch.manual_seed(seed)
                    with torch.no_grad():
                        for _, tensor, _ in rank._parts("weights"):
                            local = getattr(tensor, "to_local", lambda tensor=tensor: tensor)()
                            local.normal_(0.0, 0.3)
                    rank.decoder.changed()
                    rank.reference_here({}, bytearray())
                    seen.append(rank.reference)
                    # Behind a pass without a backward the root's weights are whole.
                    with torch.no_grad():
                        logps = [model.eval()(ids, ids, None)[0] for model in (rank.decoder, rank.reference)]
                        rank._as_shards(rank.decoder)
                    seen.append(logps[1])
                    self.assertTrue(torch.equal(*logps))
                self.assertIs(seen[0], seen[2])
                self.assertGreater((seen[1] - seen[3]).abs().max().item(), 0.1)

    def test_the_time_of_a_forward_pass_is_that_until_its_values_are_here(self) -> None:
        """A GPU returns from every call at once, but for copies from and to it, which wait for what is under way."""
        rank, clock = self.rank(lora=False), [0.0]
        batch, cpu = rank._batch, torch.Tensor.cpu

        def take(ask: dict[str, Any], payload: bytearray) -> Any:
            clock[0] += 100.0
            return batch(ask, payload)

        def fetch(values: Tensor) -> Tensor:
            clock[0] += 1.0
            return cpu(values)

        ask = {"rows": 1, "seq_len": 8, "first": False, "linear": True, "train": True, "varied": False, "draws": 1, "micro": 0, "of": 1}
        ask |= {"model": "policy", "adapters": True, "temperature": 1.0}
        payload = bytearray(struct.pack("<16i8f", *range(8), *range(8), *[1.0] * 8))
        with mock.patch.object(rank, "_batch", take), mock.patch.object(torch.Tensor, "cpu", fetch):
            with mock.patch("llmtui_worker.trainer.time.monotonic", lambda: clock[0]):
                answer = rank.forward(ask, payload)
        self.assertEqual(answer["seconds"], 1.0)

    def test_shards_of_gradients_are_summed_at_every_micro_batch(self) -> None:
        rank = self.rank(lora=False, shard="fsdp2", offload=True)
        torch.manual_seed(1)
        for parameter in rank.decoder.parameters():
            parameter.detach().to_local().normal_(0.0, 0.3)
        ids = torch.arange(8)[None]
        norms = []
        for micro in range(2):
            rank._sync(micro == 1)
            *_, total = rank.decoder.train()(ids, ids, None, True, None, torch.ones(1, 8))
            total.backward()
            self.assertTrue(all(p.grad is not None for _, p in rank.trained), f"micro-batch {micro}")
            norms.append(float(rank.norm({}, bytearray())["norm"]))
        self.assertGreater(norms[0], 0.01)
        self.assertAlmostEqual(norms[1] / norms[0], 2.0, places=3)


class Meetings(unittest.TestCase):
    def test_only_the_first_rank_listens_and_on_its_address_alone(self) -> None:
        first = Meeting(0, 2, "127.0.0.1")
        port = first.listen()
        self.assertGreater(port, 0)
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        # Another address of the loopback: nobody is there.
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
        first.close()
        self.assertEqual(Meeting(1, 2, "127.0.0.1").listen(), 0)
        self.assertEqual(Meeting(0, 1, "127.0.0.1").listen(), 0)


class Frames(unittest.TestCase):
    def test_frames_go_both_ways_and_an_end_is_told(self) -> None:
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = str(Path(folder) / "s")
            listener.bind(path)
            listener.listen()
            here = wire.Wire(path)
            there, _ = listener.accept()
            header = json.dumps({"type": "x", "n": 1}).encode()
            sent = struct.pack("<IQ", len(header), 3) + header + b"abc"
            threading.Thread(target=there.sendall, args=(sent,)).start()
            self.assertEqual(here.receive(), ({"type": "x", "n": 1}, bytearray(b"abc")))
            here.send("done", b"zz", loss=1.5)
            length, payload = struct.unpack("<IQ", there.recv(12, socket.MSG_WAITALL))
            self.assertEqual(json.loads(there.recv(length, socket.MSG_WAITALL)), {"type": "done", "loss": 1.5})
            self.assertEqual(there.recv(payload, socket.MSG_WAITALL), b"zz")
            with self.assertRaises(ValueError):
                here.send("done", loss=float("nan"))
            there.sendall(struct.pack("<IQ", 1 << 31, 0))
            with self.assertRaisesRegex(ValueError, "a frame of"):
                here.receive()
            there.close()
            with self.assertRaises(wire.Gone):
                here.receive()
            here.socket.close()


if __name__ == "__main__":
    unittest.main()
