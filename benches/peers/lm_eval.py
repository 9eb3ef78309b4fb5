# Evaluation beside lm-evaluation-harness (hf backend) on the same model folder and rows, in f32, each side in turn in a process of its own:
#   python benches/peers/lm_eval.py PROGRAM MODEL-FOLDER TEXT [--tasks hellaswag,arc_easy,boolq,lambada] [--items 60] [--batch 8] [--rounds 3] [--threads 2]
# Rows are made up in the real sets' formats and lengths from the sentences of TEXT. The harness's clock starts when its model is loaded; from llmtui's
# processes the time of one that asks a single item is taken off, loading included. Memory is the peak of the process. Log-likelihoods are compared
# choice by choice.
# Needs lm-eval==0.4.13, torch, transformers.
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCES = dict(
    hellaswag="hellaswag/hellaswag.yaml", arc_easy="arc/arc_easy.yaml", boolq="super_glue/boolq/default.yaml",
    lambada="lambada/lambada_openai.yaml", piqa="piqa/piqa.yaml", winogrande="winogrande/default.yaml",
)
PEER = r"""
import json, os, sys, time
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
# The script's own name is the package's.
sys.path = [p for p in sys.path if not p.endswith("peers")]
import lm_eval, torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
folder, tasks, configs, batch, threads = sys.argv[1:6]
torch.set_num_threads(int(threads))
lm = HFLM(pretrained=folder, dtype="float32", batch_size=int(batch), device="cpu")
manager = TaskManager(include_path=configs)
times, logps, readings = {}, {}, {}
for task in tasks.split(","):
    begun = time.perf_counter()
    result = lm_eval.simple_evaluate(model=lm, tasks=["made_" + task], log_samples=True, task_manager=manager, bootstrap_iters=0, num_fewshot=0)
    times[task] = time.perf_counter() - begun
    samples = sorted(result["samples"]["made_" + task], key=lambda s: s["doc_id"])
    logps[task] = [[float(r[0][0]) for r in s["resps"]] for s in samples]
    readings[task] = {k.split(",")[0]: v for k, v in result["results"]["made_" + task].items() if isinstance(v, float)}
print("RESULT " + json.dumps(dict(times=times, logps=logps, readings=readings)))
"""

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("model")
parser.add_argument("text")
parser.add_argument("--tasks", default="hellaswag,arc_easy,boolq,lambada")
parser.add_argument("--items", type=int, default=60)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=os.cpu_count())
args = parser.parse_args()
rng = random.Random(11)


def sentences():
    text = re.sub(r"\s+", " ", Path(args.text).read_text())
    return [s for s in re.split(r"(?<=[.!?]) ", text) if 20 < len(s) < 200]


def rows(task):
    """Texts of the real sets' mean lengths: HellaSwag's context 45 words and endings of 25, BoolQ's passage 95, LAMBADA's text 75."""
    pool = sentences()

    def words(n):
        start = rng.randrange(len(pool) - n)
        return " ".join(" ".join(pool[start : start + n]).split()[:n])

    for i in range(args.items):
        if task == "hellaswag":
            yield dict(ind=i, activity_label=words(2), ctx_a=words(38) + ".", ctx_b=words(4), endings=[words(rng.randint(12, 34)) + "." for _ in range(4)],
                       label=str(rng.randrange(4)))
        elif task == "arc_easy":
            yield dict(id=str(i), question=words(20) + "?", choices=dict(text=[words(rng.randint(1, 8)) for _ in range(4)], label=list("ABCD")),
                       answerKey=rng.choice("ABCD"))
        elif task == "boolq":
            yield dict(passage=words(95) + ".", question=words(8), label=rng.randrange(2), idx=i)
        elif task == "lambada":
            yield dict(text=words(75))
        elif task == "piqa":
            yield dict(goal=words(8), sol1=words(18), sol2=words(18), label=rng.randrange(2))
        elif task == "winogrande":
            yield dict(sentence=f"{words(8)} because the _ was {words(5)}.", option1=words(1), option2=words(1), answer=rng.choice("12"))


def measured(command):
    """Standard output, seconds, and the peak of the process in MiB."""
    with tempfile.TemporaryFile("w+") as out:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        out.seek(0)
        text = out.read()
    if status != 0:
        raise SystemExit(f"{' '.join(command[:4])} … ended with {status}")
    return text, seconds, usage.ru_maxrss / 1024


