"""What a call of a keyless function takes, compiled from its source and as it is: those of NEXMark's queries.

    python benchmarks/functions.py [--events 20000] [--rounds 15]

Calls each function on the same bids, in turn as it is and compiled, in memory and on one core; prints microseconds an event,
the median of the rounds with the least and the greatest.
"""

import argparse
import datetime
import os
import platform
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

sys.path.append(str(Path(__file__).parent / "nexmark"))
from model import Bid, events
from oracle import module_of

from penstock.runtime.bodies import run_event_body
from penstock.runtime.events import EventBatch
from penstock.runtime.letters import DeadLetters
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import MemoryOutput
from penstock.runtime.tally import Tally
from penstock.runtime.wiring import Wiring

QUERIES = ("q01", "q02", "q10", "q14", "q15", "q21", "q22")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.events < 1 or options.rounds < 1:
        sys.exit("--events and --rounds must be at least 1.")
    bids = [event for event in events(2 * options.events) if type(event) is Bid][: options.events]
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}; us an event\n")
    print("| query | as it is | compiled |\n| --- | ---: | ---: |")
    for query in QUERIES:
        taken: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(options.rounds):
            for compiles, times in taken.items():
                times.append(call(query, bids, compiles))
        print(
            f"| {query} | {' | '.join(f'{median(each):.2f} ({min(each):.2f} to {max(each):.2f})' for each in taken.values())} |"
        )


def call(query: str, bids: list[Bid], compiles: bool) -> float:
    """How many microseconds an event takes in a query's first function."""
    topology = module_of(query).app.topology()
    [source] = topology.sources
    wiring, tally = Wiring(topology, 2, (), "dead-letter"), Tally(stage=0, partition=0)
    wiring.compiles = compiles
    element = next(element for element in topology.consumers(source) if not element.keyed)
    wiring.compiled(element)  # once a process, and so not timed
    zeros = np.zeros(len(bids), np.int64)
    batch = EventBatch(source, LineageColumns.within_group(zeros, zeros, np.arange(len(bids)), zeros), events=bids)
    letters = DeadLetters(MemoryOutput(), tally, "dead-letter")
    begun = time.perf_counter()
    run_event_body(element, batch, bids, wiring, tally, letters)
    return (time.perf_counter() - begun) / len(bids) * 1e6


if __name__ == "__main__":
    main()
