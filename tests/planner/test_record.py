"""What is read from one progress of Spark's."""

import pytest

from penstock.runs.record import record_of


def progress(**source):
    return {
        "id": "1",
        "runId": "2",
        "batchId": 3,
        "timestamp": "2026-01-01T00:00:00Z",
        "durationMs": {"triggerExecution": 10},
        "numInputRows": 7,
        "sources": [{"description": "KafkaV2", "numInputRows": 7, **source}],
    }


def test_what_waits_at_each_partition_of_a_topic():
    [source] = record_of(
        progress(
            startOffset={"words": {"0": 0, "1": 0}},
            endOffset={"words": {"0": 4, "1": 3}},
            latestOffset={"words": {"0": 10, "1": 3, "2": 5}},
        )
    ).sources
    assert source.lag.partitions == {"0": 6, "1": 0, "2": 5}
    assert source.waiting == 11


@pytest.mark.parametrize(("rows", "taken"), [(7, 7), (14, 7), (5, 5)])
def test_rows_that_are_read_twice_count_once_and_offsets_without_rows_not_at_all(rows, taken):
    [source] = record_of(progress(numInputRows=rows, startOffset={"words": {"0": 0}}, endOffset={"words": {"0": 7}})).sources
    assert source.taken == taken