def prepare(folder, tasks):
    """The rows, and each side's task files over them."""
    for side in ("ours", "theirs"):
        (folder / side).mkdir()
    for task in tasks:
        file = folder / f"{task}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows(task)))
        harness = dict(include=str(harness_tasks() / SOURCES[task]), task=f"made_{task}", dataset_path="json", dataset_name=None,
                       dataset_kwargs=dict(data_files=dict(test=str(file))), test_split="test", validation_split=None, training_split=None,
                       fewshot_split=None, tag=[])
        (folder / "theirs" / f"{task}.yaml").write_text(yaml.safe_dump(harness))
        own = yaml.safe_load((ROOT / "assets/tasks" / f"{task}.yaml").read_text())
        own.update(name=f"bench_{task}", source=str(file))
        own.pop("shots", None)
        (folder / "ours" / f"{task}.yaml").write_text(yaml.safe_dump(own))


def harness_tasks():
    code = "import sys; sys.path = [p for p in sys.path if not p.endswith('peers')]; import importlib.util as u; print(u.find_spec('lm_eval').origin)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return Path(out.strip()).parent / "tasks"


def theirs(folder, tasks):
    text, _, peak = measured([sys.executable, "-c", PEER, args.model, ",".join(tasks), str(folder / "theirs"), str(args.batch), str(args.threads)])
    line = next(line for line in text.splitlines() if line.startswith("RESULT "))
    return json.loads(line[7:]), peak


def ours(folder, task, fresh):
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    command = [args.program, "eval", args.model, "--tasks", str(folder / "ours" / f"{task}.yaml"), "--json"]
    _, loading, _ = measured([*command, "--limit", "1", "--out", str(fresh) + "-first"])
    text, seconds, peak = measured(command + ["--out", str(fresh)])
    said = json.loads(text)["models"][0]["tasks"][0]
    lines = [json.loads(line) for line in Path(said["answers"]).read_text().splitlines()][1:]
    lines.sort(key=lambda line: line["item"])
    return dict(seconds=seconds - loading, whole=seconds, logps=[[s["logp"] for s in line["scored"]] for line in lines],
                readings={r["metric"]: r["value"] for r in said["readings"]}), peak


def main():
    tasks = args.tasks.split(",")
    here, there = {t: [] for t in tasks}, {t: [] for t in tasks}
    whole = {t: [] for t in tasks}
    memory_here, memory_there, far, unlike = {t: 0 for t in tasks}, [], {}, []
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        prepare(folder, tasks)
        for n in range(args.rounds):
            peer, peak = theirs(folder, tasks)
            memory_there.append(peak)
            for task in tasks:
                found, peak = ours(folder, task, folder / f"out-{n}")
                memory_here[task] = max(memory_here[task], peak)
                here[task].append((args.items - 1) / found["seconds"])
                whole[task].append(found["whole"])
                there[task].append(args.items / peer["times"][task])
                pairs = [(a, b) for x, y in zip(found["logps"], peer["logps"][task], strict=True) for a, b in zip(x, y, strict=True)]
                far[task] = max(abs(a - b) for a, b in pairs)
                same = [k for k in ("acc", "acc_norm") if k in peer["readings"][task]]
                unlike += [(task, k) for k in same if abs(peer["readings"][task][k] - found["readings"][k]) > 1e-9]
    print(f"{args.items} items a task, {args.rounds} rounds, batch {args.batch} there, {args.threads} threads; load {os.getloadavg()[0]:.1f}")
    print("| task | llmtui, items/s | lm-eval, items/s | ratio | llmtui, MiB | lm-eval, MiB | ratio | farthest log-likelihood |")
    print("|---|---|---|---|---|---|---|---|")
    below = statistics.median(memory_there)
    for task in tasks:
        a, b = statistics.median(here[task]), statistics.median(there[task])
        print(f"| {task} | {a:.2f} | {b:.2f} | {a / b:.1f} | {memory_here[task]:,.0f} | {below:,.0f} | {memory_here[task] / below:.2f} | {far[task]:.1e} |")
    spread = {t: [f"{min(x[t]):.2f} to {max(x[t]):.2f}" for x in (here, there)] for t in tasks}
    print("rounds:", spread)
    print("whole processes of llmtui, s:", {t: round(statistics.median(whole[t]), 1) for t in tasks})
    print("accuracies equal" if not unlike else f"accuracies differ: {unlike}")


main()
