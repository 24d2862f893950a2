"""Whatever is given wrongly is answered by one sentence of our own, never by a library's traceback."""

import math

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.queueing import (
    Empirical,
    Exponential,
    LingerBatch,
    MicroBatchServer,
    Network,
    Recorded,
    StreamServer,
    optimize,
    simulate,
    solve,
)

SERVER = StreamServer(0.5, 1, 3, 1)
NODE = {"a": StreamServer(1, 2, 1, 0)}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: simulate(SERVER, jobs=2000, seed=-1),
        lambda: simulate(SERVER, jobs=2000, seed="x"),
        lambda: simulate(SERVER, jobs=2000, service="x"),
        lambda: simulate(SERVER, jobs=2000, interarrival=np.ones(3)),
        lambda: simulate(SERVER, jobs=2000, timer=Exponential(7)),
        lambda: StreamServer(1e-320, 1, 2, 1),
        lambda: StreamServer(1, 1e302, 2, 1),
        lambda: solve(SERVER, "chain", truncation="x"),
        lambda: solve(SERVER, "iterative", truncation=math.nan),
        lambda: solve(SERVER, "spectral", digits=True),
        lambda: solve(SERVER, np.array(["auto"])),
        lambda: solve(SERVER, tolerance=0),
        lambda: solve(SERVER).response_time.survival("x"),
        lambda: solve(SERVER).response_time.quantile(1e-6),
        lambda: solve(SERVER).cost(None, 1),
        lambda: optimize(SERVER, 0, 1),
        lambda: optimize(SERVER, 1, 1, max_quantile=True),
        lambda: optimize(SERVER, 1, 1, batch_sizes=5),
        lambda: LingerBatch(1, 2, 1).quantile(None),
        lambda: LingerBatch(1, 2, math.nan),
        lambda: Empirical("x"),
        lambda: Recorded.from_times(None),
        lambda: MicroBatchServer(1, fixed=1, residual=5),
        lambda: solve(MicroBatchServer(1, fixed=1)).cost(math.nan, 1),
        lambda: Network({"a": "x"}, {}, {"a": 1}),
        lambda: Network({}, {}, {}),
        lambda: Network(NODE, {}, {"a": math.nan}),
        lambda: Network(NODE, {}, {"a": 1}).solve("magic"),
        lambda: Network(NODE, {}, {"a": 1}).simulate(jobs=0),
        lambda: Network(NODE, {}, {"a": 1}).simulate(interarrival={"zz": Exponential(1)}),
        lambda: Network(NODE, {}, {"a": 1}).simulate(interarrival={"a": Exponential(3)}),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(wrong):
    with pytest.raises(PenstockError) as caught:
        wrong()
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_numbers_of_numpy_are_numbers():
    server = StreamServer(np.float64(0.5), np.int64(1), np.int64(3), np.float32(1))
    assert solve(server).mean_jobs == pytest.approx(solve(SERVER).mean_jobs)


@pytest.mark.parametrize("timer", ["idle", "always"])
def test_rates_beyond_all_bounds_are_infinite(timer):
    fast = solve(StreamServer(0.5, 1, math.inf, 1e300, timer=timer))
    assert fast.mean_jobs == pytest.approx(1.0)


def test_survival_at_the_ends_is_one_and_nothing():
    response = solve(StreamServer(0.75, 1, 10, 0.5, 2)).response_time
    assert response.survival(0) == 1
    assert response.survival(math.inf) == 0
    assert 0 <= response.survival(1e6) <= 1e-6
