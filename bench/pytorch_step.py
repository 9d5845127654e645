#!/usr/bin/python3
"""The reference model of bench/step.cpp in PyTorch, FP32 on the CPU: what `make bench` compares our step with.

4 layers, width 256, 4 heads, T 256, B 16, vocabulary 512; AdamW, clipping at norm 1. The same model written in several
ways, since PyTorch's speed depends on which of its kernels a line of Python reaches: tanh GELU (as in our model) or erf
GELU, a mask filled in or added or left to scaled_dot_product_attention, eager or compiled. One line per variant with
milliseconds and tokens/s, the fastest last.

  pytorch_step.py [--steps N]
"""
import argparse
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCAB = 4, 256, 4, 256, 16, 512
WARMUP = 3
HAS_SDPA = hasattr(F, "scaled_dot_product_attention")
HAS_COMPILE = hasattr(torch, "compile")


def gelu_of(name):
    if name == "erf":
        return F.gelu
    return lambda x: F.gelu(x, approximate="tanh")


def attend(q, k, v, mask, kind):
    if kind == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    logits = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5)
    logits = logits + mask if kind == "add" else logits.masked_fill(mask, float("-inf"))
    return logits.softmax(dim=-1) @ v


class Block(nn.Module):
    def __init__(self, gelu, attention):
        super().__init__()
        self.gelu, self.kind = gelu_of(gelu), attention
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(x).split(WIDTH, dim=2))
        return self.out(attend(q, k, v, mask, self.kind).transpose(1, 2).reshape(b, t, WIDTH))

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, gelu, attention):
        super().__init__()
        self.table, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block(gelu, attention) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        hidden = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        if attention == "add":
            hidden = torch.zeros(CONTEXT, CONTEXT).masked_fill(hidden, float("-inf"))
        self.register_buffer("mask", hidden)

    def forward(self, tokens, targets):
        x = self.table(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def make_optimizer(parameters):
    try:
        return torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    except (TypeError, RuntimeError):  # fused on the CPU is younger than some PyTorch
        return torch.optim.AdamW(parameters, lr=1e-3)


def measure(gelu, attention, execution, steps):
    torch.manual_seed(1)
    model = Gpt(gelu, attention)
    run = torch.compile(model) if execution == "compiled" else model
    optimizer = make_optimizer(model.parameters())
    times = []
    for step in range(WARMUP + steps):
        batch = torch.randint(VOCAB, (BATCH, CONTEXT + 1))
        start = time.perf_counter()
        loss = run(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= WARMUP:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def variants():
    attentions = ["fill", "add"] + (["sdpa"] if HAS_SDPA else [])
    for gelu in ("tanh", "erf"):
        for attention in attentions:
            yield gelu, attention, "eager"
    if HAS_COMPILE:
        for gelu in ("tanh", "erf"):
            yield gelu, attentions[-1], "compiled"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=11, help="timed, of each variant")
    arguments = parser.parse_args()
    line = "PyTorch {} {:<22} {:9.1f} ms {:9.0f} tokens/s"
    found = []
    for gelu, attention, execution in variants():
        name = f"{gelu},{attention},{execution}"
        try:
            seconds = measure(gelu, attention, execution, arguments.steps)
        except Exception as error:  # a variant this PyTorch or machine cannot run, such as compiling without a compiler
            print(f"{name}: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
            continue
        found.append((seconds, name))
        print(line.format(torch.__version__, name, 1000 * seconds, BATCH * CONTEXT / seconds), flush=True)
    seconds, name = min(found)
    print(line.format(torch.__version__, f"best:{name}", 1000 * seconds, BATCH * CONTEXT / seconds))


if __name__ == "__main__":
    main()
