"""Pathway: two processes of one worker each, for threads would share one interpreter's lock in the checks.

Recovery is what comes without a licence key: the input is kept, and replayed through the checks after a restart.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pathway as pw
from confluent_kafka import Producer

PROCESSES = 2
AUTOCOMMIT_MS = 100
SNAPSHOT_MS = 1000
BACKLOG = 4000  # without a limit all of the topic would become one batch, with nothing published before its end
UDF_BATCH = 1000


@pw.udf(deterministic=True, max_batch_size=UDF_BATCH)
def is_number(texts: list[str]) -> list[bool]:
    return [text.isdigit() for text in texts]


@pw.udf(deterministic=True, max_batch_size=UDF_BATCH)
def is_by_three(texts: list[str], keys: list[int]) -> list[bool]:
    return [sum(int(digit) for digit in text) % 3 == 0 for text in texts]


@pw.udf(deterministic=True, max_batch_size=UDF_BATCH)
def is_by_eleven(texts: list[str], keys: list[int]) -> list[bool]:
    def is_divisible(text: str) -> bool:
        digits = [int(digit) for digit in text]
        return (sum(digits[::2]) - sum(digits[1::2])) % 11 == 0

    return [is_divisible(text) for text in texts]


class Word(pw.Schema):
    text: str


def spawn() -> None:
    """Become `pathway spawn` of this very program, which sets PATHWAY_PROCESS_ID for each of its processes."""
    # The ports of the processes are consecutive; this one is free, the next most likely.
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    arguments = ["spawn", "--processes", str(PROCESSES), "--threads", "1", "--first-port", str(port)]
    os.execv(sys.executable, [sys.executable, "-m", "pathway", *arguments, sys.executable, *sys.argv])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--words", required=True)
    parser.add_argument("--totals", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    options = parser.parse_args()
    if "PATHWAY_PROCESS_ID" not in os.environ:
        spawn()
    options.state.mkdir(parents=True, exist_ok=True)

    # One reader for both partitions, alone in its group: where a second one joins and partitions move, Pathway reads them
    # from the committed offset again, and counts twice. The engine spreads what is read over all workers anyway.
    process = os.environ["PATHWAY_PROCESS_ID"]
    consumer = {
        "bootstrap.servers": options.brokers,
        "group.id": f"{options.words}-{process}",
        "group.instance.id": process,  # after a kill it need not wait for its former self to time out
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",  # where to go on is in the snapshots
    }
    words = pw.io.kafka.read(
        consumer,
        topic=options.words,
        schema=Word,
        format="json",
        autocommit_duration_ms=AUTOCOMMIT_MS,
        parallel_readers=1,
        max_backlog_size=BACKLOG,
        name="words",
    )
    numbers = words.filter(is_number(pw.this.text))
    candidates = numbers.select(pw.this.text, key=tuple(range(options.keys))).flatten(pw.this.key)
    three = candidates.filter(is_by_three(pw.this.text, pw.this.key)).select(by="Three")
    eleven = candidates.filter(is_by_eleven(pw.this.text, pw.this.key)).select(by="Eleven")
    divisible = three.concat_reindex(eleven)
    totals = divisible.groupby(pw.this.by).reduce(pw.this.by, count=pw.reducers.count())

    producer = Producer({"bootstrap.servers": options.brokers})

    def publish(key: pw.Pointer, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            producer.produce(options.totals, json.dumps({"by": row["by"], "part": "0", "count": row["count"]}))
            producer.poll(0)

    pw.io.subscribe(totals, on_change=publish)
    backend = pw.persistence.Backend.filesystem(options.state)
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=SNAPSHOT_MS),
    )


if __name__ == "__main__":
    main()
