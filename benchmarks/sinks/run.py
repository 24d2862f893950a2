"""What public sinks make of a crash, each by its own documentation's example: python benchmarks/sinks/run.py [NAME ...]

Each runs on a Spark that its jars are made for, in an environment of `scripts/versions.py`; duckdb and pylance are to be
installed there for the sinks that use them. Prints a table; docs/how-to/prove.md has one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from crashpoints.crash_servers import running
from versions import VERSIONS, environment


class Sink(NamedTuple):
    """A sink, as a file of this directory shows it.

    Args:
        title: what it is.
        spark: the minor version of Spark.
        promise: what its documentation says of a restart.
        packages: Maven coordinates.
        conf: settings.
        server: (variable, kind) of a server that it needs.
    """

    name: str
    title: str
    spark: str
    promise: str
    packages: str = ""
    conf: tuple[str, ...] = ()
    server: tuple[str, str] | None = None


DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
DELTA_CONF = (
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
)
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ONCE, LEAST, NOTHING = "exactly once", "at least once", "nothing"

SINKS = (
    Sink("spark_json", "Spark's JSON files", "4.2", ONCE),
    Sink("spark_parquet", "Spark's Parquet files", "4.2", ONCE),
    Sink("spark_parquet_read_by_duckdb", "the same, read by DuckDB", "4.2", ONCE),
    Sink("spark_avro", "Spark's Avro files", "4.2", ONCE, "org.apache.spark:spark-avro_2.13:4.2.0"),
    Sink("spark_foreach", "Spark's foreach", "4.2", LEAST),
    Sink("spark_memory_complete", "Spark's memory sink, complete", "4.2", "a restart makes the table anew"),
    Sink("spark_python_datasource", "the stream writer of Spark's tutorial on Python data sources", "4.2", NOTHING),
    Sink(
        "jdbc_postgresql",
        "JDBC into PostgreSQL, foreachBatch",
        "4.2",
        LEAST,
        "org.postgresql:postgresql:42.7.14",
        server=("PG", "postgresql"),
    ),
    Sink("jdbc_sqlite", "JDBC into SQLite, foreachBatch", "4.2", LEAST, "org.xerial:sqlite-jdbc:3.50.3.0"),
    Sink(
        "spark_kafka",
        "Spark's Kafka sink",
        "4.2",
        LEAST,
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        server=("KAFKA", "kafka"),
    ),
    Sink("delta_sink", "Delta 4.4.0", "4.2", ONCE, DELTA, DELTA_CONF),
    Sink("delta_foreach_append", "Delta, two tables, foreachBatch", "4.2", LEAST, DELTA, DELTA_CONF),
    Sink("delta_foreach_txn", "the same with txnAppId and txnVersion", "4.2", ONCE, DELTA, DELTA_CONF),
    Sink("iceberg_sink", "Iceberg 1.12.0, append", "4.1", NOTHING, ICEBERG),
    Sink("iceberg_complete", "Iceberg, complete", "4.1", NOTHING, ICEBERG),
    Sink("iceberg_foreach_append", "Iceberg, append in foreachBatch", "4.1", NOTHING, ICEBERG),
    Sink("iceberg_merge", "Iceberg, MERGE INTO in foreachBatch", "4.1", NOTHING, ICEBERG),
    Sink("deltalake_append", "delta-rs 1.6, append in foreachBatch", "4.2", NOTHING),
    Sink("deltalake_txn", "the same with an application's transaction", "4.2", ONCE),
    Sink("duckdb_insert", "DuckDB, insert in foreachBatch", "4.2", NOTHING),
    Sink("lance_append", "Lance, append in foreachBatch", "4.2", "appending twice can double rows"),
    Sink("lance_merge_insert", "Lance, merge_insert in foreachBatch", "4.2", NOTHING),
)


def verdict(sink: Sink, variables: dict[str, str]) -> tuple[str, float]:
    """What `penstock prove --query` says of it, and how long that takes."""
    command = [
        str(environment(sink.spark)),
        "-m",
        "penstock",
        "prove",
        "--query",
        f"{sink.name}.py:build",
        "--sample",
        "sales.jsonl",
        "--seconds",
        "240",
        "--json",
        *(["--packages", sink.packages] if sink.packages else []),
        *(part for setting in sink.conf for part in ("--conf", setting)),
    ]
    begun = time.monotonic()
    done = subprocess.run(command, cwd=HERE, env={**os.environ, **variables}, capture_output=True, text=True, timeout=600)
    took = time.monotonic() - begun
    try:
        return str(json.loads(done.stdout)["verdict"]), took
    except (ValueError, KeyError):
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"no verdict: {said[-1][:200] if said else done.returncode}", took


def main() -> None:
    """All of them, or those that are named."""
    print("| sink | Spark | its documentation promises | verdict | s |\n| --- | --- | --- | --- | ---: |", flush=True)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sinks-")))
        for sink in SINKS:
            if sys.argv[1:] and sink.name not in sys.argv[1:]:
                continue
            variables = {}
            if sink.server is not None:
                variable, kind = sink.server
                variables[variable] = stack.enter_context(running(kind, base / kind))["at"]
            found, took = verdict(sink, variables)
            row = f"| {sink.title} (`{sink.name}.py`) | {VERSIONS[sink.spark]} | {sink.promise} | {found} | {took:.0f} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
