"""One trial of a contender: a cold start, words that all wait, words on a schedule, and a kill."""

import json
import shutil
import time
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from contender import Contender
from totals import Totals
from tree import Tree

from penstock.bench.s4.workload import expected
from penstock.bench.servers.broker import KafkaBroker
from penstock.bench.servers.process import Process, kill

KEYS = 4
FEW = 1_000
"""Words of the cold start."""
SCHEDULED_S = 12.0
PATIENCE_S = 180.0
SETTLED_S = 8.0
"""Without a change, after which nothing more is waited for."""
WARM = 0.25
"""Of the words that wait: until then a contender gets warm."""


class Trial:
    """A trial, on a topic of its own.

    Args:
        words: texts, taken again from the first where there are too few.
        bulk: how many of them wait when throughput is measured.
        directory: for the contender's state and what it says.
    """

    def __init__(self, contender: Contender, broker: KafkaBroker, words: Sequence[str], bulk: int, directory: Path) -> None:
        self._contender, self._broker, self._bulk = contender, broker, round(bulk * contender.share)
        self._words = cycle(words)
        self._wanted = {"Three": 0, "Eleven": 0}
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._directory, self._log = directory, directory / "said.log"
        self._topic = f"{contender.name}-{time.time_ns()}"
        self._totals_topic = f"{self._topic}-totals"

    def measure(self) -> dict[str, Any]:
        """All of it.

        Raises:
            TimeoutError: a total does not come.
        """
        self._make_topics()
        with Totals(self._broker.brokers, self._totals_topic) as self._totals:
            self._send(FEW)
            process = self._start()
            try:
                return {"contender": self._contender.name, **self._phases(process)}
            finally:
                kill(self._process)

    def _phases(self, process: Process) -> dict[str, Any]:
        began = time.time()
        cold = self._await() - began
        with Tree(process.pid) as tree:
            rate, processor = self._drain(tree)
            latency = self._schedule(rate / 2)
        lost, doubled, recovery = self._kill(rate)
        return {
            "cold_start_s": cold,
            "words_per_s": rate,
            "processor_s_per_million": processor,
            "memory_bytes": tree.peak_bytes,
            **latency,
            "lost": lost,
            "doubled": doubled,
            "recovery_s": recovery,
        }

    def _drain(self, tree: Tree) -> tuple[float, float]:
        """Words per second, and seconds of processor for a million of them, once it is warm."""
        before = self._want
        tree.pause()
        self._send(self._bulk)
        tree.resume()
        warm = before + WARM * (self._want - before)
        while self._totals.sum < warm:
            self._check()
            time.sleep(0.005)
        used, began, first = tree.processor_seconds, self._totals.times[-1], self._totals.sum
        ended = self._await()
        if first >= self._want:
            raise TimeoutError("It has counted all words at once; give more with --bulk.")
        words = self._bulk * (self._want - first) / (self._want - before)
        return words / (ended - began), (tree.processor_seconds - used) / words * 1e6

    def _schedule(self, rate: float) -> dict[str, float]:
        """Latency of words that come on a schedule: until the totals say that so many have been counted."""
        before = self._want
        texts, counts, began = self._send(round(rate * SCHEDULED_S), rate)
        self._await()
        known = np.maximum.accumulate(self._totals.sums)
        places = np.searchsorted(known, before + np.cumsum(counts))
        due = began + np.arange(len(texts)) / rate
        waits = np.asarray(self._totals.times)[np.minimum(places, len(known) - 1)] - due
        quantiles = np.quantile(waits, [0.5, 0.95, 0.99])
        return dict(zip(("p50_s", "p95_s", "p99_s"), map(float, quantiles), strict=True))

    def _kill(self, rate: float) -> tuple[int, int, float]:
        """Kill it in the middle of words that wait, start it again; returns what is lost, counted twice, and the pause."""
        count = self._bulk // 2
        self._send(count)
        time.sleep(0.5 * count / rate)
        kill(self._process)
        struck = time.time()
        before = self._totals.sum
        process = self._start()
        deadline, changed, last = struck + PATIENCE_S, struck, before
        back = 0.0
        while time.time() < deadline:
            if self._totals.sum != last:
                last, changed = self._totals.sum, time.time()
                back = back or changed - struck
            done = self._over() if process.poll() is None else False
            if time.time() - changed > (SETTLED_S if done else PATIENCE_S / 3):
                break
            time.sleep(0.05)
        off = {by: self._totals.of(by) - wanted for by, wanted in self._wanted.items()}
        return sum(max(0, -n) for n in off.values()), sum(max(0, n) for n in off.values()), back

    # --- parts ---------------------------------------------------------------------------------------------------

    @property
    def _want(self) -> int:
        return sum(self._wanted.values())

    def _over(self) -> bool:
        return self._totals.sum >= self._want

    def _start(self) -> Process:
        state = self._directory / "state"
        state.mkdir(exist_ok=True)
        self._process = self._contender.start(self._broker.brokers, self._topic, self._totals_topic, KEYS, state, self._log)
        return self._process

    def _await(self) -> float:
        """Until all words are counted; returns when that was known."""
        deadline = time.time() + PATIENCE_S
        while not self._over():
            self._check()
            if time.time() > deadline:
                raise TimeoutError(f"{self._totals.sum:,} of {self._want:,} are counted; {self._log} may say why.")
            time.sleep(0.005)
        return self._totals.reached(self._want)

    def _check(self) -> None:
        if self._process.poll() is not None:
            raise TimeoutError(f"It has ended; {self._log} has the reason.")

    def _send(self, count: int, rate: float | None = None) -> tuple[list[str], list[int], float]:
        """Send words; returns them, how many checks of each will succeed, and when the first was due."""
        from confluent_kafka import Producer

        texts = list(islice(self._words, count))
        counts = [sum(expected([text], KEYS).values()) for text in texts]
        for by, found in expected(texts, KEYS).items():
            self._wanted[by] += found
        producer = Producer(
            {"bootstrap.servers": self._broker.brokers, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        )
        began = time.time()  # only now: counting what must come out takes seconds
        for number, text in enumerate(texts):
            if rate is not None:
                while (ahead := began + number / rate - time.time()) > 0:
                    producer.poll(min(ahead, 0.01))
            producer.produce(self._topic, json.dumps({"text": text}), partition=number % 2)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush()
        return texts, counts, began

    def _make_topics(self) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self._broker.brokers})
        made = admin.create_topics([NewTopic(self._topic, 2), NewTopic(self._totals_topic, 1)])
        for future in made.values():
            future.result()


def median(trials: Iterable[dict[str, Any]], name: str) -> tuple[float, float, float]:
    """The median of a figure, its least and its greatest."""
    values = sorted(trial[name] for trial in trials)
    return float(np.median(values)), values[0], values[-1]
