"""Quantized matrices: codes, scales and the statistics of the cast."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from . import _arrays
from ._library import CCastSettings, CMatrixView, CStatistics, call, library
from .formats import SIDES, Spec, index_of


@dataclass(frozen=True)
class Statistics:
    """What a cast saw. The members after `amax` are None unless full statistics were asked for."""

    count: int
    nonfinite: int
    saturated: int
    underflowed: int
    amax: float
    min_nonzero: Optional[float] = None
    mean: Optional[float] = None
    standard_deviation: Optional[float] = None
    kurtosis: Optional[float] = None
    sqnr_db: Optional[float] = None
    binades: Optional[tuple[int, ...]] = None  # counts of |x| in [2^(i-40), 2^(i-39))


def statistics_of(c: CStatistics) -> Statistics:
    counts = Statistics(c.count, c.nonfinite, c.saturated, c.underflowed, c.amax)
    if not c.full:
        return counts
    return Statistics(
        c.count,
        c.nonfinite,
        c.saturated,
        c.underflowed,
        c.amax,
        c.min_nonzero,
        c.mean,
        c.standard_deviation,
        c.kurtosis,
        c.sqnr_db,
        tuple(c.binades),
    )


class QuantizedMatrix:
    """A matrix of codes, contiguous along the dimension that a GEMM sums over; made by quantize(). That of a tensor on a
    GPU is there too, and gives tensors where others give NumPy arrays."""

    def __init__(self, handle: ctypes.c_void_p, spec: Spec) -> None:
        self._handle = handle
        self._free = weakref.finalize(self, library().quaver_matrix_free, handle)
        self._free.atexit = False  # threads may compute while the interpreter ends
        self.spec = spec
        self._view = CMatrixView()
        call("matrix_get", handle, ctypes.byref(self._view))

    @property
    def device(self) -> Any:
        """Where it is: "cpu", or the torch.device of a GPU."""
        return "cpu"

    @property
    def shape(self) -> tuple[int, int]:
        """Of the codes: that of the transpose where the matrix was cast columnwise."""
        return self._view.rows, self._view.cols

    @property
    def codes(self) -> Any:
        """The stored bytes, one row of codes per row; FP4 two to a byte, low nibble first. A copy, but on a GPU."""
        return np.ctypeslib.as_array(self._view.codes, (self._view.rows, self._view.row_bytes)).copy()

    @property
    def block_scales(self) -> Any:
        """What the codes of each block are multiplied by; None for one scale per tensor. A copy, but on a GPU."""
        if not self._view.block_scales:
            return None
        return np.ctypeslib.as_array(self._view.block_scales, (self._view.scale_rows, self._view.scale_cols)).copy()

    @property
    def tensor_scale(self) -> float:
        """What all values are multiplied by, beside the scales of blocks."""
        return float(self._view.tensor_scale)

    @property
    def statistics(self) -> Statistics:
        c = CStatistics()
        call("matrix_statistics", self._handle, ctypes.byref(c))
        return statistics_of(c)

    def dequantize(self, dtype: Any = None) -> Any:
        """The values that the codes stand for, rotation undone: float32. dtype: on a GPU, torch.bfloat16 too."""
        _require_float32(dtype)
        out = np.empty(self.shape, np.float32)
        call("dequantize", self._handle, _arrays.pointer(out), out.size)
        return out


def _require_float32(dtype: Any) -> None:
    if dtype is not None and str(dtype) not in ("float32", "torch.float32", "<class 'numpy.float32'>"):
        raise TypeError(f"{dtype} results are computed on GPUs only: leave dtype out, and convert the result")


def quantize(
    x: Any,
    spec: Spec = Spec(),
    *,
    side: str = "rowwise",
    scale: float = 0.0,
    seed: int = 0,
    step: int = 0,
    full_statistics: bool = False,
) -> QuantizedMatrix:
    """Casts a matrix under a spec: a NumPy array, or a tensor with DLPack, float32. A tensor on a GPU may be bfloat16 too,
    and is cast there, on PyTorch's current stream, without a wait; so are the values and GEMMs of its codes.

    side="columnwise" casts the transpose. scale is s in q = cast(x * s) for delayed and static scaling; 0 takes it from
    the matrix itself. seed and step select the random numbers of stochastic rounding and of the rotation's signs.
    """
    settings = CCastSettings(
        spec=spec._c(),
        side=index_of(SIDES, side, "side"),
        detail=1 if full_statistics else 0,
        scale=scale,
        step=step,
        seed=seed,
    )
    if _arrays.is_cuda(x):
        from . import torch_matrix

        return torch_matrix.quantize(x, spec, settings)
    values = _arrays.floats(x, "x", dimensions=2)
    handle = ctypes.c_void_p()
    rows, cols = values.shape
    call("quantize", _arrays.pointer(values), rows, cols, ctypes.byref(settings), ctypes.byref(handle))
    return QuantizedMatrix(handle, spec)


def dequantize(matrix: QuantizedMatrix, dtype: Any = None) -> Any:
    """The values that the codes stand for: float32. dtype: on a GPU, torch.bfloat16 too."""
    return matrix.dequantize(dtype)


def gemm(a: QuantizedMatrix, b: QuantizedMatrix, dtype: Any = None) -> Any:
    """a [M x K] times the transpose of b [N x K], dequantized, summed in FP32: [M x N], float32. dtype: on a GPU,
    torch.bfloat16 too."""
    if str(a.device) != str(b.device):
        raise ValueError(f"a is on {a.device} and b on {b.device}: cast both on one device")
    if a.device != "cpu":
        from . import torch_matrix

        return torch_matrix.gemm(a, b, dtype)
    _require_float32(dtype)
    out = np.empty((a.shape[0], b.shape[0]), np.float32)
    call("gemm", a._handle, b._handle, _arrays.pointer(out), out.size)
    return out
