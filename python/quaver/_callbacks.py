"""Functions of the caller that the library calls: what they raise may not cross it, and is raised when it has returned.

So is what handlers of signals raise, as Ctrl-C does. Python runs these where a callback begins, before its first line
could catch anything, and would print and forget the exception.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Callable, Iterator, Optional


class Callbacks:
    def __init__(self) -> None:
        self.raised: list[BaseException] = []
        self._in_callers_code = False

    def run(self, function: Callable[[], Any]) -> Any:
        """What it returns; None where it raises."""
        try:
            self._in_callers_code = True
            result = function()
            self._in_callers_code = False
            return result
        except BaseException as problem:
            self._in_callers_code = False
            self.raised.append(problem)
            return None

    @contextlib.contextmanager
    def returned(self) -> Iterator[None]:
        """Around the call of the library: raises the first of what was raised."""
        try:
            with self._kept_signals():
                yield
        except Exception as error:
            if self.raised:
                raise self.raised[0] from error
            raise
        if self.raised:
            raise self.raised[0]

    @contextlib.contextmanager
    def _kept_signals(self) -> Iterator[None]:
        handlers = {}
        if threading.current_thread() is threading.main_thread():  # the one that runs them
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    handlers[number] = (handler, self._keeping(handler))
                    signal.signal(number, handlers[number][1])
        try:
            yield
        finally:
            for number, (handler, keeping) in handlers.items():
                if signal.getsignal(number) is keeping:
                    signal.signal(number, handler)

    def _keeping(self, handler: Callable[[int, Any], Any]) -> Callable[[int, Optional[Any]], None]:
        def handle(number: int, frame: Optional[Any]) -> None:
            try:
                handler(number, frame)
            except BaseException as problem:
                if self._in_callers_code:  # which may catch it
                    raise
                self.raised.append(problem)

        return handle
