# GRPO steps beside TRL's GRPOTrainer on the same model folder, prompts and threads, in f32, each side in turn in a process of its own:
#   python benches/peers/grpo.py PROGRAM MODEL-FOLDER [--threads 2] [--prompts 2] [--generations 8] [--tokens 64] [--steps 4] [--rounds 2]
# A step answers every prompt so many times, side by side, at temperature 1, rewards an answer that says "and", and learns from all answers
# at once: one update of all weights by AdamW, no reference model. Figures are medians over all steps but the first of each
# process; writing counts the answers' tokens over the time spent on them; memory is the peak of the process. Needs torch,
# transformers and trl.
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PEER = r"""
import json, sys, time, torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
folder, data, prompts, generations, tokens, steps, threads = sys.argv[1:8]
prompts, generations, tokens, steps = int(prompts), int(generations), int(tokens), int(steps)
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
times, writing, written = [], [], []
class Clock(TrainerCallback):
    def on_step_begin(self, *a, **k): self.begun = time.perf_counter()
    def on_step_end(self, *a, **k): times.append(time.perf_counter() - self.begun)
generate = type(model).generate
def timed(self, *a, **k):
    begun = time.perf_counter()
    out = generate(self, *a, **k)
    writing.append(time.perf_counter() - begun)
    return out
type(model).generate = timed
def says_and(completions, completion_ids, **_):
    written.append(sum(len(ids) for ids in completion_ids))
    return [float("and" in text) for text in completions]
args = GRPOConfig(output_dir="/tmp/none", per_device_train_batch_size=prompts * generations, num_generations=generations, max_completion_length=tokens,
                  gradient_accumulation_steps=1, max_steps=steps, report_to=[], save_strategy="no", logging_strategy="no", use_cpu=True,
                  bf16=False, fp16=False, gradient_checkpointing=False, learning_rate=1e-6, lr_scheduler_type="constant", max_grad_norm=1.0,
                  temperature=1.0, top_p=1.0, top_k=0, beta=0.0, loss_type="dapo", disable_tqdm=True)
trainer = GRPOTrainer(model, reward_funcs=says_and, args=args, train_dataset=Dataset.from_list([json.loads(line) for line in open(data)]),
                      processing_class=tokenizer, callbacks=[Clock()])
trainer.train()
print("STEPS " + json.dumps([dict(seconds=s, rate=n / w) for s, n, w in zip(times, written, writing)]))
"""

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("model")
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--prompts", type=int, default=2)
parser.add_argument("--generations", type=int, default=8)
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--rounds", type=int, default=2)
args = parser.parse_args()


def measured(command):
    """Standard output, and the peak of the process in MiB."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        errors.seek(0)
        if status != 0:
            raise SystemExit(f"{' '.join(command[:4])} … ended with {status}:\n{errors.read()[-2000:]}")
        return out.read(), usage.ru_maxrss / 1024


def theirs(data, _):
    numbers = [str(x) for x in (args.prompts, args.generations, args.tokens, args.steps, args.threads)]
    text, peak = measured([sys.executable, "-c", PEER, args.model, str(data), *numbers])
    line = next(line for line in text.splitlines() if line.startswith("STEPS "))
    return json.loads(line[6:])[1:], peak


def ours(data, folder):
    answers = args.prompts * args.generations
    words = [f"train.from={args.model}", f"data.path={data}", f"train.micro_batch_size={answers}", "train.grad_accum_steps=1",
             f"model.seq_len={args.tokens + 32}", f"max_steps={args.steps}", f"threads={args.threads}", "precision=f32",
             f"rollout.group_size={args.generations}", f"rollout.max_new_tokens={args.tokens}", f"rollout.side_by_side={answers}",
             "rollout.keep=0", "rewards=[{regex: {pattern: and}}]", "eval_every=0", "eval.rows=2", "sample_every=0", "save_every=0",
             "preflight.enabled=false", "health.enabled=false", "lr=1e-6", "schedule=constant", "data.cache=off"]
    command = [args.program, "train", "grpo-gsm8k", "--headless", "--json", "--force", "--runs-dir", folder]
    for word in words:
        command += ["-s", word]
    text, peak = measured(command)
    events = [json.loads(line)["event"] for line in text.splitlines() if line.startswith("{")]
    steps = [e["values"] for e in events if e["type"] == "Stepped" and "step_ms" in e["values"]]
    return [dict(seconds=v["step_ms"] / 1000, rate=v["rollout/tok_per_sec"]) for v in steps][1:], peak


with tempfile.TemporaryDirectory() as folder:
    data = Path(folder, "prompts.jsonl")
    places = "river road market bridge school garden library station harbor forest castle factory museum island village theater".split()
    rows = [{"prompt": f"The history of the old {places[i % 16]} of the town begins in the year {1600 + 7 * i}, when", "answer": ""} for i in range(64)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sides = {"llmtui": (ours, [], []), "TRL": (theirs, [], [])}
    for _ in range(args.rounds):
        for name, (run, steps, peaks) in sides.items():
            found, peak = run(data, folder)
            steps.extend(found)
            peaks.append(peak)
            print(f"{name}: " + ", ".join(f"{s['rate']:.0f} tokens/s, {s['seconds']:.1f} s" for s in found) + f"; {peak:.0f} MiB", file=sys.stderr, flush=True)

    def median(name, key):
        return statistics.median(step[key] for step in sides[name][1])

    print("| | llmtui | TRL | ratio |\n|---|---|---|---|")
    for title, key, digits in (("written tokens/s", "rate", 0), ("seconds a step", "seconds", 2)):
        a, b = median("llmtui", key), median("TRL", key)
        print(f"| {title} | {a:.{digits}f} | {b:.{digits}f} | {a / b if key == 'rate' else b / a:.2f} |")
    a, b = (statistics.median(sides[name][2]) for name in ("llmtui", "TRL"))
    print(f"| peak memory, MiB | {a:.0f} | {b:.0f} | {a / b:.2f} |")
