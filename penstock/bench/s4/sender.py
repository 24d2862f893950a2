"""The client: sends words to a topic on a schedule, no matter how fast they are processed.

    python -m penstock.bench.s4.sender BROKERS TOPIC WORDS.txt --skip 0 --count 1000 --rate 500 --told FILE

A message's timestamp is the time when it was due. The number of acknowledged words is written to FILE from time to time.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

EVERY_S = 0.2


def main() -> None:
    """Send the words that the command line asks for."""
    from confluent_kafka import Producer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers")
    parser.add_argument("topic")
    parser.add_argument("words", type=Path)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--told", type=Path, required=True)
    options = parser.parse_args()
    acknowledged = failed = 0

    def done(error: Any, message: Any) -> None:
        nonlocal acknowledged, failed
        acknowledged, failed = acknowledged + (error is None), failed + (error is not None)

    def tell() -> None:
        draft = options.told.with_suffix(".draft")
        draft.write_text(json.dumps({"began": began, "acknowledged": acknowledged, "failed": failed, "at": time.time()}))
        draft.rename(options.told)

    settings = {"bootstrap.servers": options.brokers, "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**settings, "queue.buffering.max.messages": 200_000})
    began = last_report = time.time()
    with options.words.open() as lines:
        for number, line in enumerate(islice(lines, options.skip, options.skip + options.count)):
            due = time.time() if options.rate is None else began + number / options.rate
            while time.time() < due:
                producer.poll(min(0.05, max(0.0, due - time.time())))
            content = json.dumps({"text": line.rstrip("\n")})
            while True:
                try:
                    producer.produce(
                        options.topic,
                        content,
                        partition=number % options.partitions,
                        timestamp=round(due * 1000),
                        on_delivery=done,
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
            if time.time() - last_report > EVERY_S:
                last_report = time.time()
                tell()
    producer.flush()
    tell()


if __name__ == "__main__":
    main()
