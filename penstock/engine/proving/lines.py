"""Raising at a chosen line of a function, to simulate that the driver is killed there, or that a call fails."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple


class DriverKilled(BaseException):
    """Simulates that the driver is killed. A `BaseException`, so that the function does not handle it as an error."""


class Failed(RuntimeError):
    """Simulates a failing call, such as one to a sink that does not answer."""


class CodeLine(NamedTuple):
    """A line of code, before its first or its second execution.

    Args:
        time: 1 or 2; a loop may be left in the middle, and later executions are like the second.
    """

    file: str
    number: int
    time: int = 1

    def __str__(self) -> str:
        again = ", the second time" if self.time > 1 else ""
        return f"line {self.number} of {Path(self.file).name}{again}"


class LineTracer:
    """Runs a function, and either records which lines of the user's files are executed, or raises before one of them.

    Args:
        is_users: whether a file's lines are traced.
    """

    def __init__(self, is_users: Callable[[str], bool]) -> None:
        self._is_users = is_users
        self._seen: Counter[tuple[str, int]] = Counter()
        self.executed: list[CodeLine] = []
        """The lines that were executed, in order; those that were executed again are there a second time."""
        self._at: CodeLine | None = None
        self._error: type[BaseException] = DriverKilled
        self._each_time = False
        self.raised = 0
        """How often the error was raised."""

    def raise_at(self, line: CodeLine, error: type[BaseException], *, each_time: bool = False) -> None:
        """Raise ``error`` before a line is executed, or each time that it is. Python traces no line then, so clean-up code
        runs.
        """
        self._at, self._error, self._each_time, self.raised = line, error, each_time, 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with tracing on, and return its result."""
        self.executed.clear()
        self._seen.clear()
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            return function(*arguments)
        finally:
            sys.setprofile(None)
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._passed if self._is_users(frame.f_code.co_filename) else None

    def _passed(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            self._seen[place] += 1
            if self._each_time and self._is_at(frame):
                sys.setprofile(self._called)
                self._raise()
            if self._seen[place] <= 2:
                line = CodeLine(*place, self._seen[place])
                self.executed.append(line)
                if line == self._at:
                    self._raise()
        return self._passed

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        """Trace again after a raised error, which ends the tracing, from the next call on. Where that is one of the line,
        raise in its place: who tries again is to fail each time.
        """
        caller: FrameType | None = frame if event.startswith("c_") else frame.f_back
        above = caller
        while above is not None:
            if self._is_users(above.f_code.co_filename):
                above.f_trace = self._passed
            above = above.f_back
        sys.settrace(self._entered)
        if event.endswith("call") and caller is not None and self._is_at(caller):
            self._raise()
        sys.setprofile(None)

    def _is_at(self, frame: FrameType) -> bool:
        return self._at is not None and self._at[:2] == (frame.f_code.co_filename, frame.f_lineno)

    def _raise(self) -> None:
        self.raised += 1
        raise self._error(f"{self._at}, as the prover wants it")
