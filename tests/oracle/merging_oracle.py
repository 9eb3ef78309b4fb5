"""Merged tensors by mergekit 0.1.5, for tests/oracle/merging.json.

    pip install torch mergekit==0.1.5
    python merging_oracle.py > merging.json

Three tensors of 40 values near a base; every value is an f32. What is dropped at random has density 1 here: generators differ.
"""

import json

import torch
from mergekit.merge_methods.generalized_task_arithmetic import get_mask
from mergekit.merge_methods.slerp import slerp
from mergekit.sparsify import SparsificationMethod, sparsify

torch.manual_seed(7)
base = torch.randn(40)
models = [base + 0.3 * torch.randn(40) for _ in range(3)]
models[2][:6] = base[:6]  # unchanged by one of them
cases = []


def case(method, values, **settings):
    cases.append({"method": method, "expected": values.tolist(), **settings})


def arithmetic(method, weights, density=1.0, scale=1.0, normalize=False):
    """GeneralizedTaskArithmeticMerge.merge_group of mergekit, on its own parts."""
    deltas = []
    for model, weight in zip(models, weights):
        delta = model - base
        if method == "ties":
            delta = sparsify(delta, density, SparsificationMethod.magnitude)
        deltas.append(weight * delta)
    deltas = torch.stack(deltas)
    w = torch.tensor(weights).unsqueeze(-1)
    if method in ("ties", "dare_ties"):
        mask = get_mask(deltas, "sum")
        mixed, divisor = (deltas * mask).sum(0), (w * mask).sum(0)
        divisor[divisor == 0] = 1
    else:
        mixed, divisor = deltas.sum(0), w.sum(0)
        divisor[divisor.abs() < 1e-8] = 1
    if normalize:
        mixed = mixed / divisor
    settings = {"weights": weights, "density": density, "lambda": scale, "normalize": normalize}
    case(method, base + scale * mixed, **settings)


for weights in ([1.0, 1.0, 1.0], [0.5, 0.2, 0.3], [2.0, -0.5, 0.25]):
    arithmetic("task_arithmetic", weights)
    arithmetic("task_arithmetic", weights, scale=0.7, normalize=True)
    arithmetic("dare_linear", weights)
    arithmetic("dare_ties", weights, scale=1.3)
    for density in (1.0, 0.5, 0.13, 0.01):
        arithmetic("ties", weights, density, normalize=True)
        arithmetic("ties", weights, density, scale=0.4)
    for normalize in (True, False):
        total = sum(weights) if normalize else 1.0
        mean = sum(w * m.double() for w, m in zip(weights, models)) / total
        case("linear", mean.float(), weights=weights, normalize=normalize)
for t in (0.0, 0.25, 0.5, 0.9, 1.0):
    t_ = torch.tensor([t], dtype=torch.float64)
    of = lambda b: slerp(t_, models[0].double()[None], b.double()[None])[0].float()
    case("slerp", of(models[1]), t=t)
    case("slerp", of(1.5 * models[0]), t=t, parallel=True)
    case("slerp", of(-1.0 * models[0]), t=t, opposite=True)
print(json.dumps({"base": base.tolist(), "models": [m.tolist() for m in models], "cases": cases}))
