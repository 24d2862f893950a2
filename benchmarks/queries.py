"""The eleven queries whose latency is predicted: what each does, what it reads, on how many cores, at which settings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

Frame = Any
Reader = Callable[..., Frame]
"""What a query by hand reads: ``reader()`` all of it, ``reader([0])`` one partition of a topic."""


@dataclass(frozen=True)
class Query:
    """One query, how it is started, and what is asked of it.

    Args:
        source: what it reads.
        triggers: four, in seconds.
        rates: three, in rows per second.
        app: of an application of Penstock its file under apps/, without `.py`.
        build: of one by hand, from a reader to the frame that is written.
        cores: 0.5 is one core half of the time.
        partitions: of its shuffles.
        mode: of its output.
        groups: of its elements, if there is more than one group.
    """

    source: Literal["generator", "kafka", "files", "delta", "rate"]
    triggers: tuple[float, float, float, float]
    rates: tuple[int, int, int]
    app: str = ""
    build: Callable[[Reader], Frame] | None = None
    cores: float = 2
    partitions: int = 2
    mode: str = "append"
    groups: tuple[tuple[str, str], ...] = ()

    @property
    def scheduled(self) -> bool:
        """Whether rows are there as soon as they are due, so that any arrivals can be asked for."""
        return self.source in ("generator", "kafka")


def digests(rounds: int) -> Callable[[Iterator["pd.DataFrame"]], Iterator["pd.DataFrame"]]:
    """A chain of digests of each message: work for Python."""

    def digest(frames: Iterator["pd.DataFrame"]) -> Iterator["pd.DataFrame"]:
        import hashlib

        import pandas

        for part in frames:
            found = []
            for value in part["value"]:
                content = value.encode()
                for _ in range(rounds):
                    content = hashlib.blake2b(content).digest()
                found.append(content.hex())
            yield pandas.DataFrame({"digest": found})

    return digest


def hashed(value: str, rounds: int) -> str:
    """A chain of digests as an expression: work for the JVM."""
    for _ in range(rounds):
        value = f"sha2({value}, 512)"
    return value


def stateless(read: Reader) -> Frame:
    """Checks and digests messages in Python."""
    return read().selectExpr("CAST(value AS STRING) AS value").mapInPandas(digests(200), "digest string")


def files(read: Reader) -> Frame:
    """The same of the lines of JSON files."""
    return read().selectExpr("text AS value").mapInPandas(digests(200), "digest string")


def aggregation(read: Reader) -> Frame:
    """A built-in aggregation: messages per key, and the greatest of a chain of digests."""
    parsed = (
        read()
        .selectExpr("CAST(value AS STRING) AS value")
        .selectExpr("get_json_object(value, '$.key') AS key", f"{hashed('value', 60)} AS digest")
    )
    return parsed.groupBy("key").agg({"*": "count", "digest": "max"})


def join(read: Reader) -> Frame:
    """The messages of one partition with those of the other that have the same key and came within a second."""
    from pyspark.sql.functions import expr

    sides = []
    for partition, name in enumerate("ab"):
        body = "get_json_object(CAST(value AS STRING), '$.key')"
        side = read([partition]).selectExpr(f"{body} AS {name}_key", f"timestamp AS {name}_at")
        sides.append(side.withWatermark(f"{name}_at", "1 second"))
    near = "b_at BETWEEN a_at - INTERVAL 1 SECOND AND a_at + INTERVAL 1 SECOND"
    return sides[0].join(sides[1], expr(f"a_key = b_key AND {near}"))


def transforming(read: Reader) -> Frame:
    """A counter of each key by transformWithState."""
    import pandas
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "seen long")

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
            before = self.seen.get()
            seen = (before[0] if before else 0) + sum(map(len, rows))
            self.seen.update((seen,))
            yield pandas.DataFrame({"key": key, "seen": [seen]})

        def close(self) -> None:
            pass

    keyed = read().selectExpr("CAST(get_json_object(CAST(value AS STRING), '$.key') AS BIGINT) % 50 AS key")
    return keyed.groupBy("key").transformWithStateInPandas(Counter(), "key long, seen long", "update", "none")


def rate(read: Reader) -> Frame:
    """Digests of what Spark's rate source makes."""
    return read().selectExpr("timestamp", "value", f"{hashed('CAST(value AS STRING)', 60)} AS digest")


QUERIES = {
    "keyed": Query("generator", (0, 1, 1.5, 3), (500, 1500, 3000), app="keyed"),
    "chain": Query(
        "generator", (0, 2, 3, 5), (300, 800, 1500), app="chain", groups=(("digest", "first"), ("Counter", "second"))
    ),
    "stateless": Query("kafka", (0, 0.75, 1, 2), (1000, 3000, 6000), build=stateless),
    "aggregation": Query("kafka", (0, 1.2, 1.8, 3), (500, 1500, 3000), build=aggregation, mode="update", partitions=8),
    "files": Query("files", (0, 0.8, 1.2, 2), (500, 1500, 3000), build=files, cores=1),
    "join": Query("kafka", (0, 2, 2.5, 3.5), (300, 600, 1200), build=join, partitions=4),
    "transforming": Query("kafka", (0, 2, 2.5, 3.5), (300, 1000, 2000), build=transforming, partitions=4, mode="update"),
    "rate": Query("rate", (0, 1.1, 1.7, 2.5), (500, 1500, 3000), build=rate, cores=0.5),
    "delta": Query("delta", (0, 1, 1.5, 2.5), (500, 1500, 3000), app="sums"),
    "batch": Query("generator", (0, 0.8, 1.2, 2), (1000, 3000, 6000), app="sums_batch", cores=1, partitions=1),
    "query": Query("generator", (0, 0.8, 1.2, 2), (1000, 3000, 6000), app="lengths_query", partitions=3),
}
