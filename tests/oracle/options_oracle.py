"""Logits and gradients of tiny decoders in PyTorch, one for each option of a model, for tests/oracle.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy transformers safetensors
    /tmp/oracle/bin/python tests/oracle/options_oracle.py tests/oracle/options.safetensors
    /tmp/oracle/bin/python tests/oracle/options_oracle.py tests/oracle/options_scales.safetensors residual residual_post residual_both residual_experts logits logits_capped

Everything is f32 on one thread. Rotary frequencies come from transformers' own functions, slopes of ALiBi from its Bloom,
the balancing loss from its Mixtral. The metadata holds the models' settings as JSON by name; tensors are called
NAME/weight.PARAMETER, NAME/grad.PARAMETER, NAME/logits; tokens and targets are shared. The loss is the mean negative
log-likelihood, plus the balancing losses where there are experts.
"""

import json
import math
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

torch.set_num_threads(1)
torch.manual_seed(5)

VOCAB, B, T = 11, 2, 12
BASE = dict(
    n_layer=2, n_head=2, n_kv_head=1, d_model=16, d_ff=12, seq_len=T, position={"rope": {"theta": 100.0}},
    norm={"rmsnorm": {"eps": 1e-5}}, mlp={"swiglu": {}}, tie_embeddings=False,
)


def rope(**settings):
    return {"position": {"rope": {"theta": 100.0, **settings}}}


