"""The ledger of a group: each micro-batch is committed once, and delivered where its sink is now."""

import pytest

from penstock.connectors.files.sink import DirectorySink
from penstock.engine.running.ledger import Ledger, clear_staging
from penstock.errors import IncompatibleStateError, RunFailedError, SinkError
from penstock.runs.batches import BatchRecord, records_in
from penstock.runtime.output import FileOutput, SinkFiles
from penstock.runtime.tally import Tally


def sink_in(directory, kind="jsonl"):
    sink = DirectorySink(SinkFiles("Out", kind, str(directory)))
    sink.claim("run", ())
    return sink


def attempt(sink, batch, offsets="offsets"):
    output = FileOutput([sink.files], "0-00000")
    output.write_lines("Out", [b"%d" % batch])
    return BatchRecord.of(batch, 1_000_000, [Tally(stage=0, partition=0, files=output.close())], offsets)


def lines_of(directory):
    return sorted(path.read_text().strip() for path in directory.glob("*.jsonl"))


def test_a_repeated_micro_batch_is_dropped(tmp_path):
    sink = sink_in(tmp_path / "out")
    ledger = Ledger(tmp_path / "ledger", "main", [sink])
    for number in (0, 1):
        record = attempt(sink, number)
        assert ledger.commit(record)
        ledger.deliver(record)
    for number in (1, 0):  # Spark repeats the last one, mostly
        assert not ledger.commit(attempt(sink, number))
    assert [each.batch for each in records_in(tmp_path / "ledger")] == [0, 1]
    assert lines_of(tmp_path / "out") == ["0", "1"]
    assert list((tmp_path / "out" / ".staging").iterdir()) == []


def test_the_last_micro_batch_with_other_events_is_refused(tmp_path):
    sink = sink_in(tmp_path / "out")
    ledger = Ledger(tmp_path / "ledger", "main", [sink])
    ledger.commit(attempt(sink, 0))
    with pytest.raises(RunFailedError, match="rolled back"):
        ledger.commit(attempt(sink, 0, "others"))


@pytest.mark.parametrize(("place", "kind"), [("elsewhere", "jsonl"), ("out", "parquet")])
def test_what_is_owed_to_a_sink_that_has_changed_is_not_delivered(tmp_path, place, kind):
    sink = sink_in(tmp_path / "out")
    Ledger(tmp_path / "ledger", "main", [sink]).commit(attempt(sink, 0))
    changed = sink_in(tmp_path / place, kind)
    with pytest.raises(SinkError, match="of another kind, or in another place"):
        Ledger(tmp_path / "ledger", "main", [changed]).deliver_last()
    again = Ledger(tmp_path / "ledger", "main", [sink_in(tmp_path / "out")])
    again.deliver_last()
    assert lines_of(tmp_path / "out") == ["0"]


def test_what_another_has_cleared_is_cleared(tmp_path):
    clear_staging([tmp_path / "is gone", tmp_path])
    assert not tmp_path.exists()


def test_a_damaged_line_is_named(tmp_path):
    sink = sink_in(tmp_path / "out")
    ledger = Ledger(tmp_path / "ledger", "main", [sink])
    for number in range(3):
        record = attempt(sink, number)
        assert ledger.commit(record)
        ledger.deliver(record)
    ledger.close()
    first, _, third = (tmp_path / "ledger").read_bytes().splitlines()
    (tmp_path / "ledger").write_bytes(b"\n".join([first, b'{"batch": 1, "x', third]) + b"\n")
    with pytest.raises(IncompatibleStateError, match=rf"Line 2 of {tmp_path / 'ledger'} is damaged .*: put the file back"):
        list(Ledger(tmp_path / "ledger", "main", [sink]).records())
