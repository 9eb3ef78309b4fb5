"""Writes a tiny random model of every Hugging Face family that llmtui reads, with what transformers computes on it.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy transformers==5.23.0 safetensors
    /tmp/oracle/bin/python tests/oracle/families_oracle.py tests/oracle/families [NAME ...]

Each folder is what `save_pretrained` of transformers writes (config.json and safetensors), plus expected.safetensors:
`ids` (B, T) and `logits` (B, T, V), both f32. Weights are drawn far wider than a fresh model's, gains and biases away
from one and zero: whatever is mistaken shows in the logits. Sequences are longer than the windows. Some folders are
rewritten by hand afterwards into what older versions of transformers wrote (`old keys`), are in half precision or in
shards. The logits are those of the weights as they stand in the file, computed in f32.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import torch
import transformers as tf
from transformers.utils import logging
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
logging.disable_progress_bar()
VOCAB, T = 64, 14
SMALL = dict(
    vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1,
    pad_token_id=None, attn_implementation="eager",
)


def small(**more):
    return {**SMALL, **more}


def rope(theta=10000.0, **more):
    return dict(rope_type="default", rope_theta=theta) | more


def old_rope(config, scaling):
    """The keys of transformers 4: rope_theta and rope_scaling beside each other, torch_dtype."""
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters["rope_theta"]
    config["rope_scaling"] = scaling
    config["torch_dtype"] = config.pop("dtype", "float32")
    config.pop("layer_types", None)
    config["transformers_version"] = "4.44.0"


# name → (config, dtype, change of config.json, shard size)
def families():
    yarn = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=32.0, beta_slow=1.0)
    llama3 = rope(
        500.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64,
    )
    yield "gpt2", tf.GPT2Config(
        vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=4, n_positions=16, n_inner=None, bos_token_id=0, eos_token_id=1,
        attn_implementation="eager",
    ), torch.float32, None, None
    yield "llama", tf.LlamaConfig(**small()), torch.float32, None, "8KB"
    yield "llama3", tf.LlamaConfig(**small(rope_parameters=llama3, head_dim=8, max_position_embeddings=128)), torch.bfloat16, None, None
    yield "llama_linear", tf.LlamaConfig(
        **small(rope_parameters=rope(rope_type="linear", factor=2.5), attention_bias=True)
    ), torch.float32, lambda c: old_rope(c, {"type": "linear", "factor": 2.5}), None
    yield "llama_yarn", tf.LlamaConfig(**small(rope_parameters=yarn)), torch.float32, None, None
    yield "smollm", tf.LlamaConfig(
        **small(tie_word_embeddings=True, num_attention_heads=3, num_key_value_heads=1, hidden_size=24)
    ), torch.float16, lambda c: old_rope(c, None), None
    yield "mistral", tf.MistralConfig(**small(sliding_window=5)), torch.float32, lambda c: old_rope(c, None), None
    yield "qwen2", tf.Qwen2Config(
        **small(tie_word_embeddings=True, rope_parameters=rope(1e6), sliding_window=5, use_sliding_window=False)
    ), torch.float32, None, None
    yield "qwen3", tf.Qwen3Config(**small(head_dim=8, rope_parameters=rope(1e6))), torch.float32, None, None
    yield "gemma2", tf.Gemma2Config(
        **small(
            num_hidden_layers=4, head_dim=6, query_pre_attn_scalar=10, sliding_window=5, attn_logit_softcapping=5.0,
            final_logit_softcapping=4.0, tie_word_embeddings=True,
        )
    ), torch.float32, None, None
    yield "gemma3", tf.Gemma3TextConfig(
        **small(
            num_hidden_layers=7, head_dim=6, query_pre_attn_scalar=10, sliding_window=5, num_key_value_heads=1,
            rope_parameters={
                "full_attention": rope(1e6, rope_type="linear", factor=8.0),
                "sliding_attention": rope(),
            },
            tie_word_embeddings=True,
        )
    ), torch.float32, None, None
    yield "phi3", tf.Phi3Config(
        **small(sliding_window=5, rope_parameters=rope(partial_rotary_factor=0.5))
    ), torch.float32, None, None
    yield "mixtral", tf.MixtralConfig(
        **small(num_local_experts=4, num_experts_per_tok=2, sliding_window=None, intermediate_size=20)
    ), torch.float32, None, None
    yield "qwen3_moe", tf.Qwen3MoeConfig(
        **small(
            head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True,
            decoder_sparse_step=1, mlp_only_layers=[],
        )
    ), torch.float32, None, None


    # Whole heads rotated: Mistral's computation under names of its own (Phi-3-mini-4k, Phi-4).
    yield "phi3_whole", tf.Phi3Config(
        **small(sliding_window=5, original_max_position_embeddings=32)
    ), torch.float32, None, None


    # Texts longer than the original context take the long list.
    long = rope(
        rope_type="longrope", short_factor=[1.0, 1.1], long_factor=[1.5, 4.0], original_max_position_embeddings=8,
    )
    yield "phi3_long", tf.Phi3Config(
        **small(sliding_window=None, original_max_position_embeddings=8, rope_parameters=long)
    ), torch.float32, None, None


    # Blocks without position encoding: every 4th, and every 3rd beside windows in all blocks but every 2nd.
    yield "smollm3", tf.SmolLM3Config(
        **small(num_hidden_layers=8, rope_parameters=rope(100.0), tie_word_embeddings=True)
    ), torch.float32, None, None
    yield "smollm3_window", tf.SmolLM3Config(
        **small(
            num_hidden_layers=6, no_rope_layer_interval=3, rope_parameters=yarn, attention_bias=True, mlp_bias=True,
            use_sliding_window=True, sliding_window=5, layer_types=["sliding_attention", "full_attention"] * 3,
        )
    ), torch.float32, None, None
    yield "granite", tf.GraniteConfig(
        **small(
            embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=1.6,
            tie_word_embeddings=True,
        )
    ), torch.float32, None, None
    # The activation's name in the first files, which means the tanh approximation.
    yield "gemma", tf.GemmaConfig(
        **small(head_dim=6, num_key_value_heads=1, tie_word_embeddings=True)
    ), torch.float32, lambda c: c.update(hidden_act="gelu"), None
    yield "starcoder2", tf.Starcoder2Config(
        **small(sliding_window=5, tie_word_embeddings=True, norm_epsilon=1e-4, rope_parameters=rope(1e5))
    ), torch.float32, None, None


    # A parallel residual and a sequential one; the second as transformers 4 wrote it, with another share of a head rotated.
    neox = dict(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=32, bos_token_id=0, eos_token_id=0, attn_implementation="eager",
    )
    yield "gpt_neox", tf.GPTNeoXConfig(**neox, rope_parameters=rope(partial_rotary_factor=0.25)), torch.float32, None, None
    yield "gpt_neox_sequential", tf.GPTNeoXConfig(
        **neox, use_parallel_residual=False, hidden_act="gelu_new", rope_parameters=rope(500.0, partial_rotary_factor=0.5)
    ), torch.float32, old_neox, None
    yield "gpt_neo", tf.GPTNeoConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_layers=4, num_heads=4, max_position_embeddings=16,
        attention_types=[[["global", "local"], 2]], window_size=5, bos_token_id=0, eos_token_id=0, attn_implementation="eager",
    ), torch.float32, None, None
    yield "stablelm", tf.StableLmConfig(
        **small(use_qkv_bias=True, num_attention_heads=2, num_key_value_heads=1, rope_parameters=rope(partial_rotary_factor=0.25))
    ), torch.float32, None, None
    yield "olmo2", tf.Olmo2Config(**small(rope_parameters=rope(500000.0))), torch.float32, None, None
    # A window in three of four blocks, which the scaling leaves out.
    yield "olmo3", tf.Olmo3Config(
        **small(
            num_hidden_layers=5, sliding_window=5,
            rope_parameters={
                "full_attention": {**yarn, "rope_theta": 500000.0},
                "sliding_attention": rope(500000.0),
            },
        )
    ), torch.float32, None, None


    # Convolutions in place of attention in most blocks, as the published files state them; and with biases and keys of
    # transformers 5.
    hybrid = dict(num_key_value_heads=2, pad_token_id=None, rope_parameters=rope(1e6))
    yield "lfm2", tf.Lfm2Config(
        **small(
            num_hidden_layers=5, tie_word_embeddings=True, layer_types=["conv", "conv", "full_attention", "conv", "full_attention"],
            block_multiple_of=10, **hybrid,
        )
    ), torch.float32, old_lfm2, None
    yield "lfm2_bias", tf.Lfm2Config(
        **small(
            num_hidden_layers=3, layer_types=["full_attention", "conv", "conv"], conv_bias=True, conv_L_cache=5,
            block_auto_adjust_ff_dim=False, **hybrid,
        )
    ), torch.float32, None, None


    # Gated delta nets and gated attention: with a key head for two value heads each, and as a part of a model with vision, as the
    # published files are.
    delta = dict(head_dim=32, linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4)
    yield "qwen3_5", tf.Qwen3_5TextConfig(
        **small(
            num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4,
            rope_parameters=rope(1e7, partial_rotary_factor=0.25), **delta,
        )
    ), torch.float32, None, None
    vision = dict(
        depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=16, patch_size=2, temporal_patch_size=1,
        spatial_merge_size=1, num_position_embeddings=4,
    )
    text = small(
        num_hidden_layers=3, tie_word_embeddings=True, attention_bias=True, linear_num_key_heads=3, linear_num_value_heads=3,
        layer_types=["linear_attention", "full_attention", "full_attention"],
        rope_parameters=rope(1e7, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True),
        **delta | dict(linear_value_head_dim=4),
    )
    yield "qwen3_5_vision", tf.Qwen3_5Config(
        text_config=text, vision_config=vision, tie_word_embeddings=True, image_token_id=60, video_token_id=61,
        vision_start_token_id=62, vision_end_token_id=63, attn_implementation="eager",
    ), torch.bfloat16, published_qwen, None


    # A shared expert with its gate, and in one block of three a feed-forward block in place of experts.
    shared = dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20,
    )
    yield "qwen2_moe", tf.Qwen2MoeConfig(**small(rope_parameters=rope(1e6), **shared)), torch.float32, None, None
    yield "qwen2_moe_dense", tf.Qwen2MoeConfig(
        **small(num_hidden_layers=3, mlp_only_layers=[1], norm_topk_prob=True, rope_parameters=rope(1e6), **shared)
    ), torch.float32, None, None
    # The same beside gated delta nets: all parts of a mixer's input in two matrices; and as a part of a model with vision, whose
    # published files hold the experts of a block in two tensors.
    yield "qwen3_next", tf.Qwen3NextConfig(
        **small(
            num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4, norm_topk_prob=True,
            rope_parameters=rope(1e7, partial_rotary_factor=0.25), **shared, **delta,
        )
    ), torch.float32, None, None
    yield "qwen3_5_moe", tf.Qwen3_5MoeTextConfig(
        **small(
            num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4,
            rope_parameters=rope(1e7, partial_rotary_factor=0.25), **shared, **delta,
        )
    ), torch.float32, None, None
    text = small(
        num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
        linear_num_value_heads=2, rope_parameters=rope(1e7, partial_rotary_factor=0.5, mrope_section=[6, 1, 1], mrope_interleaved=True),
        **shared, **delta,
    )
    yield "qwen3_5_moe_vision", tf.Qwen3_5MoeConfig(
        text_config=text, vision_config=vision, image_token_id=60, video_token_id=61,
        vision_start_token_id=62, vision_end_token_id=63, attn_implementation="eager",
    ), torch.bfloat16, published_qwen, None
    yield "olmoe", tf.OlmoeConfig(
        **small(num_experts=4, num_experts_per_tok=2, intermediate_size=12, num_key_value_heads=4)
    ), torch.float32, None, None
    yield "granitemoe", tf.GraniteMoeConfig(
        **small(
            embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=1.6,
            tie_word_embeddings=True, num_local_experts=4, num_experts_per_tok=2, intermediate_size=12,
        )
    ), torch.float32, None, None
    # Sigmoid scores with biases for the choice, and first blocks without experts.
    yield "lfm2_moe", tf.Lfm2MoeConfig(
        **small(
            num_hidden_layers=4, tie_word_embeddings=True, layer_types=["conv", "conv", "full_attention", "conv"],
            num_dense_layers=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, **hybrid,
        )
    ), torch.float32, None, None
    yield "lfm2_moe_scaled", tf.Lfm2MoeConfig(
        **small(
            num_hidden_layers=3, layer_types=["full_attention", "conv", "conv"], num_dense_layers=1, num_experts=5,
            num_experts_per_tok=3, moe_intermediate_size=12, use_expert_bias=False, norm_topk_prob=False,
            routed_scaling_factor=1.5, **hybrid,
        )
    ), torch.float32, None, None


    # Latent attention: queries from the block's input as in V2-Lite, with the keys of its published file, and from a latent vector, with
    # experts in groups and values wider than keys.
    latent = dict(
        num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5,
        n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1,
    )
    lite = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=32.0, beta_slow=1.0, mscale=0.707, mscale_all_dim=0.707)
    yield "deepseek_v2", tf.DeepseekV2Config(
        **small(**latent, q_lora_rank=None, rope_parameters=rope(**lite))
    ), torch.float32, old_deepseek, None
    yield "deepseek_v2_groups", tf.DeepseekV2Config(
        **small(**latent | dict(
            q_lora_rank=10, v_head_dim=12, topk_method="group_limited_greedy", n_group=3, topk_group=2, num_experts_per_tok=3,
            routed_scaling_factor=4.0, first_k_dense_replace=0, n_shared_experts=1,
        ))
    ), torch.float32, None, None
    # Sigmoid scores with biases for the choice; the two weights of the logarithm differ. The second is Moonlight: one group, and another
    # epsilon in the norms than in those of latent vectors.
    yield "deepseek_v3", tf.DeepseekV3Config(
        **small(**latent | dict(
            q_lora_rank=10, n_group=3, topk_group=2, routed_scaling_factor=2.5, n_shared_experts=1,
            rope_parameters=rope(500.0, **lite | dict(mscale=1.0, mscale_all_dim=0.6)),
        ))
    ), torch.float32, None, None
    yield "deepseek_v3_one_group", tf.DeepseekV3Config(
        **small(**latent | dict(
            q_lora_rank=None, n_group=1, topk_group=1, routed_scaling_factor=2.446, rms_norm_eps=0.05, rope_parameters=rope(50000.0),
        ))
    ), torch.bfloat16, None, None
    yield "glm4_moe_lite", tf.Glm4MoeLiteConfig(
        **small(**{key: latent[key] for key in latent if key != "first_k_dense_replace"} | dict(
            q_lora_rank=10, v_head_dim=10, routed_scaling_factor=1.8, n_shared_experts=1, mlp_layer_types=["dense", "sparse", "sparse"],
            rope_parameters=rope(1e6),
        ))
    ), torch.float32, None, None
    # Sinks, windows in every other block, experts with biases; limits that values reach.
    oss = dict(
        hidden_size=24, head_dim=8, num_local_experts=4, num_experts_per_tok=2, intermediate_size=20, sliding_window=5,
        rope_parameters=dict(
            rope_type="yarn", rope_theta=150.0, factor=4.0, original_max_position_embeddings=8, beta_fast=8.0, beta_slow=0.5,
            truncate=False,
        ),
    )
    yield "gpt_oss", tf.GptOssConfig(
        **small(**oss, num_hidden_layers=3, swiglu_limit=1.5, swiglu_alpha=1.2)
    ), torch.float32, None, "16KB"
    # The bounds of the published ramp, whose end lies between two pairs.
    usual = dict(original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0)
    yield "gpt_oss_published", tf.GptOssConfig(
        **small(**oss | dict(rope_parameters=oss["rope_parameters"] | usual), max_position_embeddings=256)
    ), torch.bfloat16, published_gpt_oss, None


def old_deepseek(config):
    """The keys of the published DeepSeek-V2-Lite, among them many that no class reads."""
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    config |= dict(
        rope_scaling=scaling, aux_loss_alpha=0.001, ep_size=1, moe_layer_freq=1, n_group=1, topk_group=1, scoring_func="softmax",
        seq_aux=True, topk_method="greedy", torch_dtype=config.pop("dtype"), transformers_version="4.33.1",
    )
    for key in ("head_dim", "qk_head_dim", "mlp_bias"):
        config.pop(key, None)


    # Mamba 2 in most blocks: with experts and no positions as the published hybrids, with the old words and an infinite limit;
    # dense, with two groups, biases and limits; and attention alone, which rotates.
    scales = dict(embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=1.6)
    mamba = dict(mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=4)
    yield "granite_hybrid", tf.GraniteMoeHybridConfig(
        **small(
            num_hidden_layers=4, tie_word_embeddings=True, num_local_experts=4, num_experts_per_tok=2, intermediate_size=12,
            shared_intermediate_size=20, layer_types=["mamba", "mamba", "attention", "mamba"], mamba_n_heads=4,
            mamba_d_head=8, mamba_d_state=6, position_embedding_type="nope", **scales, **mamba,
        )
    ), torch.float32, published_granite, None
    yield "granite_hybrid_dense", tf.GraniteMoeHybridConfig(
        **small(
            num_hidden_layers=3, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=24,
            layer_types=["attention", "mamba", "mamba"], mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=5,
            mamba_proj_bias=True, time_step_limit=[0.5, 1.25], position_embedding_type="rope", **scales, **mamba,
        )
    ), torch.float32, None, None
    yield "granite_hybrid_attention", tf.GraniteMoeHybridConfig(
        **small(
            num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=24, layer_types=["attention"] * 2,
            position_embedding_type="rope", tie_word_embeddings=True, mamba_n_heads=4, **scales, **mamba,
        )
    ), torch.bfloat16, published_granite, None
    yield "granite_shared", tf.GraniteMoeSharedConfig(
        **small(num_local_experts=4, num_experts_per_tok=2, intermediate_size=12, shared_intermediate_size=20, **scales)
    ), torch.float32, None, None
    yield "bamba", tf.BambaConfig(
        **small(
            num_hidden_layers=3, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_state=6, mamba_n_groups=2,
            rope_parameters=rope(partial_rotary_factor=0.5), **mamba,
        )
    ), torch.float32, None, None


def published_gpt_oss(config):
    """The keys of gpt-oss-20b."""
    table = config["rope_parameters"]
    old_rope(config, {key: value for key, value in table.items() if key != "rope_theta"})
    del config["swiglu_alpha"]
    config |= dict(
        experts_per_token=config["num_experts_per_tok"], initial_context_length=table["original_max_position_embeddings"],
        router_aux_loss_coef=0.9, transformers_version="4.55.0.dev0",
    )


def old_neox(config):
    parameters = config.pop("rope_parameters")
    config["rotary_emb_base"] = parameters["rope_theta"]
    config["rotary_pct"] = parameters["partial_rotary_factor"]
    config["torch_dtype"] = config.pop("dtype", "float32")
    config["transformers_version"] = "4.24.0"
    for key in ("attention_bias", "classifier_dropout", "rope_scaling"):
        config.pop(key, None)


def old_lfm2(config):
    """The keys of the first files, among them many that no class reads."""
    attention = [at for at, kind in enumerate(config.pop("layer_types")) if kind != "conv"]
    width = config["hidden_size"]
    config |= dict(
        full_attn_idxs=attention, block_ff_dim=config.pop("intermediate_size"), rope_theta=config.pop("rope_parameters")["rope_theta"],
        block_dim=width, block_mlp_init_scale=1.0, block_norm_eps=1e-5, block_out_init_scale=1.0, block_use_swiglu=True,
        block_use_xavier_init=True, conv_dim=width, conv_dim_out=width, conv_use_xavier_init=True,
        num_heads=config["num_attention_heads"], theta=1e6, use_pos_enc=True, torch_dtype=config.pop("dtype"),
    )
    config.pop("tie_word_embeddings")
    config["transformers_version"] = "4.54.0.dev0"


def published_granite(config):
    """The words and keys of transformers 4."""
    words = {"linear_attention": "mamba", "full_attention": "attention"}
    config["layer_types"] = [words[word] for word in config["layer_types"]]
    config["rope_theta"] = config.pop("rope_parameters", {}).get("rope_theta", 10000)
    config |= dict(rope_scaling=None, normalization_function="rmsnorm", init_method="mup", torch_dtype=config.pop("dtype"))
    config.pop("time_step_limit", None)
    config["transformers_version"] = "4.56.0"


def published_qwen(config):
    """What the published files have and no class reads; the head that predicts tokens further ahead is `mtp` in their tensors."""
    config["text_config"] |= dict(
        attn_output_gate=True, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
        partial_rotary_factor=0.5, full_attention_interval=4,
    )


def add_mtp(folder):
    """Two tensors of the head that predicts tokens further ahead, which transformers leaves out."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    width = tensors["model.language_model.norm.weight"].shape[0]
    generator = torch.Generator().manual_seed(7)
    for name, shape in (("mtp.norm.weight", (width,)), ("mtp.fc.weight", (width, 2 * width))):
        tensors[name] = torch.randn(shape, generator=generator).to(torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})


