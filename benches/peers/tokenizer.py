"""Tokenisation beside Hugging Face's tokenizers from Python: the same file, the same tokenizer, the same threads, in turn.

    RAYON_NUM_THREADS=2 python benches/peers/tokenizer.py tokenizer.json corpus.txt --program target/release/llmtui

Needs `pip install tokenizers`. Python gets the text in the pieces that llmtui cuts (64 KiB, before a newline behind a letter or
digit, where no byte-level token can cross), so that its threads have work; the time is that of encode_batch (and of
encode_batch_fast, which leaves offsets out) alone, without reading the file or making the pieces. llmtui's is that of encoding
the whole text, cutting included. The number of tokens must agree.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

from tokenizers import Tokenizer

PIECE = 64 << 10


def pieces(data):
    out, start = [], 0
    while len(data) - start > PIECE:
        at = start + PIECE
        while True:
            at = data.find(b"\n", at)
            if at < 0 or data[at - 1 : at].isalnum():
                break
            at += 1
        if at < 0:
            break
        out.append(data[start:at].decode())
        start = at
    out.append(data[start:].decode())
    return out


def ours(args):
    command = [args.program, "tokenizer", "check", args.tokenizer, "--speed", args.file, "--json"]
    # Code 2 tells of a finding about the tokenizer; the report is there all the same.
    done = subprocess.run(command, capture_output=True, text=True)
    speed = json.loads(done.stdout)["tokenizer"]["speed"]
    return speed["seconds"], speed["tokens"], speed["threads"]


def theirs(encode, texts):
    start = time.perf_counter()
    encodings = encode(texts, add_special_tokens=False)
    seconds = time.perf_counter() - start
    return seconds, sum(len(e) for e in encodings)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("file")
    parser.add_argument("--program", default="target/release/llmtui")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    data = open(args.file, "rb").read()
    texts = pieces(data)
    tokenizer = Tokenizer.from_file(args.tokenizer)
    rows = {"llmtui": [], "encode_batch": [], "encode_batch_fast": []}
    for _ in range(args.rounds):
        seconds, tokens, threads = ours(args)
        rows["llmtui"].append(seconds)
        for name in ["encode_batch", "encode_batch_fast"]:
            seconds, found = theirs(getattr(tokenizer, name), texts)
            rows[name].append(seconds)
            if found != tokens:
                print(f"note: {name} gives {found} tokens, llmtui {tokens}")
    best = statistics.median(rows["llmtui"])
    print(f"{len(data) / 1e6:.1f} MB, {tokens} tokens, {threads} threads here, RAYON_NUM_THREADS={os.environ.get('RAYON_NUM_THREADS')}")
    for name, seconds in rows.items():
        median = statistics.median(seconds)
        print(f"{name:18} {median:8.3f} s  {len(data) / median / 1e6:8.1f} MB/s  llmtui is {median / best:6.2f} times as fast")


main()
