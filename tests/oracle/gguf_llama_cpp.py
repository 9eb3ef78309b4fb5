"""Records what llama.cpp computes from the files that this program writes.

    python -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python==0.3.36 safetensors numpy
    cargo test --test gguf_llama_cpp -- --ignored write_files
    /tmp/llama/bin/python tests/oracle/gguf_llama_cpp.py target/tmp/gguf tests/oracle/gguf_llama_cpp.safetensors [NAME ...]

For each NAME.gguf with NAME.ids: `NAME.logits` (T, V); `NAME.greedy`, the tokens that follow the first `NAME.prompt` ids, of which
there are as many as leave the widest gap between the likeliest token and the next one; `NAME.sha256` of the file. Keys and values are
kept in f32 and the fused attention, which computes in f16, is off. With names, those of other files are left as they are.
"""

import hashlib
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from safetensors.numpy import load_file, save_file

N = 20


def opened(path):
    return llama_cpp.Llama(
        str(path), n_ctx=64, n_batch=64, n_ubatch=64, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False,
        flash_attn=False, type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
    )


def logits(model, ids):
    model.reset()
    model.eval(ids)
    return np.array(model.scores[: len(ids)], dtype=np.float32)


def greedy(model, prompt, n):
    """Tokens, and the narrowest gap between the likeliest and the next."""
    model.reset()
    model.eval(prompt)
    tokens, gap = [], np.inf
    while True:
        last = model.scores[model.n_tokens - 1]
        order = np.argsort(last)
        gap = min(gap, float(last[order[-1]] - last[order[-2]]))
        tokens.append(int(order[-1]))
        if len(tokens) == n:
            return tokens, gap
        model.eval(tokens[-1:])


def main(folder, out, names):
    kept = load_file(out) if names else {}
    for path in sorted(folder.glob("*.gguf")):
        if names and path.stem not in names:
            continue
        ids = [int(word) for word in path.with_suffix(".ids").read_text().split()]
        model = opened(path)
        context = int(model.metadata[f"{model.metadata['general.architecture']}.context_length"])
        tries = []
        for prompt in range(1, min(len(ids), 7)):
            tokens, gap = greedy(model, ids[:prompt], min(N, context - prompt))
            tries.append((gap if len(tokens) >= min(16, context - 1) else -1, prompt, tokens))
        gap, prompt, tokens = max(tries)
        theirs = logits(model, ids)
        kept[f"{path.stem}.logits"] = theirs
        kept[f"{path.stem}.greedy"] = np.array(tokens, dtype=np.float32)
        kept[f"{path.stem}.prompt"] = np.array([prompt], dtype=np.float32)
        kept[f"{path.stem}.sha256"] = np.frombuffer(hashlib.sha256(path.read_bytes()).digest(), dtype=np.uint8).astype(np.float32)
        print(f"{path.stem:16} {len(ids):3} ids, logits {theirs.std():.2f} ±, {len(tokens)} tokens behind {prompt}, gap {gap:.3f}")
    save_file(kept, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
