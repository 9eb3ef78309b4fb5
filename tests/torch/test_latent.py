"""Latent attention and Mamba 2 against transformers' classes, and documents of a packed row against rows of their own.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_latent.py

Without PyTorch or transformers what needs them is skipped, with these words.
"""

from __future__ import annotations

import math
import unittest
from typing import Any

try:
    import test_worker as worker
    import torch
    from llmtui_worker.attention import Mask
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.latent import LatentAttention
    from llmtui_worker.mamba import Mamba2
    from llmtui_worker.texts import Texts
    from test_mixers import begins
    from torch import Tensor, nn
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


def decoder(**changes: Any) -> Decoder:
    torch.manual_seed(1)
    found = Decoder(worker.described(**changes), torch.device("cpu")).train()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.normal_(0.0, 0.4)
    return found


def given_to(theirs: nn.Module, found: Decoder, at: str) -> None:
    """Their parameters are those of the decoder by the same names."""
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(found.table.made[f"{at}.{name}"].view_as(parameter))


@unittest.skipIf(MISSING or WITHOUT, MISSING or WITHOUT)
class Transformers(unittest.TestCase):
    def test_latent_attention_is_theirs(self) -> None:
        from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

        for changes in worker.LATENTS:
            mla = changes["mla"]
            with self.subTest(**mla), torch.no_grad():
                found = decoder(mla=mla)
                block = found.blocks[0].attention
                assert isinstance(block, LatentAttention)
                config = transformers.DeepseekV3Config(
                    hidden_size=worker.WIDTH,
                    num_attention_heads=worker.HEADS,
                    num_key_value_heads=worker.HEADS,
                    kv_lora_rank=mla["kv_rank"],
                    q_lora_rank=mla.get("q_rank"),
                    qk_nope_head_dim=mla["nope_dim"],
                    qk_rope_head_dim=mla["rope_dim"],
                    v_head_dim=mla["v_dim"],
                    rms_norm_eps=mla.get("norm_eps", 1e-6),
                    attn_implementation="eager",
                )
                theirs = v3.DeepseekV3Attention(config, 0).eval()
                given_to(theirs, found, "model.layers.0.self_attn")
                for norm in (theirs.kv_a_layernorm, *([theirs.q_a_layernorm] if "q_rank" in mla else [])):
                    norm.variance_epsilon = mla.get("norm_eps", 1e-6)
                theirs.scaling = block.scale
                self.assertAlmostEqual(block.scale * math.sqrt(mla["nope_dim"] + mla["rope_dim"]), 0.9)
                h, length = torch.randn(2, 9, worker.WIDTH), 9
                at = torch.arange(length)[None]
                rotation = found._rope(at, length)[0]
                assert rotation is not None
                cos, sin = (torch.cat([x[:, :, 0]] * 2, -1).expand(2, -1, -1) for x in rotation)
                mask = torch.full((length, length), -math.inf).triu(1)[None, None]
                wanted = theirs(h, (cos, sin), mask)[0]
                torch.testing.assert_close(block(h, rotation, Mask(None), True, None), wanted, rtol=1e-4, atol=1e-5)

    def test_mamba_2_is_theirs(self) -> None:
        from transformers.models.zamba2 import modeling_zamba2 as zamba

        for mixer in (worker.MAMBA, worker.SLOW):
            net = mixer["mamba2"]
            with self.subTest(**net), torch.no_grad():
                found = decoder(mixer=mixer)
                block = found.blocks[0].mixer
                assert isinstance(block, Mamba2)
                config = transformers.Zamba2Config(
                    hidden_size=worker.WIDTH,
                    n_mamba_heads=net["n_head"],
                    mamba_headdim=net["head_dim"],
                    mamba_d_state=net["state_dim"],
                    mamba_ngroups=net["n_group"],
                    mamba_d_conv=net["conv_len"],
                    mamba_expand=1,
                    chunk_size=8,
                )
                theirs = zamba.Zamba2MambaMixer(config, 0).eval()
                # As limits of Granite's, which has no groups.
                theirs.time_step_limit = (net.get("dt_min", 0.0), net.get("dt_max", math.inf))
                if not net["conv_bias"]:
                    assert theirs.conv1d.bias is not None
                    theirs.conv1d.bias.zero_()
                    theirs.conv1d.bias = None
                given_to(theirs, found, "model.layers.0.mamba")
                h = torch.randn(2, 150, worker.WIDTH)
                torch.testing.assert_close(block(h, None, True, None), theirs(h), rtol=1e-4, atol=1e-4)


