"""A linear layer with a recipe's casts and GEMMs, on NumPy arrays."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Optional, Sequence

import numpy as np

from . import _arrays
from ._library import CLinearSettings, CStatistics, call, library, texts
from .formats import ROLES, index_of
from .quantized import Statistics, statistics_of

_DEVICES = ["auto", "cpu", "cuda"]


class LinearLayer:
    """y = x·wᵀ + b with the casts and GEMMs of a recipe.

    A step: forward and backward (any number of times, in turn), read the gradients, end_step(), which sets the next
    delayed scales and clears the gradients. Arrays are in CPU memory whatever the device ("cpu", "cuda" with the number
    of the `gpu`, or "auto").
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = False,
        recipe: str = "fp8-current",
        settings: Sequence[str] = (),
        seed: int = 1,
        device: str = "cpu",
        threads: int = 0,
        gpu: int = 0,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.has_bias = bias
        handle = ctypes.c_void_p()
        made = CLinearSettings(
            in_features=in_features,
            out_features=out_features,
            bias=int(bias),
            device=index_of(_DEVICES, device, "device"),
            threads=threads,
            gpu=gpu,
            recipe=recipe.encode(),
            settings=texts(settings),
            setting_count=len(settings),
            seed=seed,
        )
        call("linear_new", ctypes.byref(made), ctypes.byref(handle))
        self._handle = handle
        self._free = weakref.finalize(self, library().quaver_linear_free, handle)
        self._free.atexit = False  # threads may compute while the interpreter ends

    def set_weight(self, weight: Any) -> None:
        """[out_features x in_features]; cast at once."""
        values = _arrays.floats(weight, "weight", dimensions=2)
        self._require_shape(values, (self.out_features, self.in_features), "weight")
        call("linear_set_weight", self._handle, _arrays.pointer(values), values.size)

    def set_bias(self, bias: Any) -> None:
        values = _arrays.floats(bias, "bias", dimensions=1)
        call("linear_set_bias", self._handle, _arrays.pointer(values), values.size)

    def forward(self, x: Any, *, train: bool = True) -> np.ndarray:
        """y [tokens x out_features] from x [tokens x in_features]."""
        values = _arrays.floats(x, "x", dimensions=2)
        self._require_shape(values, (values.shape[0], self.in_features), "x")
        y = np.empty((values.shape[0], self.out_features), np.float32)
        call("linear_forward", self._handle, _arrays.pointer(values), len(values), 0 if train else 1, _arrays.pointer(y))
        return y

    def backward(self, dy: Any) -> np.ndarray:
        """dx of the latest forward; adds to the gradients of weight and bias."""
        values = _arrays.floats(dy, "dy", dimensions=2)
        self._require_shape(values, (values.shape[0], self.out_features), "dy")
        dx = np.empty((values.shape[0], self.in_features), np.float32)
        call("linear_backward", self._handle, _arrays.pointer(values), len(values), _arrays.pointer(dx))
        return dx

    def weight_gradient(self) -> np.ndarray:
        out = np.empty((self.out_features, self.in_features), np.float32)
        call("linear_weight_gradient", self._handle, _arrays.pointer(out), out.size)
        return out

    def bias_gradient(self) -> Optional[np.ndarray]:
        if not self.has_bias:
            return None
        out = np.empty(self.out_features, np.float32)
        call("linear_bias_gradient", self._handle, _arrays.pointer(out), out.size)
        return out

    def clear_gradients(self) -> None:
        call("linear_clear_gradients", self._handle)

    def collect_full_statistics(self, full: bool = True) -> None:
        """What the casts from now on collect: counts and amax, or full statistics."""
        call("linear_collect", self._handle, int(full))

    def end_step(self) -> None:
        call("linear_end_step", self._handle)

    def statistics(self, role: str) -> Statistics:
        """Of the casts of "x", "w" or "dy" in the step that end_step() ended last."""
        c = CStatistics()
        call("linear_statistics", self._handle, index_of(ROLES, role, "role"), ctypes.byref(c))
        return statistics_of(c)

    def scale(self, role: str) -> float:
        """s in q = cast(x * s) of delayed and static scaling; 0: not known yet."""
        found = ctypes.c_float()
        call("linear_scale", self._handle, index_of(ROLES, role, "role"), ctypes.byref(found))
        return found.value

    def state(self) -> str:
        """All that the layer is beside its weight and bias: one of the same recipe goes on with it bit for bit."""
        found = ctypes.c_char_p()
        call("linear_state", self._handle, ctypes.byref(found))
        return (found.value or b"").decode()

    def load_state(self, state: str) -> None:
        """What state() returned; set weight and bias again, or before."""
        call("linear_load_state", self._handle, state.encode())

    @staticmethod
    def _require_shape(values: np.ndarray, shape: tuple[int, int], name: str) -> None:
        if values.shape != shape:
            raise ValueError(f"{name} is {values.shape[0]} x {values.shape[1]}, not {shape[0]} x {shape[1]}")
