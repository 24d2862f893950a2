"""The allocation paper's graph of tasks with its weights, from the same recordings."""

from penstock.allocation import StreamGraph
from penstock.planner.calibration import Calibration
from penstock.planner.setting import Setting


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
