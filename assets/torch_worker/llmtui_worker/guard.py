"""No orphans, and a word in time: a rank ends with its launcher and with the engine, beats while it lives, and shows where it stands."""

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
    # A rank alone is a child of one thread of the engine, and would end with that.
    with contextlib.suppress(OSError, AttributeError):
        if "TORCHELASTIC_RUN_ID" in os.environ:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    faulthandler.enable(file=sys.stderr)
    faulthandler.register(signal.SIGUSR2, file=sys.stderr, all_threads=True)


class Beat(threading.Thread):
    """Says every second that the process lives, and what it is at; ends the process when nobody listens."""

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
