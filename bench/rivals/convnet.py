#!/usr/bin/env python3
"""Training steps of ResNet-18 for images of 32 × 32 pixels on one GPU, in PyTorch: the preset resnet-18 of quaver.

BF16 by autocast, channels_last, torch.compile, fused AdamW. Random images and labels that stay on the GPU. Prints one line
of JSON: median images/s of the timed steps, slowest and fastest, peak memory, first and last loss, versions.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.shortcut = None
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        hidden = functional.relu(self.first_norm(self.first(x)))
        added = x if self.shortcut is None else self.shortcut(x)
        return functional.relu(self.second_norm(self.second(hidden)) + added)


class ResNet18(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        blocks, inputs = [], 64
        for stage, width in enumerate((64, 128, 256, 512)):
            for block in range(2):
                blocks.append(Block(inputs, width, 2 if stage > 0 and block == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, classes, bias=False)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--mode", default="default", help="of torch.compile; none: not compiled")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    images = torch.randn(arguments.batch, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(10, (arguments.batch,), device="cuda")
    model = ResNet18(10).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = model if arguments.mode == "none" else torch.compile(model, mode=arguments.mode)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(forward(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    losses = [step() for _ in range(arguments.warmup)]
    seconds = []
    for _ in range(arguments.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        losses.append(step())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    rate = arguments.batch
    print(json.dumps({"trainer": "PyTorch", "mode": arguments.mode, "batch": arguments.batch,
                      "images_per_second": round(rate / statistics.median(seconds)),
                      "slowest": round(rate / max(seconds)), "fastest": round(rate / min(seconds)),
                      "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                      "first_loss": round(losses[0].item(), 4), "last_loss": round(losses[-1].item(), 4),
                      "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}))


if __name__ == "__main__":
    main()
