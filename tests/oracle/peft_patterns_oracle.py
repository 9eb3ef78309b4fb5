"""Adapters of PEFT with ranks and alphas of single modules, and adapters of Phi-3, whose class keeps queries, keys and values
in one matrix and gate and up in another, and of GPT-NeoX, whose one matrix has them head by head, for
tests/oracle/peft_patterns.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors
    /tmp/oracle/bin/python tests/oracle/peft_patterns_oracle.py

Writes tests/oracle/peft_patterns: `llama`, `phi3` and `gpt_neox` are the bases, every other folder is an adapter, and
`peft_patterns.safetensors` holds logits, merged logits and, as CASE/grad.NAME, gradients of the mean negative log-likelihood of
`targets`. Adapters whose names begin with `split` are PEFT's on a Llama that computes what `phi3` does, with its matrices cut
in three and in two: what llmtui has beside a Phi-3. Everything is f32 on one thread, dropout is off, factors and magnitudes are
away from where they start.

    cargo run -- export FOLDER --format peft --to DIR/CASE      # FOLDER: the files of `phi3` and of one adapter together
    /tmp/oracle/bin/python tests/oracle/peft_patterns_oracle.py --joined DIR

loads each DIR/CASE on its base with PEFT and prints the largest difference of its logits from those of CASE: the way back.
"""

import pathlib
import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM,
)

from peft_oracle import LLAMA, T, VOCAB, fixtures

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent / "peft_patterns"
WIDTH, FF, HEADS, KV = 16, 12, 2, 1
SIZES = dict(
    vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=2, num_attention_heads=HEADS,
    num_key_value_heads=KV, max_position_embeddings=T, tie_word_embeddings=False, initializer_range=0.15, rms_norm_eps=1e-5,
    bos_token_id=None, eos_token_id=None, pad_token_id=None)
PHI3 = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
NEOX = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
# The first that matches counts. PEFT writes them in the order of the alphabet, and counts in that order when it reads them.
RANKS = {r"(layers\.1\.mlp\.(up|down)_proj)": 1, "(q_proj)": 5, "[a-z_]+_proj": 2}
ALPHAS = {"self_attn.v_proj": 3, "^model.layers.0.mlp.*": 7}
CASES = {
    "patterns": ("llama", dict(r=3, lora_alpha=6, target_modules=LLAMA, rank_pattern=RANKS, alpha_pattern=ALPHAS)),
    "patterns_rslora": ("llama", dict(r=3, lora_alpha=6, target_modules=LLAMA, use_rslora=True, rank_pattern={"k_proj": 7},
                                      alpha_pattern={"o_proj": 1, "up_proj": 12})),
    "patterns_dora": ("llama", dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                                    use_dora=True, rank_pattern={"v_proj": 4}, alpha_pattern={"q_proj|down_proj": 5})),
    "layers": ("llama", dict(r=2, lora_alpha=4, target_modules=LLAMA, exclude_modules=["k_proj"], layers_to_transform=[1])),
    "joined": ("phi3", dict(r=3, lora_alpha=6, target_modules=PHI3, rank_pattern={"qkv_proj": 5, "down_proj": 2},
                          alpha_pattern={"gate_up_proj": 4})),
    "joined_rsdora": ("phi3", dict(r=3, lora_alpha=6, target_modules=PHI3, use_rslora=True, use_dora=True,
                                 alpha_pattern={"qkv_proj": 5})),
    "split": ("twin", dict(r=2, lora_alpha=6, target_modules=LLAMA)),
    # As many columns of B as its three or two matrices have in all, by no common rank or scale.
    "split_patterns": ("twin", dict(r=2, lora_alpha=6, target_modules=["q_proj", "v_proj", "up_proj", "o_proj"],
                                    rank_pattern={"v_proj": 3}, alpha_pattern={"v_proj": 5, "o_proj": 1})),
    "split_rsdora": ("twin", dict(r=3, lora_alpha=6, target_modules=LLAMA, use_rslora=True, use_dora=True)),
    "neox": ("gpt_neox", dict(r=3, lora_alpha=6, target_modules=NEOX, rank_pattern={"query_key_value": 5},
                              alpha_pattern={"dense_4h_to_h": 4})),
    "neox_rsdora": ("gpt_neox", dict(r=3, lora_alpha=6, target_modules=["query_key_value", "dense"], use_rslora=True,
                                     use_dora=True, modules_to_save=["embed_in", "lm_head"])),
}


def base(name):
    torch.manual_seed(3)
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    if name == "gpt_neox":
        return neox()
    phi3 = Phi3ForCausalLM(Phi3Config(**SIZES, original_max_position_embeddings=T)).eval()
    return phi3 if name == "phi3" else twin(phi3)


def neox():
    model = GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=2, num_attention_heads=HEADS,
        max_position_embeddings=T, initializer_range=0.15, bos_token_id=None, eos_token_id=None, pad_token_id=None))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value += 0.1 * torch.randn_like(value)
    return model.eval()


def twin(phi3):
    """The same computation with a matrix for each of queries, keys, values, gate and up."""
    parts = {"qkv_proj": (["q_proj", "k_proj", "v_proj"], [WIDTH, WIDTH * KV // HEADS, WIDTH * KV // HEADS]),
             "gate_up_proj": (["gate_proj", "up_proj"], [FF, FF])}
    weights = {}
    for key, value in phi3.state_dict().items():
        fused = next((name for name in parts if name in key), None)
        if fused is None:
            weights[key] = value
        else:
            names, rows = parts[fused]
            weights |= {key.replace(fused, name): part for name, part in zip(names, value.split(rows))}
    llama = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    llama.load_state_dict(weights)
    tokens = torch.arange(VOCAB - 1)[None]
    assert (llama(tokens).logits - phi3(tokens).logits).abs().max() < 1e-6
    return llama


def joined(folder):
    numbers = load_file(HERE / "peft_patterns.safetensors")
    for adapter in sorted(pathlib.Path(folder).iterdir()):
        base = "gpt_neox" if adapter.name.startswith("neox") else "phi3"
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(HERE / base), adapter).eval()
        with torch.no_grad():
            off = model(numbers["tokens"].long()).logits - numbers[f"{adapter.name}/logits"]
            plain = model.unload()(numbers["tokens"].long()).logits - numbers[f"{adapter.name}/logits"]
        print(f"{adapter.name}: {off.abs().max():.2e}, without the adapter {plain.abs().max():.2e}")


if __name__ == "__main__":
    joined(*sys.argv[2:]) if sys.argv[1:2] == ["--joined"] else fixtures(HERE, ("llama", "phi3", "gpt_neox"), base, CASES)
