"""libquaver, loaded once: its structs and functions as include/quaver/quaver.h declares them."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_uint8, c_void_p
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence

ABI_VERSION = 3
SONAME = "libquaver.so.0"


class Error(RuntimeError):
    """What happened; `remedy` says what helps, where something does."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what} ({remedy})" if remedy else what)
        self.remedy = remedy


class CFormatInfo(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("storage_bits", c_int32),
        ("exponent_bits", c_int32),
        ("mantissa_bits", c_int32),
        ("bias", c_int32),
        ("max", c_float),
        ("min_normal", c_float),
        ("min_subnormal", c_float),
        ("has_infinity", c_int32),
        ("has_nan", c_int32),
    ]


class CSpec(Structure):
    _fields_ = [
        ("format", c_int32),
        ("block_rows", c_int32),
        ("block_cols", c_int32),
        ("scale_format", c_int32),
        ("policy", c_int32),
        ("rounding", c_int32),
        ("rotation", c_int32),
        ("margin", c_int32),
        ("shrink", c_float),
    ]


class CCastSettings(Structure):
    _fields_ = [
        ("spec", CSpec),
        ("side", c_int32),
        ("detail", c_int32),
        ("scale", c_float),
        ("step", c_uint32),
        ("seed", c_uint64),
        ("stream", c_uint32),
    ]


class CStatistics(Structure):
    _fields_ = [
        ("count", c_uint64),
        ("nonfinite", c_uint64),
        ("saturated", c_uint64),
        ("underflowed", c_uint64),
        ("amax", c_float),
        ("full", c_int32),
        ("min_nonzero", c_float),
        ("mean", c_double),
        ("standard_deviation", c_double),
        ("kurtosis", c_double),
        ("sqnr_db", c_double),
        ("binades", c_uint64 * 64),
    ]


class CMatrixView(Structure):
    _fields_ = [
        ("format", c_int32),
        ("rows", c_int64),
        ("cols", c_int64),
        ("row_bytes", c_int64),
        ("codes", POINTER(c_uint8)),
        ("scale_rows", c_int64),
        ("scale_cols", c_int64),
        ("block_scales", POINTER(c_float)),
        ("tensor_scale", c_float),
        ("tensor_scale_address", c_void_p),
        ("on_gpu", c_int32),
    ]


