# Files of ours opened by llama.cpp: python gguf_models_oracle.py PROGRAM MODEL [TYPE ...]     (pip install llama-cpp-python==0.3.36)
# Exports MODEL (a folder or a GGUF file) in every type, lets llama.cpp and this program continue the same prompt greedily from each
# file, and prints both. Equal for types that llama.cpp computes alike; quantised ones may part where two tokens are about equally likely.
import subprocess
import sys
import tempfile
from pathlib import Path

from llama_cpp import Llama

program, model = sys.argv[1:3]
kinds = sys.argv[3:] or ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k"]
PROMPT, N = "The capital of France is", 24
failed = 0
for kind in kinds:
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "out"
        subprocess.run([program, "export", model, "--format", "gguf", "--dtype", kind, "--to", to], check=True, stdout=subprocess.DEVNULL)
        (file,) = to.glob("*.gguf")
        llama = Llama(str(file), n_ctx=256, n_threads=2, verbose=False)
        theirs = llama(PROMPT, max_tokens=N, temperature=0.0)["choices"][0]["text"]
        command = [program, "chat", file, "--raw", "--prompt", PROMPT, "--max-new-tokens", str(N), "--temperature", "0"]
        ours = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        same = ours.rstrip("\n").endswith(theirs.rstrip("\n"))
        failed += not same
        print(f"{kind:5} {'same' if same else 'DIFFERENT'}\n  llama.cpp {theirs!r}\n  ours      {ours!r}")
sys.exit(failed)
