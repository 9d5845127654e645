#!/usr/bin/python3
"""The reference model of bench/step.cpp in PyTorch, eager FP32 on the CPU: what `make bench` compares our step with.

4 layers, width 256, 4 heads, T 256, B 16, vocabulary 512; AdamW, clipping at norm 1. Prints milliseconds and tokens/s.
"""
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCAB = 4, 256, 4, 256, 16, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(x).split(WIDTH, dim=2))
        logits = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5)
        weights = logits.masked_fill(mask, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, WIDTH))

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1))

    def forward(self, tokens, targets):
        x = self.table(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def main():
    torch.manual_seed(1)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times = []
    for step in range(14):
        batch = torch.randint(VOCAB, (BATCH, CONTEXT + 1))
        start = time.perf_counter()
        loss = model(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= 3:
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    print(f"{1000 * median:.1f} {BATCH * CONTEXT / median:.0f} {torch.__version__}")


if __name__ == "__main__":
    main()
