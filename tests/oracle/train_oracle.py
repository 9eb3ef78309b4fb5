"""Trains two tiny decoders with PyTorch and writes what happened, for tests/oracle.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy
    /tmp/oracle/bin/python tests/oracle/train_oracle.py tests/oracle

Everything runs in f32 on one thread. Each fixture is a safetensors file: its metadata holds the model's and the training
settings as JSON (the Rust side reads them, so they are said once), its tensors the token stream, initial weights
(weight.NAME), logits and gradients of step 0 (grad.NAME), and for each step the loss and the gradient norm before
clipping, and at last the norm of the final weights. Names and (out, in) layouts are those of llmtui's parameters.
"""

import json
import math
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)

TRAIN = dict(
    steps=300, batch_size=16, vocab_size=48, lr=1e-3, min_lr=1e-4, warmup_steps=20,
    beta1=0.9, beta2=0.99, eps=1e-6, weight_decay=0.1, clip_norm=1.0, stride=37,
)
COMMON = dict(n_layer=2, n_head=4, d_model=32, seq_len=16, init_std=0.05)
MODELS = {
    "gpt2": dict(
        **COMMON, n_kv_head=4, d_ff=128, position={"learned": {}}, norm={"layernorm": {"eps": 1e-5}},
        mlp={"gelu": {}}, bias=True, tie_embeddings=True,
    ),
    "llama": dict(
        **COMMON, n_kv_head=2, d_ff=64, position={"rope": {"theta": 10000.0}}, norm={"rmsnorm": {"eps": 1e-5}},
        mlp={"swiglu": {}}, bias=False, tie_embeddings=False,
    ),
}


def parameters(model):
    """(name, shape, kind) in order; kind is matrix, residual, one or zero."""
    d, ff, vocab = model["d_model"], model["d_ff"], TRAIN["vocab_size"]
    kv = d // model["n_head"] * model["n_kv_head"]
    gpt2 = "learned" in model["position"]
    out = []

    def matrix(name, rows, cols, kind="matrix"):
        out.append((name + ".weight", (rows, cols), kind))
        if model["bias"] and cols and "wte" not in name and "wpe" not in name:
            out.append((name + ".bias", (rows,), "zero"))

    def norm(name):
        out.append((name + ".weight", (d,), "one"))
        if model["bias"]:
            out.append((name + ".bias", (d,), "zero"))

    if gpt2:
        matrix("transformer.wte", vocab, d)
        matrix("transformer.wpe", model["seq_len"], d)
    else:
        matrix("model.embed_tokens", vocab, d)
    for layer in range(model["n_layer"]):
        if gpt2:
            at = f"transformer.h.{layer}."
            norm(at + "ln_1")
            matrix(at + "attn.c_attn", 3 * d, d)
            matrix(at + "attn.c_proj", d, d, "residual")
            norm(at + "ln_2")
            matrix(at + "mlp.c_fc", ff, d)
            matrix(at + "mlp.c_proj", d, ff, "residual")
        else:
            at = f"model.layers.{layer}."
            norm(at + "input_layernorm")
            for part, rows in (("q", d), ("k", kv), ("v", kv)):
                matrix(at + f"self_attn.{part}_proj", rows, d)
            matrix(at + "self_attn.o_proj", d, d, "residual")
            norm(at + "post_attention_layernorm")
            matrix(at + "mlp.gate_proj", ff, d)
            matrix(at + "mlp.up_proj", ff, d)
            matrix(at + "mlp.down_proj", d, ff, "residual")
    norm("transformer.ln_f" if gpt2 else "model.norm")
    if not model["tie_embeddings"]:
        matrix("lm_head", vocab, d)
    return out


def initial(model, seed):
    rng = np.random.default_rng(seed)
    std = model["init_std"]
    scale = {"matrix": std, "residual": std / math.sqrt(2 * model["n_layer"])}
    weights = {}
    for name, shape, kind in parameters(model):
        if kind in scale:
            values = rng.standard_normal(shape) * scale[kind]
        else:
            values = np.full(shape, 1.0 if kind == "one" else 0.0)
        weights[name] = torch.tensor(values.astype(np.float32), requires_grad=True)
    return weights


