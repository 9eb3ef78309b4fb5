"""Trains a tiny decoder by DPO with PyTorch and writes what happened, for tests/oracle.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy
    /tmp/oracle/bin/python tests/oracle/dpo_oracle.py tests/oracle

The model is the llama of train_oracle.py; the pairs are random tokens: a prompt, and two answers of different lengths.
Rows are right-padded, chosen and rejected in turn. Loss and readings are written from the paper (arXiv 2305.18290, eq. 7)
with torch's own logsigmoid; the names of readings are TRL's.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from train_oracle import MODELS, initial, logits, write

torch.set_num_threads(1)

MODEL = MODELS["llama"]
RUN = dict(vocab_size=48, pairs=4, steps=5, beta=0.1, label_smoothing=0.0, lr=1e-3, beta1=0.9, beta2=0.99, eps=1e-6,
           weight_decay=0.0, clip_norm=1.0)
READINGS = ["rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected"]


def batch_of(step):
    """Inputs, targets (2P, T) and the mask of the answers' tokens."""
    rng = np.random.default_rng(100 + step)
    length = MODEL["seq_len"]
    inputs = np.zeros((2 * RUN["pairs"], length), dtype=np.uint32)
    targets, mask = np.zeros_like(inputs), np.zeros_like(inputs)
    for pair in range(RUN["pairs"]):
        prompt = rng.integers(0, RUN["vocab_size"], rng.integers(2, 6))
        for side in range(2):
            ids = np.concatenate([prompt, rng.integers(0, RUN["vocab_size"], rng.integers(2, 9))])
            row, n = 2 * pair + side, len(ids) - 1
            inputs[row, :n], targets[row, :n] = ids[:-1], ids[1:]
            mask[row, len(prompt) - 1 : n] = 1
    return inputs, targets, mask


def answers(weights, inputs, targets, mask):
    """Log-probability of each row's answer."""
    logp = F.log_softmax(logits(MODEL, weights, torch.tensor(inputs.astype(np.int64))), -1)
    of_target = logp.gather(-1, torch.tensor(targets.astype(np.int64))[..., None])[..., 0]
    return (of_target * torch.tensor(mask.astype(np.float32))).sum(-1)


def main(folder):
    weights, reference = initial(MODEL, 1), initial(MODEL, 1)
    tensors = {"weight." + n: p.detach().numpy().copy() for n, p in weights.items()}
    betas = (RUN["beta1"], RUN["beta2"])
    optimizer = torch.optim.AdamW(weights.values(), lr=RUN["lr"], betas=betas, eps=RUN["eps"],
                                  weight_decay=RUN["weight_decay"], foreach=False)
    losses, norms, readings = [], [], []
    for step in range(RUN["steps"]):
        batch = batch_of(step)
        for name, values in zip(("inputs", "targets", "mask"), batch):
            tensors[f"{name}.{step}"] = values
        policy = answers(weights, *batch)
        with torch.no_grad():
            frozen = answers(reference, *batch)
        rewards = RUN["beta"] * (policy - frozen)
        chosen, rejected = rewards[0::2], rewards[1::2]
        margins = chosen - rejected
        smooth = RUN["label_smoothing"]
        loss = (-(1 - smooth) * F.logsigmoid(margins) - smooth * F.logsigmoid(-margins)).mean()
        optimizer.zero_grad()
        loss.backward()
        tensors |= {f"grad.{step}.{name}": p.grad.numpy().copy() for name, p in weights.items()} if step in (0, 4) else {}
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), RUN["clip_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
        seen = [chosen, rejected, margins, (margins > 0).float(), policy[0::2], policy[1::2]]
        readings.append([x.mean().item() for x in seen])
    tensors["loss"], tensors["norm"] = np.array(losses), np.array(norms)
    tensors["readings"] = np.array(readings)
    metadata = {"model": json.dumps(MODEL), "train": json.dumps(RUN), "readings": json.dumps(READINGS),
                "torch": torch.__version__}
    write(folder / "dpo.safetensors", tensors, metadata)
    print(losses, readings[-1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
