"""Writes tiny models whose weights are in few bits, FP8 or MXFP4, with what transformers computes on them.

    /tmp/oracle/bin/python tests/oracle/packed_oracle.py tests/oracle/packed [NAME ...]

Each folder has config.json, model.safetensors and expected.safetensors: `ids` (B, T) and `logits` (B, T, V), and the packed
tensors as transformers dequantizes them, under their names (MXFP4: as (experts, out, in)). Where transformers needs another
package to read a format (compressed-tensors) torch converts FP8, and the numbers times their scales are those of a plain model.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.utils import logging

from families_oracle import VOCAB, randomize, rope, small

torch.set_num_threads(1)
logging.disable_progress_bar()
T = 12
FP8 = torch.float8_e4m3fn
LARGEST = 448.0
BLOCK = (16, 8)


def is_packed(name, tensor):
    return tensor.dim() == 2 and ".layers." in name and "layers.0.self_attn.k_proj" not in name


def in_blocks(weight):
    """Numbers (rows, cols) and scales (rows / 16, cols / 8)."""
    (rows, cols), (r, c) = weight.shape, BLOCK
    blocks = weight.reshape(rows // r, r, cols // c, c)
    scales = blocks.abs().amax((1, 3)) / LARGEST
    numbers = (blocks / scales[:, None, :, None]).reshape(rows, cols).to(FP8)
    return numbers, scales


def in_rows(weight):
    scales = weight.abs().amax(1, keepdim=True) / LARGEST
    return (weight / scales).to(FP8), scales


def as_one(weight):
    scales = weight.abs().amax() / LARGEST
    return (weight / scales).to(FP8), scales.reshape(1)


def fine_grained(folder):
    """transformers' FP8: in blocks."""
    config = tf.Qwen3Config(**small(hidden_size=32, intermediate_size=48, head_dim=8, rope_parameters=rope(1e6)))
    model = tf.AutoModelForCausalLM.from_config(config)
    randomize(model, 1)
    model.to(torch.bfloat16).save_pretrained(folder)
    tensors, plain = load_file(folder / "model.safetensors"), {}
    for name in [name for name, tensor in tensors.items() if is_packed(name, tensor)]:
        numbers, scales = in_blocks(tensors[name].float())
        tensors[name], tensors[f"{name}_scale_inv"] = numbers, scales.contiguous()
        plain[name] = Fp8Dequantize(None)._dequantize_one(numbers, scales, torch.float32)
    says = dict(
        quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=list(BLOCK),
        modules_to_not_convert=["lm_head", "model.layers.0.self_attn.k_proj"],
    )
    return tensors, plain, says


def compressed(pack, strategy, shape_of_static):
    """llm-compressor's FP8."""

    def write(folder):
        config = tf.LlamaConfig(**small(hidden_size=24, intermediate_size=40, num_attention_heads=3, num_key_value_heads=1))
        model = tf.AutoModelForCausalLM.from_config(config)
        randomize(model, 2)
        model.to(torch.bfloat16).save_pretrained(folder)
        tensors, plain = load_file(folder / "model.safetensors"), {}
        for name in [name for name, tensor in tensors.items() if is_packed(name, tensor)]:
            numbers, scales = pack(tensors[name].float())
            scales = scales.to(torch.bfloat16)
            tensors[name], tensors[f"{name}_scale"] = numbers, scales
            if shape_of_static:
                tensors[name.replace(".weight", ".input_scale")] = torch.full(shape_of_static, 0.01)
            plain[name] = numbers.float() * scales.float()
        weights = dict(num_bits=8, type="float", strategy=strategy, symmetric=True, dynamic=False, observer="minmax")
        says = dict(
            quant_method="compressed-tensors", format="float-quantized", quantization_status="compressed", ignore=["lm_head"],
            kv_cache_scheme=None, sparsity_config={}, transform_config={},
            config_groups=dict(group_0=dict(weights=weights, targets=["Linear"], input_activations=dict(num_bits=8, type="float"))),
        )
        return tensors, plain, says

    return write


def mxfp4(folder):
    """gpt-oss as it is published."""
    config = tf.GptOssConfig(**small(
        hidden_size=64, head_dim=8, intermediate_size=32, num_local_experts=3, num_experts_per_tok=2, sliding_window=5,
        rope_parameters=dict(
            rope_type="yarn", rope_theta=150.0, factor=4.0, original_max_position_embeddings=8, beta_fast=8.0, beta_slow=0.5,
            truncate=False,
        ),
    ))
    model = tf.AutoModelForCausalLM.from_config(config)
    randomize(model, 3)
    model.to(torch.bfloat16).save_pretrained(folder)
    tensors, plain = load_file(folder / "model.safetensors"), {}
    generator = torch.Generator().manual_seed(4)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, d_in, d_out = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (experts, d_out, d_in // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(121, 126, blocks.shape[:-1], generator=generator, dtype=torch.uint8)
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
        numbers = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        plain[name] = numbers.transpose(1, 2).contiguous()
    return tensors, plain, dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])


MODELS = {
    "qwen3_fp8": fine_grained,
    "llama_fp8_rows": compressed(in_rows, "channel", None),
    "llama_fp8_static": compressed(as_one, "tensor", (1,)),
    "gpt_oss_mxfp4": mxfp4,
}


def logits_of(name, folder, tensors, plain, ids):
    """transformers' own reading where it can, of plain numbers where it cannot."""
    if name.startswith("llama"):
        numbers = {key: tensor.float() for key, tensor in tensors.items() if not key.endswith("_scale")} | plain
        model = tf.AutoModelForCausalLM.from_config(tf.AutoConfig.from_pretrained(folder)).float()
        model.load_state_dict(numbers, strict=True)
    else:
        model, info = tf.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
        )
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        kinds = {tensor.dtype for tensor in model.state_dict().values()}
        assert kinds == {torch.float32}, kinds
    with torch.no_grad():
        return model.eval()(ids).logits.float()


def main(root, names):
    for name in names or MODELS:
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tensors, plain, says = MODELS[name](folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        path = folder / "config.json"
        config = json.loads(path.read_text())
        ids = torch.randint(0, VOCAB, (2, T), generator=torch.Generator().manual_seed(5))
        config["quantization_config"] = says
        if not name.startswith("llama"):
            path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        logits = logits_of(name, folder, tensors, plain, ids)
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        save_file({"ids": ids.float(), "logits": logits.contiguous(), **plain}, folder / "expected.safetensors")
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{name:18} {size / 1000:6.1f} kB   logits {logits.std():.2f} ±")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
