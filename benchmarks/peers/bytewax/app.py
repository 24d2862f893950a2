"""Bytewax: two workers, each a process of its own, for threads would share one interpreter's lock."""

import argparse
import json
import multiprocessing
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators import KeyedStream, StatefulBatchLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

PROCESSES = 2
EPOCH = timedelta(seconds=1)


class ElevenReceiver(StatefulBatchLogic[str, str, None]):
    def on_batch(self, values: list[str]) -> tuple[Iterable[str], bool]:
        return [text for text in values if self._is_divisible(text)], self.RETAIN

    def _is_divisible(self, text: str) -> bool:
        digits = [int(digit) for digit in text]
        return (sum(digits[::2]) - sum(digits[1::2])) % 11 == 0

    def snapshot(self) -> None:
        return None


class ThreeReceiver(StatefulBatchLogic[str, str, None]):
    def on_batch(self, values: list[str]) -> tuple[Iterable[str], bool]:
        return [text for text in values if self._is_divisible(text)], self.RETAIN

    def _is_divisible(self, text: str) -> bool:
        return sum(int(digit) for digit in text) % 3 == 0

    def snapshot(self) -> None:
        return None


class AggregationReceiver(StatefulBatchLogic[str, int, int]):
    def __init__(self, resumed: int | None) -> None:
        self._count = resumed or 0

    def on_batch(self, values: list[str]) -> tuple[Iterable[int], bool]:
        self._count += len(values)
        return [self._count], self.RETAIN

    def snapshot(self) -> int:
        return self._count


def receive_words(keys: int) -> Callable[[KafkaSourceMessage[bytes, bytes]], Iterator[tuple[str, str]]]:
    # By their names keys are hashed to workers: "0" to "3" all go to the same one of two, these two and two.
    names = [f"key-{key}" for key in range(keys)]

    def receive(message: KafkaSourceMessage[bytes, bytes]) -> Iterator[tuple[str, str]]:
        text = json.loads(message.value)["text"]
        return ((name, text) for name in names) if text.isdigit() else iter(())

    return receive


def to_message(total: tuple[str, int]) -> KafkaSinkMessage[None, bytes]:
    by, count = total
    return KafkaSinkMessage(None, json.dumps({"by": by, "part": "0", "count": count}).encode())


def dataflow(options: argparse.Namespace) -> Dataflow:
    flow = Dataflow("divisibility")
    words = op.input("words", flow, KafkaSource([options.brokers], [options.words]))
    candidates: KeyedStream[str] = op.flat_map("receive", words, receive_words(options.keys))
    three = op.stateful_batch("three", candidates, lambda _: ThreeReceiver())
    eleven = op.stateful_batch("eleven", candidates, lambda _: ElevenReceiver())
    by_three: KeyedStream[str] = op.map("by_three", three, lambda found: ("Three", found[0]))
    by_eleven: KeyedStream[str] = op.map("by_eleven", eleven, lambda found: ("Eleven", found[0]))
    divisible = op.merge("divisible", by_three, by_eleven)
    totals = op.stateful_batch("totals", divisible, AggregationReceiver)
    op.output("output", op.map("to_message", totals, to_message), KafkaSink([options.brokers], options.totals))
    return flow


def free_addresses() -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(PROCESSES)]
    addresses = [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]
    for held in sockets:
        held.close()
    return addresses


def work(options: argparse.Namespace, addresses: list[str], process: int) -> None:
    recovery = RecoveryConfig(options.state, backup_interval=timedelta(0))
    cluster_main(dataflow(options), addresses, process, epoch_interval=EPOCH, recovery_config=recovery)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--words", required=True)
    parser.add_argument("--totals", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    if not any(options.state.glob("*.sqlite3")):
        init_db_dir(options.state, PROCESSES)
    addresses = free_addresses()
    # A process that starts by fork would inherit the threads' locks of the engine and of the Kafka client.
    spawning = multiprocessing.get_context("spawn")
    workers = [spawning.Process(target=work, args=(options, addresses, process)) for process in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
