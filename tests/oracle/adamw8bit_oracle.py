"""Eight updates of the embedding rows of tokens that come rarely, by AdamW with 8-bit moments and by AdamW, for tests/oracle/optimizers.rs.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy safetensors
    /tmp/oracle/bin/python tests/oracle/adamw8bit_oracle.py tests/oracle/adamw8bit.safetensors

torch 2.15. 33 rows of 8 weights, a block of 256 and the beginning of another. Row r has a gradient in one of r + 1 steps, of a size
between 1e-5 and 1; else it is 0. The 8-bit rule is written after Dettmers et al. (arXiv 2110.02861): the nearest value of the dynamic map
by search over all of them, in f64, for each block's numbers over their largest magnitude. A mean square above 0 is never stored as 0.
Tensors: init, grad/STEP, adamw8bit and adamw after eight steps.
"""

import sys

import numpy as np
import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.manual_seed(7)
ROWS, WIDTH, STEPS, BLOCK = 33, 8, 8, 256
LR, BETAS, EPS, DECAY = 1e-2, (0.9, 0.999), 1e-8, 0.1

INIT = torch.randn(ROWS, WIDTH) * 0.02
GRADS = []
for _ in range(STEPS):
    comes = torch.rand(ROWS, 1) < 1.0 / (1.0 + torch.arange(ROWS)[:, None])
    size = 10.0 ** (-5.0 * torch.rand(ROWS, 1))
    GRADS.append(torch.randn(ROWS, WIDTH) * size * comes)


def adamw():
    p = torch.nn.Parameter(INIT.clone())
    rule = torch.optim.AdamW([p], lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    for g in GRADS:
        p.grad = g.clone()
        rule.step()
    return p.detach()


def dynamic_map(signed):
    """Seven decades; the largest has 64 steps (unsigned 128), each smaller one half as many."""
    positive = []
    for decade in range(-6, 1):
        edges = np.linspace(0.1, 1.0, 2 ** (decade + 6 + (not signed)) + 1)
        positive += list(10.0 ** decade * (edges[1:] + edges[:-1]) / 2)
    values = [0.0, 1.0] + positive + ([-x for x in positive] if signed else [])
    assert len(values) == 256
    return np.array(sorted(values), np.float32).astype(np.float64)


def stored(x, signed):
    """What is left of the moments of a block; also how near the nearest two values come to a tie."""
    values, scale = dynamic_map(signed), np.abs(x).max().astype(np.float32)
    if scale == 0:
        return np.zeros_like(x), np.inf
    apart = np.abs(values[None] - (x.astype(np.float64) / np.float64(scale))[:, None])
    if not signed:
        apart[x > 0, 0] = np.inf
    two = np.sort(apart, 1)[:, :2]
    codes = apart.argmin(1)
    tie = (two[:, 1] - two[:, 0]) / values[np.maximum(codes, 1)].__abs__().clip(1e-7)
    return (values[codes].astype(np.float32) * scale).astype(np.float32), tie[x != 0].min()


def adamw8bit():
    f = np.float32
    w, closest = INIT.numpy().reshape(-1).copy(), np.inf
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(GRADS, 1):
        g = g.numpy().reshape(-1)
        m = m * f(BETAS[0]) + g * f(1 - BETAS[0])
        v = v * f(BETAS[1]) + g * g * f(1 - BETAS[1])
        m_hat, v_hat = m / (1 - BETAS[0] ** t), v / (1 - BETAS[1] ** t)
        w = (w * f(1 - LR * DECAY) - f(LR) * (m_hat / (np.sqrt(v_hat) + f(EPS)))).astype(f)
        for at in range(0, len(w), BLOCK):
            m[at : at + BLOCK], one = stored(m[at : at + BLOCK], True)
            v[at : at + BLOCK], two = stored(v[at : at + BLOCK], False)
            closest = min(closest, one, two)
    print(f"nearest to a tie: {closest:.1e} of a value")
    return torch.from_numpy(w).reshape(INIT.shape)


eight, full = adamw8bit(), adamw()
moved = lambda w: float((w - INIT).abs().max()) / LR
print(f"farthest: {moved(eight):.2f} learning rates, AdamW {moved(full):.2f}; apart {float((eight - full).abs().max()) / LR:.2f}")
tensors = {"init": INIT, "adamw8bit": eight, "adamw": full} | {f"grad/{i}": g for i, g in enumerate(GRADS)}
save_file({n: t.contiguous() for n, t in tensors.items()}, sys.argv[1], {"steps": str(STEPS), "lr": str(LR)})
