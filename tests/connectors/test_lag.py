"""What waits at a source, by partition and in words."""

import pytest

from penstock.connectors.lag import said, waiting_in, waiting_of


@pytest.mark.parametrize(
    ("partitions", "shown"),
    [
        ({"0": 12_400}, "12,400"),
        ({"0": 5, "1": 5, "3": 12_380, "7": 10}, "12,400, of them 12,380 in partition 3"),
        ({"0": 0, "1": 400, "2": 300, "3": 200}, "900 in 3 of 4 partitions, most in partition 1 (400)"),
        ({}, "0"),
    ],
)
def test_where_most_waits_is_named(partitions, shown):
    assert str(waiting_of(partitions)) == shown


def test_nothing_is_said_of_what_does_not_wait():
    assert said({"Words": waiting_of({"0": 0, "1": 0}), "Others": waiting_of({})}) == ""
    assert said({"Words": waiting_of({"0": 7}), "Idle": waiting_of({"0": 0}), "Others": waiting_of({"0": 1, "1": 2})}) == (
        "waiting at Words: 7; waiting at Others: 3, of them 2 in partition 1"
    )


def test_sources_are_told_apart_by_their_order():
    topic = {"endOffset": {"words": {"0": 4, "1": 3}}, "latestOffset": {"words": {"0": 10, "1": 3}}}
    log = {"endOffset": {"first": 0, "end": 5, "started": 1.0}, "latestOffset": '{"first": 0, "end": 9, "started": 1.0}'}
    files = {"endOffset": {"logOffset": 1}, "latestOffset": None}
    found = waiting_in({"sources": [topic, log, files]}, ["Words", "Log", "Files"])
    assert {name: (one.rows, one.partitions) for name, one in found.items()} == {"Words": (6, {"0": 6, "1": 0}), "Log": (4, {})}
