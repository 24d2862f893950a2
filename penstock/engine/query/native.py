"""Native groups, whose elements are all in the query dialect: Spark plans the whole, and no Python handles an event."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, get_args, get_origin

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DecimalType, FractionalType, IntegralType, MapType, StructType

from penstock.app.element import Element
from penstock.app.queries import JoinQuery, WindowQuery
from penstock.app.stream import Stream
from penstock.app.topology import Topology
from penstock.connectors.source import BoundSource
from penstock.engine.query.inputs import Inputs
from penstock.engine.query.queries import has_join, joined, windowed
from penstock.engine.session.plans import leaves, nodes
from penstock.errors import EmissionError, TopologyError
from penstock.kinds.annotations import kind_of, plain, scalar_of
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import encoded_names, tag_of
from penstock.kinds.text import NOTHING
from penstock.runtime.codec import Codec
from penstock.runtime.lineage import NONE
from penstock.runtime.output import BORN, ROOT, STAGING, SinkFiles, StagedFile, framed, label, texts_of
from penstock.runtime.tally import Tally
from penstock.runtime.wiring import WiringReference
from penstock.storage import durable
from penstock.storage.place import address, is_local, path_of
from penstock.storage.tables import rows_of

DIRECT = {"mapreduce.fileoutputcommitter.algorithm.version": "2", "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""Writer options. The target directory is a staging directory already, so tasks need not stage their files within it."""

STATEFUL = frozenset(
    (
        "Aggregate",
        "Join",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "GlobalLimit",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "TransformWithState",
        "TransformWithStateInPySpark",
        "TransformWithStateInPandas",
    )
)
"""Names, in Spark's plans, of operators that keep state between micro-batches if their input is a stream."""

WHOLE = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""JSON options to write as the other dialects do: None as null, because a field may have no default for reading it back, and
times with microseconds."""


def compile_native(
    spark: SparkSession, topology: Topology, sources: list[BoundSource], inputs: Inputs, started_us: int
) -> tuple[DataFrame, list[str]]:
    """Return the streaming DataFrame of a chain of query elements, and the names of its sources in the order of Spark's plan,
    in which a source that is read twice occurs twice.

    Raises:
        EmissionError: an element's output lacks a column of its stream, or has it in another type.
        TopologyError: an element does not read one of its inputs, or reads a stream that is not an input.
    """
    frames: dict[Stream[Any], DataFrame] = {}
    for bound in sources:
        stream = topology.stream(bound.source.name)
        frames[stream] = inputs.frame(spark, stream.name, started_us)
    names_by_stream = {_streams(spark, frame)[0]: stream.name for stream, frame in frames.items()}
    result = next(iter(frames.values()))
    for element in topology.in_order:
        stream = element.emits[0]
        output = _planned(element, [frames[read] for read in element.inputs])
        frames[stream] = result = conform(element.name, output, stream)
    if has_join(topology):
        _refuse_state_besides(topology, result)
    return result, _order(topology, names_by_stream, _streams(spark, result))


def _refuse_state_besides(topology: Topology, result: DataFrame) -> None:
    """Refuse a query with a join and another stateful operator, because Spark judges lateness in one way for a whole query.

    Raises:
        TopologyError: there is one; the text names the elements that should be split into two queries.
    """
    plan = result._jdf.queryExecution().analyzed()
    if sum(_has_state(node) for node in nodes(plan)) > 1:
        names = [element.name for element in topology.in_order]
        others = names[1:] if len(names) > 1 else names
        raise TopologyError(
            f"{', '.join(names)} are one query of Spark's, which has a join and another operator with state; late events "
            f"would not be judged as the join says. Give the others a query of their own, as --group {others[-1]}=after."
        )


def _has_state(node: Any) -> bool:
    """Whether a plan's operator keeps state between micro-batches."""
    if not node.isStreaming() or node.nodeName() not in STATEFUL:
        return False
    return node.nodeName() != "Join" or bool(node.left().isStreaming() and node.right().isStreaming())


