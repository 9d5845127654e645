#!/usr/bin/env python3
"""The four linear layers of GPT 350M on one GPU: forward and backward, casts of x, weight and dy included, BF16 x.

torch.nn.Linear in BF16 (autocast), torchao's float8 layer (compiled), quaver.Linear under several recipes, and with
--engine PROGRAM (build/bench/bench_linear_layer) the same layers inside quaver's engine, without Python. First checks the
numbers, then times all of them in turn, round after round, since the GPU's clocks change with its load. Prints one line of
JSON per implementation and layer, then a table of milliseconds (medians of the rounds), and of quaver.Linear over engine
(medians of the rounds' ratios).
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
WARMUP, TIMED = 40, 20  # steps of a round, enqueued at one go, so that the host is ahead as it is in a model
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


def milliseconds(step):
    for _ in range(WARMUP):
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * TIMED)]
    for begin, end in zip(events[::2], events[1::2]):
        begin.record()
        step()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in zip(events[::2], events[1::2]))


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


class Engine:
    """bench_linear_layer, which times the engine's layers when it is asked to."""

    def __init__(self, program, tokens):
        self.process = subprocess.Popen([program, str(tokens)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def milliseconds(self, recipe, layer):
        self.process.stdin.write(f"{recipe} {layer}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the program ended; what it said is above")
        return float(answer)


def timers(layer, engine, arguments):
    """By name, what returns the milliseconds of one round. What fails is told and left out."""
    inputs, outputs = LAYERS[layer]
    x = randn(arguments.tokens, inputs, 1).requires_grad_()
    dy = randn(arguments.tokens, outputs, 2, 1e-3)
    made = {}
    for name in ["torch bf16", *(f"torchao {recipe}" for recipe in arguments.torchao),
                 *(f"quaver.Linear {recipe}" for recipe in arguments.recipes)]:
        try:
            step = make_step(name, inputs, outputs, x, dy)
            milliseconds(step)
            made[name] = lambda step=step: milliseconds(step)
        except Exception as error:
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    for recipe in arguments.recipes if engine else []:
        engine.milliseconds(recipe, layer)
        made[f"engine {recipe}"] = lambda recipe=recipe: engine.milliseconds(recipe, layer)
    return made


def measure(arguments):
    """{name: {layer: milliseconds of each round}}"""
    engine = Engine(arguments.engine, arguments.tokens) if arguments.engine else None
    times = {}
    for layer in LAYERS:
        made = timers(layer, engine, arguments)
        for turn in range(arguments.rounds):
            for name in reversed(list(made)) if turn % 2 else list(made):
                times.setdefault(name, {}).setdefault(layer, []).append(made[name]())
        torch.cuda.empty_cache()
    if engine:
        engine.process.stdin.close()
    return {name: by_layer for name, by_layer in times.items() if set(by_layer) == set(LAYERS)}


def print_rows(times):
    for name, by_layer in times.items():
        for layer, rounds in by_layer.items():
            print(json.dumps({"implementation": name, "layer": layer, "ms": round(statistics.median(rounds), 4),
                              "fastest": round(min(rounds), 4), "slowest": round(max(rounds), 4)}))


def print_line(name, values):
    print(f"{name:34}" + "".join(f"{value:9.3f}" for value in values))


def print_tables(times):
    print(f"{'ms, forward + backward':34}" + "".join(f"{layer:>9}" for layer in LAYERS) + f"{'sum':>9}")
    sums = {name: [sum(of_round) for of_round in zip(*by_layer.values())] for name, by_layer in times.items()}
    for name, by_layer in times.items():
        print_line(name, [statistics.median(rounds) for rounds in (*by_layer.values(), sums[name])])
    for name, by_layer in times.items():
        engine = name.replace("quaver.Linear", "engine")
        if engine == name or engine not in times:
            continue
        pairs = [*zip(by_layer.values(), times[engine].values()), (sums[name], sums[engine])]
        print_line(f"{name} / engine", [statistics.median(a / b for a, b in zip(*pair)) for pair in pairs])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES, help="of quaver")
    parser.add_argument("--torchao", nargs="*", default=["tensorwise"], help="its recipes; none: not measured")
    parser.add_argument("--engine", help="bench_linear_layer, for the time without Python")
    return parser.parse_args()


def main():
    arguments = parse()
    torch.set_float32_matmul_precision("highest")
    checks = [check_recipe(recipe, *LAYERS[layer]) for recipe in arguments.recipes for layer in ("out", "fc")]
    for check in checks:
        print(json.dumps(check), flush=True)
    times = measure(arguments)
    print_rows(times)
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "quaver": quaver.version(),
                      "torchao": getattr(sys.modules.get("torchao"), "__version__", None)}))
    print_tables(times)
    bad = [check for check in checks if not check["good"]]
    if bad:
        sys.exit(f"{len(bad)} of {len(checks)} checks failed: {bad}")


if __name__ == "__main__":
    main()