def rotate(x):
    """(B, H, T, head_dim); feature j is paired with j + head_dim / 2."""
    half = x.shape[-1] // 2
    inv_freq = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * inv_freq
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def logits(model, w, ids):
    d, heads, kv_heads = model["d_model"], model["n_head"], model["n_kv_head"]
    gpt2 = "learned" in model["position"]
    batch, length = ids.shape
    linear = lambda x, name: F.linear(x, w[name + ".weight"], w.get(name + ".bias"))
    if gpt2:
        norm = lambda x, name: F.layer_norm(x, (d,), w[name + ".weight"], w.get(name + ".bias"), 1e-5)
        x = F.embedding(ids, w["transformer.wte.weight"]) + w["transformer.wpe.weight"][:length]
    else:
        norm = lambda x, name: F.rms_norm(x, (d,), w[name + ".weight"], 1e-5)
        x = F.embedding(ids, w["model.embed_tokens.weight"])
    split = lambda x: x.view(batch, length, -1, d // heads).transpose(1, 2)
    for layer in range(model["n_layer"]):
        if gpt2:
            at = f"transformer.h.{layer}."
            q, k, v = linear(norm(x, at + "ln_1"), at + "attn.c_attn").split(d, -1)
            q, k, v = split(q), split(k), split(v)
        else:
            at = f"model.layers.{layer}."
            h = norm(x, at + "input_layernorm")
            q, k, v = (split(linear(h, at + f"self_attn.{part}_proj")) for part in "qkv")
            q, k = rotate(q), rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
        y = y.transpose(1, 2).reshape(batch, length, d)
        if gpt2:
            x = x + linear(y, at + "attn.c_proj")
            x = x + linear(F.gelu(linear(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
        else:
            x = x + linear(y, at + "self_attn.o_proj")
            h = norm(x, at + "post_attention_layernorm")
            h = F.silu(linear(h, at + "mlp.gate_proj")) * linear(h, at + "mlp.up_proj")
            x = x + linear(h, at + "mlp.down_proj")
    x = norm(x, "transformer.ln_f" if gpt2 else "model.norm")
    head = "transformer.wte.weight" if model["tie_embeddings"] else "lm_head.weight"
    return F.linear(x, w[head])


def token_stream(n=2048):
    """A walk that is easy to learn in part: mostly x → 3x + 7 or x → 5x + 1, sometimes anywhere."""
    rng = np.random.default_rng(7)
    vocab, x, stream = TRAIN["vocab_size"], 1, []
    for _ in range(n):
        kind = rng.integers(0, 10)
        x = int((3 * x + 7) % vocab if kind < 6 else (5 * x + 1) % vocab if kind < 9 else rng.integers(0, vocab))
        stream.append(x)
    return np.array(stream, dtype=np.uint32)


def batch_of(stream, step, length):
    starts = [
        (step * TRAIN["batch_size"] + row) * TRAIN["stride"] % (len(stream) - length)
        for row in range(TRAIN["batch_size"])
    ]
    take = lambda shift: torch.tensor(np.stack([stream[s + shift : s + shift + length] for s in starts]).astype(np.int64))
    return take(0), take(1)


def lr_at(step):
    warmup, lr, min_lr = TRAIN["warmup_steps"], TRAIN["lr"], TRAIN["min_lr"]
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    progress = (step - warmup) / (TRAIN["steps"] - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (lr - min_lr)


def train(model, weights, stream):
    groups = [
        {"params": [p for p in weights.values() if p.dim() >= 2], "weight_decay": TRAIN["weight_decay"]},
        {"params": [p for p in weights.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (TRAIN["beta1"], TRAIN["beta2"])
    optimizer = torch.optim.AdamW(groups, lr=TRAIN["lr"], betas=betas, eps=TRAIN["eps"], foreach=False)
    record = {"loss": [], "norm": []}
    for step in range(TRAIN["steps"]):
        ids, targets = batch_of(stream, step, model["seq_len"])
        out = logits(model, weights, ids)
        loss = F.cross_entropy(out.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            record["logits"] = out.detach().clone()
            record["grads"] = {name: p.grad.clone() for name, p in weights.items()}
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), TRAIN["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step)
        optimizer.step()
        record["loss"].append(loss.item())
        record["norm"].append(norm.item())
    return record


def write(path, tensors, metadata):
    """The safetensors format: length of the header, header, data."""
    header, data = {"__metadata__": metadata}, b""
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        kind = {"float32": "F32", "float64": "F64", "uint32": "U32"}[values.dtype.name]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main(folder):
    stream = token_stream()
    for seed, (name, model) in enumerate(MODELS.items()):
        weights = initial(model, seed)
        tensors = {"tokens": stream}
        tensors |= {"weight." + n: p.detach().numpy().copy() for n, p in weights.items()}
        record = train(model, weights, stream)
        tensors["logits"] = record["logits"].numpy()
        tensors |= {"grad." + n: g.numpy() for n, g in record["grads"].items()}
        tensors["loss"] = np.array(record["loss"], dtype=np.float64)
        tensors["norm"] = np.array(record["norm"], dtype=np.float64)
        final = math.sqrt(sum(float(p.detach().double().square().sum()) for p in weights.values()))
        tensors["final_norm"] = np.array([final], dtype=np.float64)
        metadata = {"model": json.dumps(model), "train": json.dumps(TRAIN), "torch": torch.__version__}
        write(folder / f"{name}.safetensors", tensors, metadata)
        clipped = sum(n > TRAIN["clip_norm"] for n in record["norm"])
        print(f"{name}: loss {record['loss'][0]:.4f} -> {record['loss'][-1]:.4f}, clipped {clipped}/{TRAIN['steps']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