def _planned(element: Element, inputs: list[DataFrame]) -> Any:
    """Return an element's output for its inputs."""
    if isinstance(element.body, WindowQuery):
        return windowed(element.name, element.body, *inputs)
    if isinstance(element.body, JoinQuery):
        return joined(element.name, element.body, *inputs)
    return element.body(*inputs)


def _streams(spark: SparkSession, frame: DataFrame) -> list[int]:
    """Return identities of the streams that a plan reads, from left to right, which is Spark's order of numbering.

    A plan that reads a stream twice has two leaves with the same identity, as they share the object that they read from.
    """
    streams = [leaf for leaf in leaves(frame._jdf.queryExecution().analyzed()) if leaf.isStreaming()]
    stream_sources = [leaf.dataSource() if leaf.nodeName() == "StreamingRelation" else leaf.table() for leaf in streams]
    assert spark._jvm is not None
    return [spark._jvm.System.identityHashCode(source) for source in stream_sources]


def _order(topology: Topology, known: dict[int, str], found: list[int]) -> list[str]:
    element = topology.in_order[-1].name
    if not set(found) <= set(known):
        raise TopologyError(
            f"Element {element} reads a stream that it creates itself, so its events are not counted: declare it as a source."
        )
    missing = sorted({known[leaf] for leaf in set(known) - set(found)})
    if missing:
        raise TopologyError(f"Element {element} does not read its input {missing[0]}: use it, or do not declare it.")
    return [known[leaf] for leaf in found]


def conform(element: str, output: Any, stream: Stream[Any]) -> DataFrame:
    """Return an element's output with exactly the columns of its stream, cast to their types.

    Raises:
        EmissionError: the output is no DataFrame, lacks a column, or has one that cannot be cast.
    """
    if not isinstance(output, DataFrame):
        raise EmissionError(f"{element} returned {type(output).__name__}; the query dialect returns a DataFrame.")
    schema = from_arrow_schema(Codec(stream.event_type).schema, prefer_timestamp_ntz=True)
    missing = [name for name in schema.names if name not in output.columns]
    if missing:
        raise EmissionError(
            f"{element} returned columns {', '.join(output.columns)}, without {', '.join(missing)} of stream {stream.name}."
        )
    try:
        there = output.schema
        columns = (
            _by_name(F.col(f"`{field.name}`"), there[field.name].dataType, field.dataType, field.name).alias(field.name)
            for field in schema
        )
        return output.select(*columns)
    except AnalysisException as error:
        raise EmissionError(
            f"{element} returned a column that cannot be cast to its type in {stream.name}: {error}."
        ) from error


def _by_name(column: Column, there: DataType, wanted: DataType, path: str) -> Column:
    """Cast a column; fields of events within it are matched by name, as Spark matches them by position.

    Raises:
        EmissionError: a field is missing, or a number with a fraction would be cut to a whole one.
    """
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        missing = set(wanted.names) - set(there.names)
        if missing:
            raise EmissionError(f"Column {path} has no field {', '.join(sorted(missing))}; it has {', '.join(there.names)}.")
        fields = (
            _by_name(column[field.name], there[field.name].dataType, field.dataType, f"{path}.{field.name}").alias(field.name)
            for field in wanted
        )
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        kinds = there.elementType, wanted.elementType
        return F.transform(column, lambda value: _by_name(value, *kinds, f"{path}[]"))
    if isinstance(there, MapType) and isinstance(wanted, MapType):
        kinds = there.valueType, wanted.valueType
        return F.transform_values(column.cast(MapType(wanted.keyType, there.valueType)), lambda _, v: _by_name(v, *kinds, path))
    if isinstance(there, FractionalType) and isinstance(wanted, IntegralType) and not isinstance(there, DecimalType):
        raise EmissionError(f"Column {path} is {there.simpleString()}, and the stream has a whole number: round it.")
    return column.cast(wanted)


