# Answers at once: tokens per second of all requests together, against one after the other. Needs nothing but Python.
#   python benches/peers/serve.py PROGRAM MODEL ... [--at-once 1,2,4,8] [--tokens 128] [--rounds 3]
# Each client asks again as soon as it is answered; a row is the median of its rounds, after one that is not counted. No prompt is
# asked twice, so that none is found in a KV cache.
import argparse
import concurrent.futures
import itertools
import json
import re
import statistics
import subprocess
import time
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("models", nargs="+")
parser.add_argument("--at-once", default="1,2,4,8")
parser.add_argument("--tokens", type=int, default=128)
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()
counts = [int(n) for n in args.at_once.split(",")]
PROMPT = "The history of the town begins with a river and a road. " * 8
# Of the same width, so that all prompts have as many tokens.
numbers = itertools.count(1000)


def ask(address):
    body = {"prompt": f"{next(numbers)}. {PROMPT}", "max_tokens": args.tokens, "temperature": 1.0}
    request = urllib.request.Request(
        f"{address}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["usage"]["completion_tokens"]


def measure(address, n):
    """Tokens per second of `n` clients with two answers each."""
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(n) as clients:
        tokens = sum(clients.map(ask, [address] * (2 * n)))
    return tokens / (time.perf_counter() - begun)


print(f"{'model':44} {'at once':>8} {'tok/s':>9} {'ratio':>6}")
for model in args.models:
    command = [args.program, "serve", model, "--port", "0", "--parallel", str(max(counts))]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = next(m[0] for m in (re.search(r"http://\S+/v1", line) for line in server.stderr) if m)
        # What it says of each answer has to go somewhere.
        drain = concurrent.futures.ThreadPoolExecutor(1)
        drain.submit(lambda: [None for _ in server.stderr])
        first = None
        for n in counts:
            speeds = [measure(address, n) for _ in range(args.rounds + 1)][1:]
            speed = statistics.median(speeds)
            first = first or speed
            print(f"{model.rsplit('/', 1)[-1]:44} {n:8} {speed:9.1f} {speed / first:6.2f}", flush=True)
    finally:
        server.terminate()
        server.wait()
