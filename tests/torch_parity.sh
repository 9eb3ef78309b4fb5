#!/bin/sh
# Both engines on the same spec, real PyTorch on the processor with gloo: 300 steps of a small decoder, clipping active in some.
# usage: tests/torch_parity.sh LLMTUI PYTHON-OR-VENV [STEPS]      prints a table; fails above |Δloss| 1e-5
set -eu
llmtui=$1 python=$2 steps=${3:-300}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/spec.yaml" <<SPEC
extends: quickstart
name: parity
model: {n_layer: 2, n_head: 4, n_kv_head: 2, d_model: 64, seq_len: 64, position: rope, norm: rmsnorm, mlp: swiglu, tie_embeddings: false}
train: {max_steps: $steps, micro_batch_size: 8, grad_accum_steps: 1, threads: 1, log_every: 1, precision: f32, clip_norm: 1.0}
optimizer: {adamw: {lr: 0.001, beta2: 0.95, weight_decay: 0.1}}
schedule: constant
eval: {every: 1000, batches: 2}
sample: {every: 1000}
checkpoint: {every: 1000}
preflight: {enabled: false}
health: {enabled: false}
SPEC
run() {
    name=$1
    shift
    "$llmtui" train "$dir/spec.yaml" --json "$@" > "$dir/$name.jsonl" || {
        echo "$name ended with $?:" >&2
        grep -E '"(Warned|Finished)"' "$dir/$name.jsonl" | tail -n 4 >&2
        exit 1
    }
}
torch="-s engine=torch -s engine.torch.python=$python"
cd "$dir"
run candle
run torch-1 $torch -s engine.torch.ranks=1
run torch-ddp-2 $torch -s engine.torch.ranks=2
run torch-fsdp2-2 $torch -s engine.torch.ranks=2 -s engine.torch.shard=fsdp2
# What must be seen: each of these is another training.
run wrong-lr $torch -s engine.torch.ranks=1 -s lr=0.0010001
run wrong-beta2 $torch -s engine.torch.ranks=1 -s optimizer.adamw.beta2=0.951
run wrong-clip $torch -s engine.torch.ranks=1 -s train.clip_norm=0
run wrong-eps $torch -s engine.torch.ranks=1 -s optimizer.adamw.eps=1e-6
run wrong-decay $torch -s engine.torch.ranks=1 -s optimizer.adamw.weight_decay=0
run wrong-norm-eps $torch -s engine.torch.ranks=1 -s model.norm.rmsnorm.eps=1e-6
run wrong-order $torch -s engine.torch.ranks=1 -s seed=7
"${python%/}/bin/python" - "$dir" <<'TABLE'
import glob, json, os, sys

def read(path):
    rows = {}
    for line in open(path):
        event = json.loads(line)["event"]
        if event["type"] == "Stepped":
            rows[event["step"]] = (event["values"]["train/loss"], event["values"]["grad_norm"])
    return rows

base = read(os.path.join(sys.argv[1], "candle.jsonl"))
good = True
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.jsonl"))):
    name, rows = os.path.basename(path)[:-6], read(path)
    assert rows.keys() == base.keys(), name
    loss = max(abs(rows[k][0] - base[k][0]) for k in base)
    norm = max(abs(rows[k][1] - base[k][1]) / base[k][1] for k in base)
    same = loss <= 1e-5 and norm <= 1e-5
    good &= same != name.startswith("wrong")
    print(f"{name:16} {len(rows):4} steps  max |dloss| {loss:.2e}  max rel dnorm {norm:.2e}  {'same' if same else 'another training'}")
sys.exit(0 if good else 1)
TABLE