class NativeWriter:
    """Writes a native group's micro-batches to staged files."""

    def __init__(self, topology: Topology, wiring: WiringReference, sinks: tuple[SinkFiles, ...]) -> None:
        self._topology, self._wiring = topology, wiring
        self._sinks = {sink.label: sink for sink in sinks}
        self._stream = topology.in_order[-1].emits[0]
        self._codec = Codec(self._stream.event_type)

    def write(self, frame: DataFrame, counted: list[Tally]) -> list[Tally]:
        """Write a micro-batch to every sink, and return the tallies of what was read and written.

        Args:
            frame: the batch, as a static DataFrame.
            counted: the tallies of the events that it reads.
        """
        stream = self._stream
        leaving = self._topology.sinks_of(stream)
        sinks = [self._sinks[label(sink.name, "hop" if sink.hop else "sink")] for sink in leaving]
        tally = Tally(stage=0, partition=0)
        births_read = [births for source_tally in counted for births in source_tally.births]
        if len(sinks) > 1:
            frame.persist()
        for sink in sinks:
            born = max((births.newest_us for births in births_read if births.counts), default=NONE)
            rows = list(self._write(_handed_on(frame, born) if sink.role == "hop" else frame, sink))
            tally.files.extend(rows)
            tally.streams[stream.name] = tally.outputs[sink.label] = sum(file.rows for file in rows)
        if not sinks:
            tally.streams[stream.name] = frame.count()
        frame.unpersist()
        for source_tally in counted:
            for name in source_tally.sources:  # one source in each task; births exclude events that columns cannot hold
                self._hand(tally, name, sum(births.count for births in source_tally.births))
            source_tally.births = []
        if any(sink.role != "hop" for sink in sinks):
            tally.births = births_read
        return [tally, *counted]

    def _hand(self, tally: Tally, source: str, events: int) -> None:
        """Add a source's events to the counts of the elements that read it."""
        for element in self._topology.consumers(self._topology.stream(source)):
            tally.element(element.name).events += events

    def _write(self, frame: DataFrame, sink: SinkFiles) -> Iterator[StagedFile]:
        target = path_of(sink.directory) / STAGING / uuid.uuid4().hex
        kind = "parquet" if sink.kind == "parquet" else "text" if sink.beside or sink.frame else "json"
        counted = Observation()
        if kind != "parquet" and sink.frame is None:
            frame = encoded(frame, self._codec.event_type)
        observed = frame if sink.kind == "parquet" else frame.observe(counted, F.count(F.lit(1)).alias("rows"))
        options = {**DIRECT, **WHOLE}
        if sink.frame is not None:
            observed = self._framed(observed, sink)
        elif sink.beside:
            observed = _prefixed(observed, self._codec.event_type, sink.beside)
        observed.write.format(kind).options(**options).save(address(target))
        suffix = "jsonl" if sink.kind == "jsonl" else "parquet"
        for number, part in enumerate(durable.matching(target, "part-*")):
            staged = target.with_name(f"{target.name}-{number:05d}.{suffix}")
            durable.move(part, staged)
            if is_local(staged):
                durable.sync_path(staged)  # Spark does not sync its files
            rows = rows_of(staged) if sink.kind == "parquet" else int(counted.get["rows"]) if number == 0 else 0
            yield StagedFile(sink.label, str(staged), f"native-{number:05d}.{suffix}", rows, staged.stat().st_size)
        durable.remove(target)

    def _framed(self, frame: DataFrame, sink: SinkFiles) -> DataFrame:
        """Return lines with messages in the format of a schema registry."""
        reference, name = self._wiring, self._stream.name

        def lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            wiring = reference.resolve()
            codec = wiring.codec(wiring.topology.stream(name).event_type)
            for batch in batches:
                beside = [batch.column(field).to_pylist() for field in sink.beside]
                texts = map(texts_of, zip(*beside, strict=True))
                messages = framed(codec.rows(batch), texts, sink)
                yield pa.record_batch({"value": pa.array(messages, pa.binary()).cast(pa.string())})

        return frame.mapInArrow(lines, "value string")


