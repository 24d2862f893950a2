"""Runs the settings of one query, one after another in one warm session, and measures their latency from outside.

    python benchmarks/campaign.py QUERY SETTINGS.json DIRECTORY

QUERY is `keyed` or `chain` (applications of Penstock, from the generator), or `stateless` or `aggregation` (PySpark
written by hand, from Kafka). Each setting leaves a directory: the recording, and `truth.json`. Those that have one are
not run again.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from penstock.app.loader import load_app
from penstock.bench.servers.broker import KafkaBroker
from penstock.connectors.kafka.place import JARS
from penstock.engine.running.execution import run
from penstock.engine.running.ledger import Ledger
from penstock.engine.running.options import RunOptions
from penstock.engine.session.maven import jars_of
from penstock.engine.session.spark import start_session
from penstock.runs.batches import BatchRecord
from penstock.runtime.histogram import Histogram

HERE = Path(__file__).parent


WARM_UP_S, MEASURED_S = 10.0, 40.0
AGEING_S = 150.0
"""How long the session works before anything is measured: its JVM gets faster for minutes."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

Setting = dict[str, Any]


def main() -> None:
    query, settings, directory = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    directory.mkdir(parents=True, exist_ok=True)
    left = [setting for setting in settings if not (directory / setting["id"] / "truth.json").exists()]
    if not left:
        return
    warming = {**left[0], "id": "warm-up", "trigger": 0, "seconds": AGEING_S}
    with ExitStack() as stack, (directory / "spark.log").open("ab") as log:
        by_hand = query in QUERIES
        spark = start_session(query, "local[2]", log, {}, jars=jars_of([JARS]) if by_hand else ())
        stack.callback(spark.stop)
        if by_hand:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            broker = stack.enter_context(KafkaBroker(Path(scratch)))
        for number, setting in enumerate([warming, *left]):
            place = directory / setting["id"]
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            truth = (
                run_by_hand(spark, query, broker.brokers, setting, place)
                if by_hand
                else run_penstock(spark, query, setting, place)
            )
            (place / "truth.json").write_text(json.dumps({"setting": setting, **truth}))
            print(f"{time.strftime('%T')} {query} {number}/{len(left)} {setting} {truth}", flush=True)


def seconds_of(setting: Setting) -> float:
    """How long a setting is measured: at least fifteen batches' time."""
    return setting.get("seconds") or max(MEASURED_S, 15 * float(setting["trigger"]))


def source_of(setting: Setting) -> str:
    """The generator's URI."""
    if setting["arrivals"] == "recorded":
        return f"generator:recorded?times={two_rates()}&speed={setting['rate'] / 1000}"
    scv = "&scv=10" if setting["arrivals"] == "bursty" else ""
    return f"generator:{setting['arrivals']}?rate={setting['rate']}&seed={setting.get('seed', 1)}{scv}"


def two_rates() -> Path:
    """A stream of 1,000 messages a second in the mean, which has 500 for 8 s and then 1,500 for 8 s."""
    path = Path(tempfile.gettempdir()) / "penstock-two-rates.txt"
    if not path.exists():
        random = np.random.default_rng(7)
        times = [
            start + np.sort(random.random(random.poisson(8 * rate))) * 8
            for start in range(0, 1200, 16)
            for start, rate in ((start, 500), (start + 8, 1500))
        ]
        np.savetxt(path, np.concatenate(times), "%.6f")
    return path


# --- Penstock ------------------------------------------------------------------------------------------------------


