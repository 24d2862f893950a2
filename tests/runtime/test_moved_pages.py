"""State that was moved to another number of partitions is all there afterwards, whatever the next micro-batches touch."""

from pathlib import Path

import apps_moved
import msgspec
import pyarrow as pa
import pytest

from penstock.app.loader import AppReference
from penstock.engine.moving.entries import ENTRIES, PageCounts, Spread, pack
from penstock.runtime.pages import HEADER, Header, pages_for
from penstock.runtime.wiring import WiringReference
from penstock.testing import TopologyDriver

KEYS = 4_000
"""So many that an element's instances in a partition lie on several pages."""
EVENTS = {
    "whole": [apps_moved.Whole(number * (-1) ** number) for number in range(KEYS)],
    "text": [apps_moved.Text(f"k{number}") for number in range(KEYS)],
    "pair": [apps_moved.Pair(number, "ab"[number % 2]) for number in range(KEYS)],
}


def stored(driver):
    """All pages of a driver, as the worker's functions take them."""
    pages = [(*place, content) for store in driver._committed.stores.values() for place, content in store._content.items()]
    columns = [pa.array(column) for column in zip(*pages, strict=True)]
    return [pa.record_batch(columns, names=["element", "page", "content"])]


def sums(driver, homes):
    counted = {}
    for batch in PageCounts(homes)(stored(driver)):
        for row in batch.to_pylist():
            one = counted.setdefault((row["element"], row["bucket"]), [0, 0, 0])
            for place, name in enumerate(("instances", "bytes", "checksum")):
                one[place] += row[name]
    return counted


def moved(driver, app, name, partitions):
    """A driver of another number of partitions with the same state, moved as Spark's workers move it."""
    reference = AppReference("apps_moved", name, (), str(Path(__file__).parent))
    homes = {"Counts": WiringReference(reference, ("Counts",), (), ("Events",), partitions, (), "dead-letter")}
    before = sums(driver, homes)
    divisions = {place: pages_for(instances, size) for place, (instances, size, _) in before.items()}
    entries = pa.Table.from_batches(list(Spread(homes, divisions)(stored(driver))), ENTRIES).to_pylist()
    pages = {}
    for entry in entries:
        pages.setdefault((entry["element"], entry["bucket"], entry["page"]), []).append(entry)
    after, headers = TopologyDriver(app, partitions=partitions), {}
    for (element, bucket, number), rows in pages.items():
        [page] = pack(homes, pa.Table.from_pylist(rows, ENTRIES)).to_pylist()
        after._committed.stores[1, bucket].put(element, number, page["content"])
        header = headers.setdefault((element, bucket), Header(pages=divisions[element, bucket]))
        header.instances += page["instances"]
        header.bytes += len(page["content"])
    for (element, bucket), header in headers.items():
        after._committed.stores[1, bucket].put(element, HEADER, msgspec.msgpack.encode(header))
    assert sums(after, homes) == before
    return after, homes


@pytest.mark.parametrize("partitions", [(2, 3), (2, 1), (1, 4)], ids=str)
@pytest.mark.parametrize("form", ["columns", "objects"])
@pytest.mark.parametrize("kind", EVENTS)
def test_no_key_is_lost_or_begun_anew(kind, form, partitions):
    name, events = f"{kind}_{form}", EVENTS[kind]
    app, (old, new) = getattr(apps_moved, name), partitions
    driver = TopologyDriver(app, partitions=old)
    driver.batch({"Events": events})
    driver, homes = moved(driver, app, name, new)
    driver.batch({"Events": events[:10]})
    assert sum(instances for instances, *_ in sums(driver, homes).values()) == KEYS
    driver.batch({"Events": events})
    last = {result.key: result.seen for result in driver.output("Out")}
    assert sorted(last.values()) == [2] * (KEYS - 10) + [3] * 10
    assert sum(driver.elements["Counts"].instances.values()) == KEYS
