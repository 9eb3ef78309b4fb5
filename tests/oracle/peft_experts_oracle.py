"""Adapters of experts as PEFT saves them (`target_parameters`), with their logits, gradients and merged logits, for
tests/oracle/peft_experts.rs to compare with. The bases are those of tests/oracle/families.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors
    /tmp/oracle/bin/python tests/oracle/peft_experts_oracle.py

Writes tests/oracle/peft_experts: every folder is an adapter, `peft_experts.safetensors` holds the numbers, named as those of
peft_oracle.py.

    /tmp/oracle/bin/python tests/oracle/peft_experts_oracle.py --check BASE ADAPTER TOKENS

loads a base and an adapter with PEFT and prints the last row of logits: the way back.
"""

import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from peft_oracle import check
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
ORACLE = pathlib.Path(__file__).parent
HERE = ORACLE / "peft_experts"
VOCAB, B, T = 64, 2, 10


def both(path):
    return [f"{path}.gate_up_proj", f"{path}.down_proj"]


CASES = {
    "attention_too": ("qwen3_moe", dict(r=3, lora_alpha=6, target_modules=["q_proj", "o_proj"],
                                        target_parameters=both("mlp.experts"))),
    "rslora": ("mixtral", dict(r=3, lora_alpha=6, target_modules=[], target_parameters=both("mlp.experts"), use_rslora=True,
                               rank_pattern={"experts.down_proj": 2})),
    "in_turns": ("gpt_oss", dict(r=2, lora_alpha=3, target_modules=["v_proj"], target_parameters=both("mlp.experts"))),
    "feed_forward": ("lfm2_moe", dict(r=2, lora_alpha=3, target_modules=[],
                                      target_parameters=both("feed_forward.experts"))),
    "block_sparse": ("granitemoe", dict(r=2, lora_alpha=3, target_modules=[],
                                        target_parameters=both("block_sparse_moe.experts"))),
    "latent": ("deepseek_v3", dict(r=9, lora_alpha=9, target_modules=["o_proj"], target_parameters=both("mlp.experts"))),
    "one": ("qwen3_moe", dict(r=2, lora_alpha=4, target_modules=[], target_parameters=["mlp.experts.down_proj"])),
}


def main():
    torch.manual_seed(5)
    tokens, targets = torch.randint(VOCAB, (B, T)), torch.randint(VOCAB, (B, T))
    numbers = {"tokens": tokens.to(torch.uint32), "targets": targets.to(torch.uint32)}
    shutil.rmtree(HERE, ignore_errors=True)
    for case, (name, config) in CASES.items():
        base = AutoModelForCausalLM.from_pretrained(ORACLE / "families" / name, dtype=torch.float32)
        model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config))
        torch.manual_seed(7)
        with torch.no_grad():
            for value in model.parameters():
                if value.requires_grad:
                    value += 0.1 * torch.randn_like(value)
        model.eval()
        logits = model(tokens).logits
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        numbers[f"{case}/logits"] = logits.detach()
        # The values of the file, with gradients in their places.
        trained = [value for value in model.parameters() if value.grad is not None]
        for value in trained:
            value.data, value.grad = value.grad.clone(), value.data.clone()
        for key, value in get_peft_model_state_dict(model).items():
            numbers[f"{case}/grad.{key}"] = value
        for value in trained:
            value.data, value.grad = value.grad.clone(), None
        model.peft_config["default"].base_model_name_or_path = None
        model.save_pretrained(HERE / case)
        (HERE / case / "README.md").unlink(missing_ok=True)
        numbers[f"{case}/merged"] = model.merge_and_unload()(tokens).logits.detach()
    save_file({key: value.contiguous() for key, value in numbers.items()}, HERE / f"{HERE.name}.safetensors",
              {"format": "pt"})


if __name__ == "__main__":
    check(*sys.argv[2:]) if sys.argv[1:2] == ["--check"] else main()
