"""Records of a ledger that are summed up: what a resumed run needs of them stays."""

from penstock.runs.batches import BatchRecord, sum_of
from penstock.runtime.output import StagedFile


def record(number, sink, **more):
    files = [StagedFile(sink, staged=f"{number}.jsonl", final=f"{number}.jsonl", rows=1, size=2)]
    return BatchRecord(batch=number, committed_us=10 * number, offsets=f"of {number}", files=files, **more)


def test_a_sum_goes_on_from_its_last_record():
    summed = sum_of([record(3, "One"), record(4, "Two"), record(5, "Two")])
    assert (summed.batch, summed.committed_us, summed.offsets) == (5, 50, "of 5")
    assert (summed.batches, summed.moved) == (3, False)
    assert summed.delivered == {"One": 3, "Two": 5}


def test_a_sum_of_sums_counts_all_of_them():
    summed = sum_of([sum_of([record(3, "One"), record(4, "One")]), record(5, "Two"), record(6, "Two")])
    assert summed.batches == summed.summed == 4
    assert summed.delivered == {"One": 4, "Two": 6}


def test_what_a_move_has_begun_with_is_no_micro_batch():
    moved = BatchRecord(batch=0, committed_us=5, moved=True)
    alone = sum_of([moved])
    assert (alone.batches, alone.moved) == (0, True)
    assert (sum_of([moved, record(1, "One")]).batches, sum_of([moved, record(1, "One")]).moved) == (1, False)
