"""gpt-oss against transformers' classes; attention sinks and clamped gates against plain composites.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_gpt_oss.py

Without PyTorch or transformers what needs them is skipped, with these words.
"""

from __future__ import annotations

import math
import unittest
from typing import Any

try:
    import test_worker as worker
    import torch
    from llmtui_worker.attention import Mask, attend, attend_texts
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.layers import ClampedSwiGlu, clamped_composite
    from torch import Tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""
try:
    import transformers
except ImportError as error:
    WITHOUT = f"no transformers here: {error}"
else:
    WITHOUT = ""

HEADS, KV, WIDTH, LENGTH = 4, 2, 8, 11


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor, scale: float) -> Tensor:
    """Scores of every key, the sink beside them."""
    k, v = (x.repeat_interleave(HEADS // KV, 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    scores = scores + mask if mask.dtype != torch.bool else scores.masked_fill(~mask, -math.inf)
    most = torch.cat([scores, sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", most[..., :-1], v).flatten(2)


@unittest.skipIf(MISSING, MISSING)
class Sinks(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(2)
        self.q = torch.randn(2, LENGTH, HEADS, WIDTH, requires_grad=True)
        self.k, self.v = (torch.randn(2, LENGTH, KV, WIDTH, requires_grad=True) for _ in range(2))
        self.sinks = torch.tensor([2.3, -1.7, 0.4, 5.1], requires_grad=True)
        self.causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        at = torch.arange(LENGTH)
        window = self.causal & (at[:, None] - at < 4)
        packed = torch.stack([window, window & (at >= torch.where(at < 5, 0, 5)[:, None])])[:, None]
        slopes = torch.tensor([0.5, 0.25, 0.1, 0.05])[:, None, None] * (at - at[:, None])
        self.masks: list[Tensor | None] = [None, window, packed, slopes.masked_fill(~self.causal, -math.inf)[None]]

    def test_values_and_gradients_are_those_of_a_score_beside_the_keys(self) -> None:
        everything = (self.q, self.k, self.v, self.sinks)
        for mask in self.masks:
            for scale in (1 / math.sqrt(WIDTH), 0.41):
                found = attend(self.q, self.k, self.v, Mask(mask), scale, None, self.sinks)
                wanted = plain(self.q, self.k, self.v, self.causal if mask is None else mask, self.sinks, scale)
                torch.testing.assert_close(found, wanted, rtol=1e-5, atol=2e-6)
                c = torch.randn_like(found)
                pair = (torch.autograd.grad((y * c).sum(), everything) for y in (found, wanted))
                for a, b in zip(*pair, strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

    def test_a_sink_is_not_rounded_to_the_format_of_matmuls(self) -> None:
        """Half of a step of bf16 at 40 is 0.125: what that does to a share would be seen."""
        q, k, v = (x.detach().bfloat16() for x in (self.q, self.k, self.v))
        k = torch.zeros_like(k)
        sinks = torch.full((HEADS,), math.log(3.0) + 0.003)
        found = attend(q, k, v * 0 + 1, Mask(None), 0.37, None, sinks).float()
        seen = torch.arange(1, LENGTH + 1)[None, :, None]
        wanted = (seen / (seen + sinks.exp()[0])).expand_as(found)
        torch.testing.assert_close(found, wanted, rtol=4e-3, atol=0.0)

    def test_one_new_token_attends_as_it_does_among_others(self) -> None:
        last = self.q[:, -1:].detach()
        k, v = (x.detach().transpose(1, 2) for x in (self.k, self.v))
        for mask in self.masks[1:]:
            assert mask is not None
            own = mask.expand(2, -1, -1, -1) if mask.dim() == 4 else mask.expand(2, 1, -1, -1)
            found = attend_texts(last, k, v, Mask(own[:, :, -1:]), 0.3, None, self.sinks)
            wanted = plain(self.q, self.k, self.v, own, self.sinks, 0.3)[:, -1:]
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@unittest.skipIf(MISSING, MISSING)
class Gates(unittest.TestCase):
    def test_gradients_and_what_is_kept(self) -> None:
        wide = (3.0 * torch.randn(3, 4, 10, dtype=torch.float64)).requires_grad_()
        for limit, slope in ((7.0, 1.702), (1.5, 0.8)):
            self.assertTrue(torch.autograd.gradcheck(lambda x, limit=limit, slope=slope: ClampedSwiGlu.apply(x, limit, slope), (wide,)))
            self.assertTrue(torch.equal(ClampedSwiGlu.apply(wide, limit, slope), clamped_composite(wide, limit, slope)))
        kept: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):  # type: ignore[func-returns-value]
            ClampedSwiGlu.apply(wide, 7.0, 1.702)
        self.assertEqual([x.shape for x in kept], [wide.shape])


@unittest.skipIf(MISSING or WITHOUT, MISSING or WITHOUT)
class Transformers(unittest.TestCase):
    def test_a_model_is_theirs(self) -> None:
        """Log-probabilities, and gradients of sinks, router and biases."""
        changes: dict[str, Any] = worker.GPT_OSS | {"mlp": {"clamped_swiglu": {"limit": 7.0, "slope": 1.702}}}
        torch.manual_seed(4)
        own = Decoder(worker.described(**changes), torch.device("cpu")).train()
        with torch.no_grad():
            for parameter in own.parameters():
                parameter.normal_(0.0, 0.6)
        config = transformers.GptOssConfig(
            vocab_size=worker.VOCAB,
            hidden_size=worker.WIDTH,
            num_hidden_layers=worker.LAYERS,
            num_attention_heads=worker.HEADS,
            num_key_value_heads=worker.KV,
            head_dim=worker.WIDTH // worker.HEADS,
            intermediate_size=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=3,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
        theirs = transformers.GptOssForCausalLM(config).train()
        # Of each of their parameters where it lies here.
        places: dict[str, tuple[Tensor, Any]] = {}
        for name, parameter in own.table.made.items():
            if ".experts." not in name:
                places[name.replace("mlp.gate.", "mlp.router.")] = (parameter, lambda x: x)
        for layer, experts in enumerate(own.experts):
            at = f"model.layers.{layer}.mlp.experts"

            def in_turns(x: Tensor) -> Tensor:
                """Gate and up of each feature, side by side."""
                return torch.stack(x.chunk(2, 1), 2).flatten(1, 2)

            places |= {
                f"{at}.gate_up_proj": (experts.wide.weight, lambda x: in_turns(x).mT),
                f"{at}.gate_up_proj_bias": (experts.wide.bias, in_turns),
                f"{at}.down_proj": (experts.down.weight, lambda x: x.mT),
                f"{at}.down_proj_bias": (experts.down.bias, lambda x: x),
            }
        parameters = dict(theirs.named_parameters())
        for name in parameters:
            if name not in places and name.endswith(("_proj.weight", "_proj.bias")):
                given, part = own.table.place(name)
                places[name] = (given if part is None else given[part], lambda x: x)
        self.assertEqual(parameters.keys(), places.keys())
        with torch.no_grad():
            for name, parameter in parameters.items():
                given, how = places[name]
                parameter.copy_(how(given).view_as(parameter))
        ids = torch.randint(0, worker.VOCAB, (2, 12))
        logp, *_ = own(ids[:, :-1], ids[:, 1:], None)
        wanted = theirs(input_ids=ids[:, :-1]).logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        torch.testing.assert_close(logp, wanted, rtol=1e-4, atol=1e-5)
        c = torch.randn_like(wanted)
        (wanted * c).sum().backward()
        made = [p for p in own.parameters() if p.requires_grad]
        grads = dict(zip(map(id, made), torch.autograd.grad((logp * c).sum(), made), strict=True))
        for name, parameter in parameters.items():
            given, how = places[name]
            if id(given) not in grads:
                continue
            assert parameter.grad is not None
            torch.testing.assert_close(how(grads[id(given)]).view_as(parameter), parameter.grad, rtol=2e-3, atol=2e-5, msg=name)
        for kind in ("sinks", "router.bias", "router.weight", "down_proj_bias"):
            self.assertTrue(any(kind in name and id(places[name][0]) in grads for name in parameters), kind)


if __name__ == "__main__":
    unittest.main()
