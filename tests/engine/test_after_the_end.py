"""What comes after a last micro-batch that was planned, or committed, and not completed: it is in time, or it stays queued."""

from datetime import UTC, datetime

import pytest
from conftest import APPS  # noqa: F401 - the fixtures are there
from test_ending import best, told, told_best, windows, write

from penstock.engine.running.ending import first_end
from penstock.errors import ConfigurationError, PenstockError

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def options(tmp_path, **more):
    return {"sources": {"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1"}, **more}


def rolled_back(directory, monkeypatch):
    """Stop a run within its last micro-batch, before the ledger has it."""
    from penstock.engine.running.ledger import Ledger

    real = Ledger.commit

    def stops(self, record):
        if first_end(directory / "checkpoint" / self.group) == record.batch:
            raise OSError("the machine stops here")
        return real(self, record)

    monkeypatch.setattr(Ledger, "commit", stops)


@pytest.mark.slow
@pytest.mark.parametrize("then", [True, "pause"])
def test_an_end_that_was_not_committed_makes_nothing_late(run_app, tmp_path, monkeypatch, then):
    bids = write(tmp_path / "in", range(2))
    rolled_back(tmp_path / "runs" / "ending", monkeypatch)
    with pytest.raises(PenstockError, match="the machine stops here"):
        run_app("ending", **options(tmp_path))
    monkeypatch.undo()
    bids += write(tmp_path / "in", range(2, 4), seed=2)
    result = run_app("ending", **options(tmp_path, until_idle=then))
    assert result.report["counts"]["late"] == result.report["counts"]["dead_lettered"] == 0
    if then == "pause":
        result = run_app("ending", **options(tmp_path))
    assert told(result) == windows(bids)
    assert told_best(result) == best(bids)


@pytest.mark.slow
def test_an_end_that_was_committed_is_delivered_and_what_comes_after_stays_queued(run_app, tmp_path, monkeypatch):
    """As where the sink is away in the last micro-batch: the next start delivers it, and reads nothing more."""
    from penstock.connectors.tables.sqlite import Sqlite

    bids = write(tmp_path / "in", range(2))
    sinks = {"Out": f"sqlite:{tmp_path / 'out.sqlite'}"}
    real = Sqlite.load

    def away(self, *given):
        if first_end(tmp_path / "runs" / "ending" / "checkpoint" / "main") is not None:
            raise OSError("the database is away")
        real(self, *given)

    monkeypatch.setattr(Sqlite, "load", away)
    with pytest.raises(PenstockError, match="the database is away"):
        run_app("ending", **options(tmp_path, sinks=sinks))
    monkeypatch.undo()
    more = write(tmp_path / "in", range(2, 4), seed=2)
    result = run_app("ending", **options(tmp_path, sinks=sinks))
    assert told(result) == windows(bids)
    counts = result.report["counts"]
    assert (counts["queued"], counts["dead_lettered"], counts["late"], counts["lost"]) == (len(more), 0, 0, 0)
    with pytest.raises(ConfigurationError, match="has ended"):
        run_app("ending", **options(tmp_path, sinks=sinks))
