"""The adapter's door as a queue: requests wait for a transfer, which begins at K events or when the oldest one's timer ends.

The door is simulated transfer by transfer, with the adapter's own rule (`penstock.runs.gate.TransferGate`), and with requests
and transfers like those that the adapter has measured.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.adapter.arrivals import Measured
from penstock.adapter.transfers import MeasuredTransfers
from penstock.planner.prediction import summary
from penstock.runs.gate import TransferGate

Real = NDArray[np.float64]

TIMERS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Flush timers that are tried, in seconds."""
SIZES = (1.0, 2.0, 4.0)
"""Batch sizes that are tried with each timer, as multiples of the events that come until it ends."""
LEAST_SIZE, MOST_SIZE = 1_000, 1_000_000
REQUESTS, EVENTS = 10_000, 20_000
"""Requests of a simulation, and events of them whose latency is computed."""


@dataclass(frozen=True)
class DoorPassage:
    """The expected passage through a door: ``latency`` of an event by figure, in seconds, and ``transfers`` per second.

    Args:
        busy: share of the time that goes into the fixed part of transfers, as a measure of their cost.
    """

    latency: dict[str, float]
    transfers: float
    busy: float


@dataclass(frozen=True)
class MeasuredDoor:
    """A stream's door, as the adapter has measured it.

    Args:
        gate: the present one.
        request_rate: requests per second.
        gap_scv: squared coefficient of variation of the gaps between requests.
        size_mean, size_scv: mean and squared coefficient of variation of the number of events in a request.
        fixed, per_event: seconds of a transfer, and of each event in it.
    """

    gate: TransferGate
    request_rate: float
    gap_scv: float
    size_mean: float
    size_scv: float
    fixed: float
    per_event: float

    @classmethod
    def of(cls, gate: TransferGate, arrivals: Measured, transfers: MeasuredTransfers) -> "MeasuredDoor | None":
        """From the adapter's measurements; None where too little has come through."""
        if arrivals.gap_scv is None or not arrivals.size_mean or transfers.fixed_s is None or transfers.per_event_s is None:
            return None
        return cls(
            gate,
            arrivals.request_rate,
            arrivals.gap_scv,
            arrivals.size_mean,
            arrivals.size_scv or 0.0,
            transfers.fixed_s,
            transfers.per_event_s,
        )

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.request_rate * self.size_mean

    def passed(self, gate: TransferGate, seed: int = 7) -> DoorPassage:
        """Simulate the door with a gate."""
        random = np.random.default_rng(seed)
        born = np.cumsum(_varied(random, 1 / self.request_rate, self.gap_scv, REQUESTS))
        sizes = np.maximum(1, np.rint(_varied(random, self.size_mean, self.size_scv, REQUESTS)))
        durable, transfers = _transfers(born, sizes, gate, self.fixed, self.per_event)
        born, upto = born[: len(durable)], np.cumsum(sizes[: len(durable)])
        events = (np.arange(EVENTS) + 0.5) / EVENTS * upto[-1]
        waited = (durable - born)[np.searchsorted(upto, events)]
        span = float(durable[-1] - born[0])
        return DoorPassage(summary(waited), transfers / span, transfers * self.fixed / span)

    def best(self, name: str, interval: float, fixed: float) -> tuple[TransferGate, DoorPassage]:
        """Return the gate with the least work for transfers and the micro-batches that read them, and the passage through it.

        The longer events wait at the door, the closer together micro-batches must be for the same latency.

        Args:
            name: the latency figure that is bounded.
            interval: seconds between micro-batches if nothing waited at the door.
            fixed: seconds of a micro-batch, whatever its rows.
        """
        best: tuple[float, TransferGate, DoorPassage] | None = None
        for timer in TIMERS:
            if best is not None and timer >= interval / 2:
                break
            for times in SIZES if timer else SIZES[-1:]:
                size = math.ceil(times * self.rate * timer)
                gate = TransferGate(min(MOST_SIZE, max(LEAST_SIZE if timer else TransferGate().batch_size, size)), timer)
                passage = self.passed(gate)
                remaining = max(interval - passage.latency[name], 1e-3)
                cost = passage.busy + fixed / remaining
                if best is None or cost < best[0]:
                    best = (cost, gate, passage)
        assert best is not None
        return best[1:]


def _transfers(born: Real, sizes: Real, gate: TransferGate, fixed: float, per_event: float) -> tuple[Real, int]:
    """When each request is durable, and the number of transfers; requests at the end that wait for later ones are left out."""
    upto = np.cumsum(sizes)
    durable = np.empty_like(born)
    first, free, transfers = 0, 0.0, 0
    while first < len(born):
        # A transfer takes the requests that have come, up to the batch size, but at least one.
        before = upto[first - 1] if first else 0.0
        filled = int(np.searchsorted(upto, before + gate.batch_size))
        opened = min(born[first] + gate.flush_timer, born[filled] if filled < len(born) else math.inf)
        if opened > born[-1] and first:
            break
        start = max(free, opened)
        there = int(np.searchsorted(born, start, side="right"))
        fitting = int(np.searchsorted(upto, before + gate.batch_size, side="right"))
        last = max(first + 1, min(there, fitting))
        free = start + fixed + per_event * float(upto[last - 1] - before)
        durable[first:last] = free
        first, transfers = last, transfers + 1
    return durable[:first], transfers


def _varied(random: np.random.Generator, mean: float, scv: float, count: int) -> Real:
    """Independent gamma variables with a mean and a squared coefficient of variation."""
    if scv < 1e-6:
        return np.full(count, mean)
    return np.asarray(random.gamma(1 / scv, mean * scv, count))
