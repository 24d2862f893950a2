"""Deferred Ctrl-C, so that a search can stop at a safe point and keep its result."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """A context in which the first interrupt only sets ``asked``; the second raises KeyboardInterrupt as usual.

    This protects compiled code from an interrupt half-way. It does nothing if the program has set its own handler, or
    outside the main thread.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
