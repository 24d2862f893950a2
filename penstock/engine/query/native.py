"""Groups made only of query-dialect elements: Spark plans the whole, no Python touches an event."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, get_args, get_origin

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

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
from penstock.runtime.output import BORN, STAGING, SinkFiles, StagedFile, framed, label, texts_of
from penstock.runtime.tally import Tally
from penstock.runtime.wiring import WiringReference
from penstock.storage import durable
from penstock.storage.place import address, is_local, path_of
from penstock.storage.tables import rows_of

DIRECT = {"mapreduce.fileoutputcommitter.algorithm.version": "2", "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""The directory written to is staged as a whole, so tasks need not stage their files once more within it."""

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
"""What a plan calls the operators that keep state from micro-batch to micro-batch, where their input is a stream."""

WHOLE = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""As in the other dialects, a field that is None is written as null (it may have no default to be read back by), and times have
their microseconds."""


def compile_native(
    spark: SparkSession, topology: Topology, sources: list[BoundSource], inputs: Inputs, started_us: int
) -> tuple[DataFrame, list[str]]:
    """The streaming DataFrame that a chain of query elements makes of its sources, and the sources in the order in
    which Spark's plan has them; one that is read twice is there twice.

    Raises
    ------
    EmissionError: an element's output lacks a column of its stream, or has it in another type.
    TopologyError: an element does not read one of its inputs, or reads a stream that is none.
    """
    frames: dict[Stream[Any], DataFrame] = {}
    for bound in sources:
        stream = topology.stream(bound.source.name)
        frames[stream] = inputs.frame(spark, stream.name, started_us)
    known = {_streams(spark, frame)[0]: stream.name for stream, frame in frames.items()}
    result = next(iter(frames.values()))
    for element in topology.in_order:
        stream = element.emits[0]
        output = _planned(element, [frames[read] for read in element.inputs])
        frames[stream] = result = conform(element.name, output, stream)
    if has_join(topology):
        _refuse_state_besides(topology, result)
    return result, _order(topology, known, _streams(spark, result))


def _refuse_state_besides(topology: Topology, result: DataFrame) -> None:
    """Refuse a query of a join that has other operators with state, for Spark judges lateness in one way for all of a query.

    Raises
    ------
    TopologyError: names the elements, of which some are to be in a query of their own.
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
    """Whether Spark keeps state for an operator from micro-batch to micro-batch."""
    if not node.isStreaming() or node.nodeName() not in STATEFUL:
        return False
    return node.nodeName() != "Join" or bool(node.left().isStreaming() and node.right().isStreaming())


def _planned(element: Element, inputs: list[DataFrame]) -> Any:
    """What an element makes of its inputs."""
    if isinstance(element.body, WindowQuery):
        return windowed(element.name, element.body, *inputs)
    if isinstance(element.body, JoinQuery):
        return joined(element.name, element.body, *inputs)
    return element.body(*inputs)


def _streams(spark: SparkSession, frame: DataFrame) -> list[int]:
    """What tells the streams that a plan reads, from left to right, which is how Spark numbers them.

    A plan that reads a stream twice has two leaves of it, which share what they read from.
    """
    streams = [leaf for leaf in leaves(frame._jdf.queryExecution().analyzed()) if leaf.isStreaming()]
    read = [leaf.dataSource() if leaf.nodeName() == "StreamingRelation" else leaf.table() for leaf in streams]
    assert spark._jvm is not None
    return [spark._jvm.System.identityHashCode(one) for one in read]


def _order(topology: Topology, known: dict[int, str], found: list[int]) -> list[str]:
    element = topology.in_order[-1].name
    if not set(found) <= set(known):
        raise TopologyError(
            f"Element {element} reads a stream of its own making: declare it as a source, for no count has its events."
        )
    missing = sorted({known[leaf] for leaf in set(known) - set(found)})
    if missing:
        raise TopologyError(f"Element {element} does not read its input {missing[0]}: use it, or do not declare it.")
    return [known[leaf] for leaf in found]


