"""Adapters as PEFT saves them, with their logits, gradients and merged logits, for tests/oracle/peft.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers==5.23.0 peft==0.21.2 safetensors
    /tmp/oracle/bin/python tests/oracle/peft_oracle.py

Writes tests/oracle/peft: `llama` and `gpt2` are the bases, every other folder is an adapter, `peft.safetensors` holds the
numbers. Everything is f32 on one thread, dropout is off, factors and magnitudes are away from where they start. The loss is
the mean negative log-likelihood of `targets`; gradients are called CASE/grad.NAME with the names of the adapter's file.

    /tmp/oracle/bin/python tests/oracle/peft_oracle.py --check BASE ADAPTER TOKENS

loads a base and an adapter with PEFT and prints the last row of logits: the way back.
"""

import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent / "peft"
VOCAB, B, T = 11, 2, 10
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "lora": ("llama", dict(r=3, lora_alpha=6, target_modules=LLAMA)),
    "rslora": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    "dora": ("llama", dict(r=3, lora_alpha=6, target_modules=LLAMA, use_dora=True)),
    "dora_part": ("llama", dict(r=2, lora_alpha=3, target_modules=["v_proj", "down_proj"], use_dora=True)),
    "saved": ("llama", dict(r=2, lora_alpha=2, target_modules=["q_proj", "o_proj"],
                            modules_to_save=["embed_tokens", "lm_head"])),
    "one_layer": ("llama", dict(r=2, lora_alpha=2, target_modules=["model.layers.1.self_attn.q_proj",
                                                                 "model.layers.0.mlp.up_proj"])),
    "dora_gpt2": ("gpt2", dict(r=3, lora_alpha=6, target_modules=["c_attn", "mlp.c_proj"], use_dora=True,
                               fan_in_fan_out=True)),
}


def base(name):
    torch.manual_seed(3)
    if name == "llama":
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=VOCAB, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=T, tie_word_embeddings=False, initializer_range=0.15,
            bos_token_id=None, eos_token_id=None))
    else:
        model = GPT2LMHeadModel(GPT2Config(
            vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=T, initializer_range=0.15, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None))
    return model.eval()


def fixtures(here, names, base, cases):
    """Bases by their names, and of each case the adapter, logits, gradients and merged logits, written anew below `here`."""
    torch.manual_seed(5)
    tokens, targets = torch.randint(VOCAB, (B, T)), torch.randint(VOCAB, (B, T))
    numbers = {"tokens": tokens.to(torch.uint32), "targets": targets.to(torch.uint32)}
    shutil.rmtree(here, ignore_errors=True)
    for name in names:
        base(name).save_pretrained(here / name)
    for case, (name, config) in cases.items():
        model = get_peft_model(base(name), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config))
        torch.manual_seed(7)
        with torch.no_grad():
            for key, value in model.named_parameters():
                if value.requires_grad:
                    value += 0.1 * torch.randn_like(value)
        model.eval()
        logits = model(tokens).logits
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        numbers[f"{case}/logits"] = logits.detach()
        # The values of the file, with gradients in their places.
        for key, value in model.named_parameters():
            if value.grad is not None:
                value.data, value.grad = value.grad.clone(), value.data.clone()
        for key, value in get_peft_model_state_dict(model).items():
            numbers[f"{case}/grad.{key}"] = value
        for key, value in model.named_parameters():
            if value.grad is not None:
                value.data, value.grad = value.grad.clone(), None
        model.peft_config["default"].base_model_name_or_path = None
        model.save_pretrained(here / case)
        (here / case / "README.md").unlink(missing_ok=True)
        numbers[f"{case}/merged"] = model.merge_and_unload()(tokens).logits.detach()
    save_file({key: value.contiguous() for key, value in numbers.items()}, here / f"{here.name}.safetensors",
              {"format": "pt"})


def check(at, adapter, tokens):
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(at), adapter).eval()
    ids = torch.tensor([[int(word) for word in tokens.split(",")]])
    print(*(f"{x:.6f}" for x in model(ids).logits[0, -1].tolist()))


if __name__ == "__main__":
    check(*sys.argv[2:]) if sys.argv[1:2] == ["--check"] else fixtures(HERE, ("llama", "gpt2"), base, CASES)
