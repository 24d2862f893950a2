"""What it costs the embedded log to know events by names of their own.

    python benchmarks/ids.py [--known 1000000]

Appends eight requests of 100 events of 200 bytes at a time, as a busy door does.
"""

import argparse
import statistics
import tempfile
import time
import uuid
from pathlib import Path

from load import body

from penstock.connectors.log.arrays import JsonArray
from penstock.connectors.log.log import Parcel, StreamLog

EVENTS, REQUESTS, APPENDS = 100, 8, 60


def named(name):
    """A request's events, each by a name of its own."""
    return Parcel(JsonArray(body(EVENTS, 200), EVENTS), ids=[name() for _ in range(EVENTS)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--known", type=int, default=1_000_000, help="random names that the log knows at first")
    known = parser.parse_args().known
    numbers = iter(range(1_000_000))
    kinds = {
        "the request only": lambda: Parcel(JsonArray(body(EVENTS, 200), EVENTS), key=str(uuid.uuid4())),
        "each event, in order": lambda: named(lambda: f"{next(numbers):032}"),
        "each event, at random": lambda: named(lambda: str(uuid.uuid4())),
    }
    print("| named | known before | us an event, median (least to most) |\n| --- | --- | --- |")
    for before in (0, known):
        with tempfile.TemporaryDirectory() as directory:
            log = StreamLog(Path(directory) / "Lines.log.sqlite")
            log.note_ids((str(uuid.uuid4()) for _ in range(before)), {})
            for kind, entry in kinds.items():
                times = []
                for _ in range(APPENDS):
                    entries = [entry() for _ in range(REQUESTS)]
                    began = time.perf_counter()
                    log.append(entries)
                    times.append((time.perf_counter() - began) / EVENTS / REQUESTS * 1e6)
                print(f"| {kind} | {before:,} | {statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f}) |")
            log.close()


if __name__ == "__main__":
    main()
