"""The queries of NEXMark, in memory, against DuckDB over the same events: every row, in and out of order, at several cuts."""

import random
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.testing import TopologyDriver

sys.path.append(str(Path(__file__).parent.parent / "benchmarks" / "nexmark"))

from model import LATENESS_S, Auction, Bid, Person, events
from oracle import QUERIES, found, module_of, wanted

NAMES = {Person: "Persons", Auction: "Auctions", Bid: "Bids"}
EVENTS = list(events(2_000))


def delivered(late):
    """In the order of their times, or shaken within the lateness."""
    if not late:
        return EVENTS
    chance = random.Random(3)
    return sorted(EVENTS, key=lambda event: event.ts + timedelta(seconds=chance.uniform(0, LATENESS_S)))


@pytest.mark.parametrize("late", [pytest.param(False, id="in-order", marks=pytest.mark.slow), pytest.param(True, id="late")])
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_rows_that_duckdb_finds(query, late):
    module = module_of(query)
    want = wanted(query, EVENTS)
    for size in (2_000, 600, 90):
        driver = TopologyDriver(module.app, partitions=3)
        given = delivered(late)
        for place in range(0, len(given), size):
            batch = {}
            for event in given[place : place + size]:
                batch.setdefault(NAMES[type(event)], []).append(event)
            sources = {source.name for source in module.app.topology().sources}
            driver.batch({name: part for name, part in batch.items() if name in sources})
        driver.advance(60)
        driver.finish()
        assert found(query, driver.output("Out")) == want
    assert want
