"""Stretches the positions of two tiny models with transformers, for tests/oracle/context.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers safetensors
    /tmp/oracle/bin/python tests/oracle/context_oracle.py tests/oracle/context

MODEL/ is a Llama or Qwen 3 of 32 positions, as transformers writes it. MODEL.safetensors has a text of 100 tokens and, of each
scaling to 128 positions, the logits of the same weights there and gradients of the mean loss; its metadata holds the config.json
of each. NTK-aware scaling is no type of transformers' (`dynamic` depends on the text): its base is computed here by the formula.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

torch.set_num_threads(1)

ORIGINAL, LONG, TOKENS, HEAD_DIM, THETA = 32, 128, 100, 16, 10000.0
FACTOR = LONG / ORIGINAL
SIZES = dict(
    vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    head_dim=HEAD_DIM, tie_word_embeddings=False, initializer_range=0.2, bos_token_id=None, eos_token_id=None, pad_token_id=None,
)
MODELS = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
LISTS = {
    "short_factor": [1.0] * (HEAD_DIM // 2),
    "long_factor": [1.0, 1.1, 1.3, 1.7, 2.2, 2.9, 3.5, 4.0],
}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": FACTOR},
    "ntk": {"rope_type": "default", "rope_theta": THETA * FACTOR ** (HEAD_DIM / (HEAD_DIM - 2))},
    "yarn": {"rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": ORIGINAL},
    "yarn_bounds": {
        "rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": ORIGINAL, "beta_fast": 4.0, "beta_slow": 0.5,
        "attention_factor": 1.3,
    },
    "llama3": {
        "rope_type": "llama3", "factor": FACTOR, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "longrope": {"rope_type": "longrope", "factor": FACTOR, "original_max_position_embeddings": ORIGINAL, **LISTS},
}
GRADIENTS = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight", "model.embed_tokens.weight"]


def main(folder):
    for name, (config_of, model_of) in MODELS.items():
        torch.manual_seed(7)
        rope = {"rope_type": "default", "rope_theta": THETA}
        base = model_of(config_of(**SIZES, max_position_embeddings=ORIGINAL, rope_parameters=rope)).eval()
        base.save_pretrained(folder / name)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        ids = torch.randint(0, SIZES["vocab_size"], (1, TOKENS + 1))
        tensors, configs = {"ids": ids.float()}, {}
        for kind, scaling in SCALINGS.items():
            config = config_of(**SIZES, max_position_embeddings=LONG, rope_parameters={"rope_theta": THETA, **scaling})
            model = model_of(config).eval()
            model.load_state_dict(base.state_dict())
            logits = model(ids[:, :-1]).logits
            F.cross_entropy(logits[0], ids[0, 1:]).backward()
            tensors[f"{kind}.logits"] = logits[0].detach()
            weights = dict(model.named_parameters())
            for at in GRADIENTS:
                tensors[f"{kind}.grad.{at}"] = weights[at].grad.clone()
            configs[kind] = config.to_json_string()
        tensors = {key: value.contiguous() for key, value in tensors.items()}
        save_file(tensors, folder / f"{name}.safetensors", metadata={"configs": json.dumps(configs)})


main(Path(sys.argv[1]))
