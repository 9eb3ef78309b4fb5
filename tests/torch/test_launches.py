"""How many kernels a rank launches: on a GPU small ones end before the processor has launched the next (20 to 30 µs each were seen).

    PYTHONPATH=assets/torch_worker /path/to/venv/bin/python -m unittest -v tests/torch/test_launches.py

Counted on the processor, views left out. RMSNorm counts as the one kernel each way that it is on a GPU.
"""

from __future__ import annotations

import unittest
from collections import Counter
from typing import Any
from unittest import mock

try:
    import torch
    import torch.nn.functional as F
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.texts import Texts
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""

    class Launches(TorchDispatchMode):
        """Counts operations, without what only looks at memory in another way."""

        VIEWS = frozenset(
            "view _unsafe_view transpose t permute slice select split split_with_sizes expand unsqueeze squeeze detach alias "
            "as_strided empty empty_like new_empty".split()
        )

        def __init__(self) -> None:
            super().__init__()
            self.counted: Counter[str] = Counter()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name.split("::")[1]
            if name not in self.VIEWS:
                self.counted[name] += 1
            return func(*args, **(kwargs or {}))

    class OneEachWay(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
            ctx.save_for_backward(gain)
            return x * gain

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            (gain,) = ctx.saved_tensors
            return grad * gain, torch.zeros_like(gain)


VOCAB, WIDTH, HEADS, KV, INNER, CONTEXT = 64, 32, 4, 2, 64, 16
MATRICES = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH // 2, WIDTH),
    "self_attn.v_proj": (WIDTH // 2, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (INNER, WIDTH),
    "mlp.up_proj": (INNER, WIDTH),
    "mlp.down_proj": (WIDTH, INNER),
}


def described(layers: int, lora: bool) -> dict[str, Any]:
    """A decoder of Llama's kind, of all weights or under adapters of all matrices."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}{name}_layernorm.weight": (WIDTH,) for name in ("input", "post_attention")}
        for name, (rows, columns) in MATRICES.items():
            shapes[f"{at}{name}.weight"] = (rows, columns)
            if lora:
                shapes |= {f"{at}{name}.lora_A.weight": (4, columns), f"{at}{name}.lora_B.weight": (rows, 4)}
    rotation = {"frequencies": [1.0, 0.1, 0.01, 0.001], "factor": 1.0}
    config: dict[str, Any] = {
        "norm": {"rmsnorm": {"eps": 1e-5}},
        "norm_placement": "pre",
        "qk_norm": False,
        "position": {"rope": {}},
        "mlp": {"swiglu": {}},
        "dropout": 0.0,
    }
    unset = ("global_every", "sliding_window", "attention_scale", "attention_softcap", "embedding_scale", "logit_softcap")
    return {
        "params": [{"name": name, "shape": list(s), "grad": 0 if not lora or "lora" in name else None} for name, s in shapes.items()],
        "shape": {"n_layer": layers, "n_head": HEADS, "n_kv_head": KV, "head_dim": WIDTH // HEADS, "d_model": WIDTH, "seq_len": CONTEXT},
        "config": config | dict.fromkeys(unset),
        "rotations": [rotation, rotation],
        "slopes": None,
        "waves": False,
        "adapter": {"scales": {name.removesuffix(".weight"): 2.0 for name in shapes}, "dropout": 0.05 if lora else 0.0},
        "recompute": False,
    }


@unittest.skipIf(MISSING, MISSING)
class Counts(unittest.TestCase):
    """Of one layer: what two layers have more than one."""

    def layer(self, work: Any) -> int:
        few, more = (work(layers) for layers in (1, 2))
        print(f"{self.id().rpartition('.')[2]}: {sum((more - few).values())} {dict((more - few).most_common(9))}")
        return sum((more - few).values())

    def train(self, layers: int, *, lora: bool) -> Counter[str]:
        decoder = Decoder(described(layers, lora), torch.device("cpu"), torch.bfloat16).train()
        ids = torch.zeros(2, CONTEXT, dtype=torch.long)
        with mock.patch.object(F, "rms_norm", lambda x, shape, gain, eps: OneEachWay.apply(x, gain)):
            for _ in range(2):
                # The first pass rounds the weights.
                with torch.autocast("cpu", torch.bfloat16), Launches() as launches:
                    *_, total = decoder(ids, ids, None, True, None, torch.ones(2, CONTEXT))
                    total.backward()
                decoder.zero_grad()
        return launches.counted

    def read(self, layers: int, *, lora: bool) -> Counter[str]:
        decoder = Decoder(described(layers, lora), torch.device("cpu"), torch.bfloat16).eval()
        texts = Texts(3, CONTEXT, torch.device("cpu"))
        with mock.patch.object(F, "rms_norm", lambda x, shape, gain, eps: OneEachWay.apply(x, gain)):
            for _ in range(2):
                with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), Launches() as launches:
                    table = texts.plan([(0, 1), (1, 1), (2, 1)], torch.zeros(3, dtype=torch.long))
                    decoder.read(texts.take_up(table), texts)
                texts.done()
        return launches.counted

    def test_a_step_of_all_weights(self) -> None:
        self.assertLessEqual(self.layer(lambda layers: self.train(layers, lora=False)), 56)

    def test_a_step_of_adapters(self) -> None:
        self.assertLessEqual(self.layer(lambda layers: self.train(layers, lora=True)), 90)

    def test_a_token_of_all_weights(self) -> None:
        self.assertLessEqual(self.layer(lambda layers: self.read(layers, lora=False)), 22)

    def test_a_token_under_adapters(self) -> None:
        self.assertLessEqual(self.layer(lambda layers: self.read(layers, lora=True)), 30)


if __name__ == "__main__":
    unittest.main()
