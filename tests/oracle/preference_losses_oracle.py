"""Losses, readings and gradients of the preference methods on fixed log-probabilities, for tests/oracle.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch "trl==1.16.*"
    /tmp/oracle/bin/python tests/oracle/preference_losses_oracle.py tests/oracle

CPO, SimPO and the odds ratio of ORPO are TRL's own functions. DPO's losses and KTO stand in the middle of TRL's trainers
and are written here from the papers that tests name, with torch's logsigmoid. Rows are right-padded; of pairs, chosen and
rejected in turn. The gradient is with respect to the log-probability of each token.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
import trl
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

LENGTHS = [5, 3, 2, 6]
WIDTH = 6


def rows(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(len(lengths), WIDTH, generator=g, dtype=torch.float64) * 2
    mask = torch.tensor([[float(t < n) for t in range(WIDTH)] for n in lengths], dtype=torch.float64)
    reference = (logp * mask).sum(1) + torch.randn(len(lengths), generator=g, dtype=torch.float64)
    return logp.requires_grad_(), mask, reference


def pairs_readings(rewards, logps):
    chosen, rejected = rewards[0::2], rewards[1::2]
    return {
        "rewards/chosen": chosen.mean(), "rewards/rejected": rejected.mean(), "rewards/margins": (chosen - rejected).mean(),
        "rewards/accuracies": (chosen > rejected).double().mean(), "logps/chosen": logps[0::2].mean(),
        "logps/rejected": logps[1::2].mean(),
    }


def dpo_loss(kind, config, ratios, lengths):
    beta, eps = config["beta"], config.get("label_smoothing", 0.0)
    chosen, rejected = ratios[0::2], ratios[1::2]
    z = beta * (chosen - rejected)
    if kind == "sigmoid":
        return -(1 - eps) * F.logsigmoid(z) - eps * F.logsigmoid(-z)
    if kind == "hinge":
        return torch.relu(1 - z)
    if kind == "ipo":
        return (chosen / lengths[0::2] - rejected / lengths[1::2] - 1 / (2 * beta)) ** 2
    if kind == "robust":
        return (-(1 - eps) * F.logsigmoid(z) + eps * F.logsigmoid(-z)) / (1 - 2 * eps)
    if kind == "bco_pair":
        return -F.logsigmoid(beta * chosen) - F.logsigmoid(-beta * rejected)
    if kind == "apo_zero":
        return 1 - torch.sigmoid(beta * chosen) + torch.sigmoid(beta * rejected)
    if kind == "apo_down":
        return torch.sigmoid(beta * chosen) + 1 - torch.sigmoid(z)
    raise ValueError(kind)


def dpo(config, logp, mask, reference):
    sums, lengths = (logp * mask).sum(1), mask.sum(1)
    ratios = sums - reference
    readings = pairs_readings(config["beta"] * ratios, sums)
    loss = config.get("weight", 1.0) * dpo_loss(config.get("loss", "sigmoid"), config, ratios, lengths)
    for term in config.get("mix", []):
        loss = loss + term["weight"] * dpo_loss(term["loss"], config, ratios, lengths)
    if config.get("nll_weight"):
        nll = -(sums / lengths)[0::2]
        readings["nll_loss"] = nll.mean()
        loss = loss + config["nll_weight"] * nll
    return loss.mean(), readings


def cpo_like(kind, config, logp, mask):
    sums, lengths = (logp * mask).sum(1), mask.sum(1)
    logps = sums / lengths if kind == "simpo" else sums
    trainer = SimpleNamespace(alpha=0.0, beta=config["beta"], loss_type="simpo" if kind == "simpo" else "sigmoid",
                              simpo_gamma=config.get("gamma", 0.0), label_smoothing=config.get("label_smoothing", 0.0),
                              accelerator=SimpleNamespace(device="cpu"))
    losses, _, _ = CPOTrainer.cpo_loss(trainer, logps[0::2], logps[1::2])
    nll = -(sums / lengths)[0::2]
    readings = pairs_readings(config["beta"] * logps, logps) | {"nll_loss": nll.mean()}
    return (losses + config.get("nll_weight", 0.0) * nll).mean(), readings


def orpo(config, logp, mask):
    mean = (logp * mask).sum(1) / mask.sum(1)
    trainer = SimpleNamespace(beta=config["beta"], accelerator=SimpleNamespace(device="cpu"))
    # TRL's function computes in single precision.
    losses, _, _, ratio, odds = ORPOTrainer.odds_ratio_loss(trainer, mean[0::2], mean[1::2])
    nll = -mean[0::2]
    readings = pairs_readings(config["beta"] * mean, mean)
    readings |= {"nll_loss": nll.mean(), "log_odds_ratio": ratio, "log_odds_chosen": odds}
    return (nll - losses).mean(), readings


def kto(config, logp, mask, reference, label, baseline):
    sums = (logp * mask).sum(1)
    ratios, kl = sums - reference, baseline.mean().clamp(min=0)
    good = label == 1
    beta = config["beta"]
    chosen = config.get("desirable_weight", 1.0) * (1 - torch.sigmoid(beta * (ratios[good] - kl)))
    rejected = config.get("undesirable_weight", 1.0) * (1 - torch.sigmoid(beta * (kl - ratios[~good])))
    rewards = beta * ratios
    readings = {"rewards/chosen": rewards[good].mean(), "rewards/rejected": rewards[~good].mean(),
                "rewards/margins": rewards[good].mean() - rewards[~good].mean(), "kl": kl,
                "logps/chosen": sums[good].mean(), "logps/rejected": sums[~good].mean()}
    return torch.cat([chosen, rejected]).mean(), readings


DPO = [
    {"beta": 0.1}, {"beta": 0.3, "label_smoothing": 0.1}, {"beta": 0.5, "loss": "hinge"}, {"beta": 0.2, "loss": "ipo"},
    {"beta": 0.4, "loss": "robust", "label_smoothing": 0.2}, {"beta": 0.5, "loss": "bco_pair"},
    {"beta": 0.7, "loss": "apo_zero"}, {"beta": 0.7, "loss": "apo_down"}, {"beta": 0.3, "nll_weight": 1.0},
    {"beta": 0.3, "weight": 0.8, "mix": [{"loss": "bco_pair", "weight": 0.2}], "nll_weight": 1.0},
]
PLAIN = [("simpo", {"beta": 2.0, "gamma": 1.0}), ("simpo", {"beta": 2.5, "gamma": 0.5, "nll_weight": 0.3, "label_smoothing": 0.1}),
         ("cpo", {"beta": 0.1, "nll_weight": 1.0}), ("cpo", {"beta": 0.5, "nll_weight": 0.0, "label_smoothing": 0.2}),
         ("orpo", {"beta": 0.1}), ("orpo", {"beta": 1.0})]
KTO = [({"beta": 0.1}, [0.3, -0.1, 0.4, 0.2]), ({"beta": 0.5, "desirable_weight": 1.5, "undesirable_weight": 0.5}, [-0.3, -0.1, -0.4, 0.2])]


def case(method, config, seed, compute, **columns):
    logp, mask, reference = rows(seed, LENGTHS)
    loss, readings = compute(logp, mask, reference)
    loss.backward()
    plain = lambda x: x.item() if torch.is_tensor(x) else x
    return {"method": {method: config}, "lengths": LENGTHS, "logp": logp.tolist(), "reference_logp": reference.tolist(),
            "loss": loss.item(), "readings": {k: plain(v) for k, v in readings.items()}, "grad": logp.grad.tolist(), **columns}


def main(folder):
    torch.set_num_threads(1)
    cases = [case("dpo", c, i, lambda l, m, r, c=c: dpo(c, l, m, r)) for i, c in enumerate(DPO)]
    for i, (name, c) in enumerate(PLAIN):
        compute = (lambda l, m, r, c=c: orpo(c, l, m)) if name == "orpo" else (lambda l, m, r, n=name, c=c: cpo_like(n, c, l, m))
        cases.append(case(name, c, 50 + i, compute))
    for i, (c, baseline) in enumerate(KTO):
        label = torch.tensor([1.0, 0.0, 1.0, 1.0])
        compute = lambda l, m, r, c=c: kto(c, l, m, r, label, torch.tensor(baseline, dtype=torch.float64))
        cases.append(case("kto", c, 90 + i, compute, label=label.tolist(), baseline=baseline))
    made = {"torch": torch.__version__, "trl": trl.__version__, "width": WIDTH, "cases": cases}
    (folder / "preference_losses.json").write_text(json.dumps(made) + "\n")
    for c in cases:
        print(c["method"], round(c["loss"], 6))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
