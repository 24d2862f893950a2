"""Plots: they show themselves in a notebook, the same each time, and say what the models say."""

from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.planner import Target, observe, tune
from penstock.queueing import MicroBatchServer, StreamServer, solve

RECORDINGS = sorted((Path(__file__).parents[2] / "examples/recordings").glob("digests-*.jsonl"))


@pytest.mark.parametrize("server", [StreamServer(750, 1000, 10, 5), MicroBatchServer(1000, trigger_interval=1, fixed=0.2)])
def test_a_solution_draws_its_distribution(server):
    solution = solve(server)
    drawn = solution.plot()._repr_svg_()
    assert drawn.startswith("<svg")
    assert drawn == solution.plot()._repr_svg_()
    for p in (0.5, 0.95, 0.99):
        assert f"{solution.quantile(p):.3g} s" in drawn


def test_a_recording_with_a_gap_is_drawn_and_one_that_says_nothing_is_a_sentence(tmp_path):
    lines = RECORDINGS[0].read_text().splitlines(keepends=True)
    (tmp_path / "gap.jsonl").write_text("".join(lines[:20] + lines[22:]))
    assert observe(tmp_path / "gap.jsonl").plot()._repr_svg_().startswith("<svg")
    (tmp_path / "short.jsonl").write_text("".join(lines[:3]))
    with pytest.raises(ConfigurationError, match="no curve to draw"):
        tune(observe(tmp_path / "short.jsonl"), Target("p95", 5.0)).plot()


def test_a_recording_draws_its_micro_batches_and_an_answer_its_curve():
    observation = observe(*RECORDINGS)
    drawn = observation.plot()._repr_svg_()
    assert "rows per second" in drawn
    assert f"{observation.queries[0].latency()['p95']:.2f} s" in observation._repr_html_()
    assert "target 5 s" in tune(observation, Target("p95", 5.0)).plot()._repr_svg_()
