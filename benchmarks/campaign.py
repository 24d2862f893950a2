"""Runs the settings of one query, one after another in one warm session, and measures their latency from outside.

    python benchmarks/campaign.py QUERY SETTINGS.json DIRECTORY

QUERY is one of queries.py: applications of Penstock, and PySpark written by hand. Each setting leaves a directory: the
recording, and `truth.json`. Those that have one are not run again. Half a core needs the right to make a control group.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from queries import QUERIES, Query

from penstock.app.loader import load_app
from penstock.bench.servers.broker import KafkaBroker
from penstock.connectors.generator import GENERATOR
from penstock.connectors.kafka.place import JARS
from penstock.connectors.schedule import schedule_of
from penstock.connectors.uri import Uri
from penstock.engine.running.execution import run
from penstock.engine.running.options import RunOptions
from penstock.engine.session.maven import jars_of
from penstock.engine.session.spark import start_session
from penstock.runs.batches import records_in

HERE = Path(__file__).parent


WARM_UP_S, MEASURED_S, LEAST_BATCHES = 6.0, 22.0, 10
AGEING_S = 100.0
"""How long the session works before anything is measured: its JVM gets faster for minutes."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
PERIOD_US = 100_000
"""In which a control group may use its share of a core."""

Setting = dict[str, Any]
Real = NDArray[np.float64]


def main() -> None:
    name, settings, directory = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    query = QUERIES[name]
    directory.mkdir(parents=True, exist_ok=True)
    left = [setting for setting in settings if not (directory / setting["id"] / "truth.json").exists()]
    if not left:
        return
    warming = {**left[0], "id": "warm-up", "trigger": 0, "seconds": AGEING_S}
    with ExitStack() as stack, (directory / "spark.log").open("ab") as log:
        broker = None
        if query.source == "kafka":
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            broker = stack.enter_context(KafkaBroker(Path(scratch)))
        if query.cores < 1:
            keep_to(query.cores)
        master = f"local[{max(1, int(query.cores))}]"
        spark = start_session(name, master, log, {}, jars=jars_of([JARS]) if broker else ())
        stack.callback(spark.stop)
        for number, setting in enumerate([warming, *left]):
            place = directory / setting["id"]
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            if query.app:
                truth = run_penstock(spark, query, setting, place)
            else:
                truth = run_by_hand(spark, query, broker.brokers if broker else "", setting, place)
            (place / "truth.json").write_text(json.dumps({"setting": setting, **truth}))
            print(f"{time.strftime('%T')} {name} {number}/{len(left)} {setting} {truth}", flush=True)


def keep_to(share: float) -> None:
    """Leave this process, and those that it will start, a share of a core."""
    group = Path("/sys/fs/cgroup/cpu/penstock-share")
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
    (group / "cgroup.procs").write_text("0")


def seconds_of(setting: Setting) -> float:
    """How long a setting is measured."""
    return setting.get("seconds") or max(MEASURED_S, LEAST_BATCHES * float(setting["trigger"]))


def schedule_uri(setting: Setting) -> str:
    """When rows are due, as the generator's URI."""
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


def sender(to: list[str], setting: Setting, total: float, place: Path) -> list[str]:
    """The command of the process that sends."""
    return [sys.executable, str(HERE / "sender.py"), *to, schedule_uri(setting), str(total), str(place / "due.npy")]


# --- Penstock ------------------------------------------------------------------------------------------------------


