"""Networks of stream servers: solved node by node, with or without bursts between nodes, or simulated."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError, CyclicTopologyError, NotSolvableError, UnstableServerError
from penstock.queueing import parameter
from penstock.queueing.chain import Arrivals, Chain, solve_chain
from penstock.queueing.distribution import Distribution, Exponential, Recorded
from penstock.queueing.estimate import Estimate, mean_estimate, quantile_estimate, ratio_estimate
from penstock.queueing.model import solve
from penstock.queueing.server import StreamServer
from penstock.queueing.simulation import play, require_same_mean

Real = NDArray[np.float64]

_MOST_STATES = 20  # of the arrival process that merges the bursts of all predecessors
_MOST_STAGES = 5  # of a burst or a pause


@dataclass(frozen=True)
class NodeState:
    """Long-run means of one node.

    Args:
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

    Args:
        method: ``"isolated"`` or ``"bursts"``.
        nodes: means of each node, by its name.
    """

    method: str
    nodes: Mapping[str, NodeState]

    @property
    def mean_jobs(self) -> float:
        """Jobs present in all nodes."""
        return sum(node.mean_jobs for node in self.nodes.values())

    def path_latency(self, path: Sequence[str]) -> float:
        """Mean time along a path of nodes, in seconds: the sum of their mean response times."""
        path = (path,) if isinstance(path, str) else tuple(path)
        if not path:
            raise ConfigurationError("The path has no nodes; give one or more, in order.")
        missing = [name for name in path if name not in self.nodes]
        if missing:
            raise ConfigurationError(f"The network has no node {missing[0]!r}; its nodes are {', '.join(self.nodes)}.")
        return sum(self.nodes[name].mean_response_time for name in path)


@dataclass(frozen=True)
class NetworkSimulation:
    """What a simulated network did after its warm-up.

    Args:
        mean_response_times: seconds spent in each node, by name.
        transfers_per_second: of each node, by name.
        path_latencies: by path, the seconds from entry to the end of service at the last node, for every job that took the
            path and went no further.
    """

    mean_response_times: Mapping[str, Estimate]
    transfers_per_second: Mapping[str, Estimate]
    path_latencies: Mapping[tuple[str, ...], Real]

    def path_latency(self, path: Sequence[str], confidence: float = 0.95) -> Estimate:
        """Mean time along a path, in seconds."""
        return mean_estimate(self._values(path), parameter.fraction("confidence", confidence))

    def path_quantile(self, path: Sequence[str], p: float, confidence: float = 0.95) -> Estimate:
        """The time that a fraction ``p`` of the jobs that take the path does not exceed, in seconds."""
        return quantile_estimate(self._values(path), p, confidence)

    def _values(self, path: Sequence[str]) -> Real:
        path = (path,) if isinstance(path, str) else tuple(path)
        if path not in self.path_latencies:
            known = "; ".join(" -> ".join(known) for known in self.path_latencies)
            raise ConfigurationError(f"No job took the path {' -> '.join(path)}; paths from entry to exit: {known}.")
        return self.path_latencies[path]


class Network:
    """Stream servers over an acyclic topology (the paper's section 7).

    Args:
        servers: the server of each node, by name; each arrival rate is replaced by the rate that follows from the routes.
        routes: ``(from, to) -> probability`` that a job served at one node goes on to another. Choices are independent, so
            a job may go on to several nodes (a copy to each) or to none.
        arrivals: jobs per second that enter from outside, by node.

    Raises:
        CyclicTopologyError: the routes form a cycle.
        ConfigurationError: a name is unknown, a probability or a rate is out of range, or a node receives nothing.

    Examples:
        >>> server = StreamServer(1, 1000, batch_size=20, timer_rate=500)
        >>> network = Network({"parse": server, "count": server}, {("parse", "count"): 0.5}, {"parse": 700})
        >>> network.arrival_rates["count"]
        350.0
    """

    def __init__(
        self, servers: Mapping[str, StreamServer], routes: Mapping[tuple[str, str], float], arrivals: Mapping[str, float]
    ) -> None:
        are_mappings = all(isinstance(given, Mapping) for given in (servers, routes, arrivals))
        if not are_mappings or not all(isinstance(route, tuple) and len(route) == 2 for route in routes):
            raise ConfigurationError(
                "A network takes servers by name, probabilities by route, as {('parse', 'count'): 0.5}, and arrivals by name."
            )
        for name, server in servers.items():
            if not isinstance(server, StreamServer):
                raise ConfigurationError(f"Node {name!r} is {server!r}; give a StreamServer.")
        if not servers or not arrivals:
            raise ConfigurationError("The network has no nodes or no arrivals; give at least one of each.")
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

        Args:
            method: ``"isolated"`` takes every arrival process for Poisson, as the paper proposes. ``"bursts"`` models the
                departures of a node: jobs leave in a Poisson stream of its service rate while its internal queue holds
                jobs, and not at all otherwise. The next node receives such a stream from each predecessor, whose bursts
                and pauses have the true mean lengths.

        Raises:
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
                # A chain needs finite rates: a timer this fast behaves like an infinite one.
                timer_rate = min(server.timer_rate, 1e5 * server.service_rate)
                finite = replace(server, timer_rate=timer_rate)
                jobs = transfers = emptied = 0.0
                for weight, merged in _merged(self.arrivals.get(name, 0.0), sources):
                    chain = _solve_bursty(finite, merged)
                    jobs += weight * chain.mean_jobs
                    transfers += weight * chain.transfers
                    emptied += weight * server.service_rate * float(chain.ready[1].sum())
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
        """Simulate the network node by node, in topological order: each node replays the jobs that its predecessors sent.

        Args:
            jobs: number of jobs that enter from outside, 10,000 or more. The first tenth and the last twentieth are left out.
            interarrival, service: distributions by node, exponential unless given.

        Raises:
            UnstableServerError: names the node.
            ConfigurationError: a name is unknown, a mean contradicts a rate, or too few jobs reach a node.
        """
        self._require_stable()
        jobs = parameter.jobs(jobs, 10_000)
        parameter.fraction("confidence", confidence)
        interarrival, service = dict(interarrival or {}), dict(service or {})
        for option, distributions in (("interarrival", interarrival), ("service", service)):
            known = self.arrivals if option == "interarrival" else self.servers
            for name, distribution in distributions.items():
                if name not in known:
                    raise ConfigurationError(f"{option} names {name!r}; choose among {', '.join(known)}.")
                rate = self.arrivals[name] if option == "interarrival" else self.servers[name].service_rate
                require_same_mean(f"{option} of {name}", rate, distribution)
        random = np.random.default_rng(parameter.seed(seed))
        horizon = jobs / sum(self.arrivals.values())
        # Count only jobs that enter in this window: not during the warm-up, nor so late that they may not have left.
        window = (0.1 * horizon, 0.95 * horizon)
        responses: dict[str, Estimate] = {}
        transfers: dict[str, Estimate] = {}
        paths: dict[tuple[str, ...], list[Real]] = {}
        inbox: dict[str, list[tuple[tuple[str, ...], Real, Real]]] = {name: [] for name in self.order}
        for name, rate in self.arrivals.items():
            distribution = interarrival.get(name) or Exponential(1 / rate)
            times = np.cumsum(distribution.sample(random, max(math.ceil(horizon * rate), 1)))
            inbox[name].append(((), times, times))
        for name, server in self.servers.items():
            labels, times, entries, path_of = _in_order(inbox[name])
            counted = (entries >= window[0]) & (entries <= window[1])
            if counted.sum() < 1000:
                raise ConfigurationError(
                    f"Only {counted.sum()} of the simulated jobs reach node {name!r}; simulate more than {jobs:,} jobs."
                )
            run = play(server, Recorded(np.diff(times, prepend=0.0)), service.get(name), None, None, len(times), random)
            responses[name] = mean_estimate(run.response_times[counted], confidence)
            sums = run.sums[len(run.sums) // 10 : -len(run.sums) // 20]
            transfers[name] = ratio_estimate(sums[:, 2], sums[:, 0], confidence)
            successors = [(target, p) for (source, target), p in self.routes.items() if source == name]
            # Send each departure on to every successor that a random choice picks; the others end their path here.
            for label, path in enumerate(labels):
                selected = path_of == label
                departures, entered = run.departures[selected], entries[selected]
                leaves = np.ones(len(departures), dtype=bool)
                for target, probability in successors:
                    goes = random.random(len(departures)) < probability
                    leaves &= ~goes
                    inbox[target].append(((*path, name), departures[goes], entered[goes]))
                leaves &= counted[selected]
                if leaves.any():
                    paths.setdefault((*path, name), []).append((departures - entered)[leaves])
        return NetworkSimulation(responses, transfers, {path: np.concatenate(parts) for path, parts in paths.items()})


def _in_order(
    parts: Sequence[tuple[tuple[str, ...], Real, Real]],
) -> tuple[list[tuple[str, ...]], Real, Real, NDArray[np.int64]]:
    """Merge the arrivals from all predecessors of a node in order of time.

    Args:
        parts: of each path to the node, the times of arrival there, and of entry to the network.

    Returns:
        The paths; and for each job its arrival, its entry and the index of its path.
    """
    paths = [path for path, _, _ in parts]
    times, entries = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    path_of = np.repeat(np.arange(len(paths)), [len(times) for _, times, _ in parts])
    by_time = np.argsort(times, kind="stable")
    return paths, times[by_time], entries[by_time], path_of[by_time]


@dataclass(frozen=True)
class _Bursts:
    """Departures of a node: bursts of jobs at its service rate, and pauses between them.

    A burst ends with a departure if the internal queue is then empty, or between two departures if a transfer begins.
    Bursts consist of ``stages`` geometric stages, pauses of as many exponential ones. Their number is chosen to make the
    departures as variable in the long run as the arrivals, which are taken for Poisson, because a node only delays jobs.
    With K = 1 and instantaneous transfers that is one stage each, which gives the Poisson process of Burke's theorem.
    """

    rate: float  # jobs per second while on
    start: float  # per second, from off to on
    emptied: float  # per second, from on to off with a departure
    interrupted: float  # per second, from on to off without a departure
    stages: float

    @classmethod
    def of(cls, server: StreamServer, transfers: float, emptied: float) -> "_Bursts":
        """The departures of a node with these transfers, and bursts that end with a departure, per second."""
        interrupted = 0.0 if math.isinf(server.transfer_rate) else max(transfers - emptied, 0.0)
        load, bursts = server.load, emptied + interrupted
        # Var(jobs - lambda time) over a burst of m jobs and its pause is m if both have k stages with
        # k = 2 m (1-rho)^2 / (1 - rho^2 + (1-rho)^2) = m (1 - rho).
        jobs = server.arrival_rate / bursts
        stages = jobs * (1 - load)
        if stages < 1:
            # Pauses vary more than exponential ones: most are short, and the short ones are left out.
            bursts, emptied, interrupted = bursts * stages, emptied * stages, interrupted * stages
        stages = float(np.clip(stages, 1, min(_MOST_STAGES, max(jobs, 1))))
        return cls(server.service_rate, bursts / (1 - load), emptied / load, interrupted / load, stages)

    @property
    def mean_rate(self) -> float:
        """Jobs per second."""
        return self.rate * self.start / (self.start + self.emptied + self.interrupted)

    def arrivals(self, probability: float, k: int) -> Arrivals:
        """The departures that take a route of this probability; states are the k stages of the pause, then of the burst."""
        emptied = min(k * self.emptied, self.rate)
        with_job, without_job = np.zeros((2 * k, 2 * k)), np.zeros((2 * k, 2 * k))
        for stage in range(k):
            on, following = k + stage, (k + stage + 1) % (2 * k)
            without_job[stage, stage + 1] = k * self.start
            with_job[on, on] = probability * (self.rate - emptied)
            with_job[on, following] = probability * emptied
            without_job[on, following] = k * self.interrupted + (1 - probability) * emptied
        return Arrivals(with_job, without_job)


def _solve_bursty(server: StreamServer, arrivals: Arrivals) -> Chain:
    """Solve the chain, truncated where a probability below about 10^-6 is beyond: the arrivals are only approximate."""
    if math.isinf(server.effective_batch_size):
        raise NotSolvableError("method='bursts' needs finite batch sizes; give large ones, or use method='isolated'.")
    level = int(server.effective_batch_size) + math.ceil(8 / server.slack)
    while True:
        chain = solve_chain(server, 1e-6, level, arrivals)
        if chain.ready[-2:].sum() + chain.blocked[-2:].sum() < 1e-6 / level:
            return chain
        level *= 2


def _merged(outside: float, sources: list[tuple[_Bursts, float]]) -> list[tuple[float, Arrivals]]:
    """Superpose bursty streams and a Poisson stream into weighted arrival processes, whose results are to be averaged.

    One rounds the numbers of stages down, one up; the weights interpolate between both. A stream that would make more
    than 20 states is taken for Poisson; the strongest streams come first.
    """
    total = sum(bursts.mean_rate * probability for bursts, probability in sources)
    rounded_up = sum(bursts.mean_rate * probability * (bursts.stages % 1) for bursts, probability in sources) / total
    results = []
    for weight, rounded in ((1 - rounded_up, math.floor), (rounded_up, math.ceil)):
        if weight == 0:
            continue
        merged = Arrivals.poisson(outside)
        for bursts, probability in sorted(sources, key=lambda source: -source[0].mean_rate * source[1]):
            stream = bursts.arrivals(probability, rounded(bursts.stages))
            if len(merged.with_job) * len(stream.with_job) > _MOST_STATES:
                stream = Arrivals.poisson(bursts.mean_rate * probability)
            first, second = np.eye(len(merged.with_job)), np.eye(len(stream.with_job))
            merged = Arrivals(
                np.kron(merged.with_job, second) + np.kron(first, stream.with_job),
                np.kron(merged.without_job, second) + np.kron(first, stream.without_job),
            )
        results.append((weight, merged))
    return results
