"""Mixers in the place of attention: against their formulas token by token, and documents of a packed row against rows of their own.

    PYTHONPATH=assets/torch_worker:tests/torch /path/to/venv/bin/python -m unittest -v tests/torch/test_mixers.py

Without PyTorch what needs it is skipped, with these words.
"""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

try:
    import test_worker as worker
    import torch
    import torch.nn.functional as F
    from llmtui_worker import mixers
    from llmtui_worker.decoder import Decoder
    from llmtui_worker.delta import delta_rule, delta_step
    from llmtui_worker.mamba import scan, scan_step
    from llmtui_worker.mixers import GatedDeltaNet, Recomputed, causal_conv, gated_conv
    from torch import Tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""

ROWS, HEADS, KEYS, VALUES = 2, 3, 5, 4


def begins(lengths: list[int]) -> Tensor:
    """Where each token's document begins, for documents of these lengths in a row, (1, T)."""
    ends = torch.tensor(lengths).cumsum(0)
    return (ends - torch.tensor(lengths)).repeat_interleave(torch.tensor(lengths))[None]


def inputs(length: int) -> list[Tensor]:
    """q, k, v, g, β in f64: keys of length 1, g at most 0, β in (0, 1)."""
    of = lambda *shape: torch.randn(ROWS, length, HEADS, *shape, dtype=torch.float64)  # noqa: E731
    found = [of(KEYS), F.normalize(of(KEYS), dim=-1), of(VALUES), -F.softplus(of() - 1), of().sigmoid()]
    return [x.requires_grad_() for x in found]