def run_penstock(spark: Any, query: Query, setting: Setting, place: Path) -> dict[str, Any]:
    """One run; its rows are those of the ledger, and the times at which they were due are the schedule's."""
    app, reference = load_app(HERE / "apps" / f"{query.app}.py")
    total = WARM_UP_S + seconds_of(setting)
    uri, sending = schedule_uri(setting), None
    if query.source == "delta":
        table = place / "table"
        sending = subprocess.Popen(sender(["delta", str(table)], setting, total + 2, place), stdout=subprocess.DEVNULL)
        while not (table / "_delta_log" / f"{0:020}.json").exists():
            time.sleep(0.02)
        uri = f"delta:{table}"
    [source] = app.topology().sources
    gate = "".join(f"&{name}={setting[name]}" for name in ("min_rows", "max_delay", "max_rows") if name in setting)
    options = RunOptions(
        name="run",
        runs=place,
        sources={source.name: uri + gate},
        trigger=setting["trigger"],
        duration=total,
        spark=spark,
        quiet=True,
        partitions=query.partitions,
        groups=dict(query.groups),
    )
    run(app, options, application=reference)
    if sending:
        sending.wait()
    if query.groups:
        return ledger_truth(place / "run" / f"batches-{query.groups[-1][1]}.jsonl")
    [group] = (path.name for path in (place / "run" / "checkpoint").iterdir())
    records = [record for record in records_in(place / "run" / f"batches-{group}.jsonl") if record.batches]
    rows = [record.sources[source.name].accepted if record.sources else 0 for record in records]
    if query.source == "delta":
        due = np.load(place / "due.npy")
        shutil.rmtree(place / "table")
    else:
        parsed = Uri.parse(uri)
        schedule = schedule_of(parsed, GENERATOR.read(parsed))
        due = started(place / "run" / "checkpoint" / group) + schedule.times(0, sum(rows))
    return figures(due, rows, [record.committed_us / 1e6 for record in records])


def started(checkpoint: Path) -> float:
    """When the generator has begun, which each offset of Spark's checkpoint says."""
    offsets = next(file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit())
    line = next(line for line in offsets.read_text().splitlines() if '"started"' in line)
    return float(json.loads(line)["started"])


def ledger_truth(ledger: Path) -> dict[str, Any]:
    """What the ledger of the last group says, whose rows are those of another; it agrees with a watcher from outside."""
    records = [record for record in records_in(ledger) if record.batches]
    kept = [record for record in records if record.committed_us >= records[0].committed_us + WARM_UP_S * 1e6]
    latencies = kept[0].latency_ms
    for record in kept[1:]:
        latencies.merge(record.latency_ms)
    quantiles = {name: (latencies.quantile(p) or 0) / 1e3 for name, p in QUANTILES.items()}
    return {"mean": (latencies.mean or 0) / 1e3, **quantiles, "batches": len(kept), "rows": latencies.count}


# --- PySpark, by hand ----------------------------------------------------------------------------------------------


def run_by_hand(spark: Any, query: Query, brokers: str, setting: Setting, place: Path) -> dict[str, Any]:
    """One run; a row's result is visible when the marker of its batch's output is."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    spark.conf.set("spark.sql.shuffle.partitions", str(query.partitions))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
    rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    if query.build is QUERIES["transforming"].build:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocks)
    topic = f"{place.name}-{int(time.time())}"
    to = [topic]
    if query.source == "kafka":
        create(brokers, topic)
        to = [brokers, topic]
    elif query.source == "files":
        (place / "in").mkdir()
        to = ["files", str(place / "in")]
    progress = (place / "progress.jsonl").open("w")

    class Keep(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            progress.write(json.dumps(json.loads(event.progress.json)) + "\n")

        def onQueryTerminated(self, event: Any) -> None:
            pass

    def read(partitions: Iterable[int] = (0, 1)) -> Any:
        if query.source == "rate":
            options = {"rowsPerSecond": setting["rate"], "numPartitions": query.partitions}
            return spark.readStream.format("rate").options(**options).load()
        if query.source == "files":
            return spark.readStream.schema("key long, text string").json(str(place / "in"))
        wanted = {
            "kafka.bootstrap.servers": brokers,
            "startingOffsets": "earliest",
            "assign": json.dumps({topic: list(partitions)}),
        }
        for option, name in (("min_rows", "minOffsetsPerTrigger"), ("max_rows", "maxOffsetsPerTrigger")):
            if option in setting:
                wanted[name] = setting[option]
        if "max_delay" in setting:
            wanted["maxTriggerDelay"] = f"{round(setting['max_delay'] * 1000)}ms"
        return spark.readStream.format("kafka").options(**wanted).load()

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(place / "out" / f"batch={number}"))
        (place / "visible" / str(number)).touch()

    keep = Keep()
    spark.streams.addListener(keep)
    (place / "visible").mkdir()
    total = WARM_UP_S + seconds_of(setting)
    assert query.build is not None
    running = (
        query.build(read)
        .writeStream.outputMode(query.mode)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime=f"{round(setting['trigger'] * 1000)} milliseconds")
        .foreachBatch(write)
        .start()
    )
    if query.source == "rate":
        time.sleep(total)
    else:
        subprocess.run(sender(to, setting, total, place), check=True, capture_output=True, text=True)
    time.sleep(1)  # what the last rows find is no steady state any more, and is not asked for
    with suppress(Exception):  # what it had begun is broken off
        running.stop()
    time.sleep(0.5)
    spark.streams.removeListener(keep)
    progress.close()
    truth = truth_of(spark, query, setting, place)
    for name in ("in", "out", "checkpoint", "visible"):
        shutil.rmtree(place / name, ignore_errors=True)
    return truth


def create(brokers: str, topic: str) -> None:
    """A topic of two partitions."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})
    for created in admin.create_topics([NewTopic(topic, 2)]).values():
        created.result()


