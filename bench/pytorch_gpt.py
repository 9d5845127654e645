#!/usr/bin/env python3
"""Whole training steps of GPT 350M in PyTorch on one GPU: what `quaver bench step --preset gpt-350m` is compared with.

24 layers of width 1024, 16 heads, T 1024, vocabulary 50,304, tied head; AdamW (fused), clipping at norm 1, 524,288 tokens
per step. Compiled by torch.compile, attention by scaled_dot_product_attention. Linear layers but the head are FP8 where
torchao is installed and --fp8 is given (dynamic scaling, one scale per tensor). Prints one line: milliseconds per step
(median), tokens/s, peak memory, and the loss of the first and the last step, which must fall.

  pytorch_gpt.py [--precision bf16|tf32] [--fp8] [--batch N] [--steps N] [--warmup N]
"""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, CONTEXT, VOCAB, STEP_TOKENS = 24, 1024, 16, 1024, 50304, 524288


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCAB).float(), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["bf16", "tf32"], default="bf16")
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt().cuda()
    if options.fp8:
        from torchao.float8 import convert_to_float8_training

        convert_to_float8_training(model, module_filter_fn=lambda module, name: name != "head")
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    accumulation = STEP_TOKENS // (options.batch * CONTEXT)
    generator = torch.Generator(device="cuda").manual_seed(2)
    # Words of a skewed distribution, so that there is something to learn.
    weights = 1.0 / torch.arange(1, VOCAB + 1, device="cuda")
    autocast = torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.precision == "bf16")

    def step():
        total = 0.0
        for _ in range(accumulation):
            tokens = torch.multinomial(weights, options.batch * (CONTEXT + 1), replacement=True, generator=generator)
            tokens = tokens.view(options.batch, CONTEXT + 1)
            with autocast:
                loss = compiled(tokens[:, :-1], tokens[:, 1:]) / accumulation
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(total)

    losses, times = [], []
    for i in range(options.warmup + options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        losses.append(step())
        torch.cuda.synchronize()
        if i >= options.warmup:
            times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    name = "torchao FP8" if options.fp8 else f"PyTorch {options.precision}"
    print(
        f"{name} {torch.__version__}: {1000 * seconds:.0f} ms per step, {STEP_TOKENS / seconds:,.0f} tokens/s, "
        f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, loss {losses[0]:.3f} to {losses[-1]:.3f}"
    )


if __name__ == "__main__":
    main()
