"""Records the ids that llama.cpp gives texts with the tokenizers that this program writes into GGUF files.

    python -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python==0.3.36
    cargo test --test gguf_tokenizers -- --ignored write_files
    /tmp/llama/bin/python tests/oracle/gguf_tokenizers.py target/tmp/gguf_tokenizers tests/oracle/gguf_tokenizers.json

Special tokens in a text are taken as such; nothing is added in front or behind.
"""

import json
import sys
from pathlib import Path

from llama_cpp import Llama


def main(folder, out):
    ids = {}
    for path in sorted(folder.glob("*.gguf")):
        llama = Llama(str(path), vocab_only=True, verbose=False)
        texts = json.loads(path.with_suffix(".json").read_text())
        ids[path.stem] = [llama.tokenize(text.encode(), add_bos=False, special=True) for text in texts]
        for text, tokens in zip(texts, ids[path.stem]):
            back = llama.detokenize(tokens, special=True).decode(errors="replace")
            if back.strip() != text.strip():
                print(f"{path.stem}: {text!r} comes back as {back!r}")
        print(f"{path.stem:12} {len(texts)} texts, ends {llama.token_eos()}")
    out.write_text(json.dumps(ids, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
