"""Whole training steps on a GPU: the ranks of `engine: torch` beside transformers' Llama of the same shape, in bf16 autocast, fused AdamW.

    python benches/peers/gpu.py [--rows 16] [--steps 8] [SIDE ...]
    SIDE: whole packed whole-compiled packed-compiled hf hf-compiled lora lora-compiled peft peft-compiled

SmolLM2's shape (135M parameters: 30 layers of 576 features, 9 heads over 3, a vocabulary of 49,152) with rows of 1,024 random tokens:
forward, backward, the norm of the gradient, the update. `packed` rows hold four texts that do not see each other, which the other side
does not know. `lora` and `peft` train adapters of rank 8 with dropout 0.05 on every matrix of a layer, beside frozen weights in bf16.
A line has the median of the steps, tokens per second, the largest sum of PyTorch's allocator, and how long three first steps took,
compiling included. Needs a GPU, PyTorch 2.10 and, for the other side, transformers and PEFT.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "assets" / "torch_worker"))

from llmtui_worker.attention import Packed
from llmtui_worker.decoder import Decoder

VOCAB, WIDTH, LAYERS, HEADS, KV, INNER, LENGTH = 49_152, 576, 30, 9, 3, 1_536, 1_024
RANK, DROPOUT = 8, 0.05
WARM_UP = 3
DEVICE = torch.device("cuda")


def described(*, lora: bool) -> dict[str, Any]:
    """The model as the engine describes it to a rank."""
    each = WIDTH // HEADS
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [VOCAB, WIDTH], "model.norm.weight": [WIDTH]}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {
            f"{at}input_layernorm.weight": [WIDTH],
            f"{at}post_attention_layernorm.weight": [WIDTH],
            f"{at}self_attn.q_proj.weight": [WIDTH, WIDTH],
            f"{at}self_attn.k_proj.weight": [KV * each, WIDTH],
            f"{at}self_attn.v_proj.weight": [KV * each, WIDTH],
            f"{at}self_attn.o_proj.weight": [WIDTH, WIDTH],
            f"{at}mlp.gate_proj.weight": [INNER, WIDTH],
            f"{at}mlp.up_proj.weight": [INNER, WIDTH],
            f"{at}mlp.down_proj.weight": [WIDTH, INNER],
        }
    if lora:
        for name, (rows, columns) in [(name, shape) for name, shape in shapes.items() if name.endswith("_proj.weight")]:
            matrix = name.removesuffix(".weight")
            shapes |= {f"{matrix}.lora_A.weight": [RANK, columns], f"{matrix}.lora_B.weight": [rows, RANK]}
    rotation = {"frequencies": [1e5 ** (-2 * i / each) for i in range(each // 2)], "factor": 1.0}
    return {
        "params": [{"name": name, "shape": shape, "grad": 0 if not lora or "lora" in name else None} for name, shape in shapes.items()],
        "shape": {"n_layer": LAYERS, "n_head": HEADS, "n_kv_head": KV, "head_dim": each, "d_model": WIDTH, "seq_len": LENGTH},
        "config": {
            "norm": {"rmsnorm": {"eps": 1e-5}},
            "norm_placement": "pre",
            "qk_norm": False,
            "mlp": {"swiglu": {}},
            "global_every": None,
            "sliding_window": None,
            "attention_scale": None,
            "attention_softcap": None,
            "dropout": 0.0,
            "embedding_scale": None,
            "logit_softcap": None,
        },
        "rotations": [rotation, rotation],
        "slopes": None,
        "waves": False,
        "adapter": {"scale": 2.0, "dropout": DROPOUT if lora else 0.0},
        "recompute": False,
    }


def rank(rows: int, *, packed: bool = False, compiled: bool = False, lora: bool = False) -> Callable[[], None]:
    decoder = Decoder(described(lora=lora), DEVICE, torch.bfloat16).train()
    if compiled:
        decoder.fuse()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.normal_(0.0, 0.02) if parameter.dim() > 1 else parameter.fill_(1.0)
    optimizer = torch.optim.AdamW([p for p in decoder.parameters() if p.requires_grad], lr=1e-4, fused=True)
    inputs, targets = (torch.randint(0, VOCAB, (rows, LENGTH), device=DEVICE) for _ in range(2))
    first: Tensor | None = None
    texts: Packed | None = None
    if packed:
        begins = torch.tensor([0, LENGTH // 5, LENGTH // 2, 4 * LENGTH // 5])
        places = torch.arange(LENGTH)
        first = begins[(places[:, None] >= begins).sum(1) - 1].expand(rows, -1)
        texts = Packed.of(first)
        assert texts is not None
        first, texts = first.to(DEVICE), texts._replace(ends=texts.ends.to(DEVICE))
    c = torch.full((rows, LENGTH), -1.0 / (rows * LENGTH), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            logp, entropy, top1, total = decoder(inputs, targets, first, True, texts, c)
        torch.stack([logp, entropy, top1]).detach().cpu()
        total.backward()
        float(nn.utils.get_total_norm([p.grad for p in decoder.parameters() if p.grad is not None]))
        optimizer.step()
        decoder.changed()

    return step


def transformers(rows: int, *, compiled: bool = False, lora: bool = False) -> Callable[[], None]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV,
        max_position_embeddings=2 * LENGTH,
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation="sdpa",
        rms_norm_eps=1e-5,
    )
    model: Any = LlamaForCausalLM(config).to(DEVICE).train()
    if lora:
        from peft import LoraConfig, get_peft_model

        every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        adapters = LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=DROPOUT, target_modules=every)
        model = get_peft_model(model.to(torch.bfloat16), adapters)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    called = torch.compile(model) if compiled else model
    ids = torch.randint(0, VOCAB, (rows, LENGTH), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = called(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return step


SIDES: dict[str, Callable[[int], Callable[[], None]]] = {
    "whole": rank,
    "packed": lambda rows: rank(rows, packed=True),
    "whole-compiled": lambda rows: rank(rows, compiled=True),
    "packed-compiled": lambda rows: rank(rows, packed=True, compiled=True),
    "hf": transformers,
    "hf-compiled": lambda rows: transformers(rows, compiled=True),
    "lora": lambda rows: rank(rows, lora=True),
    "lora-compiled": lambda rows: rank(rows, lora=True, compiled=True),
    "peft": lambda rows: transformers(rows, lora=True),
    "peft-compiled": lambda rows: transformers(rows, lora=True, compiled=True),
}


def measure(side: str, rows: int, steps: int) -> None:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    step = SIDES[side](rows)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    warm = time.monotonic() - began
    took = []
    for _ in range(steps):
        began = time.monotonic()
        step()
        torch.cuda.synchronize()
        took.append(time.monotonic() - began)
    seconds, peak = statistics.median(took), torch.cuda.max_memory_allocated() / 2**30
    print(f"{side:16} {1e3 * seconds:7.1f} ms {rows * LENGTH / seconds:9.0f} tok/s {peak:6.2f} GiB, first steps {warm:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("sides", nargs="*", metavar="SIDE", default=list(SIDES))
    asked = parser.parse_args()
    if unknown := [side for side in asked.sides if side not in SIDES]:
        parser.error(f"{unknown[0]} is no side; known: {' '.join(SIDES)}")
    torch.manual_seed(1)
    for side in asked.sides:
        measure(side, asked.rows, asked.steps)


if __name__ == "__main__":
    main()
