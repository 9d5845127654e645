"""Trains a small GPT in two recipes and draws their losses: python3 train.py [folder]"""

import sys
from pathlib import Path

import quaver

COLORS = {"bf16": "#4477aa", "fp8-delayed": "#cc6677"}
TOML = """
[data]
kind = "synthetic"
[model]
layers = 2
width = 64
heads = 2
context = 32
[train]
steps = 30
batch = 8
"""


def train(folder: Path, recipe: str) -> None:
    settings = {"precision.recipe": recipe, "run.dir": folder / recipe}
    result = quaver.Trainer(toml=TOML, settings=settings).train()
    print(f"{recipe}: validation loss {result.validation_loss:.4f} after {result.steps} steps, {result.directory}")


def draw(runs: list[quaver.Run], width: int = 640, height: int = 360) -> str:
    losses = [run.metrics["loss"] for run in runs]
    last = max(int(steps[-1]) for steps, _ in losses)
    low, high = min(values.min() for _, values in losses), max(values.max() for _, values in losses)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">']
    for row, (run, (steps, values)) in enumerate(zip(runs, losses)):
        xs = 20 + steps / last * (width - 40)
        ys = 20 + (high - values) / (high - low) * (height - 40)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys))
        color = COLORS[run.recipe]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 160}" y="{40 + 20 * row}" fill="{color}">{run.recipe} {values[-1]:.3f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    for recipe in COLORS:
        train(folder, recipe)
    plot = folder / "losses.svg"
    plot.write_text(draw(quaver.read_runs(folder)))
    print(f"wrote {plot}")


if __name__ == "__main__":
    main()
