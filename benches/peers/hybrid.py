"""Training steps of hybrid models, of latent attention and of experts beside transformers, in turn: python benches/peers/hybrid.py PROGRAM [--rounds N] [--only NAME]

Needs torch and transformers of 5.24 or later. Both sides train the weights that `llmtui init` writes, in f32 on the same
threads, 4 rows of 256 tokens a step with clipping and AdamW. Prints the median tokens/s of each round, and the ratio of their medians.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

COMMON = """
extends: quickstart
name: hybrid
train: {micro_batch_size: 4, max_steps: 40, precision: f32, log_every: 1, threads: THREADS}
eval: {every: 0}
sample: {every: 0}
checkpoint: {every: 0}
model: {n_layer: 8, d_model: 384, d_ff: 1024, seq_len: 256, mlp: {swiglu: {}}, MODEL}
"""
ATTENTION = "n_head: 6, n_kv_head: 2, head_dim: 64, norm: {rmsnorm: {}}, "
MODELS = {
    "as Qwen 3.5": "n_head: 6, n_kv_head: 2, head_dim: 64, qk_norm: true, position: {rope: {fraction: 0.25}},"
    " norm: {rmsnorm: {unit_offset: true}}, attention_gate: true, attention_every: 4,"
    " mixer: {gated_delta_net: {n_key_head: 4, n_value_head: 4, key_dim: 128, value_dim: 128}}",
    "as LFM2": ATTENTION + "qk_norm: true, position: {rope: {}}, attention_blocks: [2, 5], mixer: {short_conv: {}}",
    "as Bamba": ATTENTION + "position: {rope: {fraction: 0.5}}, attention_blocks: [3, 7],"
    " mixer: {mamba2: {n_head: 12, head_dim: 64, state_dim: 128, n_group: 1}}",
    "as DeepSeek-V2": "n_head: 6, norm: {rmsnorm: {}}, position: {rope: {}},"
    " mla: {kv_rank: 128, q_rank: 192, nope_dim: 48, rope_dim: 16, v_dim: 64}",
    "as Mixtral": ATTENTION + "position: {rope: {}}, moe: {n_expert: 8, top_k: 2, d_ff: 512}",
}
# Steps that are not counted: buffers are made, the processor's clock settles.
WARM = 2


def ours(program, spec, folder):
    command = [program, "train", spec, "--headless", "--json"]
    lines = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()
    steps = [json.loads(line)["event"] for line in lines]
    speeds = [step["values"]["tok_per_sec"] for step in steps if step["type"] == "Stepped"]
    return statistics.median(speeds[WARM:])


def theirs(folder, threads, steps=8):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(0, model.config.vocab_size, (4, 257))
    times = []
    for _ in range(steps + WARM):
        begin = time.perf_counter()
        logits = model(input_ids=ids[:, :-1]).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - begin)
    return 4 * 256 / statistics.median(times[WARM:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="a part of the name of a model")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    for name, model in MODELS.items():
        if asked.only and asked.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            spec = pathlib.Path(folder, "hybrid.yaml")
            spec.write_text(COMMON.replace("THREADS", str(asked.threads)).replace("MODEL", model))
            written = pathlib.Path(folder, "model")
            subprocess.run([asked.program, "init", str(spec), "--to", str(written)], check=True, capture_output=True)
            rounds = []
            for _ in range(asked.rounds):
                rounds.append((ours(asked.program, str(spec), folder), theirs(written, asked.threads)))
                print(f"{name}: {rounds[-1][0]:,.0f} and {rounds[-1][1]:,.0f} tokens/s", flush=True)
            mine, other = (statistics.median(side) for side in zip(*rounds))
            print(f"{name}: ratio {mine / other:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