def fuse_experts(folder):
    """One tensor of gate and up projections and one of down projections for all experts of a block, as the published files have."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    experts = {}
    for name in [name for name in tensors if ".mlp.experts." in name and name.endswith("_proj.weight")]:
        stem, number, part = re.fullmatch(r"(.*[.]experts)[.](\d+)[.](\w+)[.]weight", name).groups()
        experts.setdefault(stem, {}).setdefault(int(number), {})[part] = tensors.pop(name)
    for stem, of in experts.items():
        parts = [of[number] for number in sorted(of)]
        tensors[f"{stem}.gate_up_proj"] = torch.stack([torch.cat([part["gate_proj"], part["up_proj"]]) for part in parts])
        tensors[f"{stem}.down_proj"] = torch.stack([part["down_proj"] for part in parts])
    save_file(tensors, path, metadata={"format": "pt"})


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        norm = "norm" in name or ".ln_" in name
        # Gemma and Qwen 3.5 keep the gain less one, but not in a delta net.
        less_one = any(part in type(model).__name__ for part in ("Gemma", "Qwen3_5", "Qwen3Next")) and "linear_attn" not in name
        with torch.no_grad():
            if norm and name.endswith("weight"):
                parameter.copy_((0.0 if less_one else 1.0) + 0.3 * noise)
            elif name.endswith("A_log"):
                # Decays from near 1 to near 0.
                parameter.copy_(noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * noise)
            else:
                parameter.copy_(noise * (0.6 if "embed" in name or "wte" in name else 0.35))


    for name, buffer in model.named_buffers():
        # Biases of experts for the choice: no parameter.
        if name.endswith(("expert_bias", "correction_bias")):
            with torch.no_grad():
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))


def main(root, names):
    for seed, (name, config, dtype, change, shard) in enumerate(families()):
        if names and name not in names:
            continue
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.manual_seed(seed)
        # The class of a model with vision, of which the text alone counts here.
        made_by = tf.AutoModelForImageTextToText if name.endswith("_vision") else tf.AutoModelForCausalLM
        model = made_by.from_config(config)
        randomize(model, seed)
        model = model.to(dtype)
        model.config.dtype = dtype
        model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        if change:
            path = folder / "config.json"
            said = json.loads(path.read_text())
            change(said)
            path.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
        if name.endswith("_vision"):
            add_mtp(folder)
        if name == "qwen3_5_moe_vision":
            fuse_experts(folder)
        back, info = made_by.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        assert not info["missing_keys"] and not info["unexpected_keys"], (name, info)
        ids = torch.randint(0, VOCAB, (2, T), generator=torch.Generator().manual_seed(1000 + seed))
        with torch.no_grad():
            logits = back.eval()(ids).logits
            same = model.float().eval()(ids).logits
        # A model that was in half precision has rounded its rotary frequencies too: only the folder's logits count.
        assert dtype != torch.float32 or torch.equal(logits, same), name
        save_file({"ids": ids.float(), "logits": logits.contiguous()}, folder / "expected.safetensors")
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{name:14} {size / 1000:6.1f} kB   logits {logits.std():.2f} ± , largest {logits.abs().max():.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
