# Fine-tuning steps beside TRL and PEFT on the same model folder, rows, batch, threads and precision, each side in turn in a process of its own:
#   python benches/peers/finetune.py PROGRAM MODEL-FOLDER [--gguf FILE] [--threads 2] [--rows 2] [--tokens 128] [--steps 6] [--rounds 2] [--precision f32|bf16]
# Cases: all weights, the same with AdamW's moments in 8 bits here and in f32 there, LoRA (rank 8 on all linear layers), QLoRA (the GGUF's own formats; the other side has no 4-bit base on a processor and
# trains LoRA on f32), DPO through LoRA. Every sequence fills its row. A figure is the median of all steps but the first two, memory
# the peak of the process. Needs torch, transformers, trl and peft.
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
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
case, folder, rows, tokens, steps, threads, data, precision = sys.argv[1:9]
rows, tokens, steps = int(rows), int(tokens), int(steps)
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(folder)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
times = []
class Clock(TrainerCallback):
    def on_step_begin(self, *a, **k): self.begun = time.perf_counter()
    def on_step_end(self, *a, **k): times.append(time.perf_counter() - self.begun)
common = dict(output_dir="/tmp/none", per_device_train_batch_size=rows, gradient_accumulation_steps=1, max_steps=steps, report_to=[],
              save_strategy="no", logging_strategy="no", max_length=tokens, gradient_checkpointing=False, use_cpu=True, bf16=precision == "bf16",
              learning_rate=1e-5, max_grad_norm=1.0, disable_tqdm=True)
lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
set_of = Dataset.from_list([json.loads(line) for line in open(data)])
if case == "dpo":
    from trl import DPOConfig, DPOTrainer
    trainer = DPOTrainer(model, args=DPOConfig(**common), train_dataset=set_of, processing_class=tokenizer, peft_config=lora, callbacks=[Clock()])
else:
    from trl import SFTConfig, SFTTrainer
    trainer = SFTTrainer(model, args=SFTConfig(packing=False, **common), train_dataset=set_of, processing_class=tokenizer,
                         peft_config=None if case == "full" else lora, callbacks=[Clock()])
trainer.train()
print("SECONDS " + json.dumps(times))
"""

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("model")
parser.add_argument("--gguf")
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--rows", type=int, default=2)
parser.add_argument("--tokens", type=int, default=128)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
parser.add_argument("--cases", default="full,full-8bit,lora,qlora,dpo")
args = parser.parse_args()


def measured(command):
    """Standard output, and the peak of the process in MiB."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        text = out.read()
    if status != 0:
        raise SystemExit(f"{' '.join(command[:4])} … ended with {status}")
    return text, usage.ru_maxrss / 1024


def theirs(case, data):
    numbers = [str(x) for x in (args.rows, args.tokens, args.steps, args.threads)]
    peer = {"qlora": "lora", "full-8bit": "full"}.get(case, case)
    text, peak = measured([sys.executable, "-c", PEER, peer, args.model, *numbers, str(data), args.precision])
    line = next(line for line in text.splitlines() if line.startswith("SECONDS "))
    return json.loads(line[8:])[2:], peak


def ours(case, data, folder):
    words = [f"train.from={args.gguf if case == 'qlora' else args.model}", f"data.path={data}", f"train.micro_batch_size={args.rows}",
             "train.grad_accum_steps=1", f"model.seq_len={args.tokens}", f"max_steps={args.steps}", f"threads={args.threads}",
             f"precision={args.precision}", "eval_every=0", "eval.rows=2", "sample_every=0", "save_every=0", "preflight.enabled=false",
             "health.enabled=false", "lr=1e-5", "schedule=constant", "data.cache=off"]
    if case == "full-8bit":
        words += ["optimizer=adamw8bit"]
    elif case != "full":
        words += ["adapter.lora.rank=8", "adapter.lora.alpha=16", "adapter.lora.dropout=0", "adapter.lora.targets=all"]
    preset = "dpo" if case == "dpo" else "cpt"
    words += ["data.too_long=truncate"] if case == "dpo" else ["data.packing=stream"]
    command = [args.program, "train", preset, "--headless", "--json", "--force", "--runs-dir", folder]
    for word in words:
        command += ["-s", word]
    text, peak = measured(command)
    events = [json.loads(line)["event"] for line in text.splitlines() if line.startswith("{")]
    steps = [e["values"]["step_ms"] / 1000 for e in events if e["type"] == "Stepped" and "step_ms" in e["values"]]
    return steps[2:], peak


with tempfile.TemporaryDirectory() as folder:
    text = "The history of the town begins with a river, a road and a market where people of the valley met. " * 40
    plain, pairs = Path(folder, "text.jsonl"), Path(folder, "pairs.jsonl")
    plain.write_text("".join(json.dumps({"text": f"{i} {text}"}) + "\n" for i in range(200)))
    pairs.write_text("".join(json.dumps({"prompt": f"Tell me {i}:", "chosen": " " + text, "rejected": " No. " + text}) + "\n" for i in range(200)))
    print("| | llmtui, tokens/s | TRL + PEFT, tokens/s | ratio | llmtui, MiB | TRL + PEFT, MiB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for case in args.cases.split(","):
        if case == "qlora" and not args.gguf:
            continue
        data = pairs if case == "dpo" else plain
        sides = {"ours": ([], []), "theirs": ([], [])}
        for _ in range(args.rounds):
            for name, run in (("ours", lambda: ours(case, data, folder)), ("theirs", lambda: theirs(case, data))):
                seconds, peak = run()
                sides[name][0].extend(seconds)
                sides[name][1].append(peak)
        tokens = args.rows * args.tokens * (2 if case == "dpo" else 1)
        speed = {name: tokens / statistics.median(seconds) for name, (seconds, _) in sides.items()}
        peak = {name: statistics.median(peaks) for name, (_, peaks) in sides.items()}
        print(f"| {case} | {speed['ours']:.0f} | {speed['theirs']:.0f} | {speed['ours'] / speed['theirs']:.2f} | {peak['ours']:.0f} | "
              f"{peak['theirs']:.0f} | {peak['ours'] / peak['theirs']:.2f} |", flush=True)
