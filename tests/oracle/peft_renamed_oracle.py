"""Adapters of PEFT on classes that call matrices otherwise than llmtui, or hold several of its in one: StarCoder2 (c_fc and c_proj),
LFM2 (w1, out_proj …), Qwen 3.5 (queries and gates in q_proj), Qwen3-Next (a mixer's projections in two matrices), Granite 4 (gate and up
projections in one); and on shared experts and latent attention. For tests/oracle/peft_renamed.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors
    /tmp/oracle/bin/python tests/oracle/peft_renamed_oracle.py [NAME ...]

Writes a folder of tests/oracle/peft_renamed for each: the adapter as PEFT saves it for the folder of that name in
tests/oracle/families, and expected.safetensors with `logits` for the ids of that folder. Factors are away from where they start.
"""

import pathlib
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent
# The adapted matrices, and ranks other than 2.
CASES = {
    "starcoder2": (["q_proj", "c_fc", "c_proj"], {"c_proj": 3}),
    "lfm2": (["q_proj", "in_proj", "out_proj", "w1", "w2"], {"w2": 3}),
    "qwen3_5": (["q_proj", "in_proj_qkv", "in_proj_b", "out_proj", "o_proj", "up_proj"], {"q_proj": 3}),
    "qwen2_moe_dense": (["q_proj", "gate_proj", "up_proj", "down_proj"], {"down_proj": 3}),
    "lfm2_moe": (["q_proj", "in_proj", "out_proj", "w1", "w2"], {"w2": 3}),
    # Not down_proj: PEFT takes it for the experts of this class.
    "qwen3_next": (["q_proj", "in_proj_qkvz", "in_proj_ba", "out_proj"], {"in_proj_qkvz": 3}),
    # All of latent attention. PEFT takes the names of shared experts for those of experts, as above.
    "deepseek_v2": (["q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"], {"kv_b_proj": 3}),
    "deepseek_v3": (["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"], {"q_b_proj": 3}),
    "granite_hybrid": (["q_proj", "in_proj", "input_linear"], {"input_linear": 3}),
    "granite_hybrid_dense": (["o_proj", "in_proj", "out_proj", "input_linear", "output_linear"], {"in_proj": 3}),
    "bamba": (["q_proj", "in_proj", "out_proj", "gate_proj", "up_proj", "down_proj"], {"down_proj": 3}),
}
# Of the factors, where another one: states of mixers add up the rounding of wide changes.
WIDTH = {"qwen3_5": 0.15, "qwen3_next": 0.08, "granite_hybrid": 0.15, "granite_hybrid_dense": 0.15, "bamba": 0.08}


def write(name, targets, ranks):
    base_folder, out = HERE / "families" / name, HERE / "peft_renamed" / name
    expected = load_file(base_folder / "expected.safetensors")
    base = AutoModelForCausalLM.from_pretrained(
        base_folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    config = LoraConfig(r=2, lora_alpha=6, target_modules=targets, rank_pattern=ranks, task_type="CAUSAL_LM")
    model = get_peft_model(base, config).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "lora_" in parameter_name:
                parameter.copy_(WIDTH.get(name, 0.3) * torch.randn(parameter.shape, generator=generator))
        # In f64: of Qwen3-Next the rounding of f32 is as large as what is compared.
        logits = model.double()(expected["ids"].long()).logits.float()
        model.float()
        off = (logits - expected["logits"]).abs().max()
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    save_file({"logits": logits.contiguous()}, out / "expected.safetensors")
    print(f"{name}: the adapter moves logits by up to {off:.2f}")


for name, (targets, ranks) in CASES.items():
    if name in sys.argv[1:] or not sys.argv[1:]:
        write(name, targets, ranks)
