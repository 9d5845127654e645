#!/usr/bin/env python3
"""Compares the GEMMs of a benchmark with cuBLASLt tuned by hand, on the GPU of this machine.

  bench/rivals/tuned_gemm.py BENCH.json BENCH_TUNED_GEMM [--limit 1.05] [--rounds 2]

BENCH.json is what `quaver bench --json` wrote in the same sitting; the program times every algorithm that cuBLASLt proposes
for the same GEMMs. fp8 is one scale per tensor: fp8-delayed. Exit status 1 where a GEMM takes more than LIMIT times as long.
"""
import argparse
import json
import re
import subprocess
import sys

RECIPES = {"bf16": "bf16", "fp8": "fp8-delayed"}


def layers_of(bench):
    """{(in, out): (subject, tokens)} with the most tokens."""
    found = {}
    for row in bench["measurements"]:
        sizes = re.match(r".*?(\d+) → (\d+), (\d+) ", row["subject"]) if row["workload"] == "layer" else None
        if not sizes:
            continue
        inputs, outputs, tokens = map(int, sizes.groups())
        if tokens > found.get((inputs, outputs), ("", 0))[1]:
            found[inputs, outputs] = (row["subject"], tokens)
    return found


def tuned(program, tokens, shapes):
    words = [str(size) for shape in shapes for size in shape]
    out = subprocess.run([program, str(tokens), *words], check=True, text=True, capture_output=True).stdout
    return {(row["in"], row["out"], row["part"], row["format"]): row for row in map(json.loads, out.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("program")
    parser.add_argument("--limit", type=float, default=1.05)
    parser.add_argument("--rounds", type=int, default=2, help="how often to tune; the fastest counts")
    options = parser.parse_args()
    with open(options.bench) as file:
        bench = json.load(file)
    layers = layers_of(bench)
    if not layers:
        sys.exit(f"tuned_gemm.py: {options.bench} has no layers")
    times = {(row["subject"], row["part"], row["recipe"]): row for row in bench["measurements"]}
    by_tokens = {}
    for shape, (_, tokens) in layers.items():
        by_tokens.setdefault(tokens, []).append(shape)
    best = {}
    for tokens, shapes in by_tokens.items():
        for _ in range(options.rounds):
            for key, row in tuned(options.program, tokens, shapes).items():
                best[key] = min(best.get(key, row), row, key=lambda each: each["ms"])
    print(f"{'in → out':>14} {'GEMM':>6} {'':>5} {'cuBLASLt ms':>12} {'first ms':>9} {'bench ms':>9} {'ratio':>6}")
    slow = 0
    for (inputs, outputs, part, kind), row in best.items():
        measured = times.get((layers[inputs, outputs][0], part, RECIPES[kind]))
        if measured is None:
            continue
        ratio = 1e3 * measured["seconds"] / row["ms"]
        slow += ratio > options.limit
        print(f"{f'{inputs} → {outputs}':>14} {part:>6} {kind:>5} {row['ms']:12.4f} {row['first_ms']:9.4f} "
              f"{1e3 * measured['seconds']:9.4f} {ratio:6.3f}{'  slower' if ratio > options.limit else ''}")
    print(f"{slow} slower than {options.limit:g} times cuBLASLt tuned by hand")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
