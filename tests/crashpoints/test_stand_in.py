"""The stand-in for Spark does as Spark does: the same checkpoint, the same ledger, and our driver takes the same steps."""

import json

import pytest
from crashpoints.on_spark import Step, started, steps, tried
from crashpoints.runner import Place, points_of
from crashpoints.workloads import WORKLOADS

from penstock.connectors.checkpoint import batches
from penstock.runs.batches import records_in

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

BY_NAME = {workload.name: workload for workload in WORKLOADS}


def planned(checkpoint):
    """What the logs of a checkpoint say, without the times of day and settings."""
    entries = []
    for log in ("offsets", "commits"):
        for number in batches(checkpoint, log):
            version, about, *offsets = (checkpoint / log / str(number)).read_text().splitlines()
            known = {name: value for name, value in json.loads(about).items() if name.endswith("WatermarkMs")}
            ends = [json.loads(offset) for offset in offsets]
            for end in ends:
                end.pop("started", None)
            entries.append((log, number, version, known, ends))
    sources = sorted(
        (path.parent.name, path.name, len(path.read_text().splitlines())) for path in checkpoint.glob("sources/*/[0-9]*")
    )
    states = {(path.parent.parent.name, path.parent.name) for path in checkpoint.glob("state/*/*/[1-9]*")}
    return entries, sources, states


def kept(run):
    """What a run has kept that does not depend on when it ran."""
    ledgers = {
        path.name: [
            (record.batch, {name: source.accepted for name, source in record.sources.items()}, record.outputs, record.streams)
            for record in records_in(path)
        ]
        for path in sorted(run.glob("batches-*.jsonl"))
    }
    outputs = {}
    for path in sorted(run.glob("output/*/[0-9]*.jsonl")):
        batch = path.name[:8]
        outputs.setdefault((path.parent.name, batch), []).extend(path.read_text().splitlines())
    return ledgers, {name: sorted(lines) for name, lines in outputs.items()}


@pytest.mark.parametrize("name", ["jsonl", "windows", "sqlite-key", "log"])
def test_it_does_as_spark_does(tmp_path, name):
    workload = BY_NAME[name]
    place = Place(tmp_path)
    ours = steps(points_of(place, workload))
    run = place.world / "runs" / "run"
    imitated = [planned(path) for path in sorted(run.glob("checkpoint/*"))], kept(run)
    place.anew(workload)
    ended = started(workload, place.world)
    assert ended is not None
    assert ended["error"] == ""
    real = [planned(path) for path in sorted(run.glob("checkpoint/*"))], kept(run)
    assert imitated == real
    if name != "log":  # which is told from time to time how far it has been read
        assert ours == steps(ended["points"])


def test_a_driver_on_spark_is_killed_before_a_step_of_a_commit(tmp_path):
    place = Place(tmp_path)
    assert tried(place, BY_NAME["jsonl"], Step("sync runs/run/batches-main.jsonl", 1)) == ""
