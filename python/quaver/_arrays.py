"""NumPy arrays and tensors as the library reads them: contiguous float32 in CPU memory, never copied on the way in."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ._library import FLOATS


def is_torch(x: Any) -> bool:
    return type(x).__module__.split(".")[0] == "torch"


def is_cuda(x: Any) -> bool:
    """Whether x is a tensor in a GPU's memory."""
    if is_torch(x):
        return bool(x.is_cuda)
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack_device__"):
        return False
    cuda, cuda_managed = 2, 13  # as DLPack numbers devices
    return int(x.__dlpack_device__()[0]) in (cuda, cuda_managed)


def floats(x: Any, name: str, dimensions: Optional[int] = None) -> np.ndarray:
    """x as an array that shares its memory. TypeError or ValueError, with the remedy, where that cannot be."""
    if is_torch(x):
        x = x.detach()
        if x.device.type != "cpu":
            raise TypeError(f"{name} is on {x.device}: only CPU tensors are supported here; call .cpu() on it")
    if not isinstance(x, np.ndarray):
        if not hasattr(x, "__dlpack__"):
            raise TypeError(f"{name} is a {type(x).__name__}: pass a NumPy array or a tensor with DLPack")
        if not is_torch(x) or str(x.dtype) == "torch.float32":
            x = np.from_dlpack(x)
    if str(x.dtype) not in ("float32", "torch.float32"):
        raise TypeError(f"{name} has the type {x.dtype}, not float32: convert it with .astype(numpy.float32) or .float()")
    if not x.flags.c_contiguous:
        raise ValueError(f"{name} is not contiguous: pass numpy.ascontiguousarray({name}) or {name}.contiguous()")
    if not x.flags.aligned or not x.dtype.isnative:
        raise ValueError(f"{name} is not aligned or has another byte order: pass {name}.astype(numpy.float32)")
    if dimensions is not None and x.ndim != dimensions:
        raise ValueError(f"{name} has {x.ndim} dimensions, not {dimensions}")
    return x


def pointer(x: np.ndarray) -> Any:
    return x.ctypes.data_as(FLOATS)


def like(original: Any, result: np.ndarray) -> Any:
    """The result as a tensor where the original is one; they share memory."""
    if not is_torch(original):
        return result
    import torch

    return torch.from_numpy(result)
