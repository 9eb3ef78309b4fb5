"""Process supervision: exit with launcher and engine, heartbeats, stack dumps on SIGUSR2."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time

from .wire import Gone, Wire

EXIT_ORPHANED = 75
BEAT_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1


def before_torch() -> None:
    """The kernel ends this process with torchrun (Linux); SIGUSR2 prints every thread's stack to standard error."""
    # A rank without torchrun is the child of one thread of the engine, and would be ended with that thread.
    with contextlib.suppress(OSError, AttributeError):
        if "TORCHELASTIC_RUN_ID" in os.environ:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    faulthandler.enable(file=sys.stderr)
    faulthandler.register(signal.SIGUSR2, file=sys.stderr, all_threads=True)


class Beat(threading.Thread):
    """Sends a heartbeat with the current phase each second; exits when the engine is gone."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(daemon=True)
        self.wire = wire
        self.phase = "init"
        self.parent = os.getppid()

    def run(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            try:
                self.wire.send("beat", phase=self.phase)
            except Gone:
                os._exit(EXIT_ORPHANED)
            if os.getppid() != self.parent:
                os._exit(EXIT_ORPHANED)
