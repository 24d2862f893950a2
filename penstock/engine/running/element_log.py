"""The log of elements: what they printed and logged in the micro-batches of a run that are committed, in files of bounded
size.
"""

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
"""Bytes of a file, and how many older ones are kept beside it."""


class ElementLog:
    """Appends to the log in a directory; the file is made when there is a first line.

    Whatever hinders it hinders no run: what is not written is in Spark's log.
    """

    def __init__(self, directory: Path) -> None:
        self._file = _Quiet(
            directory / ELEMENT_LOG, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8", errors="backslashreplace", delay=True
        )
        self._file.setFormatter(Formatter("%(asctime)s.%(msecs)03d %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def write(self, group: str, batch: int, tallies: Sequence[Tally]) -> None:
        """Write what a micro-batch's tasks have kept, in the order of time."""
        where = f"{group}/{batch}"
        told = [(line, tally.partition) for tally in tallies for line in tally.log.lines]
        for line, partition in sorted(told, key=lambda each: each[0].time):
            self._write(line, where, partition)
        left_out = sum(tally.log.left_out for tally in tallies)
        if left_out and told:
            note = f"{left_out:,} more lines of this micro-batch are in Spark's log alone"
            self._write(Line(told[-1][0].time, "NOTE", "", None, note), where, told[-1][1])

    def close(self) -> None:
        """Be done."""
        self._file.close()

    def _write(self, line: Line, where: str, partition: int) -> None:
        key = "" if line.key is None else f"[{line.key}]"
        text = visible(f"{where}.{partition} {line.element}{key}: {line.text}").replace(
            "\n", "\n    "
        )  # none is taken for a record
        record = LogRecord("", 0, "", 0, text, (), None)  # and not by the application's factory
        record.created, record.msecs, record.levelname = line.time, line.time % 1 * 1000, line.level
        self._file.handle(record)


class _Quiet(RotatingFileHandler):
    def _open(self) -> Any:
        """For this user alone, as all of a run is: lines may hold what events hold."""
        return open(  # a path has no opener
            self.baseFilename,
            self.mode,
            encoding=self.encoding,
            errors=self.errors,
            opener=lambda path, flags: os.open(path, flags, durable.PRIVATE),
        )

    def handleError(self, record: LogRecord) -> None:  # as logging calls it
        """Of a disk that is full the run itself has to say more."""
