"""Which source events count as failed, where several groups read what has become of them."""

from penstock.runs.batches import BatchRecord, sum_of
from penstock.runs.failures import RECORDED, REMEMBERED, Failures
from penstock.runs.totals import Totals
from penstock.runtime.places import Seen
from penstock.runtime.tally import Tally

OUTSIDE, INSIDE = (frozenset({"In"}), frozenset()), (frozenset(), frozenset({"Words"}))
"""Of a group that reads a source, and of one that reads from it: its external sources, and what is handed on to it."""


def record_of(number, *failed):
    return BatchRecord.of(number, 0, [Tally(stage=0, partition=0, failed=[*failed, *failed])])


def committed(failures, record):
    failures.note(failures.judge(record))
    return record


def test_an_event_that_fails_in_two_groups_counts_once():
    failures = Failures(3)
    records = [
        committed(failures, record_of(0, 1, 3)),
        committed(failures, record_of(0, 3, 5)),
        committed(failures, record_of(1, 1)),
    ]
    assert [record.dead_lettered for record in records] == [2, 1, 0]
    totals = Totals()
    for record, (external, handed_on) in zip(records, (OUTSIDE, INSIDE, INSIDE), strict=True):
        totals.add(record, external, handed_on)
    assert totals.dead_lettered == 3


def test_the_next_start_knows_what_has_failed():
    first, second = Failures(2), Failures(2)
    record = committed(first, record_of(0, 1, 3))
    second.note(record.origins)
    assert committed(second, record_of(0, 3, 5)).dead_lettered == 1


def test_what_is_remembered_and_recorded_is_bounded(monkeypatch):
    failures = Failures(2)
    record = committed(failures, record_of(0, *range(1, 2 * RECORDED + 100, 2)))
    assert len(record.origins) == RECORDED
    assert record.dead_lettered == RECORDED + 50
    monkeypatch.setattr("penstock.runs.failures.REMEMBERED", 10)
    committed(failures, record_of(1, 1001))
    assert len(failures._known) == 10
    assert REMEMBERED > RECORDED


def test_a_single_group_remembers_nothing():
    failures = Failures(1)
    record = committed(failures, record_of(0, 1, 3))
    assert (record.dead_lettered, record.origins, failures._known) == (2, [], {})


def test_older_records_of_a_group_that_reads_from_others_count_as_they_did():
    before = BatchRecord(batch=0, committed_us=0, dead_lettered=5000)
    now = committed(Failures(2), record_of(1, 1))
    now.taken = {"Words": Seen(1, 1)}
    for records in ([before, now], [sum_of([before, now])]):
        totals = Totals()
        for record in records:
            totals.add(record, *INSIDE)
        assert totals.dead_lettered == 1
    totals = Totals()
    totals.add(before, *INSIDE)
    totals.add(before, *OUTSIDE)
    assert totals.dead_lettered == 5000
    now.taken = {}
    assert sum_of([before, now]).dead_lettered == 5001
