"""Sends numbered messages to a topic of two partitions when they are due: an open loop, in a process of its own.

    python benchmarks/sender.py BROKERS TOPIC SCHEDULE SECONDS TIMES.npy

SCHEDULE is a generator's URI. Message n goes to partition n % 2, so that an offset names its message. Once all are sent,
TIMES.npy holds when each was due (seconds since the epoch), and how late the sender was is printed.
"""

import json
import sys
import time

import numpy as np
from confluent_kafka import Producer

from penstock.connectors.generator import GENERATOR
from penstock.connectors.schedule import schedule_of
from penstock.connectors.uri import Uri

KEYS = 500


def main() -> None:
    brokers, topic, uri, seconds, path = sys.argv[1:6]
    parsed = Uri.parse(uri)
    schedule = schedule_of(parsed, GENERATOR.read(parsed))
    due = schedule.times(0, schedule.due(float(seconds)))
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 1, "queue.buffering.max.messages": 1_000_000})
    bodies = [f'{{"key":{number * 7919 % KEYS},"text":"{number:032d}"}}' for number in range(len(due))]
    began, sent, lateness = time.time() + 0.2, 0, []
    np.save(path, began + due)
    while sent < len(due):
        now = time.time() - began
        ready = int(np.searchsorted(due, now, side="right"))
        if ready > sent:
            lateness.append(now - due[sent])
        for number in range(sent, ready):
            producer.produce(topic, bodies[number], partition=number % 2)
        sent = ready
        producer.poll(0)
        time.sleep(0.002)
    producer.flush()
    print(json.dumps({"late_p99_s": float(np.quantile(lateness, 0.99)), "late_max_s": max(lateness)}))


if __name__ == "__main__":
    main()
