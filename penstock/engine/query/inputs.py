"""Sources of a native query, which it decodes itself, and the count of what it has read.

Spark plans as it sees fit how often a query evaluates an input, and whether at all. So the rows of each micro-batch are decoded
once more, by a job of their own whose tallies are the count and which keeps the dead letters: in place of a query of their own,
whose files the native one would have to wait for.
"""

from collections.abc import Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from penstock.connectors.source import BoundSource
from penstock.engine.query.decode import decoder, typed
from penstock.engine.query.reading import frame_of
from penstock.engine.session.plans import leaves, nodes
from penstock.runtime.output import LETTERS, LettersOutput
from penstock.runtime.tally import Tally
from penstock.runtime.wire import TALLY, WIRE
from penstock.runtime.wiring import WiringReference

MARK = "penstock input "
"""Begins the name that the rows of a source have in the query's plan."""
NO_DATA = "LocalRelation"
"""What Spark puts in the place of a source that has none in a micro-batch."""


class Inputs:
    """The sources of a native group.

    Parameters
    ----------
    wiring: of the group. sources: all that it reads.
    """

    def __init__(self, wiring: WiringReference, sources: Sequence[BoundSource]) -> None:
        self._bound = {bound.source.name: bound for bound in sources}
        names = tuple(self._bound)
        letters = tuple(sink for sink in wiring.sinks if sink.label == LETTERS)
        self._reading = msgspec.structs.replace(wiring, elements=(), hops=names, sources=names, sinks=letters)
        self._numbers = {
            source.name: number for number, source in enumerate(self._reading.resolve().topology.sources if names else ())
        }

    def frame(self, spark: SparkSession, name: str, started_us: int) -> DataFrame:
        """The events of a source, decoded within the query; without those that cannot be."""
        bound, number = self._bound[name], self._numbers[name]
        rows = frame_of(spark, bound, started_us).withColumn("now", F.unix_micros(F.current_timestamp()))
        wiring = self._reading.resolve()
        schema = wiring.codec(wiring.topology.sources[number].event_type).schema
        marked = rows.alias(f"{MARK}{name}")
        return marked.mapInArrow(typed(self._reading, number, bound), from_arrow_schema(schema, prefer_timestamp_ntz=True))

    def count(self, query: StreamingQuery, batch: DataFrame) -> list[Tally]:
        """The tallies of what a micro-batch reads, which is under way.

        Parameters
        ----------
        batch: its result, which is not evaluated here.
        """
        if not self._bound:
            return []
        session = batch.sparkSession
        # What stands in a stream's plan is no stream, and may be run as it is once Spark does not look for one.
        session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        frames = [
            frame.mapInArrow(
                decoder(self._reading, self._numbers[name], self._bound[name], LettersOutput), from_arrow_schema(WIRE)
            )
            for name, frame in _rows_read(query, session).items()
        ]
        if not frames:
            return []
        whole = frames[0]
        for other in frames[1:]:
            whole = whole.union(other)
        rows = whole.where(F.col("hop") == TALLY).select("block").toArrow()
        return [Tally.read(block) for block in rows["block"].to_pylist()]


def _rows_read(query: StreamingQuery, session: SparkSession) -> dict[str, DataFrame]:
    """The rows of each marked source that has any in the micro-batch under way, before they are decoded."""
    found: dict[str, DataFrame] = {}
    assert session._jvm is not None
    dataset = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
    for node in nodes(query._jsq.streamingQuery().lastExecution().logical()):
        name = node.identifier().name() if node.nodeName() == "SubqueryAlias" else ""
        if name.startswith(MARK) and not all(leaf.nodeName() == NO_DATA for leaf in leaves(node)):
            found.setdefault(name.removeprefix(MARK), DataFrame(dataset.ofRows(session._jsparkSession, node), session))
    return found
