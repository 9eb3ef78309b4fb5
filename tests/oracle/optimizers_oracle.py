"""Twenty updates of the parameters of a tiny GPT-2 by reference optimizers, for tests/oracle/optimizers.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers schedulefree pytorch-optimizer numpy safetensors
    /tmp/oracle/bin/python tests/oracle/optimizers_oracle.py tests/oracle/optimizers.safetensors

torch 2.15, transformers 5.23, schedulefree 1.4.1, pytorch-optimizer 4.1.0 (SOAP). Gradients are random and the same for all; matrices decay, vectors do not.
Muon's Newton-Schulz runs in f32 (torch's runs in bf16: the name is replaced before the call); the fused c_attn is three
matrices; all that is no hidden matrix has AdamW. Lion and 8-bit AdamW are written from their papers; the latter with the
dynamic map of bitsandbytes. SOAP: c_attn is three matrices here, too; sides above 8 have no basis, because the first gradient leaves
that of a longer side undetermined. Sophia-G is written after its authors' code, whose curvature has no batch size in it (bs is a
factor of rho there); gradients on drawn labels are random (drawn/STEP/NAME, before the update of that number, of LABELS labels). Tensors: init/NAME, grad/STEP/NAME, CASE/NAME after twenty steps.
"""

import json
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from pytorch_optimizer import SOAP
from schedulefree import AdamWScheduleFreeReference
from transformers.optimization import Adafactor

torch.set_num_threads(1)
torch.manual_seed(23)
torch.bfloat16 = torch.float32

D, F, V, T, STEPS = 6, 10, 7, 5, 20
H = "transformer.h.0."
SHAPES = {
    "transformer.wte.weight": (V, D), "transformer.wpe.weight": (T, D),
    H + "ln_1.weight": (D,), H + "ln_1.bias": (D,),
    H + "attn.c_attn.weight": (3 * D, D), H + "attn.c_attn.bias": (3 * D,),
    H + "attn.c_proj.weight": (D, D), H + "attn.c_proj.bias": (D,),
    H + "ln_2.weight": (D,), H + "ln_2.bias": (D,),
    H + "mlp.c_fc.weight": (F, D), H + "mlp.c_fc.bias": (F,),
    H + "mlp.c_proj.weight": (D, F), H + "mlp.c_proj.bias": (D,),
    "transformer.ln_f.weight": (D,), "transformer.ln_f.bias": (D,),
}
MODEL = dict(n_layer=1, n_head=2, d_model=D, d_ff=F, seq_len=T, bias=True)
INIT = {n: torch.randn(s) * 0.3 for n, s in SHAPES.items()}
GRADS = [{n: torch.randn(s) * 0.1 * (1 + i % 3) for n, s in SHAPES.items()} for i in range(STEPS)]
LABELS, EVERY = 64, 5
DRAWN = {i: {n: torch.randn(s) * 0.1 for n, s in SHAPES.items()} for i in range(EVERY, STEPS, EVERY)}
HIDDEN = [n for n in SHAPES if n.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))]


def fresh():
    return {n: torch.nn.Parameter(p.clone()) for n, p in INIT.items()}


def groups(params, decay, names=None):
    named = {n: p for n, p in params.items() if names is None or n in names}
    return [{"params": [p for p in named.values() if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in named.values() if p.ndim == 1], "weight_decay": 0.0}]


def run(params, optimizers, before=lambda i: None):
    for i, grads in enumerate(GRADS):
        for n, p in params.items():
            p.grad = grads[n].clone()
        before(i)
        for o in optimizers:
            o.step()
    return {n: p.detach() for n, p in params.items()}


def adamw(lr=1e-2, decay=0.1):
    p = fresh()
    return run(p, [torch.optim.AdamW(groups(p, decay), lr=lr, betas=(0.9, 0.999), eps=1e-8)])


def muon(lr, decay, adjust, rest):
    p = fresh()
    split = {}
    for n in HIDDEN:
        parts = p[n].detach().chunk(3) if "c_attn" in n else [p[n].detach()]
        split[n] = [torch.nn.Parameter(x.clone()) for x in parts]
    flat = [x for parts in split.values() for x in parts]
    first = torch.optim.Muon(flat, lr=lr, weight_decay=decay, momentum=0.95, nesterov=True, adjust_lr_fn=adjust)
    others = [n for n in SHAPES if n not in HIDDEN]
    second = torch.optim.AdamW(groups(p, decay, others), lr=lr * rest, betas=(0.9, 0.95), eps=1e-8)

    def before(i):
        for n, parts in split.items():
            for x, g in zip(parts, GRADS[i][n].chunk(len(parts))):
                x.grad = g.clone()

    out = run(p, [first, second], before)
    return out | {n: torch.cat([x.detach() for x in parts]) for n, parts in split.items()}


def adafactor(**more):
    p = fresh()
    kind = dict(lr=1e-2, relative_step=False, warmup_init=False) | more
    return run(p, [Adafactor(groups(p, 0.1), **kind)])


def schedule_free():
    p = fresh()
    o = AdamWScheduleFreeReference(groups(p, 0.1), lr=1e-2, warmup_steps=4)
    o.train()
    y = {n: t.clone() for n, t in run(p, [o]).items()}
    o.eval()
    return y, {n: t.detach() for n, t in p.items()}


def lion(lr=1e-2, decay=0.3):
    p, m = {n: t.clone() for n, t in INIT.items()}, {n: torch.zeros(s) for n, s in SHAPES.items()}
    for grads in GRADS:
        for n, g in grads.items():
            keep = 1 - lr * (decay if g.ndim > 1 else 0.0)
            p[n] = p[n] * keep - lr * torch.sign(0.9 * m[n] + 0.1 * g)
            m[n] = 0.99 * m[n] + 0.01 * g
    return p


