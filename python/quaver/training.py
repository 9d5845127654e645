"""Training runs: from a config to a run folder, with a callback per step."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from ._callbacks import Callbacks
from ._library import CEvaluation, CStepMetrics, CTraining, CTrainingResult, MessageCallback, StepCallback
from ._library import Error, call, or_none, texts

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Step:
    """The metrics of one optimizer step."""

    step: int
    steps: int
    tokens: int
    loss: float
    learning_rate: float
    gradient_norm: float
    loss_scale: float
    seconds: float
    validation_loss: Optional[float]
    validation_accuracy: Optional[float]
    saturated: int
    underflowed: int
    overflows: int
    skipped: bool


@dataclass(frozen=True)
class TrainingResult:
    directory: str
    stopped: bool  # by the callback
    steps: int
    train_loss: Optional[float]  # mean over the last twentieth of the steps
    validation_loss: Optional[float]
    seconds_per_step: float
    tokens_per_second: float


@dataclass(frozen=True)
class Evaluation:
    step: int
    rows: int  # tokens or images that had a loss
    loss: float
    accuracy: Optional[float]


def _step(c: CStepMetrics) -> Step:
    values = {name: getattr(c, name) for name, _ in CStepMetrics._fields_}
    values["validation_loss"] = or_none(c.validation_loss)
    values["validation_accuracy"] = or_none(c.validation_accuracy)
    values["skipped"] = bool(c.skipped)
    return Step(**values)


class Trainer:
    """Trains one run, as `quaver train` does.

    config: paths of TOML files; toml: text; settings: {"train.steps": 100}, which win over both. on_step is called with
    each Step; where it returns True the run writes a checkpoint and ends. An exception in it or in on_message, and one of
    a signal's handler (Ctrl-C), ends the run after the step in the same way and is raised again.
    """

    def __init__(
        self,
        config: Union[Path, Sequence[Path]] = (),
        *,
        toml: str = "",
        settings: Optional[Mapping[str, Any]] = None,
        on_step: Optional[Callable[[Step], Optional[bool]]] = None,
        on_message: Optional[Callable[[str], None]] = None,
    ) -> None:
        files = [config] if isinstance(config, (str, os.PathLike)) else config
        self._files = [os.fspath(path) for path in files]
        self._toml = toml
        self._settings = [f"{key}={_text(value)}" for key, value in (settings or {}).items()]
        self._on_step = on_step
        self._on_message = on_message
        self.directory: Optional[str] = None

    def train(self) -> TrainingResult:
        """Trains a new run to its end."""
        return self._run(None)

    def resume(self, directory: Optional[Path] = None) -> TrainingResult:
        """Goes on with the run in this folder, or with the one that train() made."""
        return self._run(self._named(directory))

    def evaluate(self, directory: Optional[Path] = None, batches: int = 0) -> Evaluation:
        """The validation loss of the newest checkpoint, over as many batches as the run validates with unless given."""
        c = CEvaluation()
        call("evaluate", self._named(directory).encode(), batches, ctypes.byref(c))
        return Evaluation(c.step, c.rows, c.loss, or_none(c.accuracy))

    def export(self, folder: Path, directory: Optional[Path] = None) -> None:
        """Writes the newest checkpoint as a Hugging Face model folder."""
        call("export_model", self._named(directory).encode(), os.fspath(folder).encode())

    def _named(self, directory: Optional[Path]) -> str:
        chosen = directory if directory is not None else self.directory
        if chosen is None:
            raise Error("there is no run yet", "call train() first, or name a run's folder")
        return os.fspath(chosen)

    def _run(self, resume: Optional[str]) -> TrainingResult:
        callbacks = Callbacks()

        def stepped(metrics: Any, _: Any) -> int:
            on_step = self._on_step
            stop = on_step is not None and callbacks.run(lambda: bool(on_step(_step(metrics.contents))))
            return 1 if stop or callbacks.raised else 0

        def told(text: bytes, _: Any) -> None:
            on_message = self._on_message
            if on_message is not None:
                callbacks.run(lambda: on_message(text.decode(errors="replace")))

        training = CTraining(
            files=texts(self._files),
            file_count=len(self._files),
            toml=self._toml.encode() or None,
            settings=texts(self._settings),
            setting_count=len(self._settings),
            resume=resume.encode() if resume is not None else None,
            on_step=StepCallback(stepped),
            on_message=MessageCallback(told),
        )
        c = CTrainingResult()
        with callbacks.returned():
            call("train", ctypes.byref(training), ctypes.byref(c))
            self.directory = c.directory.decode()
        return TrainingResult(
            self.directory,
            bool(c.stopped),
            c.steps,
            or_none(c.train_loss),
            or_none(c.validation_loss),
            c.seconds_per_step,
            c.tokens_per_second,
        )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
