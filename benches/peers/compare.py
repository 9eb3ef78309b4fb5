"""Runs llmtui and PyTorch on the same training steps, in turn, and prints the ratios as Markdown. See README.md."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PRECISIONS = ("f32", "bf16")
MODES = ("eager", "compile")
GOALS = {
    "f32": {"S": 1.5, "M": 1.2, "L": 1.2, "XL": 1.5},
    "bf16": {"S": 1.5, "M": 1.5, "L": 1.5, "XL": 1.5},
}
GOAL_RSS = 0.5
GOAL_MFU, MFU_SIZES = 0.85, ("M", "L", "XL")
GOAL_FIRST_STEP = {"M": 0.5}
# Above this share of other processes a measurement says little.
QUIET = 0.05


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the llmtui to measure")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch")
    parser.add_argument("--sizes", default="S,M,L,XL")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--modes", default="eager,compile")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="write all measurements to this file")
    asked = parser.parse_args()
    for name in ("sizes", "precisions", "modes"):
        setattr(asked, name, getattr(asked, name).split(","))
    return asked


def jiffies():
    """Busy time of the whole machine and of one process, in ticks; None where the system does not tell."""
    try:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, soft, steal = fields
    return user + nice + system + irq + soft + steal


def process_ticks(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


class Watch:
    """The share of the machine that other processes took meanwhile."""

    def __init__(self):
        self.begun, self.busy = time.time(), jiffies()

    def others(self, own_ticks):
        if self.busy is None or own_ticks is None:
            return None
        ticks = os.sysconf("SC_CLK_TCK") * (time.time() - self.begun) * os.cpu_count()
        return max(0.0, (jiffies() - self.busy - own_ticks) / ticks)


class Torch:
    """One variant of PyTorch, warmed up and waiting."""

    def __init__(self, asked, size, mode, precision):
        command = [asked.python, HERE / "worker.py", size, mode, precision, str(asked.threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.ready = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("PyTorch's side ended early: what it says stands above")
        return json.loads(line)

    def measure(self, seconds):
        watch, before = Watch(), process_ticks(self.process.pid)
        print(seconds, file=self.process.stdin, flush=True)
        answer = self.answer()
        after = process_ticks(self.process.pid)
        answer["others"] = watch.others(None if before is None else after - before)
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def ours(asked, size, precision):
    command = [asked.program, "bench", "train", "--json", "--size", size]
    command += ["--precision", precision, "--threads", str(asked.threads)]
    command += ["--seconds", str(asked.seconds)]
    watch = Watch()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    answer = json.loads(text)
    own = (used.ru_utime + used.ru_stime) * os.sysconf("SC_CLK_TCK")
    answer["others"] = watch.others(own)
    return answer


def measure_size(asked, size, results):
    """All variants of one size in turn, so that a slow minute slows all of them."""
    peers = {}
    for precision in asked.precisions:
        for mode in asked.modes:
            print(f"  warming up PyTorch {size} {mode} {precision}", file=sys.stderr)
            peers[mode, precision] = Torch(asked, size, mode, precision)
    for number in range(asked.rounds):
        print(f"  {size}: round {number + 1} of {asked.rounds}", file=sys.stderr)
        for precision in asked.precisions:
            keep(results, (size, "llmtui", precision), ours(asked, size, precision))
            for mode in asked.modes:
                peer = peers[mode, precision]
                keep(results, (size, mode, precision), peer.measure(asked.seconds) | peer.ready)
    for peer in peers.values():
        peer.end()


def keep(results, key, answer):
    results.setdefault(key, []).append(answer)


def median(results, key, field):
    return statistics.median(answer[field] for answer in results[key])


def verdict(value, goal, higher=True):
    met = value >= goal if higher else value <= goal
    return f"{value:.2f} {'✓' if met else '✗'}"


def print_report(asked, results):
    torch_version = next(a[0]["torch"] for k, a in results.items() if k[1] != "llmtui")
    version = subprocess.run([asked.program, "--version"], capture_output=True, text=True)
    print(f"## {version.stdout.strip()} beside PyTorch {torch_version}\n")
    print(f"{processor()}, {asked.threads} threads, {time.strftime('%Y-%m-%d')}; medians of ", end="")
    print(f"{asked.rounds} rounds in turn, {asked.seconds:g} s each.\n")
    print_speed(asked, results)
    print_memory(asked, results)
    print_arithmetic(asked, results)
    others = [a["others"] for answers in results.values() for a in answers if a["others"] is not None]
    if others:
        loud = sum(share > QUIET for share in others)
        print(f"\nOther processes took {100 * statistics.median(others):.1f} % of the machine in the ", end="")
        print(f"median and {100 * max(others):.1f} % at most; {loud} of {len(others)} measurements ", end="")
        print(f"were above {100 * QUIET:.0f} %.")


def ratios_to_best(asked, results, size, precision):
    """Our throughput over PyTorch's faster mode, round by round: what a neighbour slows, it slows on both sides."""
    best = max(asked.modes, key=lambda mode: median(results, (size, mode, precision), "tok_per_sec"))
    rounds = zip(results[size, "llmtui", precision], results[size, best, precision])
    return [mine["tok_per_sec"] / theirs["tok_per_sec"] for mine, theirs in rounds]


