"""AdamW with 8-bit moments (Dettmers et al. 2021, arXiv 2110.02861), in the blocks and codes of the engine's own rule: checkpoints
move between the two bit by bit.

Shards of a tensor end within blocks. So of a tensor in shards each rank has the moments of a run of whole blocks: for an update the
gradient is gathered, each rank computes the change of its blocks, and these are gathered. Experts lie whole on one rank, which has their
blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

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


class Share(NamedTuple):
    """The blocks begin to end of a tensor of `count` values are this rank's; if it is parted, other ranks have the rest."""

    count: int
    begin: int
    end: int
    parted: bool = False

    @staticmethod
    def of(p: Tensor) -> Share:
        blocks = -(-p.numel() // BLOCK)
        if not isinstance(p, DTensor):
            return Share(p.numel(), 0, blocks)
        each = -(-blocks // p.device_mesh.size())
        begin = min(p.device_mesh.get_local_rank() * each, blocks)
        return Share(p.numel(), begin, min(begin + each, blocks), True)

    @staticmethod
    def whole(count: int, *, here: bool) -> Share:
        """Of a tensor that lies whole on one of the ranks."""
        return Share(count, 0, -(-count // BLOCK) if here else 0, True)

    def of_all(self, blocks: Tensor) -> Tensor:
        """The blocks of all ranks, of this rank's (blocks, …)."""
        if not self.parted:
            return blocks
        found = blocks.new_zeros(-(-self.count // BLOCK), *blocks.shape[1:])
        found[self.begin : self.end] = blocks
        dist.all_reduce(found)
        return found


class Moment:
    """A moment of this rank's blocks of a tensor: a code for each value, a scale for each block of them."""

    def __init__(self, blocks: int, values: Tensor) -> None:
        self.values = values
        self.middles = (values[:-1] + values[1:]) / 2.0
        zero = int((values == 0).nonzero()[0, 0])
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

    def __init__(
        self, groups: list[dict[str, Any]], betas: tuple[float, float], eps: float, shares: dict[nn.Parameter, Share] | None = None
    ) -> None:
        """`shares`: of parameters that are not what they seem."""
        self.param_groups = groups
        self.shares: dict[nn.Parameter, Share] = {p: Share.of(p) for group in groups for p in group["params"]} | (shares or {})
        self.betas, self.eps = betas, eps
        self.steps = 0
        self.moments: dict[nn.Parameter, dict[str, Moment]] = {}
        for group in groups:
            for p in group["params"]:
                maps = {"mean": dynamic_map(True).to(p.device), "square": dynamic_map(False).to(p.device)}
                share = self.shares[p]
                self.moments[p] = {name: Moment(share.end - share.begin, values) for name, values in maps.items()}

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
                moments, share = self.moments[p], self.shares[p]
                grad, own = (p.grad.full_tensor(), p.to_local()) if isinstance(p, DTensor) and isinstance(p.grad, DTensor) else (p.grad, p)
                g, w = blocks_of(grad)[share.begin : share.end], own.view(-1)
                del grad
                mean, square = moments["mean"].read(), moments["square"].read()
                mean += (g - mean) * (1.0 - beta1)
                square = square * beta2 + g * g * (1.0 - beta2)
                change = mean / (square.sqrt() * root + self.eps)
                change = of_shard(change, p) if isinstance(p, DTensor) else change.view(-1)[: w.numel()]
                w.mul_(1.0 - lr * group["weight_decay"]).sub_(change * (lr / (1.0 - beta1**steps)))
                moments["mean"].write(mean)
                moments["square"].write(square)

    def part(self, name: str, parameters: list[nn.Parameter]) -> Tensor:
        """A part of the state as the engine keeps it: one flat buffer over these parameters. All ranks take part."""
        moment = name.removesuffix("_scales")
        of = [(self.shares[p], self.moments[p][moment]) for p in parameters]
        if name != moment:
            return torch.cat([share.of_all(m.scales).cpu() for share, m in of]).float()
        return pack(torch.cat([share.of_all(m.codes).view(-1)[: share.count].cpu() for share, m in of]))

    def part_len(self, name: str, parameters: list[nn.Parameter]) -> int:
        if name.endswith("_scales"):
            return sum(-(-self.shares[p].count // BLOCK) for p in parameters)
        return -(-sum(self.shares[p].count for p in parameters) // PACKED)

    def set_part(self, name: str, flat: Tensor, parameters: list[nn.Parameter]) -> None:
        moment, at = name.removesuffix("_scales"), 0
        codes = None if name != moment else unpack(flat, sum(self.shares[p].count for p in parameters))
        for p in parameters:
            m, (count, begin, end, _) = self.moments[p][moment], self.shares[p]
            if codes is None:
                m.scales = flat[at + begin : at + end].to(p.device, torch.float32, copy=True)
                at += -(-count // BLOCK)
            else:
                own = codes[at : at + count][begin * BLOCK : end * BLOCK]
                m.codes.view(-1)[: len(own)] = own.to(p.device)
                at += count


def of_shard(change: Tensor, p: DTensor) -> Tensor:
    """Of all ranks' changes of blocks (blocks, BLOCK) what falls on this rank's shard of p, flat."""
    mesh = p.device_mesh
    each = -(-(-(-p.numel() // BLOCK)) // mesh.size())
    own = change.new_zeros(each, BLOCK)
    own[: len(change)] = change
    found = change.new_empty(mesh.size() * each, BLOCK)
    dist.all_gather_into_tensor(found, own, group=mesh.get_group())
    rows = found.view(-1)[: p.numel()].view(p.shape)
    # Shards of rows are as large as the first, but for the last ones.
    first = mesh.get_local_rank() * -(-p.shape[0] // mesh.size())
    return rows[first : first + len(p.to_local())].reshape(-1)


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
