"""The papers' models take what the planner has fitted."""

import pytest
from planner.queries import progress, written

from penstock.allocation import allocate
from penstock.errors import ConfigurationError
from penstock.planner import Setting, calibrate, observe
from penstock.planner.parameters import stream_graph, stream_server


def test_a_recording_gives_the_papers_server(tmp_path):
    one, _ = progress(trigger=1, rate=1000, seed=1)
    two, _ = progress(trigger=4, rate=1500, seed=2, seconds=200)
    calibration = calibrate(observe(written(tmp_path / "a", one), written(tmp_path / "b", two)))
    server = stream_server(calibration, Setting(trigger=2, min_rows=3000, rate=1200))
    assert server.arrival_rate == 1200
    assert server.service_rate == pytest.approx(1 / 1e-4, rel=0.2)
    assert server.transfer_rate == pytest.approx(1 / 0.3, rel=0.1)
    assert (server.batch_size, server.timer_rate) == (3000, 0.5)
    assert allocate(stream_graph(calibration), resources=1).cost == pytest.approx(0.6, rel=0.2)


def test_what_cannot_be_told_apart_is_no_server(tmp_path):
    told, _ = progress()
    with pytest.raises(ConfigurationError, match="record another trigger or rate"):
        stream_server(calibrate(observe(written(tmp_path / "a", told))))
