"""Lion (Chen et al. 2023, arXiv 2302.06675): the sign of a running mean of gradients. Its state is the engine's own, so that checkpoints
move between the two."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Lion:
    """The part of torch.optim's interface that a rank uses."""

    def __init__(self, groups: list[dict[str, Any]], beta1: float, beta2: float) -> None:
        self.param_groups, self.beta1, self.beta2 = groups, beta1, beta2
        self.means: dict[nn.Parameter, Tensor] = {p: torch.zeros_like(p.detach()) for group in groups for p in group["params"]}

    @property
    def state(self) -> dict[nn.Parameter, dict[str, Tensor]]:
        return {p: {"exp_avg": mean} for p, mean in self.means.items()}

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.means[p]
                # β1 · mean + (1 - β1) · gradient
                direction = (mean * self.beta1).add_(p.grad, alpha=1.0 - self.beta1).sign_()
                p.mul_(1.0 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=group["lr"])
                mean.mul_(self.beta2).add_(p.grad, alpha=1.0 - self.beta2)
