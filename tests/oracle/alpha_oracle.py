"""Exponents of weight spectra by WeightWatcher, for crates/record/src/metrics/estimators/alpha.rs to compare with.

    python -m venv /tmp/ww && /tmp/ww/bin/pip install weightwatcher==0.7.7
    /tmp/ww/bin/python tests/oracle/alpha_oracle.py tests/oracle/alpha.json

Each case is a matrix of a random law, its eigenvalues of WᵀW in ascending order, and what `WWFit` makes of them.
"""

import json
import sys

import numpy as np
import weightwatcher
from weightwatcher.WW_powerlaw import WWFit

rng = np.random.default_rng(7)


def spiked(rows, columns):
    u, v = rng.normal(size=(rows, 6)), rng.normal(size=(6, columns))
    return rng.normal(size=(rows, columns)) + u @ np.diag([6, 4, 3, 2, 1.5, 1]) @ v / 8


MATRICES = {
    "gaussian": rng.normal(size=(96, 64)),
    "student 3": rng.standard_t(3, size=(96, 64)),
    "pareto 1.5": rng.pareto(1.5, size=(80, 60)) * rng.choice([-1, 1], size=(80, 60)),
    "spiked": spiked(90, 60),
    "decaying": np.linalg.qr(rng.normal(size=(80, 56)))[0] @ np.diag(np.arange(1, 57) ** -0.8),
    "wide": rng.normal(size=(50, 200)) * rng.lognormal(sigma=1.0, size=(50, 1)),
}

cases = []
for name, matrix in MATRICES.items():
    evals = np.sort(np.linalg.svd(matrix, compute_uv=False) ** 2)
    found = WWFit(evals, xmin=None, xmax=np.max(evals), distribution="power_law")
    cases.append(dict(name=name, evals=[float(f"{x:.17g}") for x in evals], alpha=float(found.alpha), distance=float(found.D), xmin=float(found.xmin)))
    print(name, found.alpha, found.D, found.xmin)
version = weightwatcher.__version__
json.dump(dict(weightwatcher=version, cases=cases), open(sys.argv[1], "w"), indent=0)
