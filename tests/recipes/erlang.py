"""A model of a server from outside the package: one queue, one server, both with exponential times (M/M/1)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.queueing.distribution import Distribution, Exponential
from penstock.queueing.estimate import Estimate, quantile_estimate, ratio_estimate


@dataclass(frozen=True)
class ErlangSolution:
    server: "ErlangServer"

    FIGURES: ClassVar[Mapping[str, str]] = {"mean_jobs": "events", "mean_latency": "s"}
    BRIEF: ClassVar[tuple[str, ...]] = ("mean_latency",)

    @property
    def mean_latency(self) -> float:
        return 1 / (self.server.service_rate - self.server.arrival_rate)

    @property
    def mean_jobs(self) -> float:
        return self.server.arrival_rate * self.mean_latency

    def quantile(self, p: float) -> float:
        return -math.log1p(-p) * self.mean_latency

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        return holding_cost * self.mean_jobs + transfer_cost * self.server.arrival_rate


@dataclass(frozen=True)
class ErlangSimulation:
    mean_latency: Estimate
    mean_jobs: Estimate
    latencies: Any

    FIGURES: ClassVar[Mapping[str, str]] = ErlangSolution.FIGURES
    BRIEF: ClassVar[tuple[str, ...]] = ErlangSolution.BRIEF

    def quantile(self, p: float) -> Estimate:
        return quantile_estimate(self.latencies, p, 0.95)

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        return holding_cost * self.mean_jobs.value


@dataclass(frozen=True)
class ErlangServer:
    arrival_rate: float
    service_rate: float

    NEEDED: ClassVar[tuple[str, ...]] = ("arrival_rate", "service_rate")
    PARAMETERS: ClassVar[tuple[str, ...]] = NEEDED
    NUMERIC: ClassVar[tuple[str, ...]] = NEEDED

    @property
    def is_stable(self) -> bool:
        return self.arrival_rate < self.service_rate

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "ErlangServer":
        return cls(**table)

    def solve(self, method: str = "auto", **options: Any) -> ErlangSolution:
        return ErlangSolution(self)

    def simulate(
        self, *, jobs: int = 100_000, seed: int = 0, interarrival: Distribution | None = None, **options: Any
    ) -> ErlangSimulation:
        chance = np.random.default_rng(seed)
        arrivals = np.cumsum((interarrival or Exponential(1 / self.arrival_rate)).sample(chance, jobs))
        services = chance.exponential(1 / self.service_rate, jobs)
        ends = np.empty(jobs)
        end = 0.0
        for job, (arrival, service) in enumerate(zip(arrivals, services, strict=True)):
            ends[job] = end = max(end, arrival) + service
        latencies = ends - arrivals
        mean = ratio_estimate(latencies, np.ones(jobs), 0.95)
        return ErlangSimulation(mean, ratio_estimate(latencies * self.arrival_rate, np.ones(jobs), 0.95), latencies)
