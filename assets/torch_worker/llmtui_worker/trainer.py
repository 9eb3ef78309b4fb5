"""One model on a rank: its part of every batch, gradients summed over ranks, the update, weights in and out."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from .adamw8bit import AdamW8bit, Share
from .attention import Packed
from .decoder import Decoder
from .distill import Beside
from .graphs import Graphs, rows_for
from .lion import Lion
from .meeting import Meeting
from .muon import Matrices, Muon
from .texts import Texts
from .wire import PIECE, Wire

# Parts of AdamW's state: the engine's names and PyTorch's.
ADAMW = {"mean": "exp_avg", "square": "exp_avg_sq"}


def resident() -> int:
    """Bytes of main memory that this process holds; 0 where there is no /proc."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def own(x: Tensor) -> Tensor:
    """This rank's shard of a tensor, or all of it."""
    return x.to_local() if isinstance(x, DTensor) else x


def raw(x: Tensor) -> memoryview:
    """The bytes of a CPU tensor, without a copy."""
    numbers: Any = x.contiguous().numpy()
    return memoryview(numbers).cast("B")


def grouped(parameters: list[tuple[dict[str, Any], nn.Parameter]]) -> list[dict[str, Any]]:
    """Those of one weight decay and learning rate together, as optimizers take them."""
    alike: dict[tuple[float, float], list[nn.Parameter]] = {}
    for info, parameter in parameters:
        alike.setdefault((info["decay"], info["lr_scale"]), []).append(parameter)
    return [{"params": each, "weight_decay": decay, "lr_scale": lr_scale} for (decay, lr_scale), each in alike.items()]


