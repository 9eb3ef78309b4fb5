# Files of ours opened by llama.cpp: python gguf_models_oracle.py PROGRAM MODEL [TYPE ...]     (pip install llama-cpp-python==0.3.36)
# Exports MODEL (a folder or a GGUF file) in every type, lets llama.cpp and this program continue the same prompts greedily from each
# file, and tells how many tokens are the same; where they part, how far llama.cpp's two likeliest tokens lie from each other there.
import subprocess
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

program, model = sys.argv[1:3]
kinds = sys.argv[3:] or ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"]
PROMPTS, N = ["The capital of France is", "Once upon a time, a small boat", "def fibonacci(n):\n    "], 32


def theirs(llama, prompt):
    """Tokens, and the gap between the two likeliest at each."""
    llama.reset()
    llama.eval(llama.tokenize(prompt.encode(), add_bos=False, special=True))
    tokens, gaps = [], []
    for _ in range(N):
        last = llama.scores[llama.n_tokens - 1]
        order = np.argsort(last)
        gaps.append(float(last[order[-1]] - last[order[-2]]))
        tokens.append(int(order[-1]))
        if tokens[-1] == llama.token_eos():
            return tokens[:-1], gaps
        llama.eval(tokens[-1:])
    return tokens, gaps


failed = 0
for kind in kinds:
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "out"
        subprocess.run([program, "export", model, "--format", "gguf", "--dtype", kind, "--to", to], check=True, stdout=subprocess.DEVNULL)
        (file,) = to.glob("*.gguf")
        llama = llama_cpp.Llama(
            str(file), n_ctx=256, n_threads=2, logits_all=True, verbose=False, flash_attn=False,
            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
        )
        for prompt in PROMPTS:
            tokens, gaps = theirs(llama, prompt)
            command = [program, "chat", file, "--raw", "--prompt", prompt, "--max-new-tokens", str(N), "--temperature", "0"]
            ours = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")
            mine = llama.tokenize(ours.removeprefix(prompt).encode(), add_bos=False, special=True)
            # Line ends at the end of an answer are not printed.
            while tokens and len(mine) < len(tokens) and not llama.detokenize(tokens[-1:]).strip():
                tokens = tokens[:-1]
            same = next((at for at, (a, b) in enumerate(zip(tokens, mine)) if a != b), min(len(tokens), len(mine)))
            failed += same < len(tokens)
            parting = "" if same == len(tokens) else f", then the two likeliest are {gaps[same]:.3f} apart\n  ours   {ours!r}\n  theirs {llama.detokenize(tokens).decode()!r}"
            print(f"{kind:5} {prompt[:16]!r:20} {same} of {len(tokens)} tokens are the same{parting}", flush=True)
sys.exit(failed)
