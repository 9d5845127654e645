"""FP8 and FP4 casts, GEMMs, linear layers and training of quaver, on NumPy arrays and PyTorch tensors.

The functions call libquaver through its C interface; nothing is compiled here. The library is the one that
QUAVER_LIBRARY names, the one installed beside this package, or the one on the loader's path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._library import Error, version
from .formats import FormatInfo, Spec, cast, formats, recipe_spec, recipes
from .layer import LinearLayer
from .quantized import QuantizedMatrix, Statistics, dequantize, gemm, quantize
from .runs import Run, read_runs
from .training import Evaluation, Step, Trainer, TrainingResult

if TYPE_CHECKING:
    from .torch_layer import Linear, end_step

__all__ = [
    "Error",
    "Evaluation",
    "FormatInfo",
    "Linear",
    "LinearLayer",
    "QuantizedMatrix",
    "Run",
    "Spec",
    "Statistics",
    "Step",
    "Trainer",
    "TrainingResult",
    "cast",
    "dequantize",
    "end_step",
    "formats",
    "gemm",
    "quantize",
    "read_runs",
    "recipe_spec",
    "recipes",
    "version",
]


def __getattr__(name: str) -> Any:
    # PyTorch is imported by whoever uses quaver.Linear, and by nobody else.
    if name in ("Linear", "end_step"):
        from . import torch_layer

        return getattr(torch_layer, name)
    raise AttributeError(f"module 'quaver' has no attribute {name!r}")
