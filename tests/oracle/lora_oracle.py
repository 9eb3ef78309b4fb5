"""Logits and adapter gradients of tiny decoders with LoRA in PyTorch, for tests/oracle.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy safetensors
    /tmp/oracle/bin/python tests/oracle/lora_oracle.py tests/oracle/lora.safetensors

Everything is f32 on one thread; dropout is off. Each adapted layer is y = W x (+ b) + alpha / r * B (A x) with B away from
zero, every base weight is frozen (requires_grad=False), and the loss is the mean negative log-likelihood. The metadata holds
models and adapters as JSON by name; tensors are called NAME/weight.PARAMETER, NAME/grad.PARAMETER, NAME/logits.
"""

import json
import math
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.manual_seed(11)

VOCAB, B, T = 11, 2, 10
LLAMA = dict(n_layer=2, n_head=2, n_kv_head=1, d_model=16, d_ff=12, seq_len=T, position={"rope": {"theta": 100.0}},
             norm={"rmsnorm": {"eps": 1e-5}}, mlp={"swiglu": {}}, tie_embeddings=False)
GPT2 = dict(n_layer=2, n_head=2, d_model=16, d_ff=24, seq_len=T, bias=True)
CASES = {
    "llama_all": (LLAMA, dict(rank=3, alpha=6.0, dropout=0.0, targets="all")),
    "llama_minimal": (LLAMA, dict(rank=2, alpha=1.0, dropout=0.0, targets="minimal")),
    "gpt2_all": (GPT2, dict(rank=4, alpha=8.0, dropout=0.0, targets="all")),
}
MINIMAL = ("q_proj", "v_proj")


def rotate(x, theta):
    """Halves turned against each other, as Hugging Face's Llama does: x (B, T, heads, d)."""
    d = x.shape[-1]
    frequencies = theta ** (-torch.arange(0, d, 2, dtype=torch.float32) / d)
    angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * frequencies
    cos = torch.cat([angles.cos()] * 2, -1)[:, None, :]
    sin = torch.cat([angles.sin()] * 2, -1)[:, None, :]
    low, high = x[..., : d // 2], x[..., d // 2:]
    return x * cos + torch.cat([-high, low], -1) * sin


class Net:
    def __init__(self, model, adapter):
        self.m, self.a, self.p = model, adapter, {}

    def parameter(self, name, shape, scale=0.15, trains=False):
        value = torch.randn(shape) * scale
        if name.endswith("norm.weight") or ".ln_" in name and name.endswith(".weight"):
            value = value + 1.0
        self.p[name] = value.requires_grad_(trains)
        return self.p[name]

    def get(self, name, shape):
        return self.p[name] if name in self.p else self.parameter(name, shape)

    def linear(self, name, x, rows, biased=False):
        w = self.get(name + ".weight", (rows, x.shape[-1]))
        y = x @ w.T
        if biased:
            y = y + self.get(name + ".bias", (rows,))
        if self.a["targets"] == "all" or name.rsplit(".", 1)[-1] in MINIMAL:
            r = self.a["rank"]
            for part, shape in (("A", (r, x.shape[-1])), ("B", (rows, r))):
                key = f"{name}.lora_{part}.weight"
                if key not in self.p:
                    self.parameter(key, shape, trains=True)
            low = x @ self.p[name + ".lora_A.weight"].T
            y = y + self.a["alpha"] / r * (low @ self.p[name + ".lora_B.weight"].T)
        return y

    def attend(self, q, k, v):
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
        ahead = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        return torch.einsum("bhts,bshd->bthd", weights, v).flatten(2)

    def llama(self, ids):
        m, d, hd = self.m, self.m["d_model"], self.m["d_model"] // self.m["n_head"]
        norm = lambda name, x: x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.get(name + ".weight", (d,))
        x = self.get("model.embed_tokens.weight", (VOCAB, d))[ids]
        for i in range(m["n_layer"]):
            at = f"model.layers.{i}."
            h = norm(at + "input_layernorm", x)
            heads = lambda name, n: self.linear(at + "self_attn." + name, h, n * hd).unflatten(-1, (n, hd))
            q, k, v = heads("q_proj", m["n_head"]), heads("k_proj", m["n_kv_head"]), heads("v_proj", m["n_kv_head"])
            q, k = rotate(q, 100.0), rotate(k, 100.0)
            share = m["n_head"] // m["n_kv_head"]
            out = self.attend(q, k.repeat_interleave(share, 2), v.repeat_interleave(share, 2))
            x = x + self.linear(at + "self_attn.o_proj", out, d)
            h = norm(at + "post_attention_layernorm", x)
            gate, up = (self.linear(at + f"mlp.{part}_proj", h, m["d_ff"]) for part in ("gate", "up"))
            x = x + self.linear(at + "mlp.down_proj", F.silu(gate) * up, d)
        return norm("model.norm", x) @ self.get("lm_head.weight", (VOCAB, d)).T

    def gpt2(self, ids):
        m, d, hd = self.m, self.m["d_model"], self.m["d_model"] // self.m["n_head"]
        norm = lambda name, x: F.layer_norm(x, (d,), self.get(name + ".weight", (d,)), self.get(name + ".bias", (d,)), 1e-5)
        wte = self.get("transformer.wte.weight", (VOCAB, d))
        x = wte[ids] + self.get("transformer.wpe.weight", (T, d))
        for i in range(m["n_layer"]):
            at = f"transformer.h.{i}."
            h = norm(at + "ln_1", x)
            qkv = self.linear(at + "attn.c_attn", h, 3 * d, True)
            q, k, v = (part.unflatten(-1, (m["n_head"], hd)) for part in qkv.split(d, -1))
            x = x + self.linear(at + "attn.c_proj", self.attend(q, k, v), d, True)
            h = norm(at + "ln_2", x)
            wide = F.gelu(self.linear(at + "mlp.c_fc", h, m["d_ff"], True))
            x = x + self.linear(at + "mlp.c_proj", wide, d, True)
        return norm("transformer.ln_f", x) @ wte.T


def main(path):
    tokens = torch.randint(VOCAB, (B, T))
    targets = torch.randint(VOCAB, (B, T))
    tensors, metadata = {"tokens": tokens.to(torch.uint32), "targets": targets.to(torch.uint32)}, {}
    for name, (model, adapter) in CASES.items():
        net = Net(model, adapter)
        logits = (net.llama if "n_kv_head" in model else net.gpt2)(tokens)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        tensors[f"{name}/logits"] = logits.detach()
        for key, value in net.p.items():
            tensors[f"{name}/weight.{key}"] = value.detach()
            assert (value.grad is not None) == (".lora_" in key), key
            if value.grad is not None:
                tensors[f"{name}/grad.{key}"] = value.grad
        metadata[name] = json.dumps({"model": model, "adapter": {"lora": adapter}})
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata)


if __name__ == "__main__":
    main(sys.argv[1])
