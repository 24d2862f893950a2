"""Ends and errors at chosen lines of a function: what is left undone when the driver is killed there, or a call fails."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class Killed(BaseException):
    """The end of the driver, as far as the function can tell."""


class Failed(RuntimeError):
    """An error of a call, such as a sink raises that does not answer."""


class Lines:
    """Runs a function, and notes the lines of its file that are executed, or raises before one of them.

    A line that is executed again, in a loop or as a block ends, counts once.

    Parameters
    ----------
    file: whose lines count.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self.executed: list[int] = []
        """The numbers of the lines, in the order in which they were executed first."""
        self._at: int | None = None
        self._error: type[BaseException] = Killed
        self.raised = False
        """Whether it has come to that."""

    def raise_at(self, line: int, error: type[BaseException]) -> None:
        """Raise before a line is executed for the first time. Python traces no line after that, so what cleans up is
        executed.
        """
        self._at, self._error, self.raised = line, error, False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it."""
        self.executed.clear()
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            return function(*arguments)
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._seen if frame.f_code.co_filename == self._file else None

    def _seen(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno not in self.executed:
            self.executed.append(frame.f_lineno)
            if frame.f_lineno == self._at:
                self.raised = True
                raise self._error(f"line {frame.f_lineno}, as the prover wants it")
        return self._seen