def conform(element: str, output: Any, stream: Stream[Any]) -> DataFrame:
    """An element's output, with the columns of the stream that it goes into.

    Raises
    ------
    EmissionError: it lacks one, or has it in another type.
    """
    if not isinstance(output, DataFrame):
        raise EmissionError(f"{element} returned {type(output).__name__}; the query dialect returns a DataFrame.")
    wanted = from_arrow_schema(Codec(stream.event_type).schema, prefer_timestamp_ntz=True)
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

    def __init__(self, topology: Topology, wiring: WiringReference, sinks: tuple[SinkFiles, ...]) -> None:
        self._topology, self._wiring = topology, wiring
        self._sinks = {sink.label: sink for sink in sinks}
        self._stream = topology.in_order[-1].emits[0]
        self._codec = Codec(self._stream.event_type)

    def write(self, frame: DataFrame, counted: list[Tally]) -> list[Tally]:
        """Write a micro-batch to every sink and say what was read and written.

        Parameters
        ----------
        frame: the batch, static.
        counted: what it took in.
        """
        stream = self._stream
        leaving = self._topology.sinks_of(stream)
        sinks = [self._sinks[label(sink.name, "hop" if sink.hop else "sink")] for sink in leaving]
        tally = Tally(stage=0, partition=0)
        taken = [births for each in counted for births in each.births]
        if len(sinks) > 1:
            frame.persist()
        for sink in sinks:
            born = max((births.newest_us for births in taken if births.counts), default=NONE)
            rows = list(self._write(frame.withColumn(BORN, F.lit(born)) if sink.role == "hop" else frame, sink))
            tally.files.extend(rows)
            tally.streams[stream.name] = tally.outputs[sink.label] = sum(file.rows for file in rows)
        if not sinks:
            tally.streams[stream.name] = frame.count()
        frame.unpersist()
        for each in counted:
            for name in each.sources:  # one, in each task; births are of those of its events that columns can hold
                self._hand(tally, name, sum(births.count for births in each.births))
            each.births = []
        if any(sink.role != "hop" for sink in sinks):
            tally.births = taken
        return [tally, *counted]

    def _hand(self, tally: Tally, source: str, events: int) -> None:
        """Count what the elements that read a source were handed."""
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
                durable.sync_path(staged)  # Spark does not
            rows = rows_of(staged) if sink.kind == "parquet" else int(counted.get["rows"]) if number == 0 else 0
            yield StagedFile(sink.label, str(staged), f"native-{number:05d}.{suffix}", rows, staged.stat().st_size)
        durable.remove(target)

    def _framed(self, frame: DataFrame, sink: SinkFiles) -> DataFrame:
        """Lines of messages that a schema registry makes."""
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


def encoded(frame: DataFrame, event_type: type[Event]) -> DataFrame:
    """A stream's columns as JSON has them."""
    return frame.select(*encoded_columns(event_type)) if _differs(event_type) else frame


def encoded_columns(event_type: type[Event]) -> list[Column]:
    """A stream's columns as JSON has them: a tag first, then the fields by their other names, lengths of time by ISO 8601."""
    return _encoded_fields(event_type, lambda name: F.col(f"`{name}`"))


def _encoded_fields(kind: type[Event], column_of: Callable[[str], Column]) -> list[Column]:
    names = encoded_names(kind)
    return [
        *(F.lit(tag).alias(name) for name, tag in tag_of(kind).items()),
        *(_encoded(column_of(name), each).alias(names[name]) for name, each in field_types(kind).items()),
    ]


def _encoded(column: Column, annotation: Any) -> Column:
    """A value as JSON has it."""
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
    """Whether JSON has a value otherwise than its column has: by other names, with a tag, or a length of time by ISO 8601."""
    kind = plain(annotation)
    if isinstance(kind, type) and issubclass(kind, Event):
        names = encoded_names(kind)
        return bool(tag_of(kind)) or any(name != names[name] or _differs(each) for name, each in field_types(kind).items())
    if get_origin(kind) in (list, dict):
        return _differs(get_args(kind)[-1])
    return scalar_of(annotation).spark is not None


def _prefixed(frame: DataFrame, event_type: type[Event], beside: Sequence[str]) -> DataFrame:
    """Lines of JSON with the texts of some fields before them, as `penstock.runtime.output.prefixed` writes them."""
    line, texts = in_json([F.col(f"`{name}`") for name in frame.columns], event_type, beside)
    return frame.select(F.concat(F.to_json(F.array(*texts), WHOLE), F.lit("\t"), line).alias("value"))


def in_json(columns: list[Column], event_type: type[Event], beside: Sequence[str]) -> tuple[Column, list[Column]]:
    """A line of JSON, and what some fields are as texts, in the same words as in the other dialects."""
    line = F.to_json(F.struct(*columns), WHOLE)
    names, annotations = encoded_names(event_type), field_types(event_type, annotated=True)

    def text_of(field: str) -> Column:
        text, kind = F.get_json_object(line, f"$['{names[field]}']"), kind_of(annotations[field])
        return text if kind is None or kind.spark_text is None else kind.spark_text(F, text)

    return line, list(map(text_of, beside))


def joined_texts(texts: Sequence[Column]) -> Column:
    """A key as one text, as `penstock.kinds.text.joined` makes it."""

    def quoted(text: Column) -> Column:
        spelled = F.url_encode(text)
        for given, wanted in (("+", "%20"), ("*", "%2A"), ("%7E", "~")):
            spelled = F.replace(spelled, F.lit(given), F.lit(wanted))
        return F.coalesce(spelled, F.lit(NOTHING))

    return F.concat_ws("/", *map(quoted, texts))
