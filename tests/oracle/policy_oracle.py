"""Losses of TRL's GRPO and RLOO trainers on fixed answers, with gradients by log-probabilities, for crates/spec/src/methods/policy_tests.rs.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy transformers trl==1.16.0
    /tmp/oracle/bin/python tests/oracle/policy_oracle.py tests/oracle

The trainers' own `_compute_loss` runs on a stand-in for `self` whose model gives a leaf tensor of log-probabilities, so what
is recorded is TRL's arithmetic and torch's autograd. Of its metrics the clipped shares and the KL are kept.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

ROWS, TOKENS, LIMIT = 6, 7, 9


def answers():
    rng = np.random.default_rng(7)
    lengths = [7, 2, 5, 1, 4, 6]
    mask = np.array([[int(t < n) for t in range(TOKENS)] for n in lengths])
    logps = -np.abs(rng.normal(1.5, 1.0, (ROWS, TOKENS)))
    apart = lambda size: rng.normal(0.0, size, (ROWS, TOKENS))
    return dict(
        mask=mask, logps=logps, old=logps + apart(0.3), reference=logps + apart(0.5),
        advantages=rng.normal(0.0, 1.0, ROWS),
    )


class Accelerator(SimpleNamespace):
    def gather(self, x):
        return x

    def gather_for_metrics(self, x):
        return x

    def reduce(self, x, reduction):
        return x


def stand_in(leaf, **settings):
    metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    given = lambda *a, **k: (leaf, torch.zeros_like(leaf), None)
    return SimpleNamespace(
        _get_per_token_logps_and_entropies=given, aux_loss_enabled=False, top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, use_vllm=False, _entropy_bonus_enabled=False, _metrics=metrics,
        model=SimpleNamespace(training=True), accelerator=Accelerator(num_processes=1),
        current_gradient_accumulation_steps=1, max_completion_length=LIMIT,
        args=SimpleNamespace(use_bias_correction_kl=settings.get("correction", True), delta=settings.get("delta"), steps_per_generation=1),
        importance_sampling_level=settings.get("level", "token"), loss_type=settings.get("loss_type"),
        beta=settings.get("beta", 0.0), epsilon_low=settings.get("low", 0.2), epsilon_high=settings.get("high", 0.2),
    )


def run(trainer, data, fresh=False, **settings):
    tensor = lambda name: torch.tensor(data[name], dtype=torch.float64)
    leaf = tensor("logps").requires_grad_(True)
    mask = torch.tensor(data["mask"])
    ids = torch.zeros_like(mask)
    inputs = dict(
        prompt_ids=ids[:, :1], prompt_mask=torch.ones_like(ids[:, :1]), completion_ids=ids, completion_mask=mask,
        advantages=tensor("advantages"), ref_per_token_logps=tensor("reference"), num_items_in_batch=mask.sum(),
        old_per_token_logps=None if fresh else tensor("old"),
    )
    if trainer is RLOOTrainer:
        # It compares whole answers, and wants their old log-probabilities summed.
        old = leaf.detach() if fresh else tensor("old")
        inputs["old_logps"] = (old * mask).sum(1)
    trainee = stand_in(leaf, **settings)
    loss = trainer._compute_loss(trainee, None, inputs)
    loss.backward()
    seen = {name: values[0] for name, values in trainee._metrics["train"].items()}
    readings = {name: seen[name] for name in ["clip_ratio/low_mean", "clip_ratio/high_mean", "kl"] if name in seen}
    return dict(loss=loss.item(), gradient=leaf.grad.flatten().tolist(), readings=readings)


def main(folder):
    data = answers()
    cases = []
    for aggregation in ["dapo", "grpo", "bnpo", "dr_grpo"]:
        for level in ["token", "sequence"]:
            for beta, correction in [(0.0, True), (0.1, True), (0.1, False)]:
                ours = dict(aggregation=aggregation, ratio=level, beta=beta, kl_correction=correction, clip_low=0.2, clip_high=0.28)
                theirs = dict(loss_type=aggregation, level=level, beta=beta, correction=correction, low=0.2, high=0.28)
                for fresh in [False, True]:
                    cases.append(dict(method={"grpo": ours}, fresh=fresh, **run(GRPOTrainer, data, fresh, **theirs)))
    for level in ["token", "sequence"]:
        # The largest ratio of a token with a negative advantage is 1.8, so that this cap is in force.
        ours = dict(ratio=level, delta=1.35, clip_low=0.2, clip_high=0.28)
        theirs = dict(loss_type="dapo", level=level, delta=1.35, low=0.2, high=0.28)
        cases.append(dict(method={"grpo": ours}, fresh=False, **run(GRPOTrainer, data, **theirs)))
        # The corrected KL takes the ratio as it is, in front of the cap.
        ours, theirs = dict(ours, beta=0.1, kl_correction=True), dict(theirs, beta=0.1, correction=True)
        cases.append(dict(method={"grpo": ours}, fresh=False, **run(GRPOTrainer, data, **theirs)))
    for fresh in [False, True]:
        cases.append(dict(method={"rloo": dict(clip=0.2, beta=0.0)}, fresh=fresh, **run(RLOOTrainer, data, fresh)))
    fixed = {name: values.flatten().tolist() for name, values in data.items()}
    out = dict(rows=ROWS, tokens=TOKENS, limit=LIMIT, **fixed, cases=cases)
    (Path(folder) / "policy.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
