"""A clock that is set back: a source that goes by it waits, and neither repeats an event nor takes itself for another."""

import time
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors import generator, replay
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_source
from penstock.errors import SourceError


class Ticked(Event):
    n: int
    t: float


@pytest.fixture(
    params=[
        "generator:constant?rate=10",
        "generator:poisson?rate=10",
        "generator:bursty?rate=10",
        "generator:constant?rate=10&count=50",
        "generator:recorded?times={}/times.txt",
        "replay:{}/r.parquet?time=t",
    ]
)
def bound(request, tmp_path):
    pq.write_table(pa.table({"n": list(range(100)), "t": [float(n) for n in range(100)]}), tmp_path / "r.parquet")
    (tmp_path / "times.txt").write_text("\n".join(map(str, range(100))))
    source = Source("Ticks", Ticked, uri=request.param.format(tmp_path), sample=lambda n: Ticked(n, 0.0))
    return bind_source(source, None, SourceContext())


@pytest.mark.parametrize("back", [5, 100])
def test_a_source_by_the_clock_waits(bound, monkeypatch, back):
    started = time.time() - 20
    done = bound.waiting(started, 0)
    assert done > 0
    real = time.time
    for module in (generator, replay):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: real() - back))
    assert bound.waiting(started, done) == 0
    for module in (generator, replay):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: real() + 5))
    assert bound.waiting(started, done) >= 0


def test_what_has_fewer_events_than_were_read_is_still_refused(bound):
    if bound.sequence.last() in (None, 2**63 - 1):
        return
    with pytest.raises(SourceError, match="is not the one that this run began"):
        bound.waiting(time.time() - 20, bound.sequence.last() + 1)
