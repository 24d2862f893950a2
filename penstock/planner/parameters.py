"""The allocation paper's graph of tasks, with weights from recordings."""

from penstock.allocation import StreamGraph
from penstock.planner.calibration import Calibration
from penstock.planner.setting import Setting


def stream_graph(calibration: Calibration, setting: Setting | None = None) -> StreamGraph:
    """The elements of a run of Penstock as tasks, weighted in seconds per micro-batch; another query is a single task.

    w(v) is the element's measured service time for its events of a micro-batch. b(e), the cost of an edge between groups, is
    the fixed part of the micro-batch behind it; within a group a recording shows no transfer, so it is 0.
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
        (start, end): 0.0 if group[start] == group[end] else fixed[group[end]]
        for start, end in calibration.observation.edges
        if start in group and end in group
    }
    return StreamGraph(weights, transfers)
