# Optimizers beside each other on the shakespeare preset's model: short steps, a small sweep of learning rates, one table as Markdown.
#   python benches/optimizers.py PROGRAM [--steps 1000] [--rows 4] [--tokens 64] [--threads 1] [--rules adamw,muon,…] [--rates 1]
# A run is a run as any other (llmtui train shakespeare -s …): the validation loss is that of the whole split after the last step, the step
# time the median of the logged ones. `--rates N` keeps the N middle rates of each sweep.
import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

SWEEPS = {
    "adamw": ("optimizer.adamw.lr", [1e-4, 3e-4, 1e-3], []),
    "lion": ("optimizer.lion.lr", [3e-5, 1e-4, 3e-4], []),
    "schedule_free": ("optimizer.schedule_free.lr", [3e-4, 1e-3, 2.5e-3], ["schedule=constant"]),
    "muon": ("optimizer.muon.lr", [3e-3, 7e-3, 2e-2], []),
    "soap": ("optimizer.soap.lr", [1e-3, 3e-3, 1e-2], []),
    "sophia": ("optimizer.sophia.lr", [1e-4, 3e-4, 1e-3], []),
}

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--rows", type=int, default=4)
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--rules", default=",".join(SWEEPS))
parser.add_argument("--rates", type=int, default=3)
parser.add_argument("--set", action="append", default=[], help="a further key=value of all runs")
args = parser.parse_args()


def train(rule, key, lr, more):
    words = [f"optimizer={rule}", f"{key}={lr}", f"max_steps={args.steps}", f"train.micro_batch_size={args.rows}", "grad_accum_steps=1",
             f"seq_len={args.tokens}", f"threads={args.threads}", f"schedule.*.warmup_steps={max(args.steps // 20, 1)}", "eval_every=0",
             "sample_every=0", "save_every=0", "preflight.enabled=false", "health.enabled=false", "eval.rows=256"] + more + args.set
    if "schedule=constant" in more:
        words = [w for w in words if "warmup" not in w] + [f"schedule.constant.warmup_steps={max(args.steps // 20, 1)}"]
    else:
        words = [w.replace("schedule.*", "schedule.cosine") for w in words] + [f"schedule.cosine.min_lr={lr / 10}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [args.program, "train", "shakespeare", "--headless", "--json", "--runs-dir", folder]
        for word in words:
            command += ["-s", word]
        out = subprocess.run(command, capture_output=True, text=True)
    events = [json.loads(line)["event"] for line in out.stdout.splitlines() if line.startswith("{")]
    values = [e["values"] for e in events if e["type"] == "Stepped"]
    losses = [e["values"]["val/loss"] for e in events if e["type"] == "Evaluated" and "val/loss" in e["values"]]
    if not losses:
        return "diverged" if values else out.stderr.strip().splitlines()[-1:], float("nan")
    return losses[-1], statistics.median(v["step_ms"] for v in values if "step_ms" in v)


print("| optimizer | learning rate: validation loss | best | ms per step |")
print("|---|---|---|---|")
for rule in args.rules.split(","):
    key, rates, more = SWEEPS[rule]
    skip = (len(rates) - args.rates) // 2
    rates = rates[skip:len(rates) - skip]
    found = [(lr, *train(rule, key, lr, more)) for lr in rates]
    shown = ", ".join(f"{lr:g}: {loss:.4f}" if isinstance(loss, float) else f"{lr:g}: {loss}" for lr, loss, _ in found)
    best = min((loss for _, loss, _ in found if isinstance(loss, float)), default=float("nan"))
    print(f"| {rule} | {shown} | {best:.4f} | {statistics.median(ms for *_, ms in found):.0f} |", flush=True)
