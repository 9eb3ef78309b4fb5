"""Divergences of distillation and their gradients on fixed logits, for tests/oracle/distill.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers "trl==1.16.*"
    /tmp/oracle/bin/python tests/oracle/distill_oracle.py tests/oracle

The divergence is TRL's own (GKDTrainer.generalized_jsd_loss), summed over the vocabulary of each row; beside it stand the three
formulas of the paper (arXiv 2306.13649) in plain f64, which must agree. Gradients are with respect to hidden states and table of the
student's head. Logits of a case with a cap are c · tanh(logits / c).
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from trl.experimental.gkd.gkd_trainer import GKDTrainer

ROWS, WIDTH, TEACHER_WIDTH, VOCAB, TEACHER_VOCAB = 6, 5, 7, 19, 23
CASES = [(beta, temperature, cap, ce)
         for beta in (0.0, 0.1, 0.5, 0.9, 1.0)
         for temperature, cap, ce in ((1.0, None, 0.0), (2.0, None, 0.3), (0.7, 3.0, 0.0))]


def drawn(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    # Exact in f32, so that both sides begin with the same numbers.
    return (torch.randn(*shape, generator=generator, dtype=torch.float32)).double()


def plain(student, teacher, beta, temperature):
    p, q = (F.log_softmax(x / temperature, -1) for x in (student, teacher))
    kl = lambda a, b: (a.exp() * (a - b)).sum(-1)
    if beta == 0:
        return kl(q, p)
    if beta == 1:
        return kl(p, q)
    m = (beta * q.exp() + (1 - beta) * p.exp()).log()
    return beta * kl(q, m) + (1 - beta) * kl(p, m)


def main(folder):
    hidden, table = drawn(1, ROWS, WIDTH), drawn(2, VOCAB, WIDTH)
    theirs, their_table = drawn(3, ROWS, TEACHER_WIDTH), drawn(4, TEACHER_VOCAB, TEACHER_WIDTH)
    weights = drawn(5, ROWS).abs() / ROWS
    targets = torch.arange(ROWS) * 5 % VOCAB
    cases = []
    for beta, temperature, cap, ce in CASES:
        h, t = hidden.clone().requires_grad_(), table.clone().requires_grad_()
        capped = lambda x: x if cap is None else cap * torch.tanh(x / cap)
        student, teacher = capped(h @ t.T), capped(theirs @ their_table.T)
        both = student, teacher[:, :VOCAB]
        each = torch.stack([
            GKDTrainer.generalized_jsd_loss(s[None, None], q[None, None], beta=beta, temperature=temperature, reduction="sum")
            for s, q in zip(*both)])
        by_paper = plain(*both, beta, temperature)
        assert torch.allclose(each, by_paper, atol=1e-12), (each, by_paper)
        logp = F.log_softmax(student, -1).gather(1, targets[:, None])[:, 0]
        loss = (weights * (each - ce * logp)).sum()
        loss.backward()
        cases.append({
            "beta": beta, "temperature": temperature, "cap": cap, "ce": ce, "divergence": each.tolist(), "loss": loss.item(),
            "dhidden": h.grad.flatten().tolist(), "dtable": t.grad.flatten().tolist(),
        })
    fixture = {
        "hidden": hidden.flatten().tolist(), "table": table.flatten().tolist(), "teacher_hidden": theirs.flatten().tolist(),
        "teacher_table": their_table.flatten().tolist(), "weights": weights.tolist(), "targets": targets.tolist(), "cases": cases,
    }
    Path(folder, "distill.json").write_text(json.dumps(fixture) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
