"""python -m llmtui_worker SOCKET: started by torchrun for each rank; connects to the engine and executes its requests."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from . import PROTOCOL, guard
from .meeting import Meeting
from .wire import Gone, Wire

EXIT_BUG = 70
EXIT_MEMORY = 137


def classify(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".lower()
    if of_the_compiler(error):
        return "version"
    # The message of the CPU allocator is "can't allocate memory".
    if "out of memory" in text or "allocate memory" in text or isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, (ImportError, AttributeError)):
        return "version"
    if any(word in text for word in ("gloo", "nccl", "connection", "timed out", "timeout")):
        return "peers"
    return "bug"


def of_the_compiler(error: BaseException) -> bool:
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "triton"))


def main() -> int:
    guard.before_torch()
    wire = Wire(sys.argv[1])
    meeting = Meeting.of_environment()
    beat = guard.Beat(wire)
    try:
        wire.send("hello", protocol=PROTOCOL, rank=meeting.rank, world=meeting.world, pid=os.getpid())
        beat.start()
        import torch

        from .trainer import Rank

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        wire.send("ready", torch=torch.__version__, gpus=gpus, port=meeting.listen())
        # The model that is trained, and a separate critic of it.
        models = {role: Rank(wire, meeting) for role in ("policy", "critic")}
        handlers = {
            "build": Rank.build,
            "load": Rank.load,
            "save": Rank.save,
            "reference": Rank.reference_here,
            "teacher": Rank.teacher_here,
            "read": Rank.read,
            "forward": Rank.forward,
            "backward": Rank.backward,
            "norm": Rank.norm,
            "apply": Rank.apply,
            "average": Rank.show_average,
        }
        while True:
            beat.phase = "waiting"
            ask, payload = wire.receive()
            if ask["type"] == "stop":
                break
            beat.phase = ask["type"]
            answer = handlers[ask["type"]](models[ask["role"]], ask, payload)
            wire.send("done", answer.pop("payload", b""), **answer)
    except Gone:
        return guard.EXIT_ORPHANED
    except BaseException as error:
        traceback.print_exc()
        kind = classify(error)
        message = f"{type(error).__name__}: {error}"[:2000]
        if of_the_compiler(error):
            message = f"engine.torch.compile: compiling failed, set it to false to train without: {message}"
        try:
            words: dict[str, Any] = {"class": kind, "message": message}
            wire.send("error", **words)
        except Gone:
            return guard.EXIT_ORPHANED
        return EXIT_MEMORY if kind == "memory" else EXIT_BUG
    wire.send("bye")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Communicators may wait for ranks that are gone; there is nothing left to clean up.
    os._exit(code)