def _handed_on(frame: DataFrame, born: int) -> DataFrame:
    """Return a frame as another group of the run reads it; no single event has caused any of its rows."""
    return frame.withColumn(BORN, F.lit(born)).withColumn(ROOT, F.lit(0).cast("bigint"))


def encoded(frame: DataFrame, event_type: type[Event]) -> DataFrame:
    """Return a frame with its columns as JSON represents them."""
    return frame.select(*encoded_columns(event_type)) if _differs(event_type) else frame


def encoded_columns(event_type: type[Event]) -> list[Column]:
    """Return an event's columns as JSON has them: its tag, then the fields by their JSON names, durations in ISO 8601."""
    return _encoded_fields(event_type, lambda name: F.col(f"`{name}`"))


def _encoded_fields(kind: type[Event], column_of: Callable[[str], Column]) -> list[Column]:
    names = encoded_names(kind)
    return [
        *(F.lit(tag).alias(name) for name, tag in tag_of(kind).items()),
        *(_encoded(column_of(name), each).alias(names[name]) for name, each in field_types(kind).items()),
    ]


def _encoded(column: Column, annotation: Any) -> Column:
    """Return a value's column as JSON represents it."""
    kind = plain(annotation)
    if not _differs(annotation):
        return column
    if get_origin(kind) is list:
        return F.transform(column, lambda value: _encoded(value, get_args(kind)[0]))
    if get_origin(kind) is dict:
        return F.transform_values(column, lambda _, value: _encoded(value, get_args(kind)[1]))
    if isinstance(kind, type) and issubclass(kind, Event):
        return F.when(column.isNotNull(), F.struct(*_encoded_fields(kind, lambda name: column[name])))
    spell = scalar_of(annotation).spark
    return column if spell is None else spell(F, column)


def _differs(annotation: Any) -> bool:
    """Whether JSON represents a value differently from its column: by other names, with a tag, or as an ISO 8601 duration."""
    kind = plain(annotation)
    if isinstance(kind, type) and issubclass(kind, Event):
        names = encoded_names(kind)
        return bool(tag_of(kind)) or any(name != names[name] or _differs(each) for name, each in field_types(kind).items())
    if get_origin(kind) in (list, dict):
        return _differs(get_args(kind)[-1])
    return scalar_of(annotation).spark is not None


def _prefixed(frame: DataFrame, event_type: type[Event], beside: Sequence[str]) -> DataFrame:
    """Return lines of JSON that are preceded by the texts of some fields, as `penstock.runtime.output.prefixed` writes them."""
    line, texts = in_json([F.col(f"`{name}`") for name in frame.columns], event_type, beside)
    return frame.select(F.concat(F.to_json(F.array(*texts), WHOLE), F.lit("\t"), line).alias("value"))


def in_json(columns: list[Column], event_type: type[Event], beside: Sequence[str]) -> tuple[Column, list[Column]]:
    """Return a line of JSON, and some fields as texts, which are equal to those of the other dialects."""
    line = F.to_json(F.struct(*columns), WHOLE)
    names, annotations = encoded_names(event_type), field_types(event_type, annotated=True)

    def text_of(field: str) -> Column:
        text, kind = F.get_json_object(line, f"$['{names[field]}']"), kind_of(annotations[field])
        return text if kind is None or kind.spark_text is None else kind.spark_text(F, text)

    return line, list(map(text_of, beside))


def joined_texts(texts: Sequence[Column]) -> Column:
    """Join the texts of a key to one text, as `penstock.kinds.text.joined` does."""

    def quoted(text: Column) -> Column:
        spelled = F.url_encode(text)
        for written, wanted in (("+", "%20"), ("*", "%2A"), ("%7E", "~")):
            spelled = F.replace(spelled, F.lit(written), F.lit(wanted))
        return F.coalesce(spelled, F.lit(NOTHING))

    return F.concat_ws("/", *map(quoted, texts))
