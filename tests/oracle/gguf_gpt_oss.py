"""Writes a gpt-oss with MXFP4 experts as a GGUF file, with the names and keys of the `gguf` package (ggml-org/llama.cpp, gguf-py).

    pip install gguf==0.19.0 safetensors torch
    python tests/oracle/gguf_gpt_oss.py tests/oracle/packed/gpt_oss_mxfp4 tests/oracle/gguf/gpt_oss_mxfp4.gguf

As llama.cpp's converter does it: gate and up rows, which take turns in the folder, become two tensors; of the two numbers in a
byte of the folder, which follow each other, 16 bytes become the first and the second half of a block, behind its scale.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

ARCH = gguf.MODEL_ARCH.GPT_OSS


def blocks(bytes_, scales):
    """(experts, rows, groups, 16) and (experts, rows, groups) → (experts, rows, groups · 17)."""
    low, high = bytes_ & 15, bytes_ >> 4
    codes = np.stack([low, high], axis=-1).reshape(*bytes_.shape[:-1], 32)
    packed = codes[..., :16] | codes[..., 16:] << 4
    whole = np.concatenate([scales[..., None], packed], axis=-1)
    return whole.reshape(*whole.shape[:2], -1)


def main(folder, out):
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    names = gguf.get_tensor_name_map(ARCH, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[ARCH])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_sliding_window(config["sliding_window"])
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    prefix = gguf.MODEL_ARCH_NAMES[ARCH]
    writer.add_float32(f"{prefix}.rope.scaling.yarn_beta_fast", rope["beta_fast"])
    writer.add_float32(f"{prefix}.rope.scaling.yarn_beta_slow", rope["beta_slow"])
    writer.add_tokenizer_model("no_vocab")

    def put(name, values, kind=None):
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found, name
        writer.add_tensor(found, values, raw_dtype=kind)

    for name, tensor in tensors.items():
        if name.endswith("_scales"):
            continue
        values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        if "experts" not in name:
            put(f"{name}.weight" if name.endswith("sinks") else name, np.ascontiguousarray(values))
            continue
        kind, end = None, ".bias" if name.endswith("_bias") else ".weight"
        if name.endswith("_blocks"):
            values = blocks(values, tensors[name.replace("_blocks", "_scales")].numpy())
            kind = gguf.GGMLQuantizationType.MXFP4
        stem = name.split(".experts.")[0] + ".experts."
        if ".down_proj" in name:
            put(f"{stem}down_proj{end}", values, kind)
        else:
            put(f"{stem}gate_proj{end}", np.ascontiguousarray(values[:, ::2]), kind)
            put(f"{stem}up_proj{end}", np.ascontiguousarray(values[:, 1::2]), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
