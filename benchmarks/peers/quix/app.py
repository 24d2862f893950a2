"""Quix Streams: exactly-once, two processes in one consumer group, candidates grouped by key through Kafka."""

import argparse
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quixstreams import Application, State

PROCESSES = 2
COMMIT_SECONDS = 0.5


def is_by_three(text: str) -> bool:
    return sum(int(digit) for digit in text) % 3 == 0


def is_by_eleven(text: str) -> bool:
    digits = [int(digit) for digit in text]
    return (sum(digits[::2]) - sum(digits[1::2])) % 11 == 0


def receive_words(keys: int) -> Callable[[dict[str, str]], list[dict[str, Any]]]:
    def receive(word: dict[str, str]) -> list[dict[str, Any]]:
        text = word["text"]
        return [{"text": text, "key": str(key)} for key in range(keys)] if text.isdigit() else []

    return receive


def check(candidate: dict[str, Any], state: State) -> list[dict[str, Any]]:
    found = []
    for by, is_divisible in (("Three", is_by_three), ("Eleven", is_by_eleven)):
        if is_divisible(candidate["text"]):
            count = state.get(by, 0) + 1
            state.set(by, count)
            found.append({"by": by, "part": candidate["key"], "count": count})
    return found


def work(options: argparse.Namespace, process: int) -> None:
    application = Application(
        broker_address=options.brokers,
        consumer_group=options.words,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=COMMIT_SECONDS,
        state_dir=options.state / str(process),
        # Names that stay the same, so that after a kill the group need not wait for its dead members to time out, nor
        # readers of the output for the transactions that these left open.
        consumer_extra_config={"group.instance.id": str(process), "session.timeout.ms": 6000},
        producer_extra_config={"transactional.id": f"{options.words}-{process}", "linger.ms": 20},
        loglevel="WARNING",
    )
    words = application.topic(options.words)
    totals = application.topic(options.totals)
    candidates = application.dataframe(words).apply(receive_words(options.keys), expand=True)
    # As bare text keys are hashed to the two partitions evenly; in quotes, as by default, three go to the same one.
    by_key = candidates.group_by("key", key_serializer="str", key_deserializer="str")
    by_key.apply(check, stateful=True, expand=True).to_topic(totals)
    application.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--words", required=True)
    parser.add_argument("--totals", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    options = parser.parse_args()
    # A process that starts by fork would inherit the threads' locks of the Kafka client.
    spawning = multiprocessing.get_context("spawn")
    workers = [spawning.Process(target=work, args=(options, process)) for process in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
