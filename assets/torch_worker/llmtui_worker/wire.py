"""Frames between the engine and a rank: length of the header (u32), length of the payload (u64), JSON, raw bytes; little-endian."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

HEAD = struct.Struct("<IQ")
MAX_HEADER = 64 << 20
MAX_PAYLOAD = 1 << 30
# Bytes of weights in one frame.
PIECE = 32 << 20


class Gone(Exception):
    """The engine closed the connection."""


class Wire:
    """One rank's connection. Frames may be sent from several threads."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.lock = threading.Lock()

    def send(self, kind: str, payload: bytes | memoryview = b"", **fields: Any) -> None:
        header = json.dumps({"type": kind, **fields}, allow_nan=False).encode()
        try:
            with self.lock:
                self.socket.sendall(HEAD.pack(len(header), len(payload)) + header)
                if payload:
                    self.socket.sendall(payload)
        except OSError as error:
            raise Gone from error

    def receive(self) -> tuple[dict[str, Any], bytearray]:
        header_len, payload_len = HEAD.unpack(self._exactly(HEAD.size))
        if header_len > MAX_HEADER or payload_len > MAX_PAYLOAD:
            raise ValueError(f"a frame of {header_len} and {payload_len} bytes")
        header = json.loads(self._exactly(header_len))
        return header, self._exactly(payload_len)

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            try:
                got = self.socket.recv_into(view)
            except OSError as error:
                raise Gone from error
            if got == 0:
                raise Gone
            view = view[got:]
        return data
