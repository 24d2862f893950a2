"""The prover: one run that nothing disturbs, and others whose driver ends at a step of Spark's protocol or a line of the sink's own code."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.proving.lines import Failed, Killed, Lines
from penstock.engine.proving.query import UserQuery, World
from penstock.engine.proving.verdict import Schedule, Trial, Verdict
from penstock.errors import ConfigurationError, RunFailedError

FILES = 3
"""Micro-batches into which the recorded input is cut."""
SECONDS = 60.0

Advance = Callable[[float, float, str], None]


class QueryProver:
    """Proves one query.

    Parameters
    ----------
    place: an empty directory. sample: the recorded input, JSON Lines.
    """

    def __init__(
        self, spark: SparkSession, query: UserQuery, sample: Path, place: Path, *, seconds: float = SECONDS, advance: Advance | None = None
    ) -> None:  # fmt: skip
        self._spark, self._query, self._place, self._advance = spark, query, place, advance
        lines = [line for line in sample.read_bytes().splitlines() if line.strip()]
        if len(lines) < FILES:
            raise ConfigurationError(f"{sample} has {len(lines)} rows: give {FILES} at the least, as JSON Lines.")
        self._lines = lines
        self._schema = query.schema or _schema_of(spark, sample)
        self._deadline = time.monotonic() + seconds
        self._number, self._trials, self._notes = 0, list[Trial](), list[str]()
        self._expected: list[str] = []

    def prove(self) -> Verdict:
        """Try what there is to try.

        Raises
        ------
        RunFailedError: the query fails when nothing disturbs it, or leaves nothing.
        """
        files = self._cut(FILES)
        lines = Lines(self._query.file)
        world, failed = self._ran(files, lines)
        if failed:
            raise RunFailedError(f"{self._query.reference} fails when nothing disturbs it: {failed}")
        self._expected = world.rows()
        batches = len(world.committed())
        executed, has_log = list(lines.executed), (world.sink / "_spark_metadata").exists()
        world.remove()
        if not self._expected:
            raise RunFailedError(
                f"{self._query.reference} leaves nothing in its sink, or read(spark, sink) does not find it: give rows that it keeps."
            )
        self._try(Schedule("repeat", "the same once more, from its beginning"), self._again(files))
        middle = min(1, batches - 1)
        told = f"the driver is killed when the sink has taken micro-batch {middle}, and before its commit is written"
        self._try(Schedule("replay", told, middle, 1), self._without_commit(files, middle))
        if has_log:
            told = (
                f"the driver is killed when the files of micro-batch {middle} are there, and not yet in the sink's log"
            )
            self._try(Schedule("replay", told, middle, 1), self._without_commit(files, middle, files_too=True))
        for place, number in enumerate(executed):
            told = (
                f"the driver is killed in micro-batch {middle}, before line {number} of {Path(self._query.file).name}"
            )
            self._try(
                Schedule("replay", told, middle, 0 if place == 0 else 1), self._at_line(files, middle, number, Killed)
            )
        self._try(
            Schedule("restart", f"the driver is stopped after micro-batch {middle}, and started again", middle, 2),
            self._restarted(files, middle),
        )
        for number in executed:
            told = f"line {number} of {Path(self._query.file).name} raises an error in micro-batch {middle}, once"
            self._try(Schedule("error", told, middle, 1), self._at_line(files, middle, number, Failed))
        self._try(Schedule("cut", "the input in one micro-batch"), self._again(self._cut(1)))
        self._try(Schedule("cut", "the input in other micro-batches"), self._again(self._cut(FILES + 2)))
        return Verdict(self._query.reference, len(self._expected), batches, self._trials, self._notes)

    # --- schedules ------------------------------------------------------------------------------

    def _again(self, files: list[bytes]) -> Callable[[], tuple[World, str]]:
        return lambda: self._ran(files)

    def _without_commit(
        self, files: list[bytes], batch: int, *, files_too: bool = False
    ) -> Callable[[], tuple[World, str]]:
        def run() -> tuple[World, str]:
            world = self._world(files)
            world.give(batch + 1)
            failed = world.run()
            last = max(world.committed(), default=batch)
            if files_too:
                world.forget_files(last)
            world.forget_commit(last)
            world.give(len(files))
            return world, failed or world.run()

        return run

    def _restarted(self, files: list[bytes], batch: int) -> Callable[[], tuple[World, str]]:
        def run() -> tuple[World, str]:
            world = self._world(files)
            world.give(batch + 1)
            failed = world.run()
            world.give(len(files))
            return world, failed or world.run()

        return run

    def _at_line(
        self, files: list[bytes], batch: int, line: int, error: type[BaseException]
    ) -> Callable[[], tuple[World, str]]:
        """Raise as ``foreachBatch`` comes to a line in a micro-batch; then start again."""

        def run() -> tuple[World, str]:
            world, calls = self._world(files), Counter[int]()

            def change(function: Callable[..., Any]) -> Callable[..., Any]:
                def called(frame: Any, number: int) -> Any:
                    lines = Lines(self._query.file)
                    if number == batch and not calls[number]:
                        lines.raise_at(line, error)
                    calls[number] += 1
                    said = ""
                    try:
                        return lines.call(function, frame, number)
                    except Killed as end:  # which nothing of the user's own has caught
                        said = str(end)
                    raise RuntimeError(said)  # here, so that nothing keeps what the function had open

                return called

            world.give(len(files))
            world.run(change)
            return world, world.run()

        return run

    # --- one run --------------------------------------------------------------------------------

    def _try(self, schedule: Schedule, run: Callable[[], tuple[World, str]]) -> None:
        if time.monotonic() > self._deadline:
            self._note_no_time(schedule)
            return
        if self._advance is not None:
            self._advance(len(self._trials), len(self._trials) + 1, schedule.words)
        world, failed = run()
        self._trials.append(_compared(schedule, self._expected, [] if failed else world.rows(), failed))
        world.remove()

    def _note_no_time(self, schedule: Schedule) -> None:
        note = "there was no time for all schedules; see --seconds"
        if note not in self._notes:
            self._notes.append(note)

    def _ran(self, files: list[bytes], lines: Lines | None = None) -> tuple[World, str]:
        """Run all of it; what a call of ``foreachBatch`` executes is noted of the last."""
        world = self._world(files)
        world.give(len(files))
        change = None if lines is None else lambda function: lambda *given: lines.call(function, *given)
        return world, world.run(change)

    def _world(self, files: list[bytes]) -> World:
        self._number += 1
        return World(self._spark, self._query, self._place / f"{self._number:03d}", files, self._schema)

    def _cut(self, number: int) -> list[bytes]:
        size = -(-len(self._lines) // number)
        return [b"\n".join(self._lines[at : at + size]) + b"\n" for at in range(0, len(self._lines), size)]


def _schema_of(spark: SparkSession, sample: Path) -> str:
    """The schema of recorded input, as Spark infers it."""
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in spark.read.json(str(sample)).schema)


def _compared(schedule: Schedule, expected: list[str], found: list[str], failed: str) -> Trial:
    if failed:
        return Trial(schedule, failed=failed)
    wanted, there = Counter(expected), Counter(found)
    more = there - wanted
    doubled = Counter({row: times for row, times in more.items() if row in wanted})
    return Trial(
        schedule, sorted(doubled.elements()), sorted((wanted - there).elements()), sorted((more - doubled).elements())
    )