class CDeviceMatrix(Structure):
    _fields_ = [
        ("values", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("format", c_int32),
        ("device", c_int32),
        ("gpu", c_int32),
        ("stream", c_void_p),
    ]


class CDeviceMemory(Structure):
    _fields_ = [("kept", c_void_p), ("kept_bytes", c_size_t), ("scratch", c_void_p), ("scratch_bytes", c_size_t)]


class CLinearSettings(Structure):
    _fields_ = [
        ("in_features", c_int64),
        ("out_features", c_int64),
        ("bias", c_int32),
        ("device", c_int32),
        ("threads", c_int32),
        ("gpu", c_int32),
        ("recipe", c_char_p),
        ("settings", POINTER(c_char_p)),
        ("setting_count", c_size_t),
        ("seed", c_uint64),
    ]


class CLinearMemory(Structure):
    _fields_ = [("kept", c_size_t), ("forward_scratch", c_size_t), ("backward_scratch", c_size_t)]


class CLinearForward(Structure):
    _fields_ = [
        ("tokens", c_int64),
        ("format", c_int32),
        ("pass_", c_int32),
        ("x", c_void_p),
        ("bias", c_void_p),
        ("y", c_void_p),
        ("kept", c_void_p),
        ("kept_bytes", c_size_t),
        ("scratch", c_void_p),
        ("scratch_bytes", c_size_t),
        ("stream", c_void_p),
    ]


class CLinearBackward(Structure):
    _fields_ = [
        ("tokens", c_int64),
        ("format", c_int32),
        ("weight_format", c_int32),
        ("add", c_int32),
        ("x", c_void_p),
        ("dy", c_void_p),
        ("dx", c_void_p),
        ("weight_gradient", c_void_p),
        ("bias_gradient", c_void_p),
        ("kept", c_void_p),
        ("kept_bytes", c_size_t),
        ("scratch", c_void_p),
        ("scratch_bytes", c_size_t),
        ("stream", c_void_p),
    ]


class CStepMetrics(Structure):
    _fields_ = [
        ("step", c_int64),
        ("steps", c_int64),
        ("tokens", c_int64),
        ("loss", c_double),
        ("learning_rate", c_double),
        ("gradient_norm", c_double),
        ("loss_scale", c_double),
        ("seconds", c_double),
        ("validation_loss", c_double),
        ("validation_accuracy", c_double),
        ("saturated", c_uint64),
        ("underflowed", c_uint64),
        ("overflows", c_uint64),
        ("skipped", c_int32),
    ]


StepCallback = ctypes.CFUNCTYPE(c_int, POINTER(CStepMetrics), c_void_p)
MessageCallback = ctypes.CFUNCTYPE(None, c_char_p, c_void_p)


class CTraining(Structure):
    _fields_ = [
        ("files", POINTER(c_char_p)),
        ("file_count", c_size_t),
        ("toml", c_char_p),
        ("settings", POINTER(c_char_p)),
        ("setting_count", c_size_t),
        ("resume", c_char_p),
        ("on_step", StepCallback),
        ("on_message", MessageCallback),
        ("user", c_void_p),
    ]


class CTrainingResult(Structure):
    _fields_ = [
        ("directory", ctypes.c_char * 4096),
        ("stopped", c_int32),
        ("steps", c_int64),
        ("train_loss", c_double),
        ("validation_loss", c_double),
        ("seconds_per_step", c_double),
        ("tokens_per_second", c_double),
    ]


class CEvaluation(Structure):
    _fields_ = [("step", c_int64), ("rows", c_int64), ("loss", c_double), ("accuracy", c_double)]


class CRunInfo(Structure):
    _fields_ = [
        ("id", c_char_p),
        ("name", c_char_p),
        ("model", c_char_p),
        ("recipe", c_char_p),
        ("status", c_char_p),
        ("directory", c_char_p),
        ("seed", c_uint64),
        ("step", c_uint64),
        ("steps", c_uint64),
        ("loss", c_double),
        ("validation_loss", c_double),
        ("tokens_per_second", c_double),
    ]


class CColumn(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("steps", POINTER(c_uint64)),
        ("values", POINTER(c_double)),
        ("count", c_size_t),
    ]


FLOATS = POINTER(c_float)
CODES = POINTER(c_uint32)

# Functions that return a status, and their arguments.
_CHECKED: dict[str, list[Any]] = {
    "format_by_name": [c_char_p, POINTER(c_int32)],
    "describe_format": [c_int32, POINTER(CFormatInfo)],
    "cast": [c_int32, FLOATS, FLOATS, c_size_t],
    "encode": [c_int32, FLOATS, CODES, c_size_t],
    "decode": [c_int32, CODES, FLOATS, c_size_t],
    "quantize": [FLOATS, c_int64, c_int64, POINTER(CCastSettings), POINTER(c_void_p)],
    "matrix_get": [c_void_p, POINTER(CMatrixView)],
    "matrix_statistics": [c_void_p, POINTER(CStatistics)],
    "dequantize": [c_void_p, FLOATS, c_size_t],
    "gemm": [c_void_p, c_void_p, FLOATS, c_size_t],
    "cast_memory": [POINTER(CDeviceMatrix), POINTER(CCastSettings), POINTER(CDeviceMemory)],
    "quantize_on_device": [
        POINTER(CDeviceMatrix),
        POINTER(CCastSettings),
        POINTER(CDeviceMemory),
        POINTER(c_void_p),
    ],
    "dequantize_on_device": [c_void_p, POINTER(CDeviceMatrix)],
    "gemm_on_device": [c_void_p, c_void_p, POINTER(CDeviceMatrix)],
    "recipe_at": [c_size_t, POINTER(c_char_p), POINTER(c_char_p)],
    "recipe_spec": [c_char_p, c_int32, c_int32, POINTER(CSpec)],
    "linear_new": [POINTER(CLinearSettings), POINTER(c_void_p)],
    "linear_set_weight": [c_void_p, FLOATS, c_size_t],
    "linear_set_bias": [c_void_p, FLOATS, c_size_t],
    "linear_forward": [c_void_p, FLOATS, c_int64, c_int32, FLOATS],
    "linear_backward": [c_void_p, FLOATS, c_int64, FLOATS],
    "linear_weight_gradient": [c_void_p, FLOATS, c_size_t],
    "linear_bias_gradient": [c_void_p, FLOATS, c_size_t],
    "linear_clear_gradients": [c_void_p],
    "linear_collect": [c_void_p, c_int32],
    "linear_end_step": [c_void_p],
    "linear_end_steps": [POINTER(c_void_p), c_size_t],
    "linear_pass_memory": [c_void_p, c_int64, c_int32, POINTER(CLinearMemory)],
    "linear_set_device_weight": [c_void_p, c_void_p, c_int32, c_void_p],
    "linear_run_forward": [c_void_p, POINTER(CLinearForward)],
    "linear_run_backward": [c_void_p, POINTER(CLinearBackward)],
    "linear_statistics": [c_void_p, c_int32, POINTER(CStatistics)],
    "linear_scale": [c_void_p, c_int32, POINTER(c_float)],
    "linear_state": [c_void_p, POINTER(c_char_p)],
    "linear_load_state": [c_void_p, c_char_p],
    "train": [POINTER(CTraining), POINTER(CTrainingResult)],
    "evaluate": [c_char_p, c_int64, POINTER(CEvaluation)],
    "export_model": [c_char_p, c_char_p],
    "store_open": [c_char_p, POINTER(c_void_p)],
    "store_run": [c_void_p, c_size_t, POINTER(CRunInfo)],
    "store_metrics": [c_void_p, c_char_p, POINTER(c_void_p)],
    "table_column": [c_void_p, c_size_t, POINTER(CColumn)],
}
# The others: their result, and their arguments.
_PLAIN: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (c_uint32, []),
    "version": (c_char_p, []),
    "last_error": (c_char_p, []),
    "last_remedy": (c_char_p, []),
    "default_cast": (None, [POINTER(CCastSettings)]),
    "recipe_count": (c_size_t, []),
    "store_runs": (c_size_t, [c_void_p]),
    "table_columns": (c_size_t, [c_void_p]),
    "matrix_free": (None, [c_void_p]),
    "linear_free": (None, [c_void_p]),
    "store_free": (None, [c_void_p]),
    "table_free": (None, [c_void_p]),
}


