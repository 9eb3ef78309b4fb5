# Reading and writing beside llama.cpp on the same files, two threads each, in turn:
#   python benches/peers/decode.py PROGRAM FILE.gguf ... [--rounds 3] [--precision auto]      (pip install llama-cpp-python==0.3.36)
# A row is the median of its rounds. Each side runs in a process of its own, the other asleep.
import argparse
import json
import statistics
import subprocess
import sys

SIDE = r"""
import sys, time, statistics as st
from llama_cpp import Llama
m = Llama(sys.argv[1], n_ctx=1024, n_threads=2, n_threads_batch=2, verbose=False, logits_all=False)
prompt = m.tokenize(("The history of the town begins with a river and a road. " * 60).encode())[:512]
pre, dec = [], []
for _ in range(3):
    m.reset(); t = time.perf_counter(); m.eval(prompt); pre.append(len(prompt) / (time.perf_counter() - t))
    for _ in range(100):
        t = time.perf_counter(); token = m.sample(temp=0.0); m.eval([token]); dec.append(1 / (time.perf_counter() - t))
print(st.median(pre), st.median(dec))
"""
parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("files", nargs="+")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--precision", default="auto")
args = parser.parse_args()
print(f"{'file':44} {'prefill':>21} {'ratio':>6} {'decode':>21} {'ratio':>6} {'of memory':>9}")
for file in args.files:
    theirs, ours = [], []
    for _ in range(args.rounds):
        out = subprocess.run([sys.executable, "-c", SIDE, file], check=True, capture_output=True, text=True).stdout
        theirs.append([float(x) for x in out.split()])
        command = [args.program, "bench", "decode", "--model", file, "--threads", "2", "--seconds", "4", "--precision", args.precision, "--json"]
        ours.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    prefill, decode = (statistics.median(t[i] for t in theirs) for i in (0, 1))
    p = statistics.median(o["prefill_tok_per_sec"] for o in ours)
    d = statistics.median(o["decode_tok_per_sec"] for o in ours)
    share = statistics.median(o["bandwidth_share"] for o in ours)
    name = file.rsplit("/", 1)[-1]
    print(f"{name:44} {prefill:9.0f} → {p:9.0f} {p / prefill:6.2f} {decode:9.1f} → {d:9.1f} {d / decode:6.2f} {share:9.0%}")
