"""The ledger: a batch's files appear together, once, whatever the moment of a crash."""

import json
from pathlib import Path

import pytest

from penstock.connectors.files.sink import DirectorySink
from penstock.engine.running.ledger import Ledger, clear_staging, staged_below
from penstock.errors import SinkError
from penstock.runs.batches import BatchRecord
from penstock.runtime.output import STAGING, FileOutput, SinkFiles
from penstock.runtime.tally import Tally


@pytest.fixture
def sinks(tmp_path):
    return tuple(DirectorySink(SinkFiles(name, "jsonl", str(tmp_path / name))) for name in ("one", "two"))


def attempt(sinks, batch, text):
    """One try at a batch that writes a line to each sink."""
    output = FileOutput([sink.files for sink in sinks], "0-00000")
    for sink in sinks:
        output.write_lines(sink.files.name, [text])
    return BatchRecord.of(batch, 1_000_000, [Tally(stage=0, partition=0, files=output.close())], "offsets")


def visible(sinks):
    return [
        [line for path in sorted(Path(sink.files.directory).glob("*.jsonl")) for line in path.read_text().splitlines()]
        for sink in sinks
    ]


def committed(ledger, record):
    """Commit a batch and deliver it; whether it was new."""
    new = ledger.commit(record)
    if new:
        ledger.deliver(record)
    return new


def test_nothing_is_visible_before_the_commit(sinks, tmp_path):
    ledger = Ledger(tmp_path / "ledger", "main", sinks)
    record = attempt(sinks, 0, b"zero")
    assert visible(sinks) == [[], []]
    assert ledger.commit(record)
    assert visible(sinks) == [[], []]
    ledger.deliver(record)
    assert visible(sinks) == [["zero"], ["zero"]]


def test_a_replayed_batch_leaves_no_second_copy(sinks, tmp_path):
    ledger = Ledger(tmp_path / "ledger", "main", sinks)
    committed(ledger, attempt(sinks, 0, b"zero"))
    again = attempt(sinks, 0, b"again")
    assert not committed(ledger, again)
    assert visible(sinks) == [["zero"], ["zero"]]
    assert not any(Path(file.staged).exists() for file in again.files)


def test_a_crash_between_the_line_and_the_moves_is_mended(sinks, tmp_path):
    ledger = Ledger(tmp_path / "ledger", "main", sinks)
    committed(ledger, attempt(sinks, 0, b"zero"))
    assert ledger.commit(attempt(sinks, 1, b"one"))
    assert visible(sinks) == [["zero"], ["zero"]]
    resumed = Ledger(tmp_path / "ledger", "main", sinks)
    assert [resumed.owed(sink) for sink in sinks] == [0, 0]  # the last one is still staged
    resumed.deliver_last()
    clear_staging(staged_below(Path(sink.files.directory) for sink in sinks))
    assert [resumed.owed(sink) for sink in sinks] == [1, 1]
    assert resumed.last == 1
    assert visible(sinks) == [["zero", "one"], ["zero", "one"]]


def test_a_torn_line_was_never_committed(sinks, tmp_path):
    ledger = Ledger(tmp_path / "ledger", "main", sinks)
    committed(ledger, attempt(sinks, 0, b"zero"))
    ledger.close()
    attempt(sinks, 1, b"lost attempt")
    with (tmp_path / "ledger").open("ab") as file:
        file.write(b'{"batch":1,"committed_us":5,"fi')
    resumed = Ledger(tmp_path / "ledger", "main", sinks)
    clear_staging(staged_below(Path(sink.files.directory) for sink in sinks))
    assert resumed.last == 0
    assert list((Path(sinks[0].files.directory) / STAGING).iterdir()) == []
    assert committed(resumed, attempt(sinks, 1, b"one"))
    assert visible(sinks)[0] == ["zero", "one"]
    assert [record.batch for record in resumed.records()] == [0, 1]
    assert all(json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines())


def test_nothing_is_committed_after_a_batch_that_could_not_be_delivered(sinks, tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger", "main", sinks)
    record, deliver = attempt(sinks, 0, b"zero"), DirectorySink.deliver
    ledger.commit(record)

    def fail(*given):
        raise SinkError("The sink does not answer.")

    monkeypatch.setattr(
        sinks[1].__class__, "deliver", lambda sink, *given: (fail if sink is sinks[1] else deliver)(sink, *given)
    )
    with pytest.raises(SinkError, match="does not answer"):
        ledger.deliver(record)
    with pytest.raises(SinkError, match="could not be delivered, so no other is committed"):
        ledger.commit(attempt(sinks, 1, b"one"))
    monkeypatch.undo()
    assert not ledger.commit(attempt(sinks, 0, b"again"))
    ledger.deliver_owed()  # as where Spark repeats it
    assert committed(ledger, attempt(sinks, 1, b"one"))
    assert visible(sinks) == [["zero", "one"], ["zero", "one"]]
