"""AdamW with 8-bit moments: codes, the state that is saved, and shards of tensors on several ranks.

    PYTHONPATH=assets/torch_worker /path/to/venv/bin/python -m unittest -v tests/torch/test_adamw8bit.py

Without PyTorch what needs it is skipped, with these words.
"""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

try:
    import torch
    from llmtui_worker.adamw8bit import AdamW8bit, Moment, dynamic_map, pack, unpack
    from torch import Tensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
except ImportError as error:
    MISSING = f"no PyTorch here: {error}"
else:
    MISSING = ""


def updated_in_shards(rank: int, world: int, folder: str) -> dict[str, Tensor]:
    """Tensors after updates by 8-bit moments, some of them after their state went out and in; on several ranks in shards, and stored."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    tensors = {"odd": torch.randn(7, 90), "few": torch.randn(1, 600), "small": torch.randn(5), "wide": torch.randn(64, 33)}
    grads = [{name: torch.randn_like(x) for name, x in tensors.items()} for _ in range(4)]
    if world > 1:
        store = torch.distributed.FileStore(str(Path(folder) / "store"), world)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
        mesh = init_device_mesh("cpu", (world,))

    def here(x: Tensor) -> Tensor:
        return x.clone() if world == 1 else distribute_tensor(x.clone(), mesh, [Shard(0)])

    parameters = {name: torch.nn.Parameter(here(x)) for name, x in tensors.items()}
    each = list(parameters.values())

    def rule() -> AdamW8bit:
        return AdamW8bit([{"params": each, "weight_decay": 0.1, "lr_scale": 1.0, "lr": 1e-2}], (0.9, 0.99), 1e-8)

    before = rule()
    names = ("mean", "mean_scales", "square", "square_scales")
    for step, grad in enumerate(grads):
        for name, p in parameters.items():
            p.grad = here(grad[name])
        if step == 2:
            after = rule()
            after.steps = before.steps
            for part in names:
                after.set_part(part, before.part(part, each), each)
            before = after
        before.step()
    found = {part: before.part(part, each) for part in names}
    found |= {name: getattr(p.detach(), "full_tensor", p.detach)() for name, p in parameters.items()}
    if world > 1:
        torch.distributed.destroy_process_group()
        if rank == 0:
            torch.save(found, Path(folder) / "found")
    return found


@unittest.skipIf(MISSING, MISSING)
class EightBits(unittest.TestCase):
    def test_parts_of_the_state_come_back(self) -> None:
        p, q = (torch.nn.Parameter(torch.randn(n)) for n in (300, 7))

        def rule() -> AdamW8bit:
            return AdamW8bit([{"params": [x], "weight_decay": 0.1, "lr_scale": 1.0, "lr": 1e-2} for x in (p, q)], (0.9, 0.99), 1e-8)

        one = rule()
        for _ in range(3):
            p.grad, q.grad = torch.randn(300), torch.randn(7)
            one.step()
        two = rule()
        for name in ("mean", "mean_scales", "square", "square_scales"):
            flat = one.part(name, [p, q])
            self.assertEqual(len(flat), one.part_len(name, [p, q]))
            two.set_part(name, flat, [p, q])
            self.assertTrue(torch.equal(flat, two.part(name, [p, q])))
        for a, b in ((one.moments[x][m].read(), two.moments[x][m].read()) for x in (p, q) for m in ("mean", "square")):
            self.assertTrue(torch.equal(a, b))

    def test_shards_on_several_ranks_are_updated_as_the_whole(self) -> None:
        """Rows that ranks do not share evenly, fewer rows than ranks, less than a block; bit by bit, with the state that is saved."""
        for world in (2, 3):
            with self.subTest(world=world), tempfile.TemporaryDirectory() as folder:
                torch.multiprocessing.spawn(updated_in_shards, (world, folder), nprocs=world)
                whole = updated_in_shards(0, 1, folder)
                for name, own in torch.load(Path(folder) / "found").items():
                    self.assertTrue(torch.equal(own, whole[name]), name)

    def test_codes_are_the_nearest(self) -> None:
        for signed in (True, False):
            values = dynamic_map(signed)
            self.assertEqual(len(values), 256)
            moment = Moment(256, values)
            moment.write(values[None])
            self.assertEqual(moment.codes.view(-1).tolist(), list(range(256)))
            self.assertEqual(unpack(pack(moment.codes.view(-1)), 256).tolist(), list(range(256)))

    def test_small_gradients_beside_large_ones_move_no_weight_far(self) -> None:
        p = torch.nn.Parameter(torch.zeros(4))
        rule = AdamW8bit([{"params": [p], "weight_decay": 0.0, "lr_scale": 1.0, "lr": 1.0}], (0.9, 0.999), 1e-8)
        for grads in ([1.0, 1e-3, 1e-4, 1e-5], [0.0] * 4):
            before, p.grad = p.detach().clone(), torch.tensor(grads)
            rule.step()
            self.assertLess(float((p.detach() - before).abs().max()), 1.1)
        self.assertEqual(rule.moments[p]["square"].codes[0, :5].tolist(), [255, 2, 1, 1, 0])


if __name__ == "__main__":
    unittest.main()
