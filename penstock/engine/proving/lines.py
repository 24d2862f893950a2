"""Raising at a chosen line of a function, to simulate that the driver is killed there, or that a call fails."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class DriverKilled(BaseException):
    """Simulates that the driver is killed. A `BaseException`, so that the function does not handle it as an error."""


class Failed(RuntimeError):
    """Simulates a failing call, such as one to a sink that does not answer."""


class LineTracer:
    """Runs a function, and either records which lines of its file are executed, or raises before one of them.

    A line that is executed again, in a loop or as a block ends, counts once.

    Parameters
    ----------
    file: the file whose lines are traced.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self.executed: list[int] = []
        """The numbers of executed lines, in the order of their first execution."""
        self._at: int | None = None
        self._error: type[BaseException] = DriverKilled
        self.raised = False
        """Whether the error was raised."""

    def raise_at(self, line: int, error: type[BaseException]) -> None:
        """Raise ``error`` before a line is executed for the first time. Python traces no line after that, so clean-up code
        runs.
        """
        self._at, self._error, self.raised = line, error, False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with tracing on, and return its result."""
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
