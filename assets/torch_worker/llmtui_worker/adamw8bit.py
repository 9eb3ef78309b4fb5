"""AdamW with 8-bit moments (Dettmers et al. 2021, arXiv 2110.02861), in the blocks and codes of the engine's own rule: checkpoints
move between the two bit by bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# Values that share a scale.
BLOCK = 256
# Codes packed into one f32 for transfer: an integer below 2^24.
PACKED = 3
MOMENTS = ("mean", "square")


def dynamic_map(signed: bool) -> Tensor:
    """The 256 code values (dynamic exponent, Dettmers et al.), ascending: seven decades; each smaller one has one fraction bit less."""
    values = [0.0, 1.0]
    for i in range(7):
        n = 1 << (i if signed else i + 1)
        bounds = [0.1 + 0.9 * k / n for k in range(n + 1)]
        for low, high in zip(bounds, bounds[1:], strict=False):
            value = 10.0 ** (i - 6) * (low + high) / 2.0
            values += [value, -value] if signed else [value]
    return torch.tensor(values, dtype=torch.float64).float().sort().values


class Moment:
    """A moment of one tensor: a code for each value, a scale for each block of them."""

    def __init__(self, count: int, values: Tensor) -> None:
        self.values = values
        self.middles = (values[:-1] + values[1:]) / 2.0
        zero = int((values == 0).nonzero()[0, 0])
        blocks = -(-count // BLOCK)
        self.count = count
        self.codes = torch.full((blocks, BLOCK), zero, dtype=torch.uint8, device=values.device)
        self.scales = torch.zeros(blocks, device=values.device)

    def read(self) -> Tensor:
        """The dequantized blocks; 0 after the tensor's end."""
        return self.values[self.codes.int()] * self.scales[:, None]

    def write(self, x: Tensor) -> None:
        """Quantizes to the nearest code value, the lower one in a tie; the scale is the largest magnitude of a block. A positive number never
        gets code 0, the 0 of a mean square: the mean reaches further down, and over a root of 0 it would throw its weight far away."""
        self.scales = x.abs().amax(1)
        by = torch.where(self.scales > 0, 1.0 / self.scales, 0.0)
        self.codes = torch.bucketize(x * by[:, None], self.middles).maximum((x > 0).long()).to(torch.uint8)


class AdamW8bit:
    """The part of torch.optim's interface that a rank uses."""

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float], eps: float) -> None:
        self.param_groups = groups
        self.betas, self.eps = betas, eps
        self.steps = 0
        self.moments: dict[nn.Parameter, dict[str, Moment]] = {}
        for group in groups:
            for p in group["params"]:
                maps = {"mean": dynamic_map(True).to(p.device), "square": dynamic_map(False).to(p.device)}
                self.moments[p] = {name: Moment(p.numel(), values) for name, values in maps.items()}

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        (beta1, beta2), steps = self.betas, self.steps
        root = 1.0 / (1.0 - beta2**steps) ** 0.5
        for group in self.param_groups:
            lr = group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                moments = self.moments[p]
                g, w = blocks_of(p.grad), p.view(-1)
                mean, square = moments["mean"].read(), moments["square"].read()
                mean += (g - mean) * (1.0 - beta1)
                square = square * beta2 + g * g * (1.0 - beta2)
                change = mean / (square.sqrt() * root + self.eps)
                w.mul_(1.0 - lr * group["weight_decay"]).sub_(change.view(-1)[: w.numel()] * (lr / (1.0 - beta1**steps)))
                moments["mean"].write(mean)
                moments["square"].write(square)

    def part(self, name: str, parameters: list[nn.Parameter]) -> Tensor:
        """A part of the state as the engine keeps it: one flat buffer over these parameters."""
        moment = name.removesuffix("_scales")
        of = [self.moments[p][moment] for p in parameters]
        if name != moment:
            return torch.cat([m.scales for m in of]).float().cpu()
        return pack(torch.cat([m.codes.view(-1)[: m.count] for m in of]).cpu())

    def part_len(self, name: str, parameters: list[nn.Parameter]) -> int:
        if name.endswith("_scales"):
            return sum(self.moments[p]["mean"].scales.numel() for p in parameters)
        return -(-sum(p.numel() for p in parameters) // PACKED)

    def set_part(self, name: str, flat: Tensor, parameters: list[nn.Parameter]) -> None:
        moment, at = name.removesuffix("_scales"), 0
        codes = None if name != moment else unpack(flat, sum(p.numel() for p in parameters))
        for p in parameters:
            m = self.moments[p][moment]
            if codes is None:
                count = m.scales.numel()
                m.scales = flat[at : at + count].to(p.device, torch.float32, copy=True)
            else:
                count = m.count
                m.codes.view(-1)[:count] = codes[at : at + count].to(p.device)
            at += count


def blocks_of(x: Tensor) -> Tensor:
    """A tensor in rows of one block, the last one padded with 0."""
    flat = x.detach().float().reshape(-1)
    return nn.functional.pad(flat, (0, -flat.numel() % BLOCK)).view(-1, BLOCK)


def pack(codes: Tensor) -> Tensor:
    """Three codes per number, the first in the highest bits; the last number may hold fewer."""
    whole = len(codes) // PACKED * PACKED
    rows, rest = codes[:whole].view(-1, PACKED).int(), codes[whole:].int()
    numbers = (rows[:, 0] << 16) | (rows[:, 1] << 8) | rows[:, 2]
    last = 0
    for code in rest.tolist():
        last = last << 8 | code
    return torch.cat([numbers, torch.tensor([last] if len(rest) else [], dtype=torch.int32)]).float()


def unpack(numbers: Tensor, count: int) -> Tensor:
    whole = count // PACKED
    rows = numbers[:whole].int()
    codes = torch.stack([rows >> 16, (rows >> 8) & 255, rows & 255], 1).view(-1)
    rest, last = count - whole * PACKED, int(numbers[-1]) if count % PACKED else 0
    tail = [last >> 8 * (rest - 1 - i) & 255 for i in range(rest)]
    return torch.cat([codes, torch.tensor(tail, dtype=torch.int32)]).to(torch.uint8)
