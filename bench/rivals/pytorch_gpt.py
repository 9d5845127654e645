#!/usr/bin/env python3
"""The preset gpt-350m in PyTorch, one GPU: whole optimizer steps, as `quaver bench step --preset gpt-350m` runs them.

24 layers, width 1024, 16 heads, context 1024, vocabulary 50304, tanh GELU, learned positions, tied head. FP32 weights,
gradients and AdamW moments; activations in BF16 (FP32 with --precision tf32); head and loss in BF16 under FP8 too; norm
clipped at 1. Prints one line of JSON: the median tokens/s of the timed steps, and the loss of every step.
"""
import argparse
import dataclasses
import json
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, CONTEXT, VOCAB = 1024, 16, 1024, 50304
WARMUP = 2  # the first step compiles


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Body(nn.Module):  # all but the head
    def __init__(self, layers, dtype):
        super().__init__()
        self.dtype = dtype
        self.table, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        x = (self.table(tokens) + self.positions.weight).to(self.dtype)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).to(self.dtype)


def chunk_loss(x, weight, targets):
    """Sum of the losses of some tokens, and its gradients."""
    logits = (x @ weight.t()).float()
    log_sum = logits.logsumexp(dim=1, keepdim=True)
    is_target = torch.arange(VOCAB, device=x.device) == targets[:, None]
    loss = (log_sum.squeeze(1) - torch.where(is_target, logits, 0).sum(dim=1)).sum()
    gradient = ((logits - log_sum).exp() - is_target.float()).to(x.dtype)
    return loss, gradient @ weight, gradient.t() @ x


class ChunkedHead(torch.autograd.Function):
    """Head and loss, a chunk of the tokens at a time with its backward pass: the logits never exist as a whole."""

    @staticmethod
    def forward(ctx, x, table, targets, chunks, compute):
        weight, loss = table.to(x.dtype), 0
        dx, dtable = torch.empty_like(x), torch.zeros_like(table)
        for part, dpart, target in zip(x.chunk(chunks), dx.chunk(chunks), targets.chunk(chunks)):
            part_loss, gradient, weight_gradient = compute(part, weight, target)
            loss = loss + part_loss
            dpart.copy_(gradient)
            dtable += weight_gradient
        ctx.save_for_backward(dx, dtable)
        return loss / len(x)

    @staticmethod
    def backward(ctx, gradient):
        dx, dtable = ctx.saved_tensors
        scale = gradient / len(dx)
        return dx * scale.to(dx.dtype), dtable * scale, None, None, None


def head_loss(x, table, targets):
    return F.cross_entropy(F.linear(x, table.to(x.dtype)).float(), targets)


def to_fp8(body, arguments):
    from torchao.float8 import Float8GemmConfig, Float8LinearConfig, _auto_filter_for_recipe, convert_to_float8_training

    config = Float8LinearConfig.from_recipe_name(arguments.recipe)
    if arguments.fast_dgrad:
        config = dataclasses.replace(config, gemm_config_grad_input=Float8GemmConfig(use_fast_accum=True))
    wanted = None if arguments.layers_in_fp8 == "all" else _auto_filter_for_recipe(arguments.recipe, [])
    convert_to_float8_training(body, config=config, module_filter_fn=wanted)


def choose_attention(name):
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(name == "cudnn")
    torch.backends.cuda.enable_flash_sdp(name == "flash")


class Trainer:
    def __init__(self, arguments):
        self.arguments = arguments
        low = arguments.precision != "tf32"
        if low:
            choose_attention(arguments.attention)
        torch.set_float32_matmul_precision("high")
        self.cast = torch.autocast("cuda", torch.bfloat16, enabled=low)
        torch.manual_seed(1)
        with torch.device("cuda"):
            self.body = Body(arguments.layers, torch.bfloat16 if low else torch.float32)
        if arguments.precision == "fp8-torchao":
            to_fp8(self.body, arguments)
        groups = [{"params": [p for p in self.body.parameters() if (p.ndim == 2) == matrices], "weight_decay": decay}
                  for matrices, decay in ((True, 0.1), (False, 0.0))]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.compile()

    def compile(self):
        mode = {"mode": self.arguments.mode, "dynamic": False}
        if self.arguments.scope == "block":
            for block in self.body.blocks:
                block.compile(**mode)
        self.run = torch.compile(self.body, **mode) if self.arguments.scope == "model" else self.body
        self.compute = torch.compile(chunk_loss if self.arguments.loss_chunks else head_loss, **mode)

    def loss(self, tokens):
        with self.cast:
            x = self.run(tokens[:, :-1]).view(-1, WIDTH)
        targets, table = tokens[:, 1:].reshape(-1), self.body.table.weight
        if self.arguments.loss_chunks:
            return ChunkedHead.apply(x, table, targets, self.arguments.loss_chunks, self.compute)
        return self.compute(x, table, targets)

    def step(self, tokens):
        total = torch.zeros((), device="cuda")
        for part in tokens.chunk(self.arguments.accumulation):
            loss = self.loss(part) / self.arguments.accumulation
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.body.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total.item()  # waits for the step


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=["bf16", "tf32", "fp8-torchao"], default="bf16")
    parser.add_argument("--batch", type=int, default=64, help="sequences per micro-step")
    parser.add_argument("--accumulation", type=int, default=8, help="micro-steps per step")
    parser.add_argument("--steps", type=int, default=5, help=f"timed, after {WARMUP} others")
    parser.add_argument("--recipe", choices=["tensorwise", "rowwise"], default="tensorwise", help="of torchao")
    parser.add_argument("--layers-in-fp8", choices=["all", "auto"], default="all", help="auto: by torchao's own filter")
    parser.add_argument("--fast-dgrad", action="store_true", help="fast accumulation in dgrad too, as quaver does")
    parser.add_argument("--attention", choices=["cudnn", "flash"], default="cudnn")
    parser.add_argument("--mode", default="default", help="of torch.compile, such as max-autotune-no-cudagraphs")
    parser.add_argument("--scope", choices=["model", "block", "none"], default="model", help="what is compiled")
    parser.add_argument("--loss-chunks", type=int, default=8, help="of head and loss per micro-step; 0: cross_entropy")
    parser.add_argument("--layers", type=int, default=24)
    return parser.parse_args()


def main():
    arguments = parse()
    trainer = Trainer(arguments)
    sequences = arguments.batch * arguments.accumulation
    generator = torch.Generator("cuda").manual_seed(2)
    losses, speeds = [], []
    for _ in range(WARMUP + arguments.steps):
        tokens = torch.randint(VOCAB, (sequences, CONTEXT + 1), device="cuda", generator=generator)
        torch.cuda.synchronize()
        start = time.perf_counter()
        losses.append(round(trainer.step(tokens), 4))
        speeds.append(sequences * CONTEXT / (time.perf_counter() - start))
    timed = speeds[WARMUP:]
    result = vars(arguments) | {
        "tokens_per_second": round(statistics.median(timed)), "range": [round(min(timed)), round(max(timed))],
        "peak_memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
        "reserved_memory_gib": round(torch.cuda.max_memory_reserved() / 2**30, 1),
        "first_loss": losses[0], "last_loss": losses[-1], "losses": losses, "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
        "torchao": getattr(sys.modules.get("torchao"), "__version__", None)}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
