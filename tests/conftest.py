"""The two ways to run a topology that the shared suite compares."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.app.application import App
from penstock.app.loader import AppReference, load_app
from penstock.runtime.codec import Codec
from penstock.testing import TopologyDriver

HERE = Path(__file__).parent
Batches = Sequence[dict[str, Sequence[Any]]]


@dataclass
class Outcome:
    """What a topology made of its input, whichever way it was run."""

    outputs: dict[str, list[Any]]
    dead_letters: list[dict[str, Any]]
    events: dict[str, int]
    late: int


def load(name: str, file: str = "topologies.py") -> tuple[App, AppReference]:
    return load_app(f"{HERE / file}:{name}")


def write_batches(app: App, batches: Batches, directory: Path) -> dict[str, str]:
    """One JSON Lines file for each batch and source, oldest first; the URIs that read one a batch."""
    uris = {}
    for source in app.topology().sources:
        folder = directory / source.name
        folder.mkdir(parents=True, exist_ok=True)
        encode = Codec(source.event_type).encode_json
        for number, batch in enumerate(batches):
            events = batch.get(source.name, ())
            lines = [event if isinstance(event, bytes) else encode(event) for event in events]
            file = folder / f"{number:03d}.jsonl"
            file.write_bytes(b"".join(line + b"\n" for line in lines))
            os.utime(file, (1_700_000_000 + number * 60,) * 2)
        uris[source.name] = f"jsonl:{folder}?max_files=1"
    return uris


def in_memory(name: str, batches: Batches, directory: Path) -> Outcome:
    app, _ = load(name)
    driver = TopologyDriver(app)
    for batch in batches:
        driver.batch({source: list(events) for source, events in batch.items()})
    if any(source.event_time for source in app.topology().sources):
        driver.batch()  # Spark, too, runs a batch without data when the watermark has advanced
    elements = driver.elements
    return Outcome(
        {sink.name: driver.output(sink) for sink in app.topology().sinks},
        driver.dead_letters,
        {name: tally.events for name, tally in elements.items()},
        sum(tally.late for tally in elements.values()),
    )


def on_spark(name: str, batches: Batches, directory: Path) -> Outcome:
    from penstock.engine import RunOptions, run

    app, reference = load(name)
    options = RunOptions(
        runs=directory / "runs",
        master="local[2]",
        sources=write_batches(app, batches, directory),
        until_idle=True,
        quiet=True,
    )
    result = run(app, options, application=reference)
    counts = result.report["counts"]
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    assert counts["accepted"] == counts["processed"] + counts["dead_lettered"]
    return Outcome(
        {sink.name: result.output(sink.name) for sink in app.topology().sinks},
        result.dead_letters,
        {name: element["events"] for name, element in result.report["elements"].items() if element["events"]},
        counts["late"],
    )


@pytest.fixture(params=["driver", "spark"])
def outcome_of(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Runs a topology of `topologies.py` on batches of events, once each way."""
    way = in_memory if request.param == "driver" else on_spark
    return lambda name, batches: way(name, batches, tmp_path)
