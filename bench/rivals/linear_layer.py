#!/usr/bin/env python3
"""The four linear layers of GPT 350M on one GPU: forward and backward, casts of x, weight and dy included, BF16 x.

torch.nn.Linear in BF16 (autocast), torchao's float8 layer (compiled), quaver.Linear under several recipes, and with
--engine PROGRAM (build/bench/bench_linear_layer) the same layers inside quaver's engine, without Python. First checks the
numbers, then times. Prints one line of JSON per implementation and layer, then a table of milliseconds.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

import quaver

LAYERS = {"qkv": (1024, 3072), "out": (1024, 1024), "fc": (1024, 4096), "proj": (4096, 1024)}
RECIPES = ["bf16", "fp8-delayed", "fp8-current", "fp8-block"]
WARMUP_SECONDS = 0.7  # the GPU's clocks fall under load; bench/linear_layer.cpp waits as long
# Root mean square error against FP32: E4M3 has 3 bits of mantissa, E5M2 2, BF16 7; codes agree, sums are rounded.
FORMAT_ERROR = {"bf16": 0.006, "fp8-delayed": 0.08, "fp8-current": 0.08, "fp8-block": 0.06}


def relative_error(found, expected):
    expected = expected.detach().double()
    return ((found.detach().double() - expected).norm() / expected.norm()).item()


def randn(rows, cols, seed, deviation=1.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return deviation * torch.randn(rows, cols, generator=generator, device="cuda", dtype=torch.bfloat16)


def check_recipe(recipe, inputs, outputs):
    """Worst errors of y, dx and dw: against the same layer on the CPU, and against torch in FP32; and of codes."""
    tokens = 1024
    layer = quaver.Linear(inputs, outputs, recipe=recipe, device="cuda")
    cpu = quaver.LinearLayer(inputs, outputs, bias=True, recipe=recipe)
    x, dy = randn(tokens, inputs, 1).requires_grad_(), randn(tokens, outputs, 2, 1e-3)
    weight, bias, wide = layer.weight.detach(), layer.bias.detach(), x.detach().float()
    cpu.set_bias(bias.cpu())
    for _ in range(2):  # the second time with delayed scales
        x.grad = layer.weight.grad = None
        cpu.set_weight(weight.cpu())
        y = layer(x)
        kept = y.grad_fn.saved_tensors[0].detach().cpu()
        y.backward(dy)
        cpu.clear_gradients()
        on_cpu = [cpu.forward(wide.cpu()), cpu.backward(dy.float().cpu()), cpu.weight_gradient()]
        quaver.end_step([layer])
        cpu.end_step()
    found = [y, x.grad, layer.weight.grad]
    exact = [wide @ weight.t() + bias, dy.float() @ weight, dy.float().t() @ wide]
    against_cpu = max(relative_error(a, torch.from_numpy(b).cuda()) for a, b in zip(found, on_cpu))
    against_torch = max(relative_error(a, b) for a, b in zip(found, exact))
    wrong_codes = 0
    if recipe in ("fp8-current", "fp8-block"):
        codes = quaver.quantize(wide.cpu(), quaver.recipe_spec(recipe, "x", "columnwise"), side="columnwise").codes
        wrong_codes = int((kept[: codes.size] != torch.from_numpy(codes.reshape(-1))).sum())
    observed = () if recipe == "bf16" else ("x", "w", "dy")  # BF16 tensors are not cast
    same_amax = all(layer.statistics(role).amax == cpu.statistics(role).amax for role in observed)
    # BF16 results, and fast accumulation: 14 bits of sums.
    good = against_cpu < 5e-3 and against_torch < FORMAT_ERROR[recipe] and wrong_codes == 0 and same_amax
    return {"check": recipe, "in": inputs, "out": outputs, "against_cpu_engine": round(against_cpu, 5),
            "against_torch_fp32": round(against_torch, 5), "wrong_codes": wrong_codes, "same_amax": same_amax, "good": good}


def milliseconds(step, repeats):
    end_of_warmup = time.monotonic() + WARMUP_SECONDS
    while time.monotonic() < end_of_warmup:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * repeats)]
    for begin, end in zip(events[::2], events[1::2]):
        begin.record()
        step()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in zip(events[::2], events[1::2]))


def torch_step(layer, x, dy):
    def step():
        x.grad = layer.weight.grad = layer.bias.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(x)
        y.backward(dy)
    return step


def quaver_step(layer, x, dy):
    def step():
        x.grad = layer.weight.grad = layer.bias.grad = None
        layer._cast_weight = None  # as after an optimizer step
        layer(x).backward(dy)
    return step


def torchao_layer(inputs, outputs, recipe):
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    model = nn.Sequential(nn.Linear(inputs, outputs, device="cuda"))
    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe))
    model[0].compile(dynamic=False)
    return model[0]


def make_step(name, inputs, outputs, x, dy):
    kind, _, recipe = name.partition(" ")
    if kind == "quaver.Linear":
        layer = quaver.Linear(inputs, outputs, recipe=recipe, device="cuda")
        step = quaver_step(layer, x, dy)
        for _ in range(2):  # delayed scales
            step()
            quaver.end_step([layer])
        return step
    if kind == "torchao":
        return torch_step(torchao_layer(inputs, outputs, recipe), x, dy)
    return torch_step(nn.Linear(inputs, outputs, device="cuda"), x, dy)


def time_layer(name, layer, arguments):
    inputs, outputs = LAYERS[layer]
    x = randn(arguments.tokens, inputs, 1).requires_grad_()
    dy = randn(arguments.tokens, outputs, 2, 1e-3)
    torch.cuda.reset_peak_memory_stats()
    times = milliseconds(make_step(name, inputs, outputs, x, dy), arguments.repeats)
    return {"implementation": name, "layer": layer, "in": inputs, "out": outputs, "tokens": arguments.tokens,
            "ms": round(statistics.median(times), 4), "fastest": round(times[0], 4), "slowest": round(times[-1], 4),
            "peak_memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}


def engine_rows(recipe, arguments):
    lines = subprocess.run([arguments.engine, str(arguments.tokens), recipe], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return [json.loads(line) for line in lines]


def report(rows):
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def measure(arguments):
    """What fails is told and left out of the table."""
    def layers_of(name):
        return name, lambda: [time_layer(name, layer, arguments) for layer in LAYERS]

    jobs = [layers_of("torch bf16")]
    for recipe in arguments.recipes:
        jobs.append(layers_of(f"quaver.Linear {recipe}"))
        if arguments.engine:
            jobs.append((f"engine {recipe}", lambda recipe=recipe: engine_rows(recipe, arguments)))
    jobs += [layers_of(f"torchao {recipe}") for recipe in arguments.torchao]
    rows = []
    for name, job in jobs:
        try:
            rows += report(job())
        except Exception as error:
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
    return rows


def print_table(rows):
    times = {}
    for row in rows:
        times.setdefault(row["implementation"], {})[row["layer"]] = row["ms"]
    print(f"{'ms, forward + backward':28}" + "".join(f"{layer:>9}" for layer in LAYERS) + f"{'sum':>9}")
    for name, by_layer in times.items():
        if set(by_layer) == set(LAYERS):
            print(f"{name:28}" + "".join(f"{by_layer[layer]:9.3f}" for layer in LAYERS) + f"{sum(by_layer.values()):9.3f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES, help="of quaver")
    parser.add_argument("--torchao", nargs="*", default=["tensorwise"], help="its recipes; none: not measured")
    parser.add_argument("--engine", help="bench_linear_layer, for the time without Python")
    return parser.parse_args()


def main():
    arguments = parse()
    torch.set_float32_matmul_precision("highest")
    checks = [check_recipe(recipe, *LAYERS[layer]) for recipe in arguments.recipes for layer in ("out", "fc")]
    report(checks)
    rows = measure(arguments)
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "quaver": quaver.version(),
                      "torchao": getattr(sys.modules.get("torchao"), "__version__", None)}))
    print_table(rows)
    bad = [check for check in checks if not check["good"]]
    if bad:
        sys.exit(f"{len(bad)} of {len(checks)} checks failed: {bad}")


if __name__ == "__main__":
    main()
