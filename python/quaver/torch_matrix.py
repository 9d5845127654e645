"""Casts and GEMMs on tensors in a GPU's memory, on PyTorch's current stream. Tensors of other libraries come through
DLPack; results are PyTorch's, in memory of its allocator."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

from ._library import CCastSettings, CDeviceMatrix, CDeviceMemory, CFormatInfo, call
from .formats import Spec
from .quantized import QuantizedMatrix
from .torch_layer import FORMATS, memory_on, readable, stream_of

_CUDA = 2  # as the C interface numbers devices


def _tensor(x: Any, name: str) -> torch.Tensor:
    """x in its own memory, unless it does not begin at a multiple of 16 bytes."""
    tensor: torch.Tensor = x.detach() if isinstance(x, torch.Tensor) else torch.from_dlpack(x)
    if tensor.dtype not in FORMATS:
        raise TypeError(f"{name} has the type {tensor.dtype}: convert it to float32 or bfloat16")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is not contiguous: pass {name}.contiguous()")
    return readable(tensor)


def _format(dtype: Any) -> torch.dtype:
    chosen = torch.float32 if dtype is None else dtype
    if chosen not in FORMATS:
        raise TypeError(f"dtype is {dtype}: results are torch.float32 or torch.bfloat16")
    return chosen  # type: ignore[no-any-return]


def _c(tensor: torch.Tensor) -> CDeviceMatrix:
    return CDeviceMatrix(
        values=tensor.data_ptr(),
        rows=tensor.shape[0],
        cols=tensor.shape[1],
        format=FORMATS[tensor.dtype],
        device=_CUDA,
        gpu=tensor.device.index,
        stream=stream_of(tensor.device),
    )


class CudaMatrix(QuantizedMatrix):
    """A matrix of codes on a GPU. Its tensors are views of the codes' own memory."""

    def __init__(self, handle: ctypes.c_void_p, spec: Spec, memory: torch.Tensor) -> None:
        super().__init__(handle, spec)
        self._memory = memory

    def _bytes(self, address: Any, size: int) -> torch.Tensor:
        first = ctypes.cast(address, ctypes.c_void_p).value - self._memory.data_ptr()  # type: ignore[operator]
        return self._memory[first : first + size]

    @property
    def device(self) -> torch.device:
        return self._memory.device

    @property
    def codes(self) -> torch.Tensor:
        view = self._view
        rows = self._bytes(view.codes, view.rows * view.row_bytes).view(view.rows, view.row_bytes)
        return rows[:, : (view.cols * _storage_bits(view.format) + 7) // 8]

    @property
    def block_scales(self) -> Any:
        view = self._view
        if not view.block_scales:
            return None
        scales = self._bytes(view.block_scales, 4 * view.scale_rows * view.scale_cols)
        return scales.view(torch.float32).view(view.scale_rows, view.scale_cols)

    @property
    def tensor_scale(self) -> float:
        return float(self._bytes(self._view.tensor_scale_address, 4).view(torch.float32).item())

    def dequantize(self, dtype: Any = None) -> torch.Tensor:
        out = torch.empty(self.shape, dtype=_format(dtype), device=self.device)
        call("dequantize_on_device", self._handle, ctypes.byref(_c(out)))
        return out


def _storage_bits(number: int) -> int:
    info = CFormatInfo()
    call("describe_format", number, ctypes.byref(info))
    return int(info.storage_bits)


def quantize(x: Any, spec: Spec, settings: CCastSettings) -> CudaMatrix:
    values = _tensor(x, "x")
    if values.dim() != 2:
        raise ValueError(f"x has {values.dim()} dimensions, not 2")
    matrix, needed = _c(values), CDeviceMemory()
    # Making an engine changes the current GPU.
    with torch.cuda.device(values.device):
        call("cast_memory", ctypes.byref(matrix), ctypes.byref(settings), ctypes.byref(needed))
        kept = memory_on(needed.kept_bytes, values.device)
        scratch = memory_on(needed.scratch_bytes, values.device)
        needed.kept, needed.scratch = kept.data_ptr(), scratch.data_ptr()
        handle = ctypes.c_void_p()
        call(
            "quantize_on_device",
            ctypes.byref(matrix),
            ctypes.byref(settings),
            ctypes.byref(needed),
            ctypes.byref(handle),
        )
    return CudaMatrix(handle, spec, kept)


def gemm(a: QuantizedMatrix, b: QuantizedMatrix, dtype: Any) -> torch.Tensor:
    out = torch.empty((a.shape[0], b.shape[0]), dtype=_format(dtype), device=a.device)
    call("gemm_on_device", a._handle, b._handle, ctypes.byref(_c(out)))
    return out


def cast(x: Any, format: str) -> torch.Tensor:
    values = _tensor(x, "x")
    if values.numel() == 0:
        return values.float()
    columns = math.gcd(values.numel(), 4096)  # the shape does not matter
    rows = values.view(-1, columns if columns >= 64 else values.numel())
    spec = Spec(format=format, policy="unscaled")
    return quantize(rows, spec, CCastSettings(spec=spec._c())).dequantize().view(values.shape)
