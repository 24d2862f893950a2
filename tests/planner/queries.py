"""Progress of made-up queries: rows one by one, micro-batches as Spark's trigger begins them, told as Spark tells it."""

import json
from datetime import UTC, datetime

import numpy as np

from penstock.app.description import Description
from penstock.runs.layout import Layout
from penstock.runs.manifest import Manifest

BEGAN = 1_749_999_600.0  # a full hour, so that every trigger has a moment then
LATEST, PLAN, WAL, COMMIT = 0.01, 0.03, 0.05, 0.05
"""Phases that cost every micro-batch the same, seconds."""


def progress(
    *,
    trigger=1.0,
    rate=1000.0,
    fixed=0.3,
    per_row=1e-4,
    seconds=120.0,
    noise=0.05,
    seed=0,
    cap=None,
    partitions=2,
    name="query",
    run="run",
    shares=None,
    warm_up=1.0,
    pauses=0.0,
    growth=None,
    state=None,
    first=0,
    births=None,
):
    """The progress of a query, as dicts.

    rate: a number, or a function of the seconds since the beginning. cap: most rows per trigger. shares: of partitions.
    births: when rows come, in place of a rate. warm_up: how many times longer the first micro-batch lasts; the surplus halves
        each time. pauses: share of the
    micro-batches that last three times as long. growth: rows of state per second. state: rows of state, constant.
    """
    random = np.random.default_rng(seed)
    rate_at = rate if callable(rate) else lambda _: rate
    cells = np.arange(0, seconds, 0.1)
    counts = random.poisson([rate_at(cell) * 0.1 for cell in cells])
    if births is None:
        births = np.sort(np.repeat(cells, counts) + random.random(int(counts.sum())) * 0.1)
    shares = np.full(partitions, 1 / partitions) if shares is None else np.asarray(shares)
    owner = random.choice(len(shares), size=len(births), p=shares)
    sums = np.zeros((len(births) + 1, len(shares)), dtype=int)
    np.cumsum(owner[:, None] == np.arange(len(shares)), axis=0, out=sums[1:])
    told, latencies, taken, time, number = [], [], 0, 0.0, first
    while time < seconds:
        start = np.ceil(time / trigger) * trigger if trigger and not told else time
        there = int(np.searchsorted(births, start + LATEST, side="right"))
        rows = min(there - taken, cap or there)
        if rows == 0:
            time = start + (trigger or 0.01)
            continue
        slower = 1 + (warm_up - 1) * 0.5 ** (number - first)
        slower *= 3 if random.random() < pauses else 1
        lasting = (fixed + per_row * rows) * slower * max(0.2, 1 + noise * random.standard_normal())
        ends = [sums[count] for count in (taken, taken + rows, there)]
        told.append(tell(start, number, rows, lasting, ends, name, run, state if growth is None else growth * start))
        latencies.append(start + lasting - COMMIT - births[taken : taken + rows])
        taken += rows
        number += 1
        grid = (np.floor(start / trigger + 1e-9) + 1) * trigger if trigger else 0.0
        time = max(start + lasting, grid)
    return told, np.concatenate(latencies)


def tell(start, number, rows, lasting, ends, name, run, state):
    before, after, there = ({"topic": {str(p): int(count) for p, count in enumerate(end)}} for end in ends)
    milliseconds = {
        "latestOffset": LATEST * 1e3,
        "getBatch": 0,
        "queryPlanning": PLAN * 1e3,
        "walCommit": WAL * 1e3,
        "addBatch": round((lasting - LATEST - PLAN - WAL - COMMIT) * 1e3),
        "commitOffsets": COMMIT * 1e3,
        "triggerExecution": round(lasting * 1e3),
    }
    operators = [] if state is None else [{"operatorName": "stateStoreSave", "numRowsTotal": int(state), "numRowsUpdated": 1}]
    return {
        "id": f"id of {name}",
        "runId": run,
        "name": name,
        "batchId": number,
        "batchDuration": milliseconds["triggerExecution"],
        "timestamp": datetime.fromtimestamp(BEGAN + start, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "numInputRows": int(rows),
        "inputRowsPerSecond": 90909.0,
        "durationMs": milliseconds,
        "stateOperators": operators,
        "sources": [
            {
                "description": "KafkaV2[Subscribe[topic]]",
                "startOffset": before,
                "endOffset": after,
                "latestOffset": there,
                "numInputRows": int(rows),
            }
        ],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
    }


def idle(start, number, name="query", run="run"):
    """A progress that says that there was nothing to do."""
    told = tell(start, number, 0, 0.1, [np.zeros(2)] * 3, name, run, None)
    told["durationMs"] = {"latestOffset": 10, "triggerExecution": 10}
    return told


def written(path, told):
    """The progress as JSON lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in told))
    return path


def manifest(elements=(), groups=(), sources=None):
    """That of a run of Penstock."""
    return Manifest(
        run="recorded",
        application="recorded",
        mode="micro-batches",
        topology=Description("recorded", [], list(elements), []),
        state={},
        sources=sources or {"S": "generator:poisson"},
        identities={},
        parameters={},
        groups=dict(groups),
        hops={},
        reads={},
        partitions=2,
        layout=Layout(),
    )
