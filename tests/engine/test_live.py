"""The live line, on a screen that keeps what is written."""

import io
import sys

from penstock.connectors.lag import waiting_of
from penstock.engine.running.live import Live, Snapshot
from penstock.runs.batches import BatchRecord


class Screen(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, waiting):
    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "xterm")
    live = Live(quiet=False)
    live.say("Starting")
    live.batch(10, 0.5, BatchRecord(batch=3, committed_us=0))
    for some in waiting:
        live.waiting(some)
    live.show(Snapshot(10, 5, 0, {}))
    text = str(live._status.status)
    live.close()
    return text


def test_it_says_which_partition_lags_where_one_does(monkeypatch):
    first, then = {"Words": waiting_of({"0": 20, "3": 12_380})}, {"Other": waiting_of({"0": 5})}
    line = shown(monkeypatch, [first, then])
    assert line.endswith(" · waiting at Words: 12,400, of them 12,380 in partition 3; waiting at Other: 5")


def test_it_says_nothing_where_nothing_waits(monkeypatch):
    assert "waiting" not in shown(monkeypatch, [{"Words": waiting_of({"0": 7})}, {"Words": waiting_of({"0": 0})}])
