"""A driver that is paused at some step of a commit, followed by another, and woken: each event is delivered once."""

import pytest

from penstock.connectors.files.sink import DirectorySink
from penstock.engine.running.ledger import Ledger, clear_staging, staged_below
from penstock.errors import RunLockedError
from penstock.runs.batches import BatchRecord, records_in
from penstock.runtime.output import FileOutput, SinkFiles
from penstock.runtime.tally import Tally
from penstock.storage import durable, journal
from penstock.storage.place import path_of


def attempt(sinks, batch, text):
    """One try at a batch that writes a line to each sink."""
    output = FileOutput([sink.files for sink in sinks], "0-00000")
    for sink in sinks:
        output.write_lines(sink.files.name, [text])
    return BatchRecord.of(batch, 1_000_000, [Tally(stage=0, partition=0, files=output.close())], "offsets")


def visible(directory):
    names = sorted(name for name in durable.names(directory) if name.endswith(".jsonl"))
    return [line for name in names for line in durable.read(directory / name).splitlines()]


def commit(ledger, record):
    """Commit a batch and deliver it, as a run does."""
    new = ledger.commit(record)
    if new:
        ledger.deliver(record)
    return new


@pytest.mark.parametrize("step", ["before the line", "after the line", "between the sinks"])
def test_a_commit_that_is_paused_is_made_once(places, step, monkeypatch):
    def bound():
        sinks = [DirectorySink(SinkFiles(name, "jsonl", str(places / name))) for name in ("one", "two")]
        for sink in sinks:
            sink.claim("run", ())
        return sinks

    sinks, followers = bound(), []
    ledger = Ledger(places / "ledger", "main", sinks)
    commit(ledger, attempt(sinks, 0, b"zero"))
    record = attempt(sinks, 1, b"one, by the first")

    def follow():
        monkeypatch.undo()
        others = bound()
        follower = Ledger(places / "ledger", "main", others)
        follower.deliver_last()
        clear_staging(staged_below(path_of(sink.files.directory) for sink in others))
        if follower.last == 0:
            commit(follower, attempt(others, 1, b"one, by the second"))
        commit(follower, attempt(others, 2, b"two"))
        followers.append(follower)

    kinds = {"before the line": (journal.Journal, "append"), "after the line": (Ledger, "deliver")}
    owner, name = kinds.get(step, (DirectorySink, "deliver"))
    owner = type(ledger._journal) if owner is journal.Journal else owner
    real, calls = getattr(owner, name), []

    def paused(*given, **named):
        calls.append(None)
        if len(calls) == (2 if step == "between the sinks" else 1):
            follow()
        return real(*given, **named)

    monkeypatch.setattr(owner, name, paused)
    if step == "before the line":
        with pytest.raises(RunLockedError):
            commit(ledger, record)
        made = b"one, by the second"
    else:
        assert commit(ledger, record)  # it was committed, and its follower has delivered it
        made = b"one, by the first"
    with pytest.raises(RunLockedError):
        commit(ledger, attempt(sinks, 2, b"two, by the first"))
    assert visible(places / "one") == visible(places / "two") == [b"zero", made, b"two"]
    assert [one.batch for one in records_in(places / "ledger")] == [0, 1, 2]
    followers[0].close()


def test_a_driver_that_is_paused_before_it_clears_leaves_what_another_has_staged(places):
    """What it clears was listed before it took the ledger over; the other has taken it over since."""
    sinks = [DirectorySink(SinkFiles("one", "jsonl", str(places / "one")))]
    sinks[0].claim("run", ())
    attempt(sinks, 0, b"of a crash")
    listed = staged_below([places / "one"])
    assert len(listed) == 1
    Ledger(places / "ledger", "main", sinks)
    follower = Ledger(places / "ledger", "main", sinks)
    record = attempt(sinks, 0, b"zero")
    assert follower.commit(record)
    clear_staging(listed)
    follower.deliver(record)
    assert visible(places / "one") == [b"zero"]
