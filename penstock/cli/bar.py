"""A progress bar on standard error, shown only if that is a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class Advance(Protocol):
    """Report the work done so far, its total, and a note."""

    def __call__(self, done: float, total: float, note: str = "") -> None: ...


class Bar:
    """A progress bar, if standard error is a terminal: ``with Bar("jobs", ...) as advance: advance(done, total)``.

    Args:
        what: the words before the bar.
        columns: after the bar; ``{task.description}`` is the last note.
    """

    def __init__(self, what: str, *columns: ProgressColumn) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn(what),
            BarColumn(),
            *columns,
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )

    def __enter__(self) -> Advance:
        self._progress.start()
        task = self._progress.add_task("", total=None)

        def advance(done: float, total: float, note: str = "") -> None:
            self._progress.update(task, completed=done, total=total, description=note)

        return advance

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