def print_speed(asked, results):
    modes = " | ".join(f"torch {mode}" for mode in asked.modes)
    print(f"| tokens/s | llmtui | {modes} | ratio to the better, median of rounds | range | goal |")
    print("|---" * (5 + len(asked.modes)) + "|")
    for precision in asked.precisions:
        for size in asked.sizes:
            mine = median(results, (size, "llmtui", precision), "tok_per_sec")
            theirs = [median(results, (size, m, precision), "tok_per_sec") for m in asked.modes]
            cells = " | ".join(f"{x:,.0f}" for x in [mine, *theirs])
            goal = GOALS[precision][size]
            ratios = ratios_to_best(asked, results, size, precision)
            ratio, spread = verdict(statistics.median(ratios), goal), f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"| {size} {precision} | {cells} | {ratio} | {spread} | ≥ {goal} |")


def print_memory(asked, results):
    modes = " | ".join(f"torch {mode}" for mode in asked.modes)
    print(f"\n| peak RSS, MiB | llmtui | {modes} | ratio to the lesser | goal |")
    print("|---" * (4 + len(asked.modes)) + "|")
    for precision in asked.precisions:
        for size in asked.sizes:
            kinds = ["llmtui", *asked.modes]
            bytes_of = [max(a["peak_rss_bytes"] for a in results[size, k, precision]) for k in kinds]
            cells = " | ".join(f"{x / 2**20:,.0f}" for x in bytes_of)
            ratio = verdict(bytes_of[0] / min(bytes_of[1:]), GOAL_RSS, higher=False)
            print(f"| {size} {precision} | {cells} | {ratio} | ≤ {GOAL_RSS} |")


def print_arithmetic(asked, results):
    print("\n| llmtui | step, ms | share of its peak | of the f32 peak | goal | faults, allocations a step ", end="")
    print("| first step begins after, s | goal |")
    print("|---" * 8 + "|")
    for precision in asked.precisions:
        for size in asked.sizes:
            key = (size, "llmtui", precision)
            mfu, mfu_f32 = median(results, key, "mfu"), median(results, key, "mfu_f32")
            wanted = precision == "f32" and size in MFU_SIZES
            share = verdict(mfu_f32, GOAL_MFU) if wanted else f"{mfu_f32:.2f}"
            first, goal = median(results, key, "ready_s"), GOAL_FIRST_STEP.get(size)
            first = verdict(first, goal, higher=False) if goal else f"{first:.2f}"
            faults = results[key][-1]["page_faults_per_step"]
            faults = "–" if faults is None else f"{faults:.1f}"
            allocations = results[key][-1]["allocations_per_step"]
            print(f"| {size} {precision} | {median(results, key, 'step_ms_median'):,.1f} | {mfu:.2f} | {share} ", end="")
            print(f"| {f'≥ {GOAL_MFU}' if wanted else '–'} | {faults}, {allocations:.1f} ", end="")
            print(f"| {first} | {f'≤ {goal}' if goal else '–'} |")


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main():
    asked = options()
    results = {}
    for size in asked.sizes:
        measure_size(asked, size, results)
    if asked.json:
        rows = [dict(zip(("size", "kind", "precision"), k), runs=v) for k, v in results.items()]
        Path(asked.json).write_text(json.dumps(rows, indent=1))
    print_report(asked, results)


if __name__ == "__main__":
    main()
