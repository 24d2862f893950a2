"""Ctrl-C that waits for a moment when a search can stop and keep what it has."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """While entered, the first interrupt is only noted; the second one is a KeyboardInterrupt as always.

    Compiled code must not be interrupted half-way. Handlers that the program has set itself are left alone, as are
    interrupts where this is not the main thread.
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
