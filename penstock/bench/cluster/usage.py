"""What nodes use: processor, memory, disk and network, looked at once a second."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.bench.cluster.node import Node

EVERY_S = 1.0


@dataclass(frozen=True)
class Usage:
    """A node's counters at a moment: seconds and bytes since it began, but for the memory, which is held now.

    The network's are zero where nodes have no cables of their own.
    """

    at: float
    processor_seconds: float
    memory_bytes: float
    written_bytes: float
    received_bytes: float = 0.0
    received_packets: float = 0.0
    sent_bytes: float = 0.0
    sent_packets: float = 0.0


@dataclass(frozen=True)
class Load:
    """What a node has used on average over a span of time.

    Parameters
    ----------
    processor: cores. memory, peak: bytes held, on average and at most. The others: per second.
    """

    processor: float
    memory: float
    peak: float
    written_bytes: float
    received_bytes: float
    received_packets: float
    sent_bytes: float
    sent_packets: float


class Sampler:
    """A context in which nodes are looked at once a second, in a thread."""

    def __init__(self, nodes: Sequence["Node"]) -> None:
        self._nodes = nodes
        self.seen: dict[str, list[Usage]] = {node.name: [] for node in nodes}
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _look(self) -> None:
        try:
            while True:
                for node in self._nodes:
                    self.seen[node.name].append(node.usage())
                if self._over.wait(EVERY_S):
                    return
        except Exception as failure:
            self._failure = failure

    def loads(self, since: float, until: float) -> Mapping[str, Load]:
        """By node, over a span of the clock (`time.time`)."""
        found = {}
        for name, seen in self.seen.items():
            within = [usage for usage in seen if since <= usage.at <= until]
            if len(within) > 1:
                found[name] = _load(within)
        return found


def _load(within: list[Usage]) -> Load:
    first, last = within[0], within[-1]
    span = max(last.at - first.at, 1e-9)
    rates = {
        field.name: (getattr(last, field.name) - getattr(first, field.name)) / span
        for field in fields(Usage)
        if field.name not in ("at", "memory_bytes", "processor_seconds")
    }
    held = [usage.memory_bytes for usage in within]
    processor = (last.processor_seconds - first.processor_seconds) / span
    return Load(processor=processor, memory=sum(held) / len(held), peak=max(held), **rates)


def now() -> float:
    """The clock of usages."""
    return time.time()
