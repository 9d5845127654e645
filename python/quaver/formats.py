"""Number formats, recipes, and how a matrix is quantized."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _arrays
from ._library import CFormatInfo, CSpec, call, library

_SCALE_FORMATS = ["f32", "power_of_two", "e8m0", "e8m0_floor", "e4m3", "e4m3_4over6"]
_POLICIES = ["unscaled", "current", "delayed", "static"]
_ROUNDINGS = ["nearest_even", "stochastic"]
_ROTATIONS = ["none", "hadamard"]
_BLOCKS = {"tensor": (0, 0), "row": (1, 0)}
ROLES = ["x", "w", "dy"]
SIDES = ["rowwise", "columnwise"]


def index_of(known: list[str], name: str, what: str) -> int:
    if name not in known:
        raise ValueError(f"{what} is {name!r}: choose from {', '.join(known)}")
    return known.index(name)


@dataclass(frozen=True)
class FormatInfo:
    """What a format holds. Formats without infinity saturate; those without NaN give 0 for it."""

    name: str
    storage_bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max: float
    min_normal: float
    min_subnormal: float
    has_infinity: bool
    has_nan: bool


@dataclass(frozen=True)
class Spec:
    """How a matrix is quantized. block: "tensor", "row", "1x128", "128x128", "1x32", "1x16" or "16x16"."""

    format: str = "e4m3"
    block: str = "tensor"
    scale_format: str = "f32"
    policy: str = "current"
    rounding: str = "nearest_even"
    rotation: str = "none"
    margin: int = 0
    shrink: float = 1.0

    def _c(self) -> CSpec:
        try:
            rows, cols = _BLOCKS.get(self.block) or map(int, self.block.split("x"))
        except ValueError:
            raise ValueError(f"block is {self.block!r}: write tensor, row or 1x128") from None
        return CSpec(
            format=_format(self.format),
            block_rows=rows,
            block_cols=cols,
            scale_format=index_of(_SCALE_FORMATS, self.scale_format, "scale_format"),
            policy=index_of(_POLICIES, self.policy, "policy"),
            rounding=index_of(_ROUNDINGS, self.rounding, "rounding"),
            rotation=index_of(_ROTATIONS, self.rotation, "rotation"),
            margin=self.margin,
            shrink=self.shrink,
        )


def _format(name: str) -> int:
    found = ctypes.c_int32()
    call("format_by_name", name.encode(), ctypes.byref(found))
    return found.value


def formats() -> list[FormatInfo]:
    """Every format, from f32 to int8."""
    known = []
    for number in range(11):
        c = CFormatInfo()
        call("describe_format", number, ctypes.byref(c))
        values = {name: getattr(c, name) for name, _ in CFormatInfo._fields_}
        values["name"] = c.name.decode()
        values["has_infinity"] = bool(c.has_infinity)
        values["has_nan"] = bool(c.has_nan)
        known.append(FormatInfo(**values))
    return known


def cast(x: Any, format: str) -> Any:
    """The nearest value of the format to each element, ties to even, saturating, without a scale: float32, of x's shape,
    where x is. x is a NumPy array or a tensor with DLPack: float32, or on a GPU bfloat16 too."""
    if _arrays.is_cuda(x):
        from . import torch_matrix

        return torch_matrix.cast(x, format)
    values = _arrays.floats(x, "x")
    out = np.empty(values.shape, np.float32)
    call("cast", _format(format), _arrays.pointer(values), _arrays.pointer(out), values.size)
    return _arrays.like(x, out)


def recipes() -> dict[str, str]:
    """The names of all recipes, each with what it does."""
    known = {}
    for index in range(library().quaver_recipe_count()):
        name, summary = ctypes.c_char_p(), ctypes.c_char_p()
        call("recipe_at", index, ctypes.byref(name), ctypes.byref(summary))
        known[(name.value or b"").decode()] = (summary.value or b"").decode()
    return known


def recipe_spec(recipe: str, role: str, side: str = "rowwise") -> Spec:
    """How the recipe stores an operand of a linear layer: role "x", "w" or "dy", side "rowwise" or "columnwise"."""
    c = CSpec()
    call("recipe_spec", recipe.encode(), index_of(ROLES, role, "role"), index_of(SIDES, side, "side"), ctypes.byref(c))
    blocks = {size: name for name, size in _BLOCKS.items()}
    return Spec(
        format=formats()[c.format].name,
        block=blocks.get((c.block_rows, c.block_cols), f"{c.block_rows}x{c.block_cols}"),
        scale_format=_SCALE_FORMATS[c.scale_format],
        policy=_POLICIES[c.policy],
        rounding=_ROUNDINGS[c.rounding],
        rotation=_ROTATIONS[c.rotation],
        margin=c.margin,
        shrink=c.shrink,
    )
