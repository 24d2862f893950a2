"""The use of processor, memory, disk and network by nodes, sampled once a second."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.bench.cluster.node import Node

EVERY_S = 1.0


@dataclass(frozen=True)
class Usage:
    """A node's counters at a time ``at``: totals since its start, except for the memory, which is the present one.

    The network's counters are zero if nodes have no network links of their own.
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
class NodeLoad:
    """A node's average use over a span of time.

    Args:
        processor: in cores.
        memory, peak: mean and largest number of bytes held. The others: per second.
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
    """A context in which a thread samples the usage of nodes once a second."""

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

    def loads(self, since: float, until: float) -> Mapping[str, NodeLoad]:
        """Average loads by node, between two times of `time.time`; a node with fewer than two samples is left out."""
        loads = {}
        for name, samples in self.seen.items():
            within = [usage for usage in samples if since <= usage.at <= until]
            if len(within) > 1:
                loads[name] = _load(within)
        return loads


def _load(within: list[Usage]) -> NodeLoad:
    first, last = within[0], within[-1]
    span = max(last.at - first.at, 1e-9)
    rates = {
        field.name: (getattr(last, field.name) - getattr(first, field.name)) / span
        for field in fields(Usage)
        if field.name not in ("at", "memory_bytes", "processor_seconds")
    }
    memory = [usage.memory_bytes for usage in within]
    processor = (last.processor_seconds - first.processor_seconds) / span
    return NodeLoad(processor=processor, memory=sum(memory) / len(memory), peak=max(memory), **rates)
