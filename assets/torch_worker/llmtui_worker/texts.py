"""The cache of texts that are prefilled and decoded, so that each token is computed once: keys and values, and the states of mixers."""

from __future__ import annotations

import torch
from torch import Tensor

# Key lengths are rounded up to a multiple of this: attention prepares a kernel for each length that it meets, which takes
# longer than a token.
STRIDE = 64


class Texts:
    """Keys, values and states of `count` texts of at most `tokens` tokens each, and the texts and positions of the current pass."""

    def __init__(self, count: int, tokens: int, device: torch.device) -> None:
        self.count, self.tokens, self.device = count, tokens, device
        # Cached tokens of each text.
        self.lengths = [0] * count
        # Layer -> keys and values, (2, count + 1, key/value heads, tokens rounded up to the stride, head_dim), or one tensor that is both.
        # The last slot is scratch space for padding rows.
        self.held: dict[int, Tensor] = {}
        self.room = -(-tokens // STRIDE) * STRIDE
        # Layer and kind -> a state of constant size behind the last token of each text, (count + 1, …), of layers without attention.
        self.states: dict[tuple[int, str], Tensor] = {}
        # Of the current pass: (text, new tokens) and whether these are all texts in order; the position of every token (R, L), the last
        # column of each row, and the number of keys attended to.
        self.pieces: list[tuple[int, int]] = []
        self.all_of_them = False
        none = torch.empty(0, dtype=torch.long)
        self.at, self.last, self.rows = none, none, none
        self.seen = 0
        # Which new keys are stored, (row, column), or None for all, and where, (text, position); padding is not stored.
        self.source: tuple[Tensor, Tensor] | None = None
        self.target = (none, none)
        # The same as indices into a layer's keys, for every head.
        self.slots = none

    def forget(self, text: int) -> None:
        self.lengths[text] = 0

    def forget_all(self) -> None:
        self.lengths = [0] * self.count

    def bytes(self) -> int:
        return sum(held.nbytes for kept in (self.held, self.states) for held in kept.values())

    def copy(self, source: int, target: int) -> None:
        """Copies the cache of text `source` to `target`."""
        length = self.lengths[source]
        for held in self.held.values():
            held[:, target, :, :length] = held[:, source, :, :length]
        for state in self.states.values():
            state[target] = state[source]
        self.lengths[target] = length

    def plan(self, pieces: list[tuple[int, int]], ids: Tensor, rows: int | None = None) -> Tensor:
        """Begins a pass over pieces (text, new tokens), whose ids are concatenated. Returns a table on the CPU with one row for each: the
        text, its last column, the position of each token and its id, (R, 2 + 2 L). With `rows`, the table has so many: the rows beyond the
        pieces write one token to the scratch slot.

        Shorter pieces are padded with their last token; keys and values of padding are not stored.
        """
        longest = max(new for _, new in pieces)
        of_row, at, begin = [], [], 0
        for text, new in pieces:
            past = self.lengths[text]
            if past + new > self.tokens:
                raise ValueError(f"a text of {past + new} tokens, where there is room for {self.tokens}")
            own = list(range(longest))
            of_row.append([begin + min(i, new - 1) for i in own])
            at.append([past + min(i, new - 1) for i in own])
            begin += new
        heads = torch.tensor([[text, new - 1] for text, new in pieces])
        table = torch.cat([heads, torch.tensor(at), ids[torch.tensor(of_row)]], 1)
        if rows is not None and rows > len(pieces):
            padding = torch.zeros(rows - len(pieces), table.shape[1], dtype=torch.long)
            padding[:, 0] = self.count
            table = torch.cat([table, padding])
        self.all_of_them = [int(text) for text in table[:, 0]] == list(range(self.count))
        longest_text = max(self.lengths[text] + new for text, new in pieces)
        self.seen = min(-(-longest_text // STRIDE) * STRIDE, self.room)
        self.pieces = pieces
        return table

    def take_up(self, table: Tensor) -> Tensor:
        """Takes over the table of the pass, on the device; returns the ids (R, L)."""
        longest = (table.shape[1] - 2) // 2
        self.rows, self.last = table[:, 0], table[:, 1]
        self.at, taken = table[:, 2 : 2 + longest], table[:, 2 + longest :]
        if all(new == longest for _, new in self.pieces):
            self.source = None
            self.target = (self.rows[:, None].expand(-1, longest).reshape(-1), self.at.reshape(-1))
        else:
            news = torch.tensor([new for _, new in self.pieces])
            row, column = (torch.arange(longest)[None] < news[:, None]).nonzero(as_tuple=True)
            self.source = (row.to(self.device), column.to(self.device))
            self.target = (self.rows[self.source[0]], self.at[self.source])
        self.slots = self.slots[:0]
        return taken

    def done(self) -> None:
        """Ends the pass: its tokens are cached."""
        for text, new in self.pieces:
            self.lengths[text] += new

    def extend(self, layer: int, new: Tensor, kinds: int = 2) -> tuple[Tensor, ...]:
        """Stores new keys and values (R, L, kinds · heads, width) of a layer; returns all of the rows, (R, heads, seen, width) of each kind."""
        rows, length, both, width = new.shape
        heads = both // kinds
        if layer not in self.held:
            self.held[layer] = torch.zeros(kinds, self.count + 1, heads, self.room, width, dtype=new.dtype, device=self.device)
        held = self.held[layer]
        if len(self.slots) == 0:
            # The same for every layer: (text, head, position) of each stored token, head by head.
            text, position = self.target
            self.slots = (text[:, None] * heads + torch.arange(heads, device=self.device)) * self.room + position[:, None]
        flat = new.reshape(rows * length, both, width) if self.source is None else new[self.source]
        by_kind = flat.view(-1, kinds, heads, width).transpose(0, 1).reshape(kinds, -1, width)
        held.view(kinds, -1, width).index_copy_(1, self.slots.view(-1), by_kind)
        part = held[:, :, :, : self.seen]
        part = part[:, : self.count] if self.all_of_them else part.index_select(1, self.rows)
        return part.unbind()

    def recall(self, layer: int, kind: str, like: Tensor) -> Tensor:
        """What `keep` kept of the texts of the pass, (R, …), each like `like`; zeros before a text's first token."""
        if (layer, kind) not in self.states:
            self.states[layer, kind] = like.new_zeros(self.count + 1, *like.shape)
        held = self.states[layer, kind]
        held = held[: self.count] if self.all_of_them else held.index_select(0, self.rows)
        begun = (self.at[:, 0] > 0).view(-1, *[1] * like.dim())
        return torch.where(begun, held, torch.zeros((), dtype=held.dtype, device=held.device))

    def keep(self, layer: int, kind: str, new: Tensor) -> None:
        """Keeps a state (R, …) behind the last new token of each text, until the next pass."""
        held = self.states[layer, kind]
        if self.all_of_them:
            held[: self.count].copy_(new)
        else:
            held.index_copy_(0, self.rows, new)

    def mask(self, window: int | None, slopes: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The mask of new tokens over cached keys, to add to scores: (R, 1, L, seen), or (R, heads, L, seen) with ALiBi."""
        k = torch.arange(self.seen, device=self.device)[None, None, None]
        q = self.at[:, None, :, None]
        hidden = k > q
        if window is not None:
            hidden = hidden | (q - k >= window)
        far = torch.zeros((), device=self.device) if slopes is None else slopes[None, :, None, None] * (k - q)
        return torch.where(hidden, float("-inf"), far).to(dtype)
