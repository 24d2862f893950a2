"""A client of Spark Connect that watches a query of its own, with no JVM in its process: REMOTE DIRECTORY, and prints what it
has seen.
"""

import json
import sys
import time
from pathlib import Path

import penstock


def main(remote: str, directory: Path) -> None:
    from pyspark.sql.connect.session import SparkSession  # which needs more than Spark itself

    session = SparkSession.builder.remote(remote).getOrCreate()
    watching = penstock.watch(session, directory / "progress.jsonl")
    rows = session.readStream.format("rate").option("rowsPerSecond", 500).load()
    writer = rows.selectExpr("value % 7 AS key").writeStream.format("noop").queryName("watched")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(processingTime="500 milliseconds")
    query = writer.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(query.recentProgress) < 14:
        time.sleep(0.2)
    query.stop()
    time.sleep(1)  # the listener hears of progress a little later
    watching.stop()
    seen = watching.observe().queries[0]
    print(json.dumps({"name": seen.name, "batches": seen.batches, "p95": watching.predict().p95}))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