def run_penstock(spark: Any, query: str, setting: Setting, place: Path) -> dict[str, Any]:
    """One run; the ledger's latencies, of which a first trial has shown that they agree with an outside watcher."""
    app, reference = load_app(HERE / "apps" / f"{query}.py")
    gate = "".join(f"&{name}={setting[name]}" for name in ("min_rows", "max_delay", "max_rows") if name in setting)
    options = RunOptions(
        name="run", runs=place, sources={"Readings": source_of(setting) + gate}, trigger=setting["trigger"],
        duration=WARM_UP_S + seconds_of(setting), spark=spark, quiet=True, partitions=2,
        groups={"digest": "first", "Counter": "second"} if query == "chain" else {},
    )  # fmt: skip
    run(app, options, application=reference)
    last = "second" if query == "chain" else "main"
    ledger = Ledger(place / "run" / f"batches-{last}.jsonl", last, ())
    records: list[BatchRecord] = list(ledger.records())
    ledger.close()
    began = records[0].committed_us + WARM_UP_S * 1e6
    latencies = Histogram()
    halves = [Histogram(), Histogram()]
    kept = [record for record in records if record.committed_us >= began]
    for number, record in enumerate(kept):
        latencies.merge(record.latency_ms)
        halves[number * 2 // len(kept)].merge(record.latency_ms)
    return {
        "mean": latencies.mean / 1e3,
        **{name: latencies.quantile(p) / 1e3 for name, p in QUANTILES.items()},
        "batches": len(kept), "rows": latencies.count,
        "drift": (halves[1].mean - halves[0].mean) / latencies.mean if halves[0].counts else None,
    }  # fmt: skip


# --- PySpark, by hand ----------------------------------------------------------------------------------------------


def stateless(frame: Any) -> Any:
    """Checks and digests messages in Python."""
    import hashlib
    from collections.abc import Iterator

    import pandas as pd

    def digest(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for part in frames:
            found = []
            for value in part["value"]:
                content = value.encode()
                for _ in range(200):
                    content = hashlib.blake2b(content).digest()
                found.append(content.hex())
            yield pd.DataFrame({"digest": found})

    return frame.selectExpr("CAST(value AS STRING) AS value").mapInPandas(digest, "digest string")


def aggregation(frame: Any) -> Any:
    """A built-in aggregation: messages per key, and the greatest of a chain of digests, which is work for the JVM."""
    digest = "value"
    for _ in range(60):
        digest = f"sha2({digest}, 512)"
    parsed = frame.selectExpr("CAST(value AS STRING) AS value").selectExpr(
        "get_json_object(value, '$.key') AS key", f"{digest} AS digest"
    )
    return parsed.groupBy("key").agg({"*": "count", "digest": "max"})


QUERIES = {"stateless": stateless, "aggregation": aggregation}


def run_by_hand(spark: Any, query: str, brokers: str, setting: Setting, place: Path) -> dict[str, Any]:
    """One query; a row's result is visible when the marker of its batch's output is."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
    from pyspark.sql.streaming.listener import StreamingQueryListener

    topic = f"{query}-{setting['id']}-{int(time.time())}"
    admin = AdminClient({"bootstrap.servers": brokers})
    for created in admin.create_topics([NewTopic(topic, 2)]).values():
        created.result()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest")
    for option, name in (("min_rows", "minOffsetsPerTrigger"), ("max_rows", "maxOffsetsPerTrigger")):
        if option in setting:
            reader = reader.option(name, setting[option])
    if "max_delay" in setting:
        reader = reader.option("maxTriggerDelay", f"{round(setting['max_delay'] * 1000)}ms")
    progress = (place / "progress.jsonl").open("w")

    class Keep(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            progress.write(json.dumps(json.loads(event.progress.json)) + "\n")

        def onQueryTerminated(self, event: Any) -> None:
            pass

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(place / "out" / f"batch={number}"))
        (place / "visible" / str(number)).touch()

    keep = Keep()
    spark.streams.addListener(keep)
    (place / "visible").mkdir()
    total = WARM_UP_S + seconds_of(setting)
    running = (
        QUERIES[query](reader.load()).writeStream.outputMode("update" if query == "aggregation" else "append")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime=f"{round(setting['trigger'] * 1000)} milliseconds").foreachBatch(write).start()
    )  # fmt: skip
    sender = subprocess.run(
        [sys.executable, str(HERE / "sender.py"), brokers, topic, source_of(setting), str(total), place / "due.npy"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    time.sleep(1)  # what the last rows find is no steady state any more, and is not asked for
    running.stop()
    time.sleep(0.5)
    spark.streams.removeListener(keep)
    progress.close()
    shutil.rmtree(place / "out", ignore_errors=True)
    shutil.rmtree(place / "checkpoint", ignore_errors=True)
    return {**truth_of(place, topic), "sender": json.loads(sender.stdout)}


def truth_of(place: Path, topic: str) -> dict[str, Any]:
    """Latencies from when messages were due to when the marker of their batch was there."""
    due = np.load(place / "due.npy")
    seen = np.full(len(due), np.nan)
    batches = 0
    lines = (place / "progress.jsonl").read_text().splitlines()
    whole = [line for line in lines if datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp() < due[-1]]
    (place / "progress.jsonl").write_text("".join(f"{line}\n" for line in whole))
    for line in whole:
        progress = json.loads(line)
        source = progress["sources"][0]
        marker = place / "visible" / str(progress["batchId"])
        if not progress["numInputRows"] or not marker.exists():
            continue
        start, end = source["startOffset"] or {}, source["endOffset"]
        for partition, to in end[topic].items():
            first = (start.get(topic) or {}).get(partition, 0)
            seen[int(partition) + 2 * first : int(partition) + 2 * to : 2] = marker.stat().st_mtime
        batches += 1
    kept = (due >= due[0] + WARM_UP_S) & ~np.isnan(seen)
    latencies = (seen - due)[kept]
    middle = len(latencies) // 2
    return {
        "mean": float(latencies.mean()),
        **{name: float(np.quantile(latencies, p)) for name, p in QUANTILES.items()},
        "batches": batches, "rows": len(latencies),
        "drift": float((latencies[middle:].mean() - latencies[:middle].mean()) / latencies.mean()),
    }  # fmt: skip


if __name__ == "__main__":
    main()