def by_token(given: list[Tensor], starts: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """The formulas of `delta.py`, one token after the other."""
    found = []
    for t in range(given[0].shape[1]):
        q, k, v, g, beta = (x[:, t] for x in given)
        if starts is not None:
            state = state * (starts[:, t] < t)[:, None, None, None]
        state = state * g.exp()[..., None, None]
        u = beta[..., None] * (v - torch.einsum("bhkv,bhk->bhv", state, k))
        state = state + torch.einsum("bhk,bhv->bhkv", k, u)
        found.append(torch.einsum("bhkv,bhk->bhv", state, q))
    return torch.stack(found, 1), state


@unittest.skipIf(MISSING, MISSING)
class DeltaRule(unittest.TestCase):
    def test_chunks_give_what_token_after_token_gives(self) -> None:
        torch.manual_seed(5)
        documents = begins([3, 61, 1, 64, 20, 1, 50])
        for length in (1, 5, 64, 65, 200):
            for starts in (None, torch.cat([documents, documents.flip(1) * 0])[:, :length]):
                with self.subTest(length=length, packed=starts is not None):
                    given = inputs(length)
                    zeros = torch.zeros(ROWS, HEADS, KEYS, VALUES, dtype=torch.float64)
                    found, wanted = delta_rule(*given, starts), by_token(given, starts, zeros)
                    c = [torch.randn_like(x) for x in wanted]
                    grads = [torch.autograd.grad(sum((x * w).sum() for x, w in zip(both, c, strict=True)), given) for both in (found, wanted)]
                    for a, b in zip([*found, *grads[0]], [*wanted, *grads[1]], strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)

    def test_a_state_goes_on(self) -> None:
        torch.manual_seed(6)
        given = [x.detach() for x in inputs(140)]
        o, last = delta_rule(*given)
        state, parts = None, []
        for begin, end in ((0, 70), (70, 139), (139, 140)):
            part = [x[:, begin:end] for x in given]
            out, state = delta_step(*part, state) if state is not None and end - begin == 1 else delta_rule(*part, None, state)
            parts.append(out)
        torch.testing.assert_close(torch.cat(parts, 1), o, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(state, last, rtol=1e-9, atol=1e-10)

    def test_states_that_are_all_but_forgotten_have_finite_gradients(self) -> None:
        given = [x.detach().float() for x in inputs(130)]
        given[3] = torch.full_like(given[3], -90.0)
        given = [x.requires_grad_() for x in given]
        o, _ = delta_rule(*given)
        for x in torch.autograd.grad(o.square().sum(), given):
            self.assertTrue(bool(x.isfinite().all()))


def spaces(length: int) -> list[Tensor]:
    """u, g, B and C of two groups with three heads each, in f64."""
    of = lambda *shape: torch.randn(ROWS, length, 2, *shape, dtype=torch.float64)  # noqa: E731
    return [x.requires_grad_() for x in (of(HEADS, VALUES), -F.softplus(of(HEADS) - 1), of(KEYS), of(KEYS))]


def states_by_token(given: list[Tensor], starts: Tensor | None) -> tuple[Tensor, Tensor]:
    """The formulas of `mamba.py`, one token after the other."""
    state, found = torch.zeros(ROWS, 2, KEYS, HEADS, VALUES, dtype=torch.float64), []
    for t in range(given[0].shape[1]):
        u, g, b, c = (x[:, t] for x in given)
        if starts is not None:
            state = state * (starts[:, t] < t)[:, None, None, None, None]
        state = state * g.exp()[:, :, None, :, None] + torch.einsum("bgn,bghp->bgnhp", b, u)
        found.append(torch.einsum("bgn,bgnhp->bghp", c, state))
    return torch.stack(found, 1), state


@unittest.skipIf(MISSING, MISSING)
class StateSpaces(unittest.TestCase):
    def test_chunks_give_what_token_after_token_gives(self) -> None:
        torch.manual_seed(5)
        documents = begins([3, 61, 1, 64, 20, 1, 50])
        for length in (1, 5, 64, 65, 200):
            for starts in (None, torch.cat([documents, documents.flip(1) * 0])[:, :length]):
                with self.subTest(length=length, packed=starts is not None):
                    given = spaces(length)
                    found, wanted = scan(*given, starts), states_by_token(given, starts)
                    c = [torch.randn_like(x) for x in wanted]
                    grads = [torch.autograd.grad(sum((x * w).sum() for x, w in zip(both, c, strict=True)), given) for both in (found, wanted)]
                    for a, b in zip([*found, *grads[0]], [*wanted, *grads[1]], strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)

    def test_a_state_goes_on(self) -> None:
        torch.manual_seed(6)
        given = [x.detach() for x in spaces(140)]
        y, last = scan(*given)
        state, parts = None, []
        for begin, end in ((0, 70), (70, 139), (139, 140)):
            part = [x[:, begin:end] for x in given]
            out, state = scan_step(*part, state) if state is not None and end - begin == 1 else scan(*part, None, state)
            parts.append(out)
        torch.testing.assert_close(torch.cat(parts, 1), y, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(state, last, rtol=1e-9, atol=1e-10)

    def test_states_that_are_all_but_forgotten_have_finite_gradients(self) -> None:
        given = [x.detach().float() for x in spaces(130)]
        given[1] = torch.full_like(given[1], -90.0)
        given = [x.requires_grad_() for x in given]
        y, _ = scan(*given)
        for x in torch.autograd.grad(y.square().sum(), given):
            self.assertTrue(bool(x.isfinite().all()))


@unittest.skipIf(MISSING, MISSING)
class Convolutions(unittest.TestCase):
    def test_of_whole_rows_and_of_documents(self) -> None:
        torch.manual_seed(7)
        x, bias = torch.randn(2, 9, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
        for taps in (1, 3, 12):
            weight = torch.randn(4, taps, dtype=torch.float64)

            def wanted(x: Tensor, weight: Tensor = weight) -> Tensor:
                padded = F.pad(x.mT, (weight.shape[1] - 1, 0))
                return F.conv1d(padded, weight[:, None], bias, groups=4).mT

            torch.testing.assert_close(causal_conv(x, weight, bias, None), wanted(x))
            lengths = [2, 1, 6]
            parts = torch.cat([wanted(part) for part in x.split(lengths, 1)], 1)
            starts = begins(lengths).expand(2, -1)
            torch.testing.assert_close(causal_conv(x, weight, bias, starts), parts)
            if taps > 1:
                self.assertGreater((wanted(x) - parts).abs().max().item(), 0.1)

    def test_what_is_recomputed_has_the_gradient_of_what_was_computed(self) -> None:
        torch.manual_seed(8)
        wide = torch.randn(2, 7, 12, requires_grad=True)
        weight, bias = torch.randn(4, 3, requires_grad=True), torch.randn(4, requires_grad=True)
        starts = begins([3, 4]).expand(2, -1)
        for given in ((wide, weight, bias, starts), (wide, weight, None, None), (wide, weight.detach(), bias, None)):
            trained = [x for x in given if x is not None and x.requires_grad]
            found, wanted = Recomputed.apply(gated_conv, *given), gated_conv(*given)
            self.assertTrue(torch.equal(found, wanted))
            c = torch.randn_like(wanted)
            grads = [torch.autograd.grad((y * c).sum(), trained) for y in (found, wanted)]
            for a, b in zip(*grads, strict=True):
                self.assertTrue(torch.equal(a, b))


@unittest.skipIf(MISSING, MISSING)
class Hybrids(unittest.TestCase):
    def decoder(self, changes: dict[str, Any], *, recompute: bool = False) -> Decoder:
        torch.manual_seed(1)
        decoder = Decoder(worker.described(**changes) | {"recompute": recompute}, torch.device("cpu")).train()
        with torch.no_grad():
            for parameter in decoder.parameters():
                parameter.normal_(0.0, 0.4)
        return decoder

    def passed(self, decoder: Decoder, ids: Tensor, starts: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Log-probabilities, and the gradients of the sum of them, each by its own weight."""
        logp, *_ = decoder(ids[:, :-1], ids[:, 1:], starts)
        c = (ids[:, :-1] + 1.0) / 10
        return logp, list(torch.autograd.grad((logp * c).sum(), list(decoder.parameters())))

    def test_documents_of_a_row_do_not_read_each_other(self) -> None:
        lengths = [5, 1, 9, 4]
        ids = torch.randint(0, worker.VOCAB, (1, sum(lengths) + 1), generator=torch.Generator().manual_seed(2))
        ends = torch.tensor(lengths).cumsum(0).tolist()
        for changes in worker.HYBRIDS:
            with self.subTest(**changes):
                decoder = self.decoder(dict(changes))
                packed, grads = self.passed(decoder, ids, begins(lengths))
                apart = [self.passed(decoder, ids[:, end - n : end + 1], None) for n, end in zip(lengths, ends, strict=True)]
                torch.testing.assert_close(packed, torch.cat([logp for logp, _ in apart], 1), rtol=1e-4, atol=2e-5)
                for found, *parts in zip(grads, *(each for _, each in apart), strict=True):
                    torch.testing.assert_close(found, torch.stack(parts).sum(0), rtol=1e-3, atol=1e-4)
                if changes["mixer"].get("short_conv", {}).get("conv_len") != 1:
                    self.assertGreater((self.passed(decoder, ids, None)[0] - packed).abs().max().item(), 1e-2)

    def test_recomputed_blocks_have_the_same_gradients(self) -> None:
        ids = torch.randint(0, worker.VOCAB, (2, 13), generator=torch.Generator().manual_seed(3))
        starts = begins([4, 8]).expand(2, -1)
        for changes in worker.HYBRIDS:
            with self.subTest(**changes):
                kept, again = (self.passed(self.decoder(dict(changes), recompute=it), ids, starts) for it in (False, True))
                self.assertTrue(torch.equal(kept[0], again[0]))
                for a, b in zip(kept[1], again[1], strict=True):
                    self.assertTrue(torch.equal(a, b))

    def test_a_mixer_keeps_its_input_alone(self) -> None:
        """Of the pass through a block: what autograd saves in `Recomputed` is the projection that it was given, and parameters."""
        decoder = self.decoder({"mixer": worker.DELTA})
        kept: list[tuple[int, ...]] = []

        def keep(x: Tensor) -> Tensor:
            kept.append(tuple(x.shape))
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            block = decoder.blocks[0].mixer
            assert isinstance(block, GatedDeltaNet)
            wide = torch.randn(2, 9, 2 * 12 + 20 + 20 + 8, requires_grad=True)
            block._train(wide, None)
        parameters = block.weight, block.dt_bias, block.a_log, block.gain
        self.assertEqual(kept, [tuple(x.shape) for x in (wide, *parameters)])

    def test_rows_are_recomputed_a_few_at_a_time(self) -> None:
        ids = torch.randint(0, worker.VOCAB, (5, 8), generator=torch.Generator().manual_seed(5))
        starts = begins([4, 3]).expand(5, -1)
        for changes in worker.HYBRIDS:
            for first in (None, starts):
                with self.subTest(**changes, packed=first is not None):
                    decoder = self.decoder(dict(changes))
                    wanted, grads = self.passed(decoder, ids, first)
                    # Two rows of 7.
                    with mock.patch.object(mixers, "MOST_TOKENS", 15), mock.patch.object(mixers, "Recomputed", wraps=Recomputed) as parts:
                        found, again = self.passed(decoder, ids, first)
                    blocks = sum(block.mixer is not None for block in decoder.blocks)
                    self.assertEqual(parts.apply.call_count, 3 * blocks)
                    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)
                    for a, b in zip(again, grads, strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)

    def test_in_16_bits_only_matmuls_are_rounded(self) -> None:
        ids = torch.randint(0, worker.VOCAB, (2, 23), generator=torch.Generator().manual_seed(4))
        for changes in worker.HYBRIDS:
            with self.subTest(**changes):
                decoder = self.decoder(dict(changes))
                exact, _ = self.passed(decoder, ids, None)
                with torch.autocast("cpu", torch.bfloat16):
                    rounded, grads = self.passed(decoder, ids, None)
                # Those of matmuls in 8 bits of significand, of logits around 10.
                self.assertLess((rounded - exact).abs().max().item(), 0.6)
                self.assertTrue(all(x.dtype == torch.float32 and bool(x.isfinite().all()) for x in grads))


if __name__ == "__main__":
    unittest.main()
