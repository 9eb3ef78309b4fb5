"""What probes see inside a small decoder, computed by PyTorch and numpy, for tests/oracle/health.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy safetensors
    /tmp/oracle/bin/python tests/oracle/health_oracle.py tests/oracle

The llama of train_oracle.py is trained for 40 steps at a high rate, so that nothing is as it began, and one feed-forward unit
of the first block is silenced. The fixture holds its weights, the batch in four micro-batches, and the values: activations
and attention of the first micro-batch, gradients of all, weights and spectra.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parent))
import train_oracle as base

MODEL, LAYERS, K = base.MODELS["llama"], 2, 4
HEADS, KV, D = MODEL["n_head"], MODEL["n_kv_head"], MODEL["d_model"]


def blocks(name):
    return [n for n in W if n.startswith(f"model.layers.{name}.")]


def looked_at(ids):
    """RMS, largest activation, dead units and attention of each block, and log-sum-exp."""
    seen = {name: [] for name in ("act_rms", "act_max", "dead_units", "attn_entropy", "attn_entropy_std", "attn_logit_max", "attn_sink")}
    batch, length = ids.shape
    linear = lambda x, name: F.linear(x, W[name + ".weight"])
    norm = lambda x, name: F.rms_norm(x, (D,), W[name + ".weight"], 1e-5)
    split = lambda x: x.view(batch, length, -1, D // HEADS).transpose(1, 2)
    x = F.embedding(ids, W["model.embed_tokens.weight"])
    first = min(16, length // 2)
    count = min(16, length - first)
    rows = [first + i * (length - 1 - first) // max(count - 1, 1) for i in range(count)]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        h = norm(x, at + "input_layernorm")
        q, k, v = (split(linear(h, at + f"self_attn.{part}_proj")) for part in "qkv")
        q, k = base.rotate(q), base.rotate(k)
        k, v = (t.repeat_interleave(HEADS // KV, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(D // HEADS)
        relative, largest, sink = [], -math.inf, []
        for head in range(HEADS):
            own = []
            for t in rows:
                row = scores[0, head, t, : t + 1].double()
                p = row.softmax(-1)
                own.append((-(p * p.log()).sum() / math.log(t + 1)).item())
                largest = max(largest, row.max().item())
                sink.append(p[0].item())
            relative.append(np.mean(own))
        seen["attn_entropy"].append(np.mean(relative))
        seen["attn_entropy_std"].append(np.std(relative))
        seen["attn_logit_max"].append(largest)
        seen["attn_sink"].append(np.mean(sink))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, D)
        x = x + linear(y, at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm")
        h = F.silu(linear(h, at + "mlp.gate_proj")) * linear(h, at + "mlp.up_proj")
        flat = h.reshape(-1, h.shape[-1])
        seen["dead_units"].append((flat.abs().amax(0) <= 0.01 * flat.square().mean().sqrt()).double().mean().item())
        x = x + linear(h, at + "mlp.down_proj")
        seen["act_rms"].append(x.double().square().mean().sqrt().item())
        seen["act_max"].append(x.abs().max().item())
    lse = F.linear(norm(x, "model.norm"), W["lm_head.weight"]).double().logsumexp(-1)
    return {f"{n}/layer": v for n, v in seen.items()} | {"logit_lse": lse.square().mean().sqrt().item()}


def gradients(ids, targets):
    """Brute force over the gradients of all micro-batches."""
    each, losses = [], []
    for part, goal in zip(ids.chunk(K), targets.chunk(K)):
        loss = F.cross_entropy(base.logits(MODEL, W, part).flatten(0, 1), goal.flatten())
        each.append(dict(zip(W, torch.autograd.grad(loss, list(W.values())))))
        losses.append(loss.item())

    def of(names):
        g = torch.stack([torch.cat([one[n].flatten().double() for n in names]) for one in each])
        mean = g.mean(0)
        noise = g.var(0, unbiased=True).sum().item()
        return mean.square().sum().item() - noise / K, noise, mean

    signal, noise, mean = of(list(W))
    g = torch.stack([torch.cat([one[n].flatten().double() for n in W]) for one in each])
    dots = g @ g.T
    layers = [of(blocks(layer)) for layer in range(LAYERS)]
    return {
        "gsnr": signal / noise,
        "noise_scale": noise / signal * ids.numel() / K,
        "grad_consistency": ((dots.sum() - dots.trace()) / ((K - 1) * dots.trace())).item(),
        "loss_dispersion": float(np.std(losses)),
        "gsnr/layer": [max(s, 0) / n for s, n, _ in layers],
        "grad_norm/layer": [m.norm().item() for _, _, m in layers],
        "grad_norm": mean.norm().item(),
    }


def matrices(layer):
    return [W[n].detach().double().numpy() for n in blocks(layer) if W[n].dim() == 2]


def ks_alpha(values):
    """WeightWatcher's choice of the tail, by brute force."""
    values = values[values > 1e-5 * values[-1]]
    best = (math.inf, None)
    for start in range(len(values) - 1):
        tail = values[start:]
        alpha = 1 + len(tail) / np.log(tail / tail[0]).sum()
        distance = np.abs(1 - (tail / tail[0]) ** (1 - alpha) - np.arange(len(tail)) / len(tail)).max()
        if alpha > 1 and distance < best[0]:
            best = (distance, alpha)
    return best[1], best[0]


def spectra():
    out = {}
    for name, w in W.items():
        if w.dim() != 2:
            continue
        sigma = np.linalg.svd(w.detach().double().numpy(), compute_uv=False)
        values = np.sort(sigma**2)
        entropy = lambda p: -(p[p > 0] * np.log(p[p > 0])).sum()
        p, e = sigma / sigma.sum(), sigma**2 / (sigma**2).sum()
        alpha, distance = ks_alpha(values)
        out[name] = dict(
            spectral_norm=sigma[0], stable_rank=(sigma**2).sum() / sigma[0] ** 2, frobenius=np.sqrt((sigma**2).sum()),
            kl_sigma=math.log(len(sigma)) - entropy(p), kl_energy=math.log(len(sigma)) - entropy(e), alpha=alpha, distance=distance,
        )
    return out


stream = base.token_stream()
W = base.initial(MODEL, 5)
base.TRAIN.update(lr=1e-2, steps=40)
base.train(MODEL, W, stream)
with torch.no_grad():
    W["model.layers.0.mlp.up_proj.weight"][3] = 0
ids, targets = base.batch_of(stream, 50, MODEL["seq_len"])
values = gradients(ids, targets)
with torch.no_grad():
    values |= looked_at(ids.chunk(K)[0])
values["weight_std/layer"] = [float(np.concatenate([m.ravel() for m in matrices(layer)]).std()) for layer in range(LAYERS)]
norms = [[np.linalg.norm(m, 2) for m in matrices(layer)] for layer in range(LAYERS)]
values["spectral_norm/layer"] = [float(max(n)) for n in norms]
values["spectral_scale/layer"] = [
    float(max(n / math.sqrt(m.shape[0] / m.shape[1]) for n, m in zip(norms[layer], matrices(layer)))) for layer in range(LAYERS)
]
tensors = {f"weight.{n}": w.detach().contiguous() for n, w in W.items()}
tensors |= {"inputs": ids.to(torch.uint32), "targets": targets.to(torch.uint32)}
settings = dict(model=json.dumps(MODEL), vocab_size=str(base.TRAIN["vocab_size"]), micro_batches=str(K), values=json.dumps(values), spectra=json.dumps(spectra()))
save_file(tensors, Path(sys.argv[1]) / "health.safetensors", metadata=settings)
print(json.dumps(values, indent=1))
