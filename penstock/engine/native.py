"""Groups made only of query-dialect elements: Spark plans the whole, no Python touches an event."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.app.stream import Stream
from penstock.app.topology import Topology
from penstock.engine.sources.base import BoundSource
from penstock.errors import EmissionError
from penstock.runtime.codec import Codec
from penstock.runtime.lineage import NONE
from penstock.runtime.staging import BORN, STAGING, SinkFiles
from penstock.runtime.tally import Births, ElementTally, SourceTally, StagedFile, Tally

DIRECT = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""The directory written to is staged as a whole, so tasks need not stage their files once more within it."""


def compile_native(spark: SparkSession, topology: Topology, sources: list[BoundSource], started_us: int) -> DataFrame:
    """The streaming DataFrame that a chain of query elements makes of its sources.

    Raises
    ------
    EmissionError: an element's output lacks a column of its stream, or has it in another type.
    """
    frames: dict[Stream[Any], DataFrame] = {}
    for bound in sources:
        stream = topology.stream(bound.source.name)
        frames[stream] = bound.frame(spark, started_us).select(*Codec(stream.event_type).schema.names)
    result = next(iter(frames.values()))
    for name in sorted(topology.stages, key=list(topology.stages).index):
        element = topology.element(name)
        stream = element.emits[0]
        output = element.body(*(frames[read] for read in element.inputs))
        frames[stream] = result = conform(name, output, stream)
    return result


def conform(element: str, output: Any, stream: Stream[Any]) -> DataFrame:
    """An element's output, with the columns of the stream that it goes into.

    Raises
    ------
    EmissionError: it lacks one, or has it in another type.
    """
    if not isinstance(output, DataFrame):
        raise EmissionError(f"{element} returned {type(output).__name__}; the query dialect returns a DataFrame.")
    wanted = from_arrow_schema(Codec(stream.event_type).schema)
    missing = [name for name in wanted.names if name not in output.columns]
    if missing:
        raise EmissionError(
            f"{element} returned columns {', '.join(output.columns)}, without {', '.join(missing)} of stream {stream.name}."
        )
    try:
        return output.select(*(F.col(f"`{field.name}`").cast(field.dataType) for field in wanted))
    except AnalysisException as error:
        raise EmissionError(
            f"{element} returned a column that cannot be cast to its type in {stream.name}: {error}."
        ) from error


class NativeWriter:
    """Writes a native group's micro-batches to staged files."""

    def __init__(self, topology: Topology, sinks: tuple[SinkFiles, ...]) -> None:
        self._topology = topology
        self._sinks = {sink.name: sink for sink in sinks}

    def write(self, frame: DataFrame, read: dict[str, Births]) -> Tally:
        """Write a micro-batch to every sink and say what was written.

        Parameters
        ----------
        frame: the batch, static.
        read: the births of the source events that it took in, by source.
        """
        last = list(self._topology.stages)[-1]
        stream = self._topology.element(last).emits[0]
        sinks = [self._sinks[sink.name] for sink in self._topology.sinks_of(stream)]
        tally = Tally(0, 0)
        if len(sinks) > 1:
            frame.persist()
        for sink in sinks:
            born = max((births.newest_us for births in read.values() if births.counts), default=NONE)
            rows = list(self._write(frame.withColumn(BORN, F.lit(born)) if sink.hop else frame, sink))
            tally.files.extend(rows)
            tally.streams[stream.name] = sum(file.rows for file in rows)
        if not sinks:
            tally.streams[stream.name] = frame.count()
        frame.unpersist()
        for name, births in read.items():
            taken = births.count
            tally.sources[name] = SourceTally(rows=taken, accepted=taken)
            tally.streams[name] = taken
            for element in self._topology.consumers(self._topology.stream(name)):
                tally.elements[element.name] = ElementTally(events=taken)
            if sinks:
                tally.births.append(births)
        return tally

    def _write(self, frame: DataFrame, sink: SinkFiles) -> Iterator[StagedFile]:
        target = Path(sink.directory) / STAGING / uuid.uuid4().hex
        counted = Observation()
        observed = frame if sink.kind == "parquet" else frame.observe(counted, F.count(F.lit(1)).alias("rows"))
        writer = observed.write.format("parquet" if sink.kind == "parquet" else "json").options(**DIRECT)
        writer.save(f"file://{target.absolute()}")
        suffix = "jsonl" if sink.kind == "jsonl" else "parquet"
        for number, part in enumerate(sorted(target.glob("part-*"))):
            staged = target.with_name(f"{target.name}-{number:05d}.{suffix}")
            part.rename(staged)
            if sink.kind == "parquet":
                rows = pq.read_metadata(staged).num_rows
            else:
                rows = int(counted.get["rows"]) if number == 0 else 0
            yield StagedFile(sink.name, str(staged), f"native-{number:05d}.{suffix}", rows, staged.stat().st_size)
        for leftover in target.iterdir():
            leftover.unlink()
        target.rmdir()


def births_of_files(files: list[tuple[int, int]], started_us: int) -> Births:
    """When the events of files were born, given each file's rows and time of writing (microseconds)."""
    births = Births(min((max(written, started_us) for _, written in files), default=0), 1000)
    for rows, written in files:
        number = (max(written, started_us) - births.start_us) // births.width_us
        births.counts[number] = births.counts.get(number, 0) + rows
    return births