def soap(decay=0.1):
    p = fresh()
    parts = {n: x.detach().chunk(3) if "c_attn.weight" in n else [x.detach()] for n, x in p.items()}
    parts = {n: [torch.nn.Parameter(x.clone()) for x in xs] for n, xs in parts.items()}
    every = [x for xs in parts.values() for x in xs]
    kinds = [{"params": [x for x in every if x.ndim > 1], "weight_decay": decay},
             {"params": [x for x in every if x.ndim == 1], "weight_decay": 0.0}]
    o = SOAP(kinds, lr=3e-3, precondition_frequency=4, max_precondition_dim=8)

    def before(i):
        for n, xs in parts.items():
            for x, g in zip(xs, GRADS[i][n].chunk(len(xs))):
                x.grad = g.clone()

    run(p, [o], before)
    return {n: torch.cat([x.detach() for x in xs]) for n, xs in parts.items()}


def sophia(lr=1e-2, decay=0.2, rho=0.04, beta1=0.965, beta2=0.99):
    p = {n: t.clone() for n, t in INIT.items()}
    m, h = ({n: torch.zeros(s) for n, s in SHAPES.items()} for _ in range(2))
    for i, grads in enumerate(GRADS):
        for n, g in grads.items():
            if i in DRAWN:
                h[n].mul_(beta2).addcmul_(DRAWN[i][n], DRAWN[i][n], value=1 - beta2)
            p[n].mul_(1 - lr * (decay if g.ndim > 1 else 0.0))
            m[n].mul_(beta1).add_(g, alpha=1 - beta1)
            ratio = (m[n].abs() / (rho * LABELS * h[n] + 1e-15)).clamp(None, 1)
            p[n].addcmul_(m[n].sign(), ratio, value=-lr)
    return p


def dynamic_map(signed):
    values = [0.0, 1.0]
    for i in range(7):
        bounds = np.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1)
        means = 10.0 ** (i - 6) * (bounds[:-1] + bounds[1:]) / 2
        values += list(means) + (list(-means) if signed else [])
    return np.sort(np.array(values).astype(np.float32))


def adamw8bit(lr=1e-2, decay=0.1):
    f, maps, block = np.float32, (dynamic_map(True), dynamic_map(False)), 256

    def rounded(x, values):
        scale = np.abs(x).max()
        if scale == 0:
            return np.zeros_like(x)
        middles = (values[:-1] + values[1:]) / f(2)
        return values[np.searchsorted(middles, x * (f(1) / scale), side="left")] * scale

    p = {}
    for n, init in INIT.items():
        w = init.numpy().reshape(-1).copy()
        m, v = np.zeros_like(w), np.zeros_like(w)
        for t, grads in enumerate(GRADS, 1):
            g = grads[n].numpy().reshape(-1)
            m = m + (g - m) * f(1 - 0.9)
            v = v * f(0.999) + g * g * f(1 - 0.999)
            denominator = np.sqrt(v) * f(1 / np.sqrt(1 - 0.999 ** t)) + f(1e-8)
            keep = f(1 - lr * (decay if init.ndim > 1 else 0.0))
            w = w * keep - f(lr / (1 - 0.9 ** t)) * (m / denominator)
            for at in range(0, len(w), block):
                m[at:at + block] = rounded(m[at:at + block], maps[0])
                v[at:at + block] = rounded(v[at:at + block], maps[1])
        p[n] = torch.from_numpy(w).reshape(init.shape)
    return p


y, x = schedule_free()
CASES = {
    "adamw": (adamw(), dict(adamw=dict(weight_decay=0.1)), 1e-2),
    "lion": (lion(), dict(lion=dict(weight_decay=0.3)), 1e-2),
    "muon": (muon(0.02, 0.1, "original", 0.1), dict(muon=dict(lr=0.02, weight_decay=0.1)), 0.02),
    "muon_match": (muon(1e-3, 0.1, "match_rms_adamw", 1.0), dict(muon=dict(lr=1e-3, weight_decay=0.1)), 1e-3),
    "adafactor": (adafactor(scale_parameter=False), dict(adafactor=dict(weight_decay=0.1)), 1e-2),
    "adafactor_scaled": (adafactor(scale_parameter=True),
                         dict(adafactor=dict(weight_decay=0.1, scale_parameter=True)), 1e-2),
    "schedule_free": (y, dict(schedule_free=dict(weight_decay=0.1)), 1e-2),
    "schedule_free_average": (x, dict(schedule_free=dict(weight_decay=0.1)), 1e-2),
    "soap": (soap(), dict(soap=dict(every=4, max_dim=8, weight_decay=0.1)), 3e-3),
    "sophia": (sophia(), dict(sophia=dict(every=EVERY, weight_decay=0.2)), 1e-2),
    "adamw8bit": (adamw8bit(), dict(adamw8bit=dict(weight_decay=0.1)), 1e-2),
}

tensors = {"init/" + n: t for n, t in INIT.items()}
tensors |= {f"grad/{i}/{n}": t for i, grads in enumerate(GRADS) for n, t in grads.items()}
tensors |= {f"{case}/{n}": t for case, (after, _, _) in CASES.items() for n, t in after.items()}
tensors |= {f"drawn/{i}/{n}": t for i, drawn in DRAWN.items() for n, t in drawn.items()}
metadata = {"labels": LABELS, "model": MODEL, "vocab_size": V, "steps": STEPS,
            "cases": {case: {"optimizer": config, "lr": lr} for case, (_, config, lr) in CASES.items()}}
tensors = {n: t.contiguous().clone() for n, t in tensors.items()}
save_file(tensors, sys.argv[1], {k: json.dumps(v) for k, v in metadata.items()})