def cannot_compile(device: torch.device) -> str | None:
    """Why torch.compile does not work here, or None: it needs Triton, a C compiler and Python's headers."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device=device))
    except Exception as error:
        return str(error).strip().split("\n")[0][:200]
    return None


class Rank:
    def __init__(self, wire: Wire, meeting: Meeting) -> None:
        self.wire = wire
        self.meeting = meeting
        self.rank, self.world = meeting.rank, meeting.world
        self.device = torch.device("cpu")
        self.shape: dict[str, Any] = {}
        self.texts: Texts | None = None
        # Whether decode uses CUDA graphs; not with FSDP, whose shards are gathered for every pass.
        self.records = False
        self.graphs: Graphs | None = None
        # The weights' update count at the last eager pass, which casts them: graphs read the cached casts.
        self.rounded_at = -1
        self.decoder: Decoder
        # The decoder, wrapped in DDP or sharded.
        self.model: Any
        self.reference: Decoder | None = None
        # What a distillation learns from.
        self.teacher: Decoder | None = None
        self.optimizer: torch.optim.AdamW | AdamW8bit | Lion | Muon
        # The average of the weights, if there is one; while that is in the model, the trained weights.
        self.average: dict[nn.Parameter, Tensor] = {}
        self.trained: list[tuple[dict[str, Any], nn.Parameter]] = []
        # With 8-bit moments, whose blocks end with each tensor of the engine: these tensors, in the order of the flat buffers, and those
        # that are parts of a parameter.
        self.in_order: list[nn.Parameter] = []
        self.views: list[tuple[nn.Parameter, tuple[int, slice] | None, nn.Parameter]] = []
        # The rate of experts' biases; 0 without any.
        self.bias_rate = 0.0
        # Of the last pass whose gradient is to come: log-probabilities, entropies, and values of a value head.
        self.values: tuple[Tensor, ...] | None = None
        self.autocast = False
        self.compiled = False
        self.sharded = False
        self.offloaded = False
        self.stack = contextlib.ExitStack()

    def build(self, ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """The model with zero weights, wrapped for its ranks, and the optimizer."""
        if ask["threads"]:
            torch.set_num_threads(ask["threads"])
        if ask["device"] == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)
        self.offloaded = ask["offload"]
        if (self.world > 1 or self.offloaded) and not dist.is_initialized():
            # Offloaded tensors are reduced and gathered on the CPU.
            backend = ("cpu:gloo,cuda:nccl" if self.offloaded else "nccl") if self.device.type == "cuda" else "gloo"
            device = self.device if backend == "nccl" else None
            store = self.meeting.store(ask["port"]) if self.world > 1 else dist.HashStore()
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, device_id=device)
        self.autocast = ask["precision"] == "bf16"
        why = None
        if ask["compile"] and not ask["compile_asked"]:
            why = cannot_compile(self.device)
            # Compile errors later on do not end the run either.
            torch._dynamo.config.suppress_errors = True
        self.compiled = ask["compile"] and why is None
        answer = {} if why is None else {"not_compiled": why}
        self.shape = ask["model"]
        self.sharded = ask["shard"] == "fsdp2" and (self.world > 1 or self.offloaded)
        self.decoder = self._decoder(self.shape)
        dtype = torch.bfloat16 if self.autocast else torch.float32
        waits = any(experts.on_host(dtype, self.device) for experts in self.decoder.experts)
        self.records = self.device.type == "cuda" and not self.sharded and not waits
        if self.sharded:
            self.model = self.decoder
        elif self.world > 1:
            devices = [self.device.index] if self.device.type == "cuda" else None
            self.model = DistributedDataParallel(self.decoder, device_ids=devices)
        else:
            self.model = self.decoder
        made, infos = self.decoder.table.made, self.decoder.table.infos
        self.trained = [(infos[name], parameter) for name, parameter in made.items() if infos[name]["grad"] is not None]
        balancing = self.shape["config"]["moe"]["balancing"] if self.decoder.experts else {}
        self.bias_rate = balancing.get("bias", {}).get("rate", 0.0)
        if ask["average"]:
            self.average = {parameter: torch.zeros_like(parameter.detach()) for _, parameter in self.trained}
        updated, shares = self.trained, {}
        if ask["optimizer"]["kind"] == "adamw8bit":
            updated, shares = self._by_name()
            self.in_order = [parameter for _, parameter in updated]
        orthogonal = ask["optimizer"]["kind"] == "muon"
        groups = grouped([(info, p) for info, p in updated if not (orthogonal and info["blocks"])])
        settings = ask["optimizer"]
        betas, eps = (settings["beta1"], settings["beta2"]), settings.get("eps", 0.0)
        if settings["kind"] == "adamw8bit":
            self.optimizer = AdamW8bit(groups, betas, eps, shares)
            return answer
        if settings["kind"] == "lion":
            self.optimizer = Lion(groups, *betas)
            return answer
        # One kernel per group; on a CPU too, so that both take the same path.
        fused = self.device.type == "cpu" or not self.offloaded
        adamw: Any = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=fused) if groups else None
        self.optimizer = adamw
        if orthogonal:
            self.optimizer = Muon(adamw, self._matrices(), settings, self.device, bf16=self.autocast)
        for parameter in (p for group in groups for p in group["params"]):
            step = torch.zeros((), dtype=torch.float32, device=self.device if fused else None)
            state = {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
            adamw.state[parameter] = state
        return answer

    def _matrices(self) -> list[dict[str, Any]]:
        """What Muon orthogonalizes, in groups as AdamW's."""
        found: dict[nn.Parameter, tuple[dict[str, Any], Matrices]] = {}
        for info, parameter, part in self._places("grad"):
            if info["blocks"]:
                _, matrices = found.setdefault(parameter, (info, Matrices(parameter, info["blocks"], [])))
                if part is not None and part[1] not in matrices.rows:
                    matrices.rows.append(part[1])
        groups = grouped([(info, parameter) for parameter, (info, _) in found.items()])
        return [group | {"matrices": [found[p][1] for p in group["params"]]} for group in groups]

    def _decoder(self, model: dict[str, Any], *, trains: bool = True) -> Decoder:
        """A model with zero weights, sharded over the ranks with FSDP."""
        if not trains:
            model = model | {"params": [info | {"grad": None} for info in model["params"]]}
        # The shards of a block have one dtype.
        frozen = torch.bfloat16 if self.autocast and not self.sharded else None
        decoder = Decoder(model, self.device, frozen, joined=not self.sharded)
        if self.compiled:
            decoder.fuse()
        if self.sharded:
            # Sharding replaces the parameters by new ones under the same module names.
            names = {id(p): name for name, p in decoder.named_parameters()}
            modules = {name: names[id(p)] for name, p in decoder.table.made.items()}
            gpu = self.device.type == "cuda"
            policy = CPUOffloadPolicy(pin_memory=gpu) if self.offloaded else OffloadPolicy()
            for block in decoder.blocks:
                fully_shard(block, offload_policy=policy)
            fully_shard(decoder, offload_policy=policy)
            register_fsdp_forward_method(decoder, "read")
            register_fsdp_forward_method(decoder, "teach")
            new = dict(decoder.named_parameters())
            decoder.table.made = {name: new[module] for name, module in modules.items()}
        return decoder

    def _by_name(self) -> tuple[list[tuple[dict[str, Any], nn.Parameter]], dict[nn.Parameter, Share]]:
        """The trainable parameters as the engine names them, in the order of the flat buffers: parts of stacked ones are views, empty where
        another rank has that expert."""
        found, shares = [], {}
        for info, parameter, part in self._places("grad"):
            if part is not None:
                whole, local, at = parameter, own(parameter.detach()), self._here(parameter, part)
                parameter = nn.Parameter(local.new_empty(0) if at is None else local[at])
                self.views.append((whole, at, parameter))
                if isinstance(whole, DTensor):
                    shares[parameter] = Share.whole(torch.Size(info["shape"]).numel(), here=at is not None)
            found.append((info, parameter))
        return found, shares

    def _here(self, whole: Tensor, part: tuple[int, slice]) -> tuple[int, slice] | None:
        """Where a part of a stacked parameter lies in this rank's share of it, which has some of them, in order."""
        if not isinstance(whole, DTensor):
            return part
        at = part[0] - self.rank * -(-len(whole) // self.world)
        return (at, part[1]) if 0 <= at < len(whole.to_local()) else None

    def _places(self, buffer: str, decoder: Decoder | None = None) -> list[tuple[dict[str, Any], nn.Parameter, tuple[int, slice] | None]]:
        """The engine's tensors in the order of a flat buffer (`offset` or `grad`), each with its parameter, or that of which it is a part."""
        table = (decoder or self.decoder).table
        infos = [info for info in table.infos.values() if info[buffer] is not None]
        return [(info, *table.place(info["name"])) for info in sorted(infos, key=lambda info: info[buffer])]

    def _parts(self, part: str) -> list[tuple[list[int], Tensor, tuple[int, slice] | None]]:
        """The tensors of a flat buffer in its order: the shape of each, and the tensor that it is, or that it is this part of."""
        if part == "teacher":
            return [(info["shape"], p.detach(), of) for info, p, of in self._places("offset", self.teacher)]
        state: Any = {} if isinstance(self.optimizer, AdamW8bit) else self.optimizer.state
        of_weights = part in ("weights", "trained")
        places = self._places("offset" if part == "weights" else "grad")
        if part == "square" and isinstance(self.optimizer, Muon):
            places = [place for place in places if not place[0]["blocks"]]
        if part == "other":
            tensors = {id(p): self.average[p] for _, p, _ in places}
        else:
            tensors = {id(p): p.detach() if of_weights else state[p][ADAMW[part]] for _, p, _ in places}
        return [(info["shape"], tensors[id(p)], of) for info, p, of in places]

    def load(self, ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """Receives a flat buffer from the engine: rank 0 reads it and broadcasts it. The count of updates comes with the moments; weights
        alone, as those of a reference that moves, leave it."""
        rest, part = bytearray(), ask["part"]
        of_weights = part in ("weights", "teacher")
        if part == "other":
            pass
        elif isinstance(self.optimizer, AdamW8bit):
            if not of_weights:
                self.optimizer.steps = ask["steps"]
                parameters = self.in_order
                count = self.optimizer.part_len(part, parameters)
                self.optimizer.set_part(part, self._receive(rest, part, torch.Size([count])).cpu(), parameters)
                return {}
        elif not of_weights:
            for state in self.optimizer.state.values():
                # Matrices of Muon need no count.
                if "step" in state:
                    state["step"].fill_(ask["steps"])
        decoder = self.teacher if part == "teacher" and self.teacher is not None else self.decoder
        self._as_shards(decoder)
        for shape, tensor, of in self._parts(part):
            whole = self._receive(rest, part, torch.Size(shape))
            if of is not None:
                at = self._here(tensor, of)
                if at is not None:
                    own(tensor)[at].copy_(whole)
            elif isinstance(tensor, DTensor):
                mesh, placements = tensor.device_mesh, tensor.placements
                local = torch.distributed.tensor.distribute_tensor(whole, mesh, placements, src_data_rank=None)
                tensor.to_local().copy_(local.to_local())
            else:
                tensor.copy_(whole)
        decoder.changed()
        return {}

    def _as_shards(self, decoder: Decoder) -> None:
        """With FSDP, a pass without a backward leaves the root's weights gathered: shards written then would not be read."""
        if self.sharded:
            sharded: Any = decoder
            sharded.reshard()

    def _receive(self, rest: bytearray, part: str, shape: torch.Size) -> Tensor:
        """The next numbers of a buffer, on every rank; `rest` holds what rank 0 has read beyond them."""
        whole = torch.empty(shape, dtype=torch.float32)
        if self.rank == 0:
            size = whole.numel() * 4
            while len(rest) < size:
                head, piece = self.wire.receive()
                if head["type"] != "piece":
                    raise ValueError(f"expected a piece of {part}, got {head['type']}")
                rest += piece
            whole = torch.frombuffer(rest[:size], dtype=torch.float32).reshape(shape).clone()
            del rest[:size]
        whole = whole.to(self.device)
        if self.world > 1:
            dist.broadcast(whole, 0)
        return whole

    def save(self, ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """Sends a flat buffer to the engine, in pieces from rank 0."""
        part = ask["part"]
        if isinstance(self.optimizer, AdamW8bit) and part not in ("weights", "trained", "other"):
            tensors: Iterable[Tensor] = [self.optimizer.part(part, self.in_order)] if self.rank == 0 or self.sharded else []
        else:
            tensors = self._whole(self._parts(part))
        # Pinned memory for copies from the GPU, sent when it is full.
        piece = torch.empty(PIECE // 4, pin_memory=self.device.type == "cuda")
        taken = 0

        def send() -> None:
            self.wire.send("piece", raw(piece[:taken]))

        for whole in tensors:
            rest = whole.reshape(-1) if self.rank == 0 else whole.new_empty(0)
            while len(rest) > 0:
                now = rest[: len(piece) - taken]
                piece[taken : taken + len(now)].copy_(now)
                taken, rest = taken + len(now), rest[len(now) :]
                if taken == len(piece):
                    send()
                    taken = 0
        if taken:
            send()
        return {}

    @staticmethod
    def _whole(parts: list[tuple[list[int], Tensor, tuple[int, slice] | None]]) -> Iterator[Tensor]:
        """The same without shards, one after the other. Stacked tensors are gathered once, for all parts in a row."""
        left = Counter(id(tensor) for _, tensor, _ in parts)
        gathered: dict[int, Tensor] = {}
        for _, tensor, of in parts:
            key = id(tensor)
            whole = gathered.get(key, tensor)
            if isinstance(whole, DTensor):
                whole = gathered[key] = whole.full_tensor()
            left[key] -= 1
            if left[key] == 0:
                gathered.pop(key, None)
            yield whole if of is None else whole[of]

    def reference_here(self, _ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """Keeps a frozen copy of the current weights. One that is there takes them in place: a second one may not fit beside it, and would
        be compiled anew."""
        if self.reference is None:
            self.reference = self._decoder(self.shape, trains=False).eval()
        self._as_shards(self.reference)
        self._as_shards(self.decoder)
        with torch.no_grad():
            for to, of in zip(self.reference.parameters(), self.decoder.parameters(), strict=True):
                own(to).copy_(own(of))
        self.reference.changed()
        return {}

    def teacher_here(self, ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """A frozen model beside the student, with zero weights: `load` fills it."""
        self.teacher = self._decoder(ask["model"], trains=False).eval()
        return {}

    def _beside(
        self, of: dict[str, Any] | None, inputs: Tensor, first: Tensor | None, packed: Packed | None, d: Tensor | None
    ) -> Beside | None:
        """The teacher's side of a pass, if it learns from one; `d` are the coefficients of divergences."""
        if of is None:
            return None
        if self.teacher is None:
            raise ValueError("there is no teacher")
        with torch.no_grad():
            found = self.teacher.teach(inputs, first, packed, of["beta"], of["temperature"])
        # With FSDP the head is gathered until the student has read it.
        weight: Any = found.weight
        weight = weight.full_tensor() if isinstance(weight, DTensor) else weight.detach()
        return found._replace(weight=weight, weights=None if d is None else d.reshape(-1), ce=of["ce"])

    def read(self, ask: dict[str, Any], payload: bytearray) -> dict[str, Any]:
        """Prefill and decode: appends pieces to texts and returns the logits after each; the engine samples."""
        if self.texts is None or (self.texts.count, self.texts.tokens) != (ask["texts"], ask["tokens"]):
            self.texts, self.graphs = Texts(ask["texts"], ask["tokens"], self.device), None
        if ask["begin"]:
            self.texts.forget_all()
        texts, decoder = self.texts, self.decoder
        for source, target in ask["copies"]:
            texts.copy(source, target)
        for text in ask["forget"]:
            texts.forget(text)
        pieces = [(text, new) for text, new in ask["pieces"]]
        ids = torch.frombuffer(payload, dtype=torch.int32).long() if payload else torch.zeros(0, dtype=torch.long)
        if not pieces and self.sharded:
            # No texts of its own, but the other ranks need its shard of the weights.
            texts, pieces, ids = Texts(1, 1, self.device), [(0, 1)], torch.zeros(1, dtype=torch.long)
        if not pieces:
            return {}
        was = decoder.training
        decoder.eval()
        # Autocast's cached casts would be stale in a replayed graph.
        cast = torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast, cache_enabled=False)
        with self._compiled(False), torch.no_grad(), cast:
            logits = self._read_on(texts, pieces, ids)
        texts.done()
        decoder.train(was)
        return {"payload": raw(logits.cpu()) if ask["pieces"] else b""}

    def _read_on(self, texts: Texts, pieces: list[tuple[int, int]], ids: Tensor) -> Tensor:
        decoder = self.decoder

        def work(table: Tensor) -> Tensor:
            return decoder.read(texts.take_up(table), texts)

        one_each = self.records and all(new == 1 for _, new in pieces)
        table = texts.plan(pieces, ids, rows_for(len(pieces), texts.count) if one_each else None).to(self.device)
        if not one_each or self.rounded_at != decoder.table.changes:
            self.rounded_at = decoder.table.changes
            return work(table)[: len(pieces)]
        if self.graphs is None:
            self.graphs = Graphs(self.device)
        shape = len(table), texts.seen, texts.all_of_them, decoder.rope_len()
        return self.graphs.run(shape, table, work)[: len(pieces)]

    def _compiled(self, yes: bool) -> contextlib.AbstractContextManager[Any]:
        """Eager for texts of varying lengths: compiling for each length would take longer than running them."""
        if yes or not self.compiled:
            return contextlib.nullcontext()
        eager: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return eager

    def _batch(self, ask: dict[str, Any], payload: bytearray) -> tuple[list[Tensor | None], Packed | None, list[Tensor]]:
        """Ids, the same as cumulative lengths if rows are packed, and the coefficients of values, (rows, T) each."""
        rows, length = ask["rows"], ask["seq_len"]
        count = rows * length
        fields = torch.frombuffer(payload, dtype=torch.int32)
        ids = [fields[i * count : (i + 1) * count].long().view(rows, length) for i in range(3 if ask["first"] else 2)]
        packed = Packed.of(ids[2]) if ask["first"] and self.device.type == "cuda" else None
        if packed is not None:
            packed = packed._replace(ends=packed.ends.to(self.device))
            if self.compiled:
                # A different number of texts in the next batch must not trigger a recompile.
                torch._dynamo.maybe_mark_dynamic(packed.ends, 0)
        tensors: list[Tensor | None] = [x.to(self.device) for x in ids]
        if not ask["first"]:
            tensors.append(None)
        rest = fields[len(ids) * count :]
        return tensors, packed, list(rest.view(torch.float32).view(-1, rows, length).to(self.device))

    def forward(self, ask: dict[str, Any], payload: bytearray) -> dict[str, Any]:
        """Values of this rank's rows; for a loss that is linear in log-probabilities also its gradient."""
        # Copying a batch to a GPU waits for everything before it; the values arrive once the pass is done.
        (inputs, targets, first), packed, given = self._batch(ask, payload)
        assert inputs is not None
        c, d = (given[at] if len(given) > at else None for at in range(2))
        of = ask.get("distill")
        began = time.monotonic()
        cast = torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast)
        if not ask["train"]:
            chosen = self.reference if ask["model"] == "reference" else self.decoder
            if chosen is None:
                raise ValueError("there is no reference model")
            was = chosen.training
            chosen.eval()
            with self._compiled(not ask["varied"]), torch.no_grad(), cast:
                beside = self._beside(of, inputs, first, packed, None)
                found = chosen(inputs, targets, first, ask["adapters"], packed, temperature=ask["temperature"], beside=beside)
            chosen.train(was)
        else:
            self._let_go()
            self.decoder.train()
            if ask["micro"] == 0:
                for _, parameter in self.trained:
                    parameter.grad = None
            balance = self.decoder.balance
            if balance is not None:
                balance.begin(torch.tensor(ask["filled"]), ask["seq_len"], micro=ask["micro"], of=ask["of"], world=self.world)
            self._sync(ask["micro"] + 1 == ask["of"])
            # Dropout is a function of the run's seed, the micro-step and the rank: a resume repeats it.
            torch.manual_seed(ask["draws"] + self.rank)
            with cast:
                beside = self._beside(of, inputs, first, packed, d)
                found = self.model(inputs, targets, first, True, packed, c, ask["temperature"], beside)
            if balance is not None:
                balance.end(self.world)
        if self.teacher is not None and beside is not None:
            del beside
            self._as_shards(self.teacher)
        logp, entropy, top1, total, *rest = found
        values = torch.stack([x.detach().float() for x in (logp, entropy, top1, *rest)]).cpu().contiguous()
        seconds = time.monotonic() - began
        if c is not None:
            total.backward(torch.full_like(total, self.world))
            self._synced()
        elif ask["train"]:
            self.values = (logp, entropy, *(rest if self.decoder.value is not None else []))
        return {"payload": raw(values), "seconds": seconds}

    def _let_go(self) -> None:
        """Before a training step: frees the KV cache if it is a notable share of the memory. A small one stays, with its graphs."""
        if self.texts is None:
            return
        gpu = self.device.type == "cuda"
        if not gpu or self.texts.bytes() > torch.cuda.get_device_properties(self.device).total_memory // 64:
            self.texts = self.graphs = None

    def _sync(self, last: bool) -> None:
        """DDP all-reduces gradients once per step, after the last micro-batch. FSDP reduce-scatters after each: until then a rank would
        hold the gradient of every weight, 4 bytes each, on its GPU."""
        if isinstance(self.model, DistributedDataParallel) and not last:
            self.stack.enter_context(self.model.no_sync())

    def _synced(self) -> None:
        self.stack.close()

    def backward(self, ask: dict[str, Any], payload: bytearray) -> dict[str, Any]:
        """Backward from gradients with respect to the values of the last forward pass."""
        if self.values is None:
            raise ValueError("there was no forward pass to go back through")
        values, self.values = self.values, None
        upstream = torch.frombuffer(payload, dtype=torch.float32).to(self.device) * self.world
        parts = list(upstream.view(-1, *values[0].shape))
        of = [values[0], *([values[1]] if ask["entropy"] else []), *values[2:]]
        # A value head that the loss does not depend on has a gradient of 0, as in `Decoder.forward`.
        parts += [torch.zeros_like(parts[0])] * (len(of) - len(parts))
        torch.autograd.backward(of, parts)
        self._synced()
        return {}

    def norm(self, _ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """Global L2 norm of the gradient; and of the step how many tokens experts got (`Balance`), from rank 0."""
        grads = [p.grad for _, p in self.trained if p.grad is not None]
        total = nn.utils.get_total_norm(grads)
        if isinstance(total, DTensor):
            total = total.full_tensor()
        balance = self.decoder.balance
        loads = b"" if balance is None or self.rank != 0 else raw(balance.step.float().cpu())
        return {"norm": repr(float(total)), "payload": loads}

    @torch.no_grad()
    def apply(self, ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """One update with gradients times `scale`, and what it adds to an average of the weights: a += gain · (w - a)."""
        average = ask["average"]
        if average is not None and average["begins"]:
            for parameter, mean in self.average.items():
                mean.copy_(parameter)
        if ask["scale"] != 1.0:
            torch._foreach_mul_([p.grad for _, p in self.trained if p.grad is not None], ask["scale"])
        for group in self.optimizer.param_groups:
            group["lr"] = ask["lr"] * group["lr_scale"]
        for whole, part, view in self.views:
            view.grad = None if whole.grad is None or part is None else own(whole.grad)[part]
        self.optimizer.step()
        for experts in self.decoder.experts:
            experts.move_bias(self.bias_rate)
        if average is not None:
            for parameter, mean in self.average.items():
                mean.lerp_(parameter, average["gain"])
        self.decoder.changed()
        return {"memory": self.memory()}

    @torch.no_grad()
    def show_average(self, _ask: dict[str, Any], _payload: bytearray) -> dict[str, Any]:
        """Exchanges the weights and their average."""
        self._as_shards(self.decoder)
        for parameter, other in self.average.items():
            trained = parameter.detach().clone()
            parameter.copy_(other)
            other.copy_(trained)
        self.decoder.changed()
        return {}

    def memory(self) -> dict[str, int]:
        """Bytes: of the GPU as a whole, of PyTorch's allocator on it, and of this process in main memory."""
        found = {"rss_bytes": resident()}
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            found |= {
                "gpu_total_bytes": total,
                "gpu_used_bytes": total - free,
                "allocated_bytes": torch.cuda.memory_allocated(self.device),
                "peak_bytes": torch.cuda.max_memory_allocated(self.device),
                "reserved_bytes": torch.cuda.memory_reserved(self.device),
            }
        return found
