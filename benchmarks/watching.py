"""What `penstock.watch` costs the query that is watched: durations of its micro-batches with it and without, in turn.

    python benchmarks/watching.py [--rounds 12] [--seconds 12]

A query by hand from Spark's rate source runs back to back; every so many seconds it is watched or not. Prints the median
duration of both, their ratio round by round, and what the listener took of the driver's processor in Python.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import penstock
from penstock.engine.session.spark import start_session

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, Path(scratch, "spark.log").open("ab") as log:
        spark = start_session("watching", "local[2]", log, {})
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        rows = spark.readStream.format("rate").option("rowsPerSecond", 2000).load()
        writer = rows.selectExpr("value % 50 AS key").groupBy("key").count().writeStream.format("noop")
        query = writer.outputMode("update").option("checkpointLocation", f"{scratch}/checkpoint").start()
        time.sleep(30)
        durations: dict[bool, list[float]] = {False: [], True: []}
        ratios, processor, last = [], [], -1
        for number in range(options.rounds):
            medians = {}
            for watched in (False, True) if number % 2 else (True, False):
                watching = penstock.watch(spark, f"{scratch}/progress.jsonl") if watched else None
                busy = time.process_time()
                time.sleep(options.seconds)
                busy = time.process_time() - busy
                new = [one for one in query.recentProgress if one.batchId > last and one.numInputRows]
                last = new[-1].batchId
                found = [float(one.durationMs["triggerExecution"]) for one in new]
                if watching is not None:
                    processor.append(busy / len(found))
                    watching.stop()
                medians[watched] = statistics.median(found)
                durations[watched] += found
            ratios.append(medians[True] / medians[False])
            print(f"round {number + 1}: {medians[True]:.0f} ms watched, {medians[False]:.0f} ms not", flush=True)
        query.stop()
        spark.stop()
    both = {watched: statistics.median(values) for watched, values in durations.items()}
    print(
        f"watched {both[True]:.0f} ms, not {both[False]:.0f} ms: {both[True] / both[False] - 1:+.1%}; round by round "
        f"{', '.join(f'{ratio - 1:+.1%}' for ratio in ratios)} (median {statistics.median(ratios) - 1:+.1%}); the listener "
        f"took {statistics.median(processor) * 1e3:.2f} ms of the driver's Python a micro-batch"
    )


if __name__ == "__main__":
    main()
