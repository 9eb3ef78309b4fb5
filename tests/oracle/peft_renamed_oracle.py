"""An adapter of PEFT on StarCoder2, whose class calls matrices c_fc and c_proj that llmtui has under other names, for
tests/oracle/peft_renamed.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors
    /tmp/oracle/bin/python tests/oracle/peft_renamed_oracle.py

Writes tests/oracle/peft_renamed: the adapter as PEFT saves it for tests/oracle/families/starcoder2, and expected.safetensors
with `logits` for the ids of that folder. Factors are away from where they start.
"""

import pathlib

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent
BASE, OUT = HERE / "families" / "starcoder2", HERE / "peft_renamed"

ids = load_file(BASE / "expected.safetensors")["ids"].long()
base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="eager")
config = LoraConfig(
    r=2, lora_alpha=6, target_modules=["q_proj", "c_fc", "c_proj"], rank_pattern={"c_proj": 3}, task_type="CAUSAL_LM"
)
model = get_peft_model(base, config).eval()
generator = torch.Generator().manual_seed(4)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    logits = model(ids).logits
    off = (logits - load_file(BASE / "expected.safetensors")["logits"]).abs().max()
model.peft_config["default"].base_model_name_or_path = "starcoder2"
model.save_pretrained(OUT)
(OUT / "README.md").unlink(missing_ok=True)
save_file({"logits": logits.contiguous()}, OUT / "expected.safetensors")
print(f"the adapter moves logits by up to {off:.2f}")
