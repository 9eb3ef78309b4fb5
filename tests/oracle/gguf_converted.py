"""GGUF files as llama.cpp's own conversion script writes them, from the tiny models of tests/oracle/families.

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36    # vendor/llama.cpp holds the script
    PYTHONPATH=LLAMA_CPP:LLAMA_CPP/gguf-py /tmp/oracle/bin/python tests/oracle/gguf_converted.py tests/oracle/families tests/oracle/gguf [NAME ...]

(torch and transformers as for families_oracle.py.) The models have no tokenizers, which the script is told, and how many tokens there are; everything else is its own
doing: names, layouts and keys. What the reader makes of the files is held against the logits of transformers.
"""

import json
import sys
import tempfile
from pathlib import Path

import conversion
import gguf
from conversion.base import ModelBase, ModelType

NAMES = [
    "gpt2", "llama3", "llama_linear", "mistral", "qwen2", "gemma2", "gemma3", "phi3", "mixtral", "qwen3_moe", "granite", "gemma", "starcoder2", "olmo2", "olmo3",
    "smollm3", "gpt_neox", "stablelm", "lfm2", "qwen3_5", "qwen2_moe", "qwen3_next", "qwen3_5_moe", "olmoe",
    "granitemoe", "lfm2_moe", "granite_hybrid", "granite_shared", "granite_hybrid_attention",
]


def convert(folder, out):
    hparams = ModelBase.load_hparams(folder, False)
    made_by = conversion.get_model_class(hparams["architectures"][0])

    def no_vocab(self):
        self._set_vocab_none()
        self.gguf_writer.add_vocab_size(hparams["vocab_size"])

    made_by.set_vocab = no_vocab
    # As its `--no-mtp` does: the tiny model has no blocks that predict tokens further ahead.
    made_by.no_mtp = True
    with tempfile.TemporaryDirectory() as scratch:
        # The script looks for a tokenizer's size where it cuts Gemma 3's embedding.
        copy = Path(scratch)
        for file in folder.iterdir():
            if file.name != "expected.safetensors":
                (copy / file.name).write_bytes(file.read_bytes())
        vocab = {str(i): i for i in range(hparams["vocab_size"])}
        (copy / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": []}))
        known = None
        if hparams["model_type"] == "gpt2":
            # Its config says n_positions alone, as transformers 5 does.
            hparams["n_ctx"] = hparams["n_positions"]
            (copy / "config.json").write_text(json.dumps(hparams))
        if hparams["model_type"] in ("gpt_neox", "stablelm"):
            # transformers 5 keeps these in rope_parameters, where the script does not look.
            rope = hparams["rope_parameters"]
            share = rope["partial_rotary_factor"]
            hparams |= {"rotary_pct": share, "partial_rotary_factor": share, "rotary_emb_base": rope["rope_theta"]}
            known = hparams
        made_by(copy, gguf.LlamaFileType.ALL_F32, out, eager=True, hparams=known).write()


def main(families, out, names):
    out.mkdir(exist_ok=True)
    for name in names or NAMES:
        path = out / f"{name}.gguf"
        convert(families / name, path)
        print(f"{name:14} {path.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
