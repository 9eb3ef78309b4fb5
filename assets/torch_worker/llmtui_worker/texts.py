"""Texts that are read token by token: keys and values of what was read are kept, so that each token is computed once."""

from __future__ import annotations

import torch
from torch import Tensor


class Texts:
    """Keys and values of `count` texts of at most `tokens` tokens each, and which of them the pass under way reads."""

    def __init__(self, count: int, tokens: int, device: torch.device) -> None:
        self.count, self.tokens, self.device = count, tokens, device
        # Tokens that are read of each text.
        self.lengths = [0] * count
        # Layer -> keys and values, (2, count, key/value heads, tokens, head_dim).
        self.held: dict[int, Tensor] = {}
        # Of the pass under way: (text, new tokens), the place of every token (R, L), the last of each row, the longest text.
        self.pieces: list[tuple[int, int]] = []
        none = torch.empty(0, dtype=torch.long)
        self.at, self.last, self.rows = none, none, none
        self.seen = 0
        # Which new keys are kept, (row, column), unless all are, and where, (text, place): padding goes nowhere.
        self.source: tuple[Tensor, Tensor] | None = None
        self.target = (none, none)
        # Of these, the elements of a layer's keys, for so many heads.
        self.places = none

    def forget(self, text: int) -> None:
        self.lengths[text] = 0

    def copy(self, source: int, target: int) -> None:
        """Text `target` holds what `source` holds."""
        length = self.lengths[source]
        for held in self.held.values():
            held[:, target, :, :length] = held[:, source, :, :length]
        self.lengths[target] = length

    def take_up(self, pieces: list[tuple[int, int]], ids: Tensor) -> Tensor:
        """Begins a pass over pieces (text, new tokens), whose ids come one behind the other; returns them as rows (R, L).

        What a shorter piece lacks is filled up with its last token; keys and values of that are not kept.
        """
        longest = max(new for _, new in pieces)
        rows, at, begin = [], [], 0
        for text, new in pieces:
            past = self.lengths[text]
            if past + new > self.tokens:
                raise ValueError(f"a text of {past + new} tokens, where there is room for {self.tokens}")
            own = list(range(longest))
            rows.append([begin + min(i, new - 1) for i in own])
            at.append([past + min(i, new - 1) for i in own])
            begin += new
        texts, news = [text for text, _ in pieces], [new for _, new in pieces]
        # One way to the device for everything.
        count = len(pieces)
        heads = torch.tensor([texts, [new - 1 for new in news]]).T
        table = torch.cat([heads, torch.tensor(at), ids[torch.tensor(rows)]], 1).to(self.device)
        self.rows, self.last = table[:, 0], table[:, 1]
        self.at, taken = table[:, 2 : 2 + longest], table[:, 2 + longest :]
        if all(new == longest for new in news):
            self.source = None
            self.target = (self.rows[:, None].expand(count, longest).reshape(-1), self.at.reshape(-1))
        else:
            row, column = (torch.arange(longest)[None] < torch.tensor(news)[:, None]).nonzero(as_tuple=True)
            self.source = (row.to(self.device), column.to(self.device))
            self.target = (self.rows[self.source[0]], self.at[self.source])
        self.places = self.places[:0]
        self.seen = max(self.lengths[text] + new for text, new in pieces)
        self.pieces = pieces
        return taken

    def done(self) -> None:
        """The tokens of the pass are read."""
        for text, new in self.pieces:
            self.lengths[text] += new

    def extend(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps new keys and values (R, L, 2 · heads, width) of a layer; returns all that the rows have, (R, heads, seen, width) each."""
        rows, length, both, width = new.shape
        heads = both // 2
        if layer not in self.held:
            self.held[layer] = torch.zeros(2, self.count, heads, self.tokens, width, dtype=new.dtype, device=self.device)
        held = self.held[layer]
        if len(self.places) == 0:
            # The same for every layer: (text, head, place) of each kept token, head by head.
            text, place = self.target
            self.places = (text[:, None] * heads + torch.arange(heads, device=self.device)) * self.tokens + place[:, None]
        flat = new.reshape(rows * length, both, width) if self.source is None else new[self.source]
        by_kind = flat.view(-1, 2, heads, width).transpose(0, 1).reshape(2, -1, width)
        held.view(2, -1, width).index_copy_(1, self.places.view(-1), by_kind)
        part = held[:, :, :, : self.seen]
        if len(self.pieces) != self.count:
            part = part.index_select(1, self.rows)
        return part[0], part[1]

    def mask(self, window: int | None, slopes: Tensor | None, dtype: torch.dtype) -> Tensor:
        """What new tokens see of the texts, to add to scores: (R, 1, L, seen), or (R, heads, L, seen) with distances."""
        # Kernels want rows of masks that begin at multiples of 16 bytes.
        k = torch.arange(-(-self.seen // 8) * 8, device=self.device)[None, None, None]
        q = self.at[:, None, :, None]
        hidden = k > q
        if window is not None:
            hidden = hidden | (q - k >= window)
        far = torch.zeros((), device=self.device) if slopes is None else slopes[None, :, None, None] * (k - q)
        return torch.where(hidden, float("-inf"), far).to(dtype)[..., : self.seen]
