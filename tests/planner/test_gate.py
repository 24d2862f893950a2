"""The planner's gate, batch by batch, against the library's row-by-row simulation and against closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.arrivals import Flow
from penstock.planner.gate import Gate, Work, pass_gate
from penstock.queueing import MicroBatchServer, simulate


def poisson(rate, horizon, seed=0):
    times = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, int(rate * horizon * 1.1)))
    return Flow(np.append(0.0, times), np.arange(len(times) + 1.0))


def steady(lasting, planning, closing):
    return Work(lasting, planning=planning, closing=np.full(1, closing))


@pytest.mark.parametrize(
    "gate",
    [
        Gate(),
        Gate(trigger=0.5),
        Gate(trigger=1.0),
        Gate(min_rows=400, max_delay=2.0),
        Gate(trigger=0.3, max_rows=200),
        Gate(max_rows=150),
        Gate(min_rows=50, max_delay=math.inf),
    ],
)
def test_it_agrees_with_the_row_by_row_simulation(gate):
    rate, fixed, per_row = 300.0, 0.2, 0.0008
    server = MicroBatchServer(
        rate,
        threshold=gate.min_rows,
        delay=gate.max_delay,
        cap=gate.max_rows,
        trigger_interval=gate.trigger,
        poll=0.0 if gate.trigger else 0.01,
        fixed=fixed,
        per_row=per_row,
    )
    reference = simulate(server, jobs=300_000, seed=1)
    flow = poisson(rate, 1000)
    passage = pass_gate(flow, gate, Work(fixed, per_row), until=1000.0)
    _, latencies = passage.latencies(flow, 100.0, 950.0)
    assert latencies.mean() == pytest.approx(reference.mean_latency.value, rel=0.02)
    assert np.quantile(latencies, 0.95) == pytest.approx(reference.quantile(0.95).value, rel=0.03)
    assert passage.rows.mean() == pytest.approx(reference.rows_per_batch.value, rel=0.02)


def test_a_trigger_that_is_never_overrun_waits_half_of_it():
    flow = poisson(500, 500)
    passage = pass_gate(flow, Gate(trigger=2.0), steady(0.4, 0.02, 0.1), until=500.0)
    _, latencies = passage.latencies(flow, 20.0, 480.0)
    assert latencies.mean() == pytest.approx(1.0 + 0.3 - 0.02, rel=0.01)  # rows are taken 0.02 s after the start
    assert latencies.max() <= 2.0 + 0.3


def test_the_delay_counts_from_the_last_opening_and_lets_one_row_through():
    flow = Flow(np.array([0.0, 1.0, 1.0, 2.5, 2.5, 9.0]), np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0]))
    passage = pass_gate(flow, Gate(min_rows=100, max_delay=3.0), Work(0.5), until=9.0)
    assert passage.rows.tolist() == [2.0]  # the delay that ended without a row began again, as Spark's does
    assert passage.started[0] == pytest.approx(3.0, abs=0.02)


@given(
    rows=st.lists(st.integers(0, 50), min_size=5, max_size=60),
    trigger=st.sampled_from([0.0, 0.7, 2.0]),
    least=st.integers(1, 40),
    most=st.integers(40, 90),
    lasting=st.floats(0.01, 3.0),
)
def test_rows_are_taken_once_in_order_and_never_before_they_are_there(rows, trigger, least, most, lasting):
    flow = Flow(np.arange(len(rows) + 1.0), np.append(0.0, np.cumsum(rows)))
    gate = Gate(trigger=trigger, min_rows=least, max_delay=5.0, max_rows=most)
    passage = pass_gate(flow, gate, steady(lasting, 0.001, 0.1 * lasting), until=len(rows) + 50.0)
    assert (np.diff(passage.started) >= lasting - 1e-9).all()
    assert (passage.rows <= most).all()
    assert all(taken <= flow.count(at) + 1e-6 for taken, at in zip(passage.taken, passage.admitted, strict=True))
    assert passage.taken[-1] if sum(rows) else not len(passage.taken)
    if len(passage.taken):
        assert sum(rows) - passage.taken[-1] < 1  # the delay lets the last ones through
        _, latencies = passage.latencies(flow)
        assert (latencies > -1e-9).all()


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 9)), min_size=1, max_size=30))
def test_a_flow_counts_and_finds_the_same(steps):
    times = np.append(0.0, np.cumsum([width for width, _ in steps]))
    counts = np.append(0.0, np.cumsum([float(rows) for _, rows in steps]))
    flow = Flow(times, counts)
    for count in np.linspace(0.5, counts[-1], 7) if counts[-1] else []:
        assert flow.count(flow.when(count) + 1e-9) >= count - 1e-6
    assert flow.when(counts[-1] + 1) == math.inf


@pytest.mark.parametrize(("stop", "lasting"), [(22.0, 0.3), (28.0, 1.3), (30.1, 3.3)])
def test_a_stop_that_is_over_costs_nothing(stop, lasting):
    """Three seconds, of which the micro-batch at 30 s meets none, one or all."""
    work = Work(0.3, stops=np.array([stop]), stands=np.array([3.0]))
    flow = Flow(np.array([0.0, 25.0, 25.0, 29.0]), np.array([0.0, 0.0, 5.0, 5.0]))
    passage = pass_gate(flow, Gate(trigger=10.0), work, until=40.0)
    assert (passage.ended - passage.started).tolist() == pytest.approx([lasting])
