"""What several tests need: the shared topologies, and input files for them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.app.application import App
from penstock.app.loader import AppReference, load_app
from penstock.runtime.codec import Codec

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
