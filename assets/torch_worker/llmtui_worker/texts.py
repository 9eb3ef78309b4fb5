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
        # Layer -> keys and values, (count, key/value heads, tokens, head_dim).
        self.held: dict[int, tuple[Tensor, Tensor]] = {}
        # Of the pass under way: (text, new tokens), the place of every token (R, L), the last of each row, the longest text.
        self.pieces: list[tuple[int, int]] = []
        none = torch.empty(0, dtype=torch.long)
        self.at, self.last, self.rows = none, none, none
        self.seen = 0
        # Where new keys come from, (row, column), and go to, (text, place): padding goes nowhere.
        self.source, self.target = (none, none), (none, none)

    def forget(self, text: int) -> None:
        self.lengths[text] = 0

    def copy(self, source: int, target: int) -> None:
        """Text `target` holds what `source` holds."""
        length = self.lengths[source]
        for keys, values in self.held.values():
            keys[target, :, :length] = keys[source, :, :length]
            values[target, :, :length] = values[source, :, :length]
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
            own = ids[begin : begin + new]
            rows.append(torch.cat([own, own[-1:].expand(longest - new)]))
            at.append(torch.arange(past, past + longest).clamp(max=past + new - 1))
            begin += new
        places, texts = torch.stack(at), torch.tensor([text for text, _ in pieces])
        news = torch.tensor([new for _, new in pieces])
        row, column = (torch.arange(longest)[None] < news[:, None]).nonzero(as_tuple=True)
        self.source = (row.to(self.device), column.to(self.device))
        self.target = (texts[row].to(self.device), places[row, column].to(self.device))
        self.at, self.last, self.rows = places.to(self.device), (news - 1).to(self.device), texts.to(self.device)
        self.seen = max(self.lengths[text] + new for text, new in pieces)
        self.pieces = pieces
        return torch.stack(rows).to(self.device)

    def done(self) -> None:
        """The tokens of the pass are read."""
        for text, new in self.pieces:
            self.lengths[text] += new

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps new keys and values (R, heads, L, width) of a layer; returns all that the rows have, (R, heads, seen, width)."""
        if layer not in self.held:
            shape = (self.count, keys.shape[1], self.tokens, keys.shape[3])
            empty = [torch.zeros(shape, dtype=kind, device=self.device) for kind in (keys.dtype, values.dtype)]
            self.held[layer] = (empty[0], empty[1])
        (row, column), (text, place) = self.source, self.target
        found = []
        for held, new in zip(self.held[layer], (keys, values), strict=True):
            held[text, :, place] = new[row, :, column]
            part = held[:, :, : self.seen]
            found.append(part if len(self.pieces) == self.count else part[self.rows])
        return found[0], found[1]

    def mask(self, window: int | None, slopes: Tensor | None) -> Tensor:
        """What new tokens see of the texts: (R, 1, L, seen), or (R, heads, L, seen) with distances."""
        k = torch.arange(self.seen, device=self.device)[None, None, None]
        q = self.at[:, None, :, None]
        seen = k <= q
        if window is not None:
            seen = seen & (q - k < window)
        if slopes is None:
            return seen
        return (slopes[None, :, None, None] * (k - q)).masked_fill(~seen, float("-inf"))
