"""The element log: lines that elements printed or logged in committed micro-batches, in files of bounded size."""

import os
from collections.abc import Sequence
from logging import Formatter, LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from penstock.runtime.log import ELEMENT_LOG, Line
from penstock.runtime.tally import Tally
from penstock.storage import durable
from penstock.visible import visible

LARGEST, KEPT = 10 << 20, 4
"""The most bytes of a file, and how many older files are kept."""


class ElementLog:
    """Appends to the log in a directory. The file is created for the first line.

    Errors of writing are ignored, so that they stop no run; the lines are in Spark's log as well.
    """

    def __init__(self, directory: Path) -> None:
        self._file = _Quiet(
            directory / ELEMENT_LOG, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8", errors="backslashreplace", delay=True
        )
        self._file.setFormatter(Formatter("%(asctime)s.%(msecs)03d %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def write(self, group: str, batch: int, tallies: Sequence[Tally]) -> None:
        """Write the lines from all tasks of a micro-batch, in the order of their times."""
        where = f"{group}/{batch}"
        lines = [(line, tally.partition) for tally in tallies for line in tally.log.lines]
        for line, partition in sorted(lines, key=lambda each: each[0].time):
            self._write(line, where, partition)
        left_out = sum(tally.log.left_out for tally in tallies)
        if left_out and lines:
            note = f"{left_out:,} more lines of this micro-batch are in Spark's log alone"
            self._write(Line(lines[-1][0].time, "NOTE", "", None, note), where, lines[-1][1])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: Line, where: str, partition: int) -> None:
        key = "" if line.key is None else f"[{line.key}]"
        # Lines of a text are indented, so that none looks like a new entry.
        text = visible(f"{where}.{partition} {line.element}{key}: {line.text}").replace("\n", "\n    ")
        record = LogRecord("", 0, "", 0, text, (), None)  # made directly, as the application may have set a record factory
        record.created, record.msecs, record.levelname = line.time, line.time % 1 * 1000, line.level
        self._file.handle(record)


class _Quiet(RotatingFileHandler):
    def _open(self) -> Any:
        """Open the file with access for its owner only, as all files of a run: lines may contain data of events."""
        return open(  # a path has no opener
            self.baseFilename,
            self.mode,
            encoding=self.encoding,
            errors=self.errors,
            opener=lambda path, flags: os.open(path, flags, durable.PRIVATE),
        )

    def handleError(self, record: LogRecord) -> None:  # as logging calls it
        """Ignore errors, such as a full disk, which stop the run itself with a better text."""
