"""The floor: no engine, one loop for each partition of the words, each in a process of its own.

It has no recovery in an engine's sense. Counts and the next offset are kept in one small file, replaced
whole each second; going on from it is exact, for the output is a running total.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

BATCH = 1000
WAIT_SECONDS = 0.1
KEEP_SECONDS = 1.0


def is_by_three(text: str) -> bool:
    return sum(int(digit) for digit in text) % 3 == 0


def is_by_eleven(text: str) -> bool:
    digits = [int(digit) for digit in text]
    return (sum(digits[::2]) - sum(digits[1::2])) % 11 == 0


def work(options: argparse.Namespace, partition: int) -> None:
    kept = options.state / f"{partition}.json"
    counts: Counter[str] = Counter()
    offset = OFFSET_BEGINNING
    if kept.exists():
        state = json.loads(kept.read_text())
        counts, offset = Counter(state["counts"]), state["offset"]
    keep_at = time.monotonic() + KEEP_SECONDS

    # The position is in the file; the group is never used, but the client wants one.
    consumer = Consumer({"bootstrap.servers": options.brokers, "group.id": "plain", "enable.auto.commit": False})
    consumer.assign([TopicPartition(options.words, partition, offset)])
    producer = Producer({"bootstrap.servers": options.brokers})
    while True:
        batch = consumer.consume(BATCH, WAIT_SECONDS)
        for message in batch:
            if error := message.error():
                raise KafkaException(error)
            text = json.loads(message.value())["text"]
            if text.isdigit():
                for _ in range(options.keys):
                    counts["Eleven"] += is_by_eleven(text)
                    counts["Three"] += is_by_three(text)
            offset = message.offset() + 1
        if batch:
            for by, count in counts.items():
                total = {"by": by, "part": str(partition), "count": count}
                producer.produce(options.totals, json.dumps(total))
            producer.poll(0)
        if time.monotonic() >= keep_at:
            # What the file counts must have been published: after a restart there may be no word to say it again.
            producer.flush()
            draft = kept.with_suffix(".draft")
            draft.write_text(json.dumps({"counts": counts, "offset": offset}))
            os.replace(draft, kept)
            keep_at = time.monotonic() + KEEP_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--words", required=True)
    parser.add_argument("--totals", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    topic = AdminClient({"bootstrap.servers": options.brokers}).list_topics(options.words).topics[options.words]
    workers = [multiprocessing.Process(target=work, args=(options, partition)) for partition in topic.partitions]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
