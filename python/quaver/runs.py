"""What runs recorded, as tables."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import numpy as np

from ._library import CColumn, CRunInfo, call, library, or_none


@dataclass(frozen=True)
class Run:
    """A recorded run. metrics: name -> (steps, values), two arrays of equal length."""

    id: str
    name: str
    model: str
    recipe: str
    status: str
    directory: str
    seed: int
    step: int
    steps: int
    loss: Optional[float]
    validation_loss: Optional[float]
    tokens_per_second: Optional[float]
    metrics: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)


def read_runs(store: Union[str, "os.PathLike[str]"] = "runs", *, metrics: bool = True) -> list[Run]:
    """The runs of a folder (or of its quaver.db), newest first, also while they train. metrics=False leaves theirs out."""
    handle = ctypes.c_void_p()
    call("store_open", os.fspath(store).encode(), ctypes.byref(handle))
    try:
        return [_run(handle, index, metrics) for index in range(library().quaver_store_runs(handle))]
    finally:
        library().quaver_store_free(handle)


def _run(store: Any, index: int, metrics: bool) -> Run:
    c = CRunInfo()
    call("store_run", store, index, ctypes.byref(c))
    text = {name: getattr(c, name).decode() for name in ("id", "name", "model", "recipe", "status", "directory")}
    return Run(
        **text,
        seed=c.seed,
        step=c.step,
        steps=c.steps,
        loss=or_none(c.loss),
        validation_loss=or_none(c.validation_loss),
        tokens_per_second=or_none(c.tokens_per_second),
        metrics=_metrics(store, c.id) if metrics else {},
    )


def _metrics(store: Any, run: bytes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    table = ctypes.c_void_p()
    call("store_metrics", store, run, ctypes.byref(table))
    try:
        columns = {}
        for index in range(library().quaver_table_columns(table)):
            c = CColumn()
            call("table_column", table, index, ctypes.byref(c))
            if c.count == 0:
                continue
            columns[c.name.decode()] = (
                np.ctypeslib.as_array(c.steps, (c.count,)).copy(),
                np.ctypeslib.as_array(c.values, (c.count,)).copy(),
            )
        return columns
    finally:
        library().quaver_table_free(table)
