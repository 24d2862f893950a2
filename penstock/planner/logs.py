"""The cost of the two logs of a checkpoint, which every micro-batch writes, and the settings that lower it."""

import numpy as np

from penstock.engine.session.checkpoint import on_disk
from penstock.engine.session.versions import NEWEST, Spark
from penstock.planner.observation import Observation

LEAST_S, LEAST_SHARE = 0.03, 0.05
"""Least seconds of a micro-batch, and least share of it, for which the advice is given."""


def about_logs(observation: Observation) -> str:
    """Advice on queries whose micro-batches spend much time on the logs; empty if none does.

    Runs of Penstock, which are recognised by their measured latency, have these settings already.
    """
    costs = []
    for query in observation.queries:
        ran = [record for record in query.records if record.ran and record.taken]
        if not ran or query.latency_ms:
            continue
        logs = float(
            np.median([record.phases.get("walCommit", 0.0) + record.phases.get("commitOffsets", 0.0) for record in ran])
        )
        share = logs / max(float(np.median([record.duration for record in ran])), 1e-9)
        if logs >= LEAST_S and share >= LEAST_SHARE:
            costs.append(f"{logs * 1e3:.0f} ms, {share:.0%} of one of {query.name}")
    if not costs:
        return ""
    settings = " and ".join(f"{name}={value}" for name, value in on_disk(Spark("{}.{}".format(*NEWEST))).items())
    return (
        f"A micro-batch spends {'; '.join(costs)} (measured) on the two logs of its checkpoint. If that lies on a disk, and "
        f"Spark makes its files in its own way, start the session with {settings}, and never with the first alone: two "
        "programs are then started for each file, not ten (Spark 4.0 has the class in the package above). In a store, it is "
        "the store's answers."
    )