def truth_of(spark: Any, query: Query, setting: Setting, place: Path) -> dict[str, Any]:
    """Latencies from when rows were due to when the marker of their batch was there."""
    lines = (place / "progress.jsonl").read_text().splitlines()
    due = made(spark, place, setting["rate"], lines) if query.source == "rate" else np.load(place / "due.npy")
    whole = [line for line in lines if datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp() < due[-1]]
    (place / "progress.jsonl").write_text("".join(f"{line}\n" for line in whole))
    batches = [json.loads(line) for line in whole]
    batches = [batch for batch in batches if batch["numInputRows"]]
    markers = [place / "visible" / str(batch["batchId"]) for batch in batches]
    kept = [(batch, marker.stat().st_mtime) for batch, marker in zip(batches, markers, strict=True) if marker.exists()]
    if query.source == "kafka":
        return seen_figures(due, offsets_seen(due, kept), len(kept))
    return figures(due, [batch["numInputRows"] for batch, _ in kept], [time for _, time in kept])


def offsets_seen(due: Real, batches: list[tuple[dict[str, Any], float]]) -> Real:
    """When each message was seen: message n is the n // 2nd of partition n % 2."""
    seen = np.full(len(due), np.nan)
    for batch, time_s in batches:
        for source in batch["sources"]:
            [(topic, end)] = source["endOffset"].items()
            for partition, to in end.items():
                first = ((source["startOffset"] or {}).get(topic) or {}).get(partition, 0)
                seen[int(partition) + 2 * first : int(partition) + 2 * to : 2] = time_s
    return seen


def made(spark: Any, place: Path, rate: float, lines: list[str]) -> Real:
    """When the rate source's rows could be had: at the end of the second they are of, counted from its own start."""
    first = spark.read.parquet(str(place / "out")).orderBy("value").first()
    began = first.timestamp.timestamp() - first.value / rate
    rows = sum(json.loads(line)["numInputRows"] for line in lines)
    return began + np.floor(np.arange(rows) / rate) + 1


# --- latencies -----------------------------------------------------------------------------------------------------


def figures(due: Real, rows: list[int], seen_at: list[float]) -> dict[str, Any]:
    """The same of rows that were taken in order, so many by each micro-batch."""
    seen = np.full(len(due), np.nan)
    taken = np.repeat(seen_at, rows)[: len(due)]
    seen[: len(taken)] = taken
    return seen_figures(due, seen, len(rows))


def seen_figures(due: Real, seen: Real, batches: int) -> dict[str, Any]:
    """Mean and quantiles after the warm-up."""
    kept = (due >= due[0] + WARM_UP_S) & ~np.isnan(seen)
    latencies = (seen - due)[kept]
    middle = len(latencies) // 2
    return {
        "mean": float(latencies.mean()),
        **{name: float(np.quantile(latencies, p)) for name, p in QUANTILES.items()},
        "batches": batches,
        "rows": len(latencies),
        "drift": float((latencies[middle:].mean() - latencies[:middle].mean()) / latencies.mean()),
    }


if __name__ == "__main__":
    main()
