"""The papers' parameters, from the same recordings: a stream server's rates, and a graph of tasks with its weights."""

from penstock.allocation import StreamGraph
from penstock.errors import ConfigurationError
from penstock.planner.calibration import Calibration
from penstock.planner.setting import Setting
from penstock.queueing import StreamServer


def stream_server(calibration: Calibration, setting: Setting | None = None) -> StreamServer:
    """The first query as the paper's server: lambda as recorded, mu = 1 / per_row, gamma = 1 / fixed, K and tau of the gate.

    It is a relative of Spark's gate, not the same: the paper's timer is exponential and counts from when the internal
    queue ran empty. `Calibration.predict` has Spark's.

    Raises
    ------
    ConfigurationError: the recording does not tell a row's cost from a micro-batch's, or a row costs nothing.
    """
    whole = calibration.complete(setting)
    durations = calibration.scaled(calibration.queries[0], whole)
    if not durations.identified or durations.per_row <= 0:
        raise ConfigurationError(
            "The recording does not tell what a row costs from what a micro-batch costs, which are the paper's service and "
            "transfer; record another trigger or rate, too."
        )
    mean = durations.mean_ratio
    wait = whole.interval or (whole.delay if whole.min_rows else 0.0)
    return StreamServer(
        float(whole.rate or 0.0), 1 / (durations.per_row * mean), batch_size=whole.min_rows or 1.0,
        timer_rate=1 / wait if wait else 0.0, transfer_rate=1 / (durations.fixed * mean),
    )  # fmt: skip


def stream_graph(calibration: Calibration, setting: Setting | None = None) -> StreamGraph:
    """The elements of a run of Penstock as tasks, in seconds per micro-batch; of other queries, the query as one task.

    w(v) is the element's measured service time, for its events of a micro-batch. b(e) is what a hop adds where the edge
    crosses groups: the fixed part of the micro-batch behind it; within a query a recording shows no transfer, so it is 0.
    """
    rows = calibration.predict(setting, replicates=0).rows_per_batch
    group, weights, fixed = dict[str, str](), dict[str, float](), dict[str, float]()
    for query in calibration.queries:
        seen, durations = query.observed, query.durations
        own = rows * seen.rows_per_source_row
        fixed[seen.name] = durations.fixed * durations.mean_ratio
        for element, service in seen.service_us.items():
            group[element] = seen.name
            weights[element] = service / 1e6 * seen.events[element] * own
        if not seen.service_us:
            weights[seen.name] = (durations.duration(own) - durations.fixed) * durations.mean_ratio
    transfers = {
        (one, other): 0.0 if group[one] == group[other] else fixed[group[other]]
        for one, other in calibration.observation.edges
        if one in group and other in group
    }
    return StreamGraph(weights, transfers)
