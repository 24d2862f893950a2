"""The allocation paper's model takes what the planner has fitted."""

import pytest
from planner.queries import progress, written

from penstock.allocation import allocate
from penstock.planner import calibrate, observe
from penstock.planner.parameters import stream_graph


def test_a_recording_gives_the_papers_graph(tmp_path):
    one, _ = progress(trigger=1, rate=1000, seed=1)
    two, _ = progress(trigger=4, rate=1500, seed=2, seconds=200)
    calibration = calibrate(observe(written(tmp_path / "a", one), written(tmp_path / "b", two)))
    assert allocate(stream_graph(calibration), resources=1).cost == pytest.approx(0.6, rel=0.2)