OPTIONS = {
    "linear": rope(scaling={"linear": {"factor": 4.0}}),
    "yarn": rope(scaling={"yarn": {"factor": 4.0, "original_len": 6, "beta_fast": 1.0, "beta_slow": 0.2}}),
    "llama3": rope(scaling={"llama3": {
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_len": 8}}),
    "partial": rope(fraction=0.5),
    "local": {**rope(local_theta=10.0, scaling={"linear": {"factor": 8.0}}), "n_layer": 2,
              "sliding_window": 3, "global_every": 2},
    "alibi": {"position": {"alibi": {}}, "n_head": 3, "head_dim": 8},
    "sinusoidal": {"position": {"sinusoidal": {}}, "embedding_scale": 4.0},
    "none": {"position": {"none": {}}},
    "window": {"sliding_window": 4},
    "capped": {"attention_softcap": 0.5, "logit_softcap": 1.0, "attention_scale": 0.6},
    "qk_norm": {"qk_norm": True, "head_dim": 6, "attention_bias": "qkv"},
    "post": {"norm_placement": "post", "norm": {"layernorm": {"eps": 1e-5}}, "bias": True, "mlp": {"relu": {}}},
    "both": {"norm_placement": "both", "norm": {"rmsnorm": {"eps": 1e-5, "unit_offset": True}},
             "mlp": {"geglu": {"approximate": "tanh"}}},
    "silu": {"mlp": {"silu": {}}},
    "leaky": {"mlp": {"leaky_relu": {"slope": 0.2}}},
    "experts": {"n_layer": 1, "moe": {"n_expert": 4, "top_k": 2, "d_ff": 8, "norm_topk": True,
                                      "aux_loss_coef": 0.5, "z_loss_coef": 0.1}},
    "residual": {"residual_scale": 0.22, "embedding_scale": 6.0},
    "residual_post": {"residual_scale": 0.4, "norm_placement": "post"},
    "residual_both": {"residual_scale": 0.4, "norm_placement": "both"},
    "residual_experts": {"residual_scale": 0.22, "n_layer": 1, "moe": {
        "n_expert": 3, "top_k": 2, "d_ff": 8, "norm_topk": True, "aux_loss_coef": 0.2, "z_loss_coef": 0.0}},
    "logits": {"logit_scale": 0.625},
    "logits_capped": {"logit_scale": 0.625, "logit_softcap": 1.0},
    "raw_gates": {"n_layer": 1, "moe": {"n_expert": 3, "top_k": 2, "d_ff": 8, "norm_topk": False,
                                        "aux_loss_coef": 0.2, "z_loss_coef": 0.0}},
}

# Of the first file; others are named on the command line.
FIRST = [name for name in OPTIONS if not name.startswith(("residual", "logits"))]


def head_dim(m):
    return m.get("head_dim", m["d_model"] // m["n_head"])


def parameters(m):
    """(name, shape) in llmtui's order and names."""
    d, hd, h, kv = m["d_model"], head_dim(m), m["n_head"], m["n_kv_head"]
    bias, qkv_bias = m.get("bias", False), m.get("bias", False) or m.get("attention_bias") == "qkv"
    placement = m.get("norm_placement", "pre")
    out = [("model.embed_tokens.weight", (VOCAB, d))]

    def norm(name):
        out.append((name + ".weight", (d,)))
        if "layernorm" in m["norm"] and bias:
            out.append((name + ".bias", (d,)))

    def linear(parts, cols, biased):
        out.extend((name + ".weight", (rows, cols)) for name, rows in parts)
        if biased:
            out.extend((name + ".bias", (rows,)) for name, rows in parts)

    def feed_forward(name, ff):
        gated = next(iter(m["mlp"])) in ("swiglu", "geglu")
        wide = [(name + ".gate_proj", ff)] * gated + [(name + ".up_proj", ff)]
        linear(wide, d, bias)
        linear([(name + ".down_proj", d)], ff, bias)

    for i in range(m["n_layer"]):
        at = f"model.layers.{i}."
        if placement != "post":
            norm(at + "input_layernorm")
        a = at + "self_attn."
        linear([(a + "q_proj", h * hd), (a + "k_proj", kv * hd), (a + "v_proj", kv * hd)], d, qkv_bias)
        if m.get("qk_norm"):
            out += [(a + "q_norm.weight", (hd,)), (a + "k_norm.weight", (hd,))]
        linear([(a + "o_proj", d)], h * hd, bias)
        if placement != "pre":
            norm(at + "post_attention_layernorm")
        if placement != "post":
            norm(at + ("post_attention_layernorm" if placement == "pre" else "pre_feedforward_layernorm"))
        if "moe" in m:
            out.append((at + "mlp.gate.weight", (m["moe"]["n_expert"], d)))
            for e in range(m["moe"]["n_expert"]):
                feed_forward(at + f"mlp.experts.{e}", m["moe"]["d_ff"])
        else:
            feed_forward(at + "mlp", m["d_ff"])
        if placement != "pre":
            norm(at + "post_feedforward_layernorm")
    if placement != "post":
        norm("model.norm")
    out.append(("lm_head.weight", (VOCAB, d)))
    return out


def frequencies(m, windowed):
    """Inverse frequencies and the attention factor, from transformers."""
    rope = m["position"]["rope"]
    dims = int(head_dim(m) * rope.get("fraction", 1.0))
    scaling = rope.get("scaling")
    if windowed and "local_theta" in rope:
        rope, scaling = {"theta": rope["local_theta"]}, None
    if scaling is None:
        exponents = torch.arange(0, dims, 2, dtype=torch.int64).float() / dims
        return 1.0 / rope["theta"] ** exponents, 1.0
    kind, s = next(iter(scaling.items()))
    parameters = {"rope_type": kind, "rope_theta": rope["theta"], "factor": s["factor"]}
    if "original_len" in s:
        parameters["original_max_position_embeddings"] = s["original_len"]
    if kind == "yarn":
        parameters |= {"beta_fast": s["beta_fast"], "beta_slow": s["beta_slow"]}
    if kind == "llama3":
        parameters |= {"low_freq_factor": s["low_freq_factor"], "high_freq_factor": s["high_freq_factor"]}
    config = LlamaConfig(
        hidden_size=m["d_model"], num_attention_heads=m["n_head"], head_dim=head_dim(m),
        max_position_embeddings=m["seq_len"], rope_parameters=parameters,
    )
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu")


def turn(x, inv, factor):
    """x (B, H, T, head_dim); the first 2·len(inv) features turn, halves paired."""
    angles = torch.arange(x.shape[2]).float()[:, None] * inv[None]
    cos, sin = angles.cos() * factor, angles.sin() * factor
    n = len(inv)
    a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def forward(m, w, ids):
    d, hd, h, kv = m["d_model"], head_dim(m), m["n_head"], m["n_kv_head"]
    placement, norm_settings = m.get("norm_placement", "pre"), next(iter(m["norm"].values()))
    offset = 1.0 if norm_settings.get("unit_offset") else 0.0
    kind = next(iter(m["mlp"]))
    routers = []

    def norm(name, x):
        if "layernorm" in m["norm"]:
            return F.layer_norm(x, (d,), w[name + ".weight"], w.get(name + ".bias"), norm_settings["eps"])
        return F.rms_norm(x, (x.shape[-1],), w[name + ".weight"] + offset, norm_settings["eps"])

    def linear(name, x):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def feed_forward(name, x):
        up = linear(name + ".up_proj", x)
        if kind == "swiglu":
            y = F.silu(linear(name + ".gate_proj", x)) * up
        elif kind == "geglu":
            y = F.gelu(linear(name + ".gate_proj", x), approximate="tanh") * up
        else:
            y = {"relu": F.relu, "silu": F.silu, "leaky_relu": lambda v: F.leaky_relu(v, 0.2)}[kind](up)
        return linear(name + ".down_proj", y)

    def attention(i, x):
        at = f"model.layers.{i}.self_attn."
        windowed = "sliding_window" in m and not (
            "global_every" in m and (i + 1) % m["global_every"] == 0)
        q, k, v = (linear(at + p, x).view(B, T, -1, hd).transpose(1, 2) for p in ("q_proj", "k_proj", "v_proj"))
        if m.get("qk_norm"):
            q, k = norm(at + "q_norm", q), norm(at + "k_norm", k)
        if "rope" in m["position"]:
            inv, factor = frequencies(m, windowed)
            q, k = turn(q, inv, factor), turn(k, inv, factor)
        k, v = (t.repeat_interleave(h // kv, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * m.get("attention_scale", hd ** -0.5)
        if cap := m.get("attention_softcap"):
            scores = cap * torch.tanh(scores / cap)
        if "alibi" in m["position"]:
            # (B · H, 1, T): slope times key position; what is the same for all keys of a query changes no softmax.
            scores = scores + build_alibi_tensor(torch.ones(B, T), h, torch.float32).view(B, h, 1, T)
        query, key = torch.arange(T)[:, None], torch.arange(T)[None]
        hidden = key > query
        if windowed:
            hidden = hidden | (key <= query - m["sliding_window"])
        y = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        return linear(at + "o_proj", y.transpose(1, 2).reshape(B, T, -1))

    def experts(i, x):
        at, moe = f"model.layers.{i}.mlp.", m["moe"]
        flat = x.reshape(-1, d)
        logits = F.linear(flat, w[at + "gate.weight"])
        routers.append(logits)
        gates, chosen = logits.softmax(-1).topk(moe["top_k"], -1)
        if moe["norm_topk"]:
            gates = gates / gates.sum(-1, keepdim=True)
        y = torch.zeros_like(flat)
        for e in range(moe["n_expert"]):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            out = feed_forward(at + f"experts.{e}", flat[token]) * gates[token, slot, None]
            y = y.index_add(0, token, out)
        return y.view_as(x)

    x = w["model.embed_tokens.weight"][ids] * m.get("embedding_scale", 1.0)
    if "sinusoidal" in m["position"]:
        p, i = torch.arange(T).double()[:, None], torch.arange(0, d, 2).double()[None]
        angles = p / 10000.0 ** (i / d)
        x = x + torch.stack([angles.sin(), angles.cos()], -1).view(T, d).float()
    scale = m.get("residual_scale", 1.0)
    for i in range(m["n_layer"]):
        at = f"model.layers.{i}."
        mlp = (lambda y: experts(i, y)) if "moe" in m else (lambda y: feed_forward(at + "mlp", y))
        if placement == "pre":
            x = x + scale * attention(i, norm(at + "input_layernorm", x))
            x = x + scale * mlp(norm(at + "post_attention_layernorm", x))
        elif placement == "post":
            x = norm(at + "post_attention_layernorm", x + scale * attention(i, x))
            x = norm(at + "post_feedforward_layernorm", x + scale * mlp(x))
        else:
            y = attention(i, norm(at + "input_layernorm", x))
            x = x + scale * norm(at + "post_attention_layernorm", y)
            y = mlp(norm(at + "pre_feedforward_layernorm", x))
            x = x + scale * norm(at + "post_feedforward_layernorm", y)
    if placement != "post":
        x = norm("model.norm", x)
    logits = F.linear(x, w["lm_head.weight"]) * m.get("logit_scale", 1.0)
    if cap := m.get("logit_softcap"):
        logits = cap * torch.tanh(logits / cap)
    return logits, routers


def main(path, names):
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(VOCAB, (B, T), generator=generator)
    targets = torch.randint(VOCAB, (B, T), generator=generator)
    tensors = {"tokens": tokens.to(torch.uint32), "targets": targets.to(torch.uint32)}
    models = {}
    for name, option in OPTIONS.items():
        if name not in (names or FIRST):
            continue
        m = {**BASE, **option}
        if m["n_head"] % m["n_kv_head"]:
            m["n_kv_head"] = 1
        models[name] = m
        w = {}
        for parameter, shape in parameters(m):
            values = 0.4 * torch.randn(shape, generator=generator)
            if "norm" in parameter and parameter.endswith("weight"):
                values += 0.0 if "unit_offset" in next(iter(m["norm"].values())) else 1.0
            w[parameter] = values.requires_grad_()
        logits, routers = forward(m, w, tokens)
        loss = F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))
        if routers:
            moe = m["moe"]
            aux = load_balancing_loss_func(tuple(routers), moe["n_expert"], moe["top_k"])
            z = torch.stack([r.logsumexp(-1).square().mean() for r in routers]).mean()
            loss = loss + moe["aux_loss_coef"] * aux + moe["z_loss_coef"] * z
        loss.backward()
        tensors[f"{name}/logits"] = logits.detach().contiguous()
        for parameter, values in w.items():
            tensors[f"{name}/weight.{parameter}"] = values.detach().contiguous()
            tensors[f"{name}/grad.{parameter}"] = values.grad.contiguous()
    save_file(tensors, path, {"models": json.dumps(models)})


main(sys.argv[1], sys.argv[2:])