def _places() -> Iterator[str]:
    """Where the library may be, best first."""
    chosen = os.environ.get("QUAVER_LIBRARY")
    if chosen:
        yield chosen
        return
    package = Path(__file__).resolve().parent
    folders = [package]
    if len(package.parents) > 2:  # <prefix>/lib/python3/dist-packages/quaver
        lib = package.parents[2]
        folders += [lib, *sorted(path for path in lib.glob("*-linux-gnu") if path.is_dir())]
    for folder in folders:
        if (folder / SONAME).exists():
            yield str(folder / SONAME)
    yield SONAME


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """The library with its functions declared. Error where it is not found or is of another version."""
    problems = []
    for place in _places():
        try:
            loaded = ctypes.CDLL(place)
            break
        except OSError as problem:
            problems.append(str(problem))
    else:
        raise Error(
            "libquaver cannot be loaded: " + "; ".join(problems),
            "install libquaver, or set QUAVER_LIBRARY to the path of its file",
        )
    for name, (result, arguments) in _PLAIN.items():
        function = getattr(loaded, "quaver_" + name)
        function.restype = result
        function.argtypes = arguments
    found = loaded.quaver_abi_version()
    if found != ABI_VERSION:
        raise Error(
            f"libquaver has version {found} of the C interface, and this package needs {ABI_VERSION}",
            "install both from one release",
        )
    for name, arguments in _CHECKED.items():
        function = getattr(loaded, "quaver_" + name)
        function.restype = c_int
        function.argtypes = arguments
    return loaded


def call(name: str, *arguments: Any) -> None:
    """Calls quaver_<name>; a status other than success becomes an Error."""
    loaded = library()
    if getattr(loaded, "quaver_" + name)(*arguments) != 0:
        raise Error(loaded.quaver_last_error().decode(), loaded.quaver_last_remedy().decode())


def texts(values: Sequence[str]) -> Any:
    """An array of C strings."""
    return (c_char_p * max(len(values), 1))(*[value.encode() for value in values])


def version() -> str:
    """The version of the library that is loaded, such as "0.1.0"."""
    return str(library().quaver_version().decode())


def or_none(value: float) -> Optional[float]:
    """None for NaN, by which the C interface says that a number is not known."""
    return None if value != value else value
