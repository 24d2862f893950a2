"""Networks of stream servers: each node in isolation, with bursts carried along, or simulated."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError, CyclicTopologyError, UnstableServerError
from penstock.queueing import parameter
from penstock.queueing.chain import Arrivals, solve_chain
from penstock.queueing.distribution import Distribution, Exponential, Recorded
from penstock.queueing.estimate import Estimate, quantile_estimate, ratio_estimate
from penstock.queueing.server import StreamServer
from penstock.queueing.solution import simulate, solve

Real = NDArray[np.float64]

_MOST_STATES = 32  # of the merged bursts of all predecessors
_MOST_STAGES = 8  # of a burst


@dataclass(frozen=True)
class NodeState:
    """Long-run means of one node.

    Parameters
    ----------
    arrival_rate: jobs per second, from outside and from other nodes.
    mean_jobs: L of the node.
    transfers_per_second: T of the node.
    mean_response_time: seconds that a job spends in the node.
    """

    arrival_rate: float
    mean_jobs: float
    transfers_per_second: float
    mean_response_time: float


@dataclass(frozen=True)
class NetworkState:
    """Predicted means of every node.

    Parameters
    ----------
    method: ``"isolated"`` or ``"bursts"``.
    nodes: by name.
    """

    method: str
    nodes: Mapping[str, NodeState]

    @property
    def mean_jobs(self) -> float:
        """Jobs present in all nodes."""
        return sum(node.mean_jobs for node in self.nodes.values())

    def path_latency(self, path: tuple[str, ...]) -> float:
        """Mean time along a path of nodes, in seconds: the sum of their mean response times."""
        missing = [name for name in path if name not in self.nodes]
        if missing:
            raise ConfigurationError(f"The network has no node {missing[0]!r}; its nodes are {', '.join(self.nodes)}.")
        return sum(self.nodes[name].mean_response_time for name in path)


@dataclass(frozen=True)
class NetworkSimulation:
    """What a simulated network did after its warm-up.

    Parameters
    ----------
    mean_response_times: seconds spent in each node, by name.
    transfers_per_second: by name.
    path_latencies: seconds from entry to the end of service at the last node, for every job that took the path.
    """

    mean_response_times: Mapping[str, Estimate]
    transfers_per_second: Mapping[str, Estimate]
    path_latencies: Mapping[tuple[str, ...], Real]

    def path_latency(self, path: tuple[str, ...], confidence: float = 0.95) -> Estimate:
        """Mean time along a path, in seconds."""
        values = self._values(path)
        groups = values[: len(values) // 64 * 64].reshape(64, -1).sum(axis=1)
        return ratio_estimate(groups, np.full(64, float(len(values) // 64)), confidence)

    def path_quantile(self, path: tuple[str, ...], p: float, confidence: float = 0.95) -> Estimate:
        """The time that a fraction ``p`` of the jobs that take the path does not exceed, in seconds."""
        return quantile_estimate(self._values(path), p, confidence)

    def _values(self, path: tuple[str, ...]) -> Real:
        if path not in self.path_latencies:
            known = "; ".join(" -> ".join(known) for known in self.path_latencies)
            raise ConfigurationError(f"No job took the path {' -> '.join(path)}; paths from entry to exit: {known}.")
        return self.path_latencies[path]


class Network:
    """Stream servers over an acyclic topology (the paper's section 7).

    Parameters
    ----------
    servers: the server of each node, by name; their arrival rates are replaced by what the topology sends them.
    routes: ``(from, to) -> probability`` that a job served at one node goes on to another. Choices are independent, so
        a job may go on to several nodes (a copy to each) or to none.
    arrivals: jobs per second that enter from outside, by node.

    Raises
    ------
    CyclicTopologyError: the routes form a cycle.
    ConfigurationError: a name is unknown, a probability or a rate is out of range, or a node receives nothing.

    Examples
    --------
    >>> server = StreamServer(1, 1000, batch_size=20, timer_rate=500)
    >>> network = Network({"parse": server, "count": server}, {("parse", "count"): 0.5}, {"parse": 700})
    >>> network.arrival_rates["count"]
    350.0
    """

    def __init__(
        self,
        servers: Mapping[str, StreamServer],
        routes: Mapping[tuple[str, str], float],
        arrivals: Mapping[str, float],
    ) -> None:
        for name in itertools.chain(itertools.chain.from_iterable(routes), arrivals):
            if name not in servers:
                raise ConfigurationError(f"The network has no node {name!r}; its nodes are {', '.join(servers)}.")
        self.routes = {}
        for (source, target), probability in routes.items():
            if parameter.rate(f"the probability of {source} -> {target}", probability, zero=True) > 1:
                raise ConfigurationError(f"The probability of {source} -> {target} is {probability!r}; give at most 1.")
            if probability > 0:
                self.routes[source, target] = float(probability)
        self.arrivals = {name: parameter.rate(f"arrivals at {name}", rate) for name, rate in arrivals.items()}
        before: dict[str, set[str]] = {name: set() for name in servers}
        for source, target in self.routes:
            before[target].add(source)
        try:
            self.order = tuple(TopologicalSorter(before).static_order())
        except CycleError as error:
            cycle = " -> ".join(reversed(error.args[1]))
            raise CyclicTopologyError(f"The routes form a cycle: {cycle}; leave one of them out.") from None
        self.arrival_rates: dict[str, float] = {}
        for name in self.order:
            inflow = self.arrivals.get(name, 0.0)
            inflow += sum(self.arrival_rates[source] * self.routes[source, name] for source in before[name])
            if inflow == 0:
                raise ConfigurationError(f"Node {name!r} receives no jobs; give it arrivals or a route.")
            self.arrival_rates[name] = inflow
        self.servers = {name: replace(servers[name], arrival_rate=self.arrival_rates[name]) for name in self.order}
        self._before = {name: sorted(sources) for name, sources in before.items()}

    def _require_stable(self) -> None:
        for name, server in self.servers.items():
            try:
                server.require_stable()
            except UnstableServerError as error:
                raise UnstableServerError(f"Node {name!r}: {error}") from None

    def solve(self, method: str = "bursts") -> NetworkState:
        """Predict the means of every node, in topological order.

        Parameters
        ----------
        method: ``"isolated"`` takes every arrival process for Poisson, as the paper proposes. ``"bursts"`` knows that
            a node serves in bursts: while its internal queue holds jobs they leave in a Poisson stream of its service
            rate, else not at all, and the next node sees such a stream from each predecessor. Bursts and pauses keep
            their means.

        Raises
        ------
        UnstableServerError: names the node.
        NotSolvableError: a node is too large for ``"bursts"``.
        """
        parameter.one_of("method", method, ("isolated", "bursts"))
        self._require_stable()
        nodes: dict[str, NodeState] = {}
        bursts: dict[str, _Bursts] = {}
        for name, server in self.servers.items():
            sources = [(bursts[source], self.routes[source, name]) for source in self._before[name] if bursts]
            if method == "isolated" or not sources:
                steady = solve(server)
                jobs, transfers = steady.mean_jobs, steady.transfers_per_second
                if method == "bursts":
                    idle_exits = steady._solved.timer_flows.sum()
                    if len(steady.boundary) == server.effective_batch_size:
                        idle_exits += server.arrival_rate * steady.boundary[-1]
                    bursts[name] = _Bursts.of(server, transfers, float(idle_exits))
            else:
                # Chains have finite rates: a timer this fast is as good as an infinite one.
                timer_rate = min(server.timer_rate, 1e5 * server.service_rate)
                arriving = _merged(self.arrivals.get(name, 0.0), sources)
                chain = solve_chain(replace(server, timer_rate=timer_rate), 1e-7, arrivals=arriving)
                jobs, transfers = chain.mean_jobs, chain.transfers
                emptied = server.service_rate * float(chain.ready[1].sum())
                bursts[name] = _Bursts.of(server, transfers, emptied)
            nodes[name] = NodeState(server.arrival_rate, jobs, transfers, jobs / server.arrival_rate)
        return NetworkState(method, nodes)

    def simulate(
        self,
        *,
        jobs: int = 1_000_000,
        seed: int = 0,
        interarrival: Mapping[str, Distribution] | None = None,
        service: Mapping[str, Distribution] | None = None,
        confidence: float = 0.95,
    ) -> NetworkSimulation:
        """Simulate the whole network, node by node in topological order: each node replays what the others sent it.

        Parameters
        ----------
        jobs: that enter from outside.
        interarrival, service: distributions by node, exponential unless given.
        """
        self._require_stable()
        random = np.random.default_rng(seed)
        horizon = jobs / sum(self.arrivals.values())
        responses: dict[str, Estimate] = {}
        transfers: dict[str, Estimate] = {}
        paths: dict[tuple[str, ...], list[Real]] = {}
        inbox: dict[str, list[tuple[tuple[str, ...], Real, Real]]] = {name: [] for name in self.order}
        for name, rate in self.arrivals.items():
            given = (interarrival or {}).get(name) or Exponential(1 / rate)
            times = np.cumsum(given.sample(random, math.ceil(horizon * rate)))
            inbox[name].append(((), times, times))
        for index, (name, server) in enumerate(self.servers.items()):
            labels = [path for path, _, _ in inbox[name]]
            times = np.concatenate([times for _, times, _ in inbox[name]])
            entries = np.concatenate([entry for _, _, entry in inbox[name]])
            which = np.repeat(np.arange(len(labels)), [len(times) for _, times, _ in inbox[name]])
            order = np.argsort(times, kind="stable")
            times, entries, which = times[order], entries[order], which[order]
            gaps = np.diff(times, prepend=0.0)
            # The server keeps its nominal rate; the recording's own may differ by chance.
            run = simulate(
                replace(server, arrival_rate=1 / gaps.mean()),
                jobs=len(times) - len(times) // 50,  # the last ones may still be waiting when the recording ends
                seed=seed + index + 1,
                interarrival=Recorded(gaps),
                service=(service or {}).get(name),
                confidence=confidence,
            )
            responses[name], transfers[name] = run.mean_response_time, run.transfers_per_second
            first = run.warm_up_jobs
            count = len(run.departures)
            entries, which = entries[first : first + count], which[first : first + count]
            successors = [(target, p) for (source, target), p in self.routes.items() if source == name]
            for label, path in enumerate(labels):
                mine = which == label
                left, entered = run.departures[mine], entries[mine]
                if not successors:
                    paths.setdefault((*path, name), []).append(left - entered)
                for target, probability in successors:
                    goes = random.random(len(left)) < probability
                    inbox[target].append(((*path, name), left[goes], entered[goes]))
        return NetworkSimulation(responses, transfers, {path: np.concatenate(parts) for path, parts in paths.items()})


@dataclass(frozen=True)
class _Bursts:
    """Departures of a node: bursts of jobs at its service rate, and pauses between them.

    A burst may end with a job's departure, because the internal queue is then empty, or between two, because a
    transfer begins. Both bursts and pauses pass through ``stages``, geometric and exponential ones, whose number makes
    the departures as variable in the long run as the arrivals, which are taken for Poisson: a node only moves jobs
    about by a bounded time. With K = 1 and instantaneous transfers that gives one stage each, and together the Poisson
    process that Burke's theorem wants.
    """

    rate: float  # jobs per second while on
    start: float  # per second, from off to on
    emptied: float  # per second, from on to off with a departure
    interrupted: float  # per second, from on to off without one
    stages: int

    @classmethod
    def of(cls, server: StreamServer, transfers: float, emptied: float) -> "_Bursts":
        interrupted = 0.0 if math.isinf(server.transfer_rate) else max(transfers - emptied, 0.0)
        load, bursts = server.load, emptied + interrupted
        # Var(jobs - lambda time) over a burst of m jobs and its pause is m if both have k stages with
        # k = 2 m (1-rho)^2 / (1 - rho^2 + (1-rho)^2) = m (1 - rho).
        jobs = server.arrival_rate / bursts
        stages = int(np.clip(round(jobs * (1 - load)), 1, min(_MOST_STAGES, max(jobs, 1))))
        return cls(server.service_rate, bursts / (1 - load), emptied / load, interrupted / load, stages)

    @property
    def mean_rate(self) -> float:
        """Jobs per second."""
        return self.rate * self.start / (self.start + self.emptied + self.interrupted)

    def arrivals(self, probability: float) -> Arrivals:
        """The part of the departures that takes a route of this probability; states are pauses, then bursts."""
        k = self.stages
        emptied = min(k * self.emptied, self.rate)
        with_job, without_job = np.zeros((2 * k, 2 * k)), np.zeros((2 * k, 2 * k))
        for stage in range(k):
            on, following = k + stage, (k + stage + 1) % (2 * k)
            without_job[stage, stage + 1] = k * self.start
            with_job[on, on] = probability * (self.rate - emptied)
            with_job[on, following] = probability * emptied
            without_job[on, following] = k * self.interrupted + (1 - probability) * emptied
        return Arrivals(with_job, without_job)


def _merged(outside: float, sources: list[tuple[_Bursts, float]]) -> Arrivals:
    """Superpose bursty streams and a Poisson stream; once there are 32 states, the weakest streams are taken for Poisson."""
    merged = Arrivals.poisson(outside)
    for bursts, probability in sorted(sources, key=lambda source: -source[0].mean_rate * source[1]):
        one = bursts.arrivals(probability)
        if len(merged.with_job) * len(one.with_job) > _MOST_STATES:
            one = Arrivals.poisson(bursts.mean_rate * probability)
        first, second = np.eye(len(merged.with_job)), np.eye(len(one.with_job))
        merged = Arrivals(
            np.kron(merged.with_job, second) + np.kron(first, one.with_job),
            np.kron(merged.without_job, second) + np.kron(first, one.without_job),
        )
    return merged
