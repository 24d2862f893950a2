"""Sends numbered messages when they are due: an open loop, in a process of its own.

    python benchmarks/sender.py BROKERS TOPIC SCHEDULE SECONDS TIMES.npy     to a topic of two partitions
    python benchmarks/sender.py files|delta DIRECTORY SCHEDULE SECONDS TIMES.npy

SCHEDULE is a generator's URI. In a topic message n goes to partition n % 2, so that an offset names its message. A file
of what is due comes each quarter of a second, a version of a table each half. In the end TIMES.npy holds when each message
was due, or when its file or version was there (seconds since the epoch).
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from penstock.connectors.generator import GENERATOR
from penstock.connectors.schedule import schedule_of
from penstock.connectors.uri import Uri

KEYS = 500
EVERY_S = {"files": 0.25, "delta": 0.5}


def main() -> None:
    to, place, uri, seconds, path = sys.argv[1:6]
    parsed = Uri.parse(uri)
    schedule = schedule_of(parsed, GENERATOR.read(parsed))
    due = schedule.times(0, schedule.due(float(seconds)))
    if to in EVERY_S:
        there = land(Path(place), due, EVERY_S[to], write_file if to == "files" else write_version)
    else:
        there = send(to, place, due)
    np.save(path, there)


def send(brokers: str, topic: str, due: Any) -> Any:
    """Each message at its time; returns when they were due."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 1, "queue.buffering.max.messages": 1_000_000})
    bodies = [f'{{"key":{number * 7919 % KEYS},"text":"{number:032d}"}}' for number in range(len(due))]
    began, sent = time.time() + 0.2, 0
    while sent < len(due):
        ready = int(np.searchsorted(due, time.time() - began, side="right"))
        for number in range(sent, ready):
            producer.produce(topic, bodies[number], partition=number % 2)
        sent = ready
        producer.poll(0)
        time.sleep(0.002)
    producer.flush()
    return began + due


def land(place: Path, due: Any, every: float, write: Callable[[Path, int, range], None]) -> Any:
    """What has become due since, in one piece; returns when the piece of each message was there."""
    there, sent, number, began = np.empty(len(due)), 0, 0, time.time()
    while sent < len(due):
        number += 1
        time.sleep(max(0.0, began + number * every - time.time()))
        ready = int(np.searchsorted(due, number * every, side="right"))
        if ready > sent:
            write(place, number, range(sent, ready))
            there[sent:ready] = time.time()
        sent = ready
    return there


def write_file(place: Path, number: int, messages: range) -> None:
    """JSON Lines, under their name once they are whole."""
    draft = place / f".{number:06d}.json"
    lines = (json.dumps({"key": message * 7919 % KEYS, "text": f"{message:032d}"}) for message in messages)
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.rename(place / draft.name[1:])


def write_version(place: Path, number: int, messages: range) -> None:
    """A version of a Delta table."""
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = {"key": [message * 7919 % KEYS for message in messages], "value": list(messages)}
    write_deltalake(place, pa.table(rows), mode="append")


if __name__ == "__main__":
    main()
