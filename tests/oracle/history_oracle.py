"""Event files of PyTorch's SummaryWriter, and other programs reading what `llmtui metrics --to` writes.

    python tests/oracle/history_oracle.py                      # writes tests/oracle/history.tfevents
    python tests/oracle/history_oracle.py check curves.csv tb/RUN trainer_state.json [curves.jsonl]

Made with torch 2.15 and tensorboard 2.21; the check also wants transformers.
"""

import csv
import json
import math
import sys
import tempfile
from pathlib import Path

T = 1763734920.125


def write():
    import time

    from torch.utils.tensorboard import SummaryWriter

    time.time = lambda: T
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder, purge_step=5)
        writer.add_text("spec", '```json\n{\n  "lr": 0.001\n}\n```', 0, walltime=T)
        writer.add_scalar("train/loss", 2.5, 5, walltime=T)
        writer.add_scalar("val/loss", math.nan, 300, walltime=T + 1)
        writer.add_scalar("lr", 1e-3, 0, walltime=T + 2)
        writer.close()
        (file,) = Path(folder).iterdir()
        Path(__file__).with_name("history.tfevents").write_bytes(file.read_bytes())


def same(a, b, digits):
    return math.isnan(a) and math.isnan(b) or math.isclose(a, b, rel_tol=digits) or a == b


def check(table, folder, state, lines=None):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from transformers import TrainerState

    rows = list(csv.DictReader(open(table)))
    truth = {}
    for row in rows:
        for name, cell in row.items():
            if cell and name not in ("step", "time", "epoch", "tokens"):
                truth.setdefault(name, {})[int(row["step"])] = float(cell)

    board = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    tags = board.Tags()
    assert "spec/text_summary" in tags["tensors"], tags
    for name, points in truth.items():
        read = {event.step: event.value for event in board.Scalars(name)}
        assert read.keys() == points.keys(), (name, read, points)
        assert all(same(read[step], x, 1e-6) for step, x in points.items()), name

    trainer = TrainerState.load_from_json(state)
    losses = {e["step"]: float(e["loss"]) for e in trainer.log_history if "loss" in e}
    assert losses == truth["train/loss"], (losses, truth["train/loss"])
    held_out = {e["step"]: float(e["eval_loss"]) for e in trainer.log_history if "eval_loss" in e}
    assert held_out == truth.get("val/loss", {})
    assert trainer.global_step == int(rows[-1]["step"])

    if lines:
        objects = [json.loads(line) for line in open(lines)]
        assert [o["step"] for o in objects] == [int(row["step"]) for row in rows]
        assert all(same(float(o["train/loss"]), truth["train/loss"][o["step"]], 0) for o in objects if "train/loss" in o)
    print(f"{len(truth)} metrics, {sum(map(len, truth.values()))} values: the same everywhere")


if __name__ == "__main__":
    check(*sys.argv[2:]) if sys.argv[1:2] == ["check"] else write()
