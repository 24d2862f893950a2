"""The sources of a native query: decoding them within the query, and counting the events that it reads.

Spark decides how often a query evaluates an input, and whether at all, so counting within the query would be wrong. The rows of
each micro-batch are therefore decoded a second time, by a job that counts them and keeps the dead letters. A separate query for
each source would do this as well, but the native query would have to wait for its files.
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
"""The prefix of the alias by which a source's rows are found in the query's plan."""
NO_DATA = "LocalRelation"
"""The plan node by which Spark replaces a source without data in a micro-batch."""


class Inputs:
    """The sources of a native group.

    Args:
        wiring: the group's wiring.
        sources: all sources of the group.
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
        """Return a source's events, decoded within the query, without those that cannot be decoded."""
        bound, number = self._bound[name], self._numbers[name]
        rows = frame_of(spark, bound, started_us)
        wiring = self._reading.resolve()
        schema = wiring.codec(wiring.topology.sources[number].event_type).schema
        marked = rows.alias(f"{MARK}{name}")
        return marked.mapInArrow(typed(self._reading, number, bound), from_arrow_schema(schema, prefer_timestamp_ntz=True))

    def count(self, query: StreamingQuery, batch: DataFrame) -> list[Tally]:
        """Return the tallies of the events that the micro-batch under way reads.

        Args:
            batch: the micro-batch's result, which is not evaluated here.
        """
        if not self._bound:
            return []
        session = batch.sparkSession
        # In a micro-batch's plan the streams are replaced by static data, so its parts can run once Spark's check is off.
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
    """Return, by name, the undecoded rows of each marked source that has data in the micro-batch under way."""
    frames: dict[str, DataFrame] = {}
    assert session._jvm is not None
    dataset = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
    for node in nodes(query._jsq.streamingQuery().lastExecution().logical()):
        name = node.identifier().name() if node.nodeName() == "SubqueryAlias" else ""
        if name.startswith(MARK) and not all(leaf.nodeName() == NO_DATA for leaf in leaves(node)):
            frames.setdefault(name.removeprefix(MARK), DataFrame(dataset.ofRows(session._jsparkSession, node), session))
    return frames
