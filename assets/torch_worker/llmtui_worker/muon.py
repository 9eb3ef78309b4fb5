"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the momentum of hidden matrices, orthogonalized by Newton-Schulz
iterations; AdamW for the rest. The rule, its coefficients and its state are the engine's own, so that checkpoints move between the two.

Of a matrix in shards its momentum is one too; for an update the whole is gathered, orthogonalized on every rank, and each keeps its share.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

COEFFICIENTS = (3.4445, -4.775, 2.0315)
# Elements of matrices of one shape that are orthogonalized at once.
MOST = 1 << 26


def orthogonalize(x: Tensor, iterations: int, dtype: torch.dtype) -> Tensor:
    """Matrices (N, rows, columns) towards the nearest orthogonal ones; factors of matmuls are rounded to `dtype`."""
    a, b, c = COEFFICIENTS
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT if is_tall else x
    for _ in range(iterations):
        own = x.to(dtype)
        gram = (own @ own.mT).float()
        square = gram.to(dtype)
        polynomial = b * gram + c * (square @ square).float()
        polynomial.diagonal(dim1=1, dim2=2).add_(a)
        x = (polynomial.to(dtype) @ own).float()
    return x.mT if is_tall else x


def scale_of(kind: str, rows: int, columns: int) -> float:
    """What an orthogonal step is multiplied by before the learning rate."""
    return float(0.2 * max(rows, columns) ** 0.5 if kind == "match_rms" else max(1.0, rows / columns) ** 0.5)


class Matrices:
    """A parameter as matrices of one shape each: of one tensor the whole, or blocks of its rows; of stacked experts (experts, rows,
    columns) the same rows of each."""

    def __init__(self, parameter: nn.Parameter, blocks: int, rows: list[slice]) -> None:
        self.parameter, self.blocks, self.rows = parameter, blocks, rows

    def split(self, x: Tensor) -> list[Tensor]:
        """Of a tensor like the parameter, or a share of whole experts, (N, rows, columns) each."""
        if x.dim() == 3:
            return [x[:, rows] for rows in self.rows]
        return [x.view(self.blocks, -1, x.shape[-1])]


class Muon:
    """The part of torch.optim's interface that a rank uses. Groups are as AdamW's; those of hidden matrices have them as `matrices` too."""

    def __init__(
        self, adamw: torch.optim.AdamW | None, hidden: list[dict[str, Any]], settings: dict[str, Any], device: torch.device, *, bf16: bool
    ) -> None:
        """`adamw`: of the other parameters, if there are any."""
        self.adamw = adamw
        for group in [] if adamw is None else adamw.param_groups:
            group["lr_scale"] *= settings["adamw_lr_scale"]
        self.settings, self.device = settings, device
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.hidden = hidden
        self.means = {m.parameter: torch.zeros_like(m.parameter.detach()) for group in hidden for m in group["matrices"]}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [*([] if self.adamw is None else self.adamw.param_groups), *self.hidden]

    @property
    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        adamw: dict[Tensor, dict[str, Tensor]] = {} if self.adamw is None else dict(self.adamw.state)
        return adamw | {p: {"exp_avg": mean} for p, mean in self.means.items()}

    @torch.no_grad()
    def step(self) -> None:
        if self.adamw is not None:
            self.adamw.step()
        for group in self.hidden:
            for matrices in group["matrices"]:
                grad = matrices.parameter.grad
                if grad is not None:
                    self._update(matrices, grad, group["lr"], group["weight_decay"])

    def _update(self, matrices: Matrices, grad: Tensor, lr: float, decay: float) -> None:
        p: Any = matrices.parameter
        direction: Any = self._direction(grad, self.means[p])
        # A share of stacked experts has these whole.
        is_part = isinstance(direction, DTensor) and direction.dim() == 2
        whole = direction.full_tensor() if is_part else direction.to_local() if isinstance(direction, DTensor) else direction
        step = torch.empty_like(whole)
        for of, to in zip(matrices.split(whole), matrices.split(step), strict=True):
            scale = scale_of(self.settings["scale"], *of.shape[1:])
            size = max(1, MOST // max(1, of[:1].numel()))
            for begin in range(0, len(of), size):
                some = of[begin : begin + size].to(self.device)
                to[begin : begin + size] = scale * orthogonalize(some, self.settings["iterations"], self.dtype)
        if is_part:
            step = distribute_tensor(step, p.device_mesh, p.placements, src_data_rank=None).to_local()
        own = p.to_local() if isinstance(p, DTensor) else p
        own.mul_(1.0 - lr * decay).sub_(step, alpha=lr)

    def _direction(self, grad: Tensor, mean: Tensor) -> Tensor:
        """Moves the momentum; what is orthogonalized."""
        gain = 1.0 - self.settings["momentum"]
        mean.lerp_(grad, gain)
        return torch.lerp(mean, grad, gain) if self.settings["nesterov"] else mean.clone()
