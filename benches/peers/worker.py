"""PyTorch's side of `llmtui bench train`: the same four models on the same batches, one process for each variant.

    python worker.py SIZE MODE PRECISION THREADS     MODE: eager | compile     PRECISION: f32 | bf16

The process warms up, prints a line `{"ready": ...}`, and then waits. For each line `SECONDS` on its input it measures whole
training steps (forward, backward, clipping, AdamW) for that long and prints one line of JSON. It ends with its input.
"""

import json
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

MIN_STEPS = 3
WARM_UP = 3


class Gpt2Block(nn.Module):
    """Pre-norm block with LayerNorm, multi-head attention, GELU in its tanh form, biases."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    """Pre-norm block with RMSNorm, rotary positions, grouped queries, SwiGLU, no biases."""

    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        kv = kv_heads * self.head
        self.q, self.k, self.v = (nn.Linear(width, n, bias=False) for n in (width, kv, kv))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def attend(self, x, turns):
        batch, length, width = x.shape
        q, k, v = self.q(x), self.k(x), self.v(x)
        q = turned(q.view(batch, length, self.heads, self.head).transpose(1, 2), turns)
        k = turned(k.view(batch, length, self.kv_heads, self.head).transpose(1, 2), turns)
        v = v.view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        q, k = q.to(v.dtype), k.to(v.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x, turns):
        x = x + self.attend(self.norm1(x), turns)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def turned(x, turns):
    """Feature j of a head is paired with j + half and the pair turned."""
    cos, sin = turns
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Decoder(nn.Module):
    """Embeddings, blocks, last norm, and a head that shares the embedding's weights."""

    def __init__(self, vocab, width, blocks, norm, positions=None, head=None):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = positions and nn.Embedding(positions, width)
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.turns = None
        if head is not None:
            length, size = head
            angle = torch.outer(torch.arange(length), 10000 ** -(torch.arange(0, size, 2) / size))
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs)
        if self.positions is not None:
            x = x + self.positions.weight[: inputs.shape[1]]
            for block in self.blocks:
                x = block(x)
        else:
            for block in self.blocks:
                x = block(x, (self.cos, self.sin))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def gpt2(vocab, length, width, layers, heads):
    blocks = [Gpt2Block(width, heads) for _ in range(layers)]
    return Decoder(vocab, width, blocks, nn.LayerNorm(width), positions=length)


def llama(vocab, length, width, layers, heads, kv_heads, inner):
    blocks = [LlamaBlock(width, heads, kv_heads, inner) for _ in range(layers)]
    norm = nn.RMSNorm(width, eps=1e-5)
    return Decoder(vocab, width, blocks, norm, head=(length, width // heads))


# vocabulary, sequence length, sequences of a step, model: src/cli/bench/sizes.rs has the same.
SIZES = {
    "S": (65, 64, 12, lambda: gpt2(65, 64, 128, 4, 4)),
    "M": (65, 256, 16, lambda: gpt2(65, 256, 384, 6, 6)),
    "L": (8192, 512, 4, lambda: llama(8192, 512, 512, 8, 8, 4, 1408)),
    "XL": (50257, 64, 4, lambda: gpt2(50257, 64, 768, 12, 12)),
}


class Trainee:
    def __init__(self, size, mode, precision):
        vocab, length, rows, build = SIZES[size]
        self.model = build()
        self.bf16 = precision == "bf16"
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1, fused=True
        )
        self.run = torch.compile(self.model) if mode == "compile" else self.model
        self.inputs = torch.randint(0, vocab, (rows, length))
        self.targets = torch.randint(0, vocab, (rows, length))
        self.tokens = rows * length

    def step(self):
        """One whole step; seconds."""
        begun = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.run(self.inputs, self.targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        loss.item()
        return time.perf_counter() - begun


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def say(**words):
    print(json.dumps(words), flush=True)


def main():
    size, mode, precision, threads = sys.argv[1:5]
    begun = time.time()
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    trainee = Trainee(size, mode, precision)
    trainee.step()
    first = time.time() - begun
    for _ in range(WARM_UP - 1):
        trainee.step()
    parameters = sum(p.numel() for p in trainee.model.parameters())
    say(ready=True, n_params=parameters, first_step_s=first, torch=torch.__version__)
    for line in sys.stdin:
        seconds, times = float(line), []
        begun = time.perf_counter()
        while len(times) < MIN_STEPS or time.perf_counter() - begun < seconds:
            times.append(trainee.step())
        median = statistics.median(times)
        say(
            tok_per_sec=trainee.tokens / median,
            step_ms_median=1e3 * median,
            steps=len(times),
            peak_rss_bytes=peak_rss(),
        )


if __name__ == "__main__":
    main()
