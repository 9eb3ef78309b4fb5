"""Rendezvous of the ranks of all machines: at one address, not on every interface, which is PyTorch's default."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import TCPStore


@dataclass
class Meeting:
    """This rank, the world size, and the address of the first machine as the others reach it."""

    rank: int
    world: int
    address: str
    _listener: socket.socket | None = field(default=None, repr=False)

    @classmethod
    def of_environment(cls) -> Meeting:
        """torchrun sets the local rank, the engine the first rank of this machine."""
        first, local = int(os.environ.get("LLMTUI_FIRST_RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
        world = int(os.environ.get("LLMTUI_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))
        return cls(first + local, world, os.environ.get("LLMTUI_ADDRESS", "127.0.0.1"))

    def listen(self) -> int:
        """The port at which rank 0 accepts the others; 0 on other ranks, and with one rank."""
        if self.rank != 0 or self.world == 1:
            return 0
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((self.address, 0))
        self._listener.listen(4096)
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stops accepting ranks."""
        if self._listener is not None:
            self._listener.close()

    def store(self, port: int) -> TCPStore:
        """The key-value store for rendezvous."""
        # PyTorch is imported after the first message to the engine.
        from torch.distributed import TCPStore

        listener = None if self._listener is None else self._listener.detach()
        self._listener = None
        first = self.rank == 0
        return TCPStore(self.address, port, self.world, first, wait_for_workers=False, master_listen_fd=listener)