@unittest.skipIf(MISSING, MISSING)
class Latents(unittest.TestCase):
    def passed(self, found: Decoder, ids: Tensor, starts: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        logp, *_ = found(ids[:, :-1], ids[:, 1:], starts)
        return logp, list(torch.autograd.grad((logp * (ids[:, :-1] + 1.0) / 10).sum(), list(found.parameters())))

    def test_documents_of_a_row_do_not_read_each_other(self) -> None:
        lengths = [5, 1, 9, 4]
        ids = torch.randint(0, worker.VOCAB, (1, sum(lengths) + 1), generator=torch.Generator().manual_seed(2))
        ends = torch.tensor(lengths).cumsum(0).tolist()
        for changes in worker.LATENTS:
            with self.subTest(**changes):
                found = decoder(**changes)
                packed, grads = self.passed(found, ids, begins(lengths))
                apart = [self.passed(found, ids[:, end - n : end + 1], None) for n, end in zip(lengths, ends, strict=True)]
                torch.testing.assert_close(packed, torch.cat([logp for logp, _ in apart], 1), rtol=1e-4, atol=2e-5)
                for all_of_them, *parts in zip(grads, *(each for _, each in apart), strict=True):
                    torch.testing.assert_close(all_of_them, torch.stack(parts).sum(0), rtol=1e-3, atol=1e-4)
                self.assertGreater((self.passed(found, ids, None)[0] - packed).abs().max().item(), 1e-2)

    def test_texts_keep_latent_vectors_and_read_them_with_adapters(self) -> None:
        for changes in worker.LATENTS:
            with self.subTest(**changes), torch.no_grad():
                described = worker.described(**changes)
                mla, at = changes["mla"], "model.layers.1.self_attn"
                for name in ("kv_b_proj", "kv_a_proj_with_mqa", "q_b_proj" if "q_rank" in mla else "q_proj"):
                    rows, columns = next(info["shape"] for info in described["params"] if info["name"] == f"{at}.{name}.weight")
                    described["params"] += [
                        {"name": f"{at}.{name}.lora_A.weight", "shape": [2, columns], "grad": 0},
                        {"name": f"{at}.{name}.lora_B.weight", "shape": [rows, 2], "grad": 0},
                    ]
                    described["adapter"]["scales"][f"{at}.{name}"] = 0.7
                torch.manual_seed(3)
                found = Decoder(described, torch.device("cpu")).eval()
                for parameter in found.parameters():
                    parameter.normal_(0.0, 0.4)
                text, texts = [3, 1, 4, 1, 5, 9, 2], Texts(1, worker.CONTEXT, torch.device("cpu"))
                for new in (text[:4], text[4:6], text[6:]):
                    logits = found.read(texts.take_up(texts.plan([(0, len(new))], torch.tensor(new))), texts)
                    texts.done()
                inputs = torch.tensor([text]).expand(worker.VOCAB, -1)
                targets = torch.arange(worker.VOCAB)[:, None].expand(-1, len(text))
                whole = found(inputs, targets, None)[0][:, -1]
                torch.testing.assert_close(logits[0].log_softmax(-1), whole, rtol=1e-4, atol=1e-5)
                plain = found(inputs, targets, None, False)[0][:, -1]
                self.assertGreater((plain - whole).abs().max().item(), 1e-2)
                self.assertEqual(texts.held[0].shape, (1, 2, 1, texts.room, mla["kv_rank"] + mla["rope_dim"]))


if __name__ == "__main__":
    unittest.main()
