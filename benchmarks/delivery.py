"""What a micro-batch's delivery to Kafka costs: by an idempotent producer, and as a transaction.

    python benchmarks/delivery.py [--rounds 20] [--output FILE.json]

Staged files of 1, 1,000 and 100,000 events are delivered to a broker on this machine, in turn by each way, without Spark. The
figure is the median of the rounds with its quartiles, the first two rounds left out.
"""

import argparse
import datetime
import json
import os
import time
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

from penstock.app.stream import Sink, Stream
from penstock.bench.servers.broker import KafkaBroker
from penstock.connectors.registry import bind_sinks
from penstock.connectors.sink import BoundSink
from penstock.testing.contracts import Sample, stage

SIZES = (1, 1_000, 100_000)
WARM_UP = 2


def sink(uri: str, directory: Path) -> BoundSink:
    bound = bind_sinks([Sink("Out", Stream("Samples", Sample), uri, ())], {}, directory)["Out"]
    bound.claim("run", ())
    return bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as place, KafkaBroker(Path(place) / "kafka") as broker:
        for size in SIZES:
            events = [Sample(f"name-{number}", number) for number in range(size)]
            ways = {
                way: sink(f"kafka:{broker.brokers}/{way}-{size}{query}", Path(place) / f"{way}-{size}")
                for way, query in (("idempotent", ""), ("transaction", "?transactions=yes"))
            }
            took: dict[str, list[float]] = {way: [] for way in ways}
            for number in range(options.rounds + WARM_UP):
                for way, bound in ways.items():
                    files = stage(bound, events)
                    began = time.perf_counter()
                    bound.deliver("main", number, files)
                    took[way].append((time.perf_counter() - began) * 1e3)
            for way, times in took.items():
                low, middle, high = quantiles(times[WARM_UP:], n=4)
                rows.append({"events": size, "way": way, "ms": round(middle, 1), "quartiles": [round(low, 1), round(high, 1)]})
                print(f"{size:>8,} events, {way:<12} {middle:8.1f} ms ({low:.1f} to {high:.1f})", flush=True)
    if options.output:
        told = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "rows": rows}
        options.output.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
