"""Opens what llmtui exported with transformers and compares logits with those of the original. By hand:

    cargo test --test families -- --ignored write_folders       # or llmtui export FOLDER --to DIR/NAME for each
    /tmp/oracle/bin/python tests/oracle/families_back.py tests/oracle/families target/tmp/families

A checkpoint folder and any other exported folder can be looked at with `--open FOLDER`: class, parameters, a greedy text.
"""

import sys
from pathlib import Path

import torch
import transformers as tf
from safetensors.torch import load_file
from transformers.utils import logging

torch.set_num_threads(1)
logging.disable_progress_bar()


def compare(originals, exported):
    for folder in sorted(originals.iterdir()):
        out = exported / folder.name
        if not out.is_dir():
            print(f"{folder.name:14} not exported")
            continue
        expected = load_file(folder / "expected.safetensors")
        model, info = tf.AutoModelForCausalLM.from_pretrained(
            out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        with torch.no_grad():
            logits = model.eval()(expected["ids"].long()).logits
        off = (logits - expected["logits"]).abs().max().item()
        loose = {key: value for key, value in info.items() if value}
        print(f"{folder.name:14} {type(model).__name__:22} largest difference {off:.1e} {loose or ''}")
        assert off <= 1e-4 and not loose


def show(folder):
    model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    print(type(model).__name__, sum(p.numel() for p in model.parameters()), "parameters, eos", model.generation_config.eos_token_id)
    ids = tokenizer("First Citizen", return_tensors="pt").input_ids
    out = model.generate(ids, max_new_tokens=40, do_sample=False)
    print(repr(tokenizer.decode(out[0])))
    if tokenizer.chat_template:
        print(repr(tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)))


if __name__ == "__main__":
    if sys.argv[1] == "--open":
        show(sys.argv[2])
    else:
        compare(Path(sys.argv[1]), Path(sys.argv[2]))
