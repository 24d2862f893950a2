"""What several tests need: the shared topologies, input files for them, and drivers that meet."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

from penstock.app.application import App
from penstock.app.loader import AppReference, load_app
from penstock.connectors.sink import BoundSink
from penstock.kinds.event import Event
from penstock.runtime.codec import Codec
from penstock.runtime.output import StagedFile
from penstock.storage import durable
from penstock.storage.place import path_of
from penstock.testing import TopologyDriver

TOPOLOGIES = Path(__file__).parent / "topologies.py"
Batches = Sequence[dict[str, Sequence[Any]]]


def load(name: str) -> tuple[App, AppReference]:
    """An application of `topologies.py`."""
    return load_app(f"{TOPOLOGIES}:{name}")


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


def write_words(place: str, files: int, words: int) -> None:
    """Files of words, JSON Lines, in a directory of a store."""
    for number in range(files):
        lines = "".join(f'{{"text": "{each % 5}"}}\n' for each in range(words))
        durable.write(path_of(place) / f"{number}.jsonl", lines.encode())


def deliver_at_once(sinks: Sequence[BoundSink], files: Sequence[list[StagedFile]]) -> None:
    """Let drivers deliver one batch at one moment, each by its own sink and with its own files."""
    ready = Barrier(len(sinks))

    def deliver(sink: BoundSink, staged: list[StagedFile]) -> None:
        ready.wait()
        sink.deliver("main", 0, staged)

    with ThreadPoolExecutor(len(sinks)) as drivers:
        list(drivers.map(deliver, sinks, files))


def outcome_of(app: App, source: str, element: str, batches: Iterable[list[Event]]) -> tuple[Any, ...]:
    """What comes of micro-batches of events of a source, in memory: results, dead letters, and counts of an element."""
    driver = TopologyDriver(app, partitions=2, dead_letters=True)
    for batch in batches:
        driver.batch({source: batch})
        driver.advance(1)
    driver.finish()
    tally = driver.elements[element]
    counts = (tally.late, tally.late_in_part, tally.events, tally.instances)
    return sorted(map(repr, driver.output("Out"))), sorted(map(repr, driver.dead_letters)), counts
