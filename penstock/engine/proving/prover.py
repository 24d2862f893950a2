"""The prover: compares an undisturbed run of a query with runs that are disturbed, by a driver that ends at a step of Spark's
protocol or at a line of the sink's code, or by an error.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.proving.lines import CodeLine, DriverKilled, Failed, LineTracer
from penstock.engine.proving.query import QueryWorld, UserQuery
from penstock.engine.proving.verdict import Disturbance, QueryVerdict, TrialResult
from penstock.errors import ConfigurationError, RunFailedError

FILES = 3
"""Micro-batches into which the recorded input is cut."""
SECONDS = 60.0

Advance = Callable[[float, float, str], None]


class QueryProver:
    """Runs one query undisturbed and under several schedules, and compares the rows in its sink.

    Args:
        place: an empty directory for the runs.
        sample: the recorded input, a file of JSON Lines.
    """

    def __init__(
        self,
        spark: SparkSession,
        query: UserQuery,
        sample: Path,
        place: Path,
        *,
        seconds: float = SECONDS,
        advance: Advance | None = None,
    ) -> None:
        self._spark, self._query, self._place, self._advance = spark, query, place, advance
        lines = [line for line in sample.read_bytes().splitlines() if line.strip()]
        if len(lines) < FILES:
            raise ConfigurationError(f"{sample} has {len(lines)} rows: give {FILES} at the least, as JSON Lines.")
        self._lines = lines
        self._schema = query.schema or _schema_of(spark, sample)
        self._deadline = time.monotonic() + seconds
        self._number, self._trials, self._notes, self._left_out = 0, list[TrialResult](), list[str](), 0
        self._expected: list[str] = []
        self._caught = False
        """Whether the query's code has caught the last error that was raised at one of its lines."""

    def prove(self) -> QueryVerdict:
        """Run all schedules for which there is time.

        Raises:
            RunFailedError: the undisturbed query fails, or writes no rows.
            ConfigurationError: there was no time for a schedule.
        """
        files, executed = self._cut(FILES), dict[int, list[CodeLine]]()
        batches, has_log = self._undisturbed(files, executed)
        # A micro-batch that has others before and after it shows effects on both.
        middle = min(1, batches - 1)
        places = _places(executed, middle)
        if executed and not places:
            self._note("no line of foreachBatch was seen, for its code is in none of your files, so none was tried")
        self._try(Disturbance("repeat", "the same once more, from its beginning"), self._again(files))
        if self._trials and self._trials[0].failed:
            raise RunFailedError(
                f"{self._query.reference} cannot be started a second time in a process, as the prover does: "
                f"{self._trials[0].failed}"
            )
        words = f"the driver is killed when the sink has taken micro-batch {middle}, and before its commit is written"
        self._try(Disturbance("replay", words, middle, 1), self._without_commit(files, middle))
        if not self._trials[1:]:
            raise ConfigurationError("There was no time to try anything: allow more, as --seconds 120.")
        if has_log:
            words = f"the driver is killed when files of micro-batch {middle} are there, and not yet in the sink's log"
            self._try(Disturbance("replay", words, middle, 1), self._without_commit(files, middle, files_too=True))
        words = f"the driver is stopped after micro-batch {middle}, and started again"
        self._try(Disturbance("restart", words, middle, 2), self._restarted(files, middle))
        first, again = ([place for place in places if place[0].time == execution] for execution in (1, 2))
        self._kill_at(files, first)
        for line, batch in first:
            words = f"{line} raises an error in micro-batch {batch}, once"
            self._caught = False
            self._try(Disturbance("error", words, batch, 1), self._at_line(files, batch, line, Failed))
            if self._caught:  # who has caught it may have tried again, and that has succeeded
                words = f"{line} raises an error in micro-batch {batch}, each time"
                self._try(Disturbance("error", words, batch, 1), self._at_line(files, batch, line, Failed, each_time=True))
        self._kill_at(files, again)
        self._try(Disturbance("cut", "the input in one micro-batch"), self._again(self._cut(1)))
        self._try(Disturbance("cut", "the input in other micro-batches"), self._again(self._cut(FILES + 2)))
        if self._left_out:
            self._note(
                f"there was no time for {self._left_out} of {len(self._trials) + self._left_out} schedules; see --seconds"
            )
        return QueryVerdict(self._query.reference, len(self._expected), batches, self._trials, self._notes)

    def _undisturbed(self, files: list[bytes], executed: dict[int, list[CodeLine]]) -> tuple[int, bool]:
        """Run without disturbance, which gives the expected rows and the lines of ``foreachBatch`` to disturb others at.

        Returns:
            How many micro-batches were committed, and whether the sink has a log of its own.

        Raises:
            RunFailedError: the query fails, writes no rows, commits nothing, or cannot be started from an empty sink.
        """
        at_first = self._rows_when_empty()
        world, failed = self._ran(files, executed)
        if failed:
            raise RunFailedError(f"{self._query.reference} fails when nothing disturbs it: {failed}")
        self._expected = world.rows()
        batches, has_log = len(world.committed()), (world.sink / "_spark_metadata").exists()
        world.remove()
        if not batches:
            raise RunFailedError(
                f"{self._query.reference} commits nothing in the checkpoint that it was given, so no kill can be tried: give "
                'option("checkpointLocation", checkpoint) the path as it is.'
            )
        if self._rows_when_empty() != at_first:  # a new run would be accused of these
            raise RunFailedError(
                f"The sink of {self._query.reference} still holds rows of the run before: define clean(spark, sink), which "
                "makes it empty."
            )
        if not self._expected:
            raise RunFailedError(
                f"{self._query.reference} writes no rows to its sink, or read(spark, sink) does not find them: give input "
                "from which it writes rows."
            )
        return batches, has_log

    def _kill_at(self, files: list[bytes], places: list[tuple[CodeLine, int]]) -> None:
        for line, batch in places:
            words = f"the driver is killed in micro-batch {batch}, before {line}"
            self._try(Disturbance("replay", words, batch, 0), self._at_line(files, batch, line, DriverKilled))

    # --- schedules ------------------------------------------------------------------------------

    def _again(self, files: list[bytes]) -> Callable[[], tuple[QueryWorld, str]]:
        return lambda: self._ran(files)

    def _without_commit(
        self, files: list[bytes], batch: int, *, files_too: bool = False
    ) -> Callable[[], tuple[QueryWorld, str]]:
        def run() -> tuple[QueryWorld, str]:
            world = self._world(files)
            world.give(batch + 1)
            failed = world.run()
            for number in world.begun():  # a micro-batch without data may have followed it
                if number >= batch:
                    world.forget_commit(number)
                    if files_too:
                        world.forget_files(number)
                if number > batch:
                    world.forget_offsets(number)
            world.give(len(files))
            return world, failed or world.run()

        return run

    def _restarted(self, files: list[bytes], batch: int) -> Callable[[], tuple[QueryWorld, str]]:
        def run() -> tuple[QueryWorld, str]:
            world = self._world(files)
            world.give(batch + 1)
            failed = world.run()
            world.give(len(files))
            return world, failed or world.run()

        return run

    def _at_line(
        self, files: list[bytes], batch: int, line: CodeLine, error: type[BaseException], *, each_time: bool = False
    ) -> Callable[[], tuple[QueryWorld, str]]:
        """Raise when ``foreachBatch`` reaches a line in a micro-batch; then start the query again."""

        def run() -> tuple[QueryWorld, str]:
            world, lines, calls = self._world(files), LineTracer(self._query.is_users), Counter[int]()

            def change(function: Callable[..., Any]) -> Callable[..., Any]:
                alive = [function]

                def called(frame: Any, number: int) -> Any:
                    calls[number] += 1
                    if number != batch or calls[number] > 1:
                        return alive[0](frame, number)
                    lines.raise_at(line, error, each_time=each_time)
                    message = ""
                    try:
                        result = lines.call(alive[0], frame, number)
                        self._caught = lines.raised > 0
                        return result
                    except (DriverKilled, Failed) as end:  # so no code of the user has caught it
                        message = str(end)
                    # Here, so that nothing keeps the function alive, with files and connections that the process's end closes.
                    alive.clear()
                    gc.collect()
                    raise RuntimeError(message)

                del function
                return called

            world.give(len(files))
            world.run(change)
            if not lines.raised:
                self._note(f"{line} was not reached in that run, so nothing was tried there")
            return world, world.run()

        return run

    # --- one run --------------------------------------------------------------------------------

    def _try(self, schedule: Disturbance, run: Callable[[], tuple[QueryWorld, str]]) -> None:
        if time.monotonic() > self._deadline:
            self._left_out += 1
            return
        if self._advance is not None:
            self._advance(len(self._trials), len(self._trials) + 1, schedule.words)
        world, failed = run()
        rows: list[str] = []
        try:
            rows = [] if failed else world.rows()
        except RunFailedError as error:  # as after a kill that has left half a line
            failed = str(error)
        self._trials.append(_compared(schedule, self._expected, rows, failed))
        world.remove()

    def _rows_when_empty(self) -> list[str]:
        """Return the rows of a sink that was emptied; there may be some, such as a sum over nothing."""
        world = self._world([])
        try:
            return world.rows()
        except RunFailedError:  # there is no sink yet, or any more
            return []
        finally:
            world.remove()

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def _ran(self, files: list[bytes], executed: dict[int, list[CodeLine]] | None = None) -> tuple[QueryWorld, str]:
        """Run the query on all files. ``executed`` receives the lines that ``foreachBatch`` executed, by micro-batch."""
        world = self._world(files)
        world.give(len(files))
        lines_by_batch = {} if executed is None else executed

        def change(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(frame: Any, number: int) -> Any:
                lines = LineTracer(self._query.is_users)
                lines_by_batch[number] = lines.executed
                return lines.call(function, frame, number)

            return called

        return world, world.run(change)

    def _world(self, files: list[bytes]) -> QueryWorld:
        self._number += 1
        return QueryWorld(self._spark, self._query, self._place / f"{self._number:03d}", files, self._schema)

    def _cut(self, number: int) -> list[bytes]:
        size = -(-len(self._lines) // number)
        return [b"\n".join(self._lines[at : at + size]) + b"\n" for at in range(0, len(self._lines), size)]


def _places(executed: dict[int, list[CodeLine]], middle: int) -> list[tuple[CodeLine, int]]:
    """Return the lines at which to raise, each with a micro-batch that executes it, preferably the one in the middle."""
    batch_by_line: dict[CodeLine, int] = {}
    for batch in sorted(executed, key=lambda number: (number != middle, number)):
        for line in executed[batch]:
            batch_by_line.setdefault(line, batch)
    return list(batch_by_line.items())


def _schema_of(spark: SparkSession, sample: Path) -> str:
    """Return the schema that Spark infers from the recorded input, as DDL."""
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in spark.read.json(str(sample)).schema)


def _compared(schedule: Disturbance, expected: list[str], found: list[str], failed: str) -> TrialResult:
    if failed:
        return TrialResult(schedule, failed=failed)
    wanted, rows = Counter(expected), Counter(found)
    more = rows - wanted
    doubled = Counter({row: times for row, times in more.items() if row in wanted})
    return TrialResult(
        schedule, sorted(doubled.elements()), sorted((wanted - rows).elements()), sorted((more - doubled).elements())
    )
