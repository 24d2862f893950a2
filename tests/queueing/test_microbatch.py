"""Micro-batch servers: the embedded chain against simulation, and against arithmetic where that is enough."""

import math

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.queueing import LingerBatch, LogNormal, MicroBatchServer, NotSolvableError, Recorded, simulate, solve, with_scv


@st.composite
def micro_batch_servers(draw):
    rate = draw(st.floats(2, 200))
    fixed = draw(st.floats(0.02, 0.5))
    per_row = draw(st.floats(0, 0.5)) / rate
    gate = draw(st.sampled_from(["none", "threshold", "both", "interval"]))
    threshold = draw(st.integers(2, 60)) if gate in ("threshold", "both") else 1
    delay = draw(st.floats(0.05, 2)) if gate == "both" else math.inf
    interval = draw(st.floats(0.05, 1)) if gate == "interval" else 0.0
    poll = draw(st.sampled_from([0.0, 0.01])) if gate != "interval" else 0.0
    cap = draw(st.sampled_from([math.inf, 1.6, 3.0]))
    if math.isfinite(cap):
        cap = max(threshold, math.ceil(cap * rate * (fixed + interval) + 5))
    residual = with_scv(1.0, draw(st.sampled_from([0.0, 0.05, 1.0])))
    keys = draw(st.sampled_from([0, 5, 1000]))
    server = MicroBatchServer(
        rate,
        threshold=threshold,
        delay=delay,
        cap=cap,
        trigger_interval=interval,
        poll=poll,
        fixed=fixed,
        per_row=per_row,
        per_key=0.1 / rate if keys else 0.0,
        keys=keys,
        residual=residual,
    )
    assume(server.arrival_rate < 0.75 * server.max_arrival_rate)
    assume((server.arrival_rate * per_row) ** 2 * (1 + residual.scv) < 0.4)
    return server


@pytest.mark.slow
@settings(max_examples=15, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # shrinking takes minutes
@given(micro_batch_servers(), st.integers(0, 10**6))
def test_the_embedded_chain_lies_within_the_simulations_interval(server, seed):
    state, run = solve(server), simulate(server, jobs=400_000, seed=seed)

    def agree(number, estimate, least=2e-3):
        assert abs(number - estimate.value) <= 4 * estimate.half_width + least * estimate.value

    agree(state.mean_latency, run.mean_latency)
    agree(state.rows_per_batch, run.rows_per_batch)
    agree(state.batches_per_second, run.batches_per_second)
    agree(state.busy_fraction, run.busy_fraction)
    if state.size_probabilities[state.sizes > server.cap].sum() < 1e-7:
        for p in (0.5, 0.95, 0.99):
            agree(state.quantile(p), run.quantile(p), 5e-3)


@pytest.mark.parametrize("interval", [1.0, 2.0, 5.0])
def test_a_trigger_interval_gives_half_of_it_and_the_batch(interval):
    # Measured on Spark at 5,000 rows/s and batches of 0.20 s: 0.704, 1.19 and 2.71 s.
    state = solve(MicroBatchServer(5000, trigger_interval=interval, fixed=0.2))
    assert state.mean_latency == pytest.approx(interval / 2 + 0.2, rel=1e-9)
    assert state.batches_per_second == pytest.approx(1 / interval, rel=1e-9)
    assert state.quantile(0.95) == pytest.approx(0.95 * interval + 0.2, rel=1e-6)


def test_back_to_back_batches_last_one_and_a_half_times():
    state = solve(MicroBatchServer(200_000, fixed=0.2))
    assert state.mean_latency == pytest.approx(0.3, rel=1e-4)
    assert state.busy_fraction == pytest.approx(1.0, abs=1e-6)
    assert not state.exact


@pytest.mark.slow
def test_hundreds_of_thousands_of_rows_per_batch_are_solved_in_bins():
    server = MicroBatchServer(200_000, threshold=300_000, delay=3.0, fixed=0.3, per_row=2e-6, residual=LogNormal(1.0, 0.01))
    state, run = solve(server), simulate(server, jobs=20_000_000, seed=1)
    assert abs(state.mean_latency - run.mean_latency.value) < 4 * run.mean_latency.half_width
    assert abs(state.rows_per_batch - run.rows_per_batch.value) < 4 * run.rows_per_batch.half_width + 1e-5 * 3e5


def test_spark_waits_for_the_threshold_or_the_delay_whichever_is_first():
    slow = solve(MicroBatchServer(1.0, threshold=1000, delay=10.0, fixed=0.1))
    assert slow.rows_per_batch == pytest.approx(10.0, rel=1e-3)  # the delay, counted from the last trigger
    fast = solve(MicroBatchServer(1000.0, threshold=1000, delay=10.0, fixed=0.1))
    assert fast.rows_per_batch == pytest.approx(1000, rel=1e-6)


def test_polling_adds_half_a_poll_to_every_wait():
    plain = solve(MicroBatchServer(50.0, threshold=30, fixed=0.2))
    polled = MicroBatchServer(50.0, threshold=30, fixed=0.2, poll=0.04)
    run = simulate(polled, jobs=400_000, seed=1)
    assert run.rows_per_batch.value > plain.rows_per_batch + 0.9
    assert run.mean_latency.covers(solve(polled).mean_latency, 4)


def test_what_has_no_solution_is_refused_in_words():
    with pytest.raises(NotSolvableError, match="use simulate"):
        solve(MicroBatchServer(10.0, threshold=5, trigger_interval=1.0, fixed=0.1))
    capped = solve(MicroBatchServer(10.0, cap=12, fixed=1.0))
    with pytest.raises(NotSolvableError, match="cap lets a batch take"):
        capped.quantile(0.9)
    with pytest.raises(ConfigurationError, match="p is 99"):
        solve(MicroBatchServer(10.0, fixed=0.1)).quantile(99)


def test_recorded_arrivals_drive_the_gate():
    # 10 rows at once every second, batches of 0.25 s: each row waits for its batch alone.
    gaps = np.tile(np.append(1.0, np.zeros(9)), 2000)
    run = simulate(MicroBatchServer(10.0, fixed=0.25), jobs=20_000, interarrival=Recorded(gaps))
    assert run.latencies == pytest.approx(0.25)
    assert run.rows_per_batch.value == 10.0
    assert run.rows_per_batch.half_width == 0.0


def test_expected_distinct_keys_are_those_of_throwing_balls_into_boxes():
    server = MicroBatchServer(1.0, per_key=0.1, keys=10)
    random = np.random.default_rng(0)
    thrown = np.mean([len(set(random.integers(0, 10, 12))) for _ in range(20_000)])
    assert server.distinct_keys(np.array([12.0]))[0] == pytest.approx(thrown, rel=0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.floats(0.001, 0.3), st.integers(0, 10**6))
def test_a_linger_batch_agrees_with_its_simulation(size, linger, seed):
    batch = LingerBatch(100.0, size, linger)
    gaps = np.random.default_rng(seed).exponential(0.01, (8000, size)).cumsum(axis=1)
    waits = []
    for later in gaps:
        full = later[size - 2] if size > 1 else 0.0
        end = min(linger, full)
        arrived = np.append(0.0, later[: size - 1])
        waits.append(end - arrived[arrived <= end])
    waits = np.concatenate(waits)
    assert batch.mean_batch == pytest.approx(len(waits) / 8000, rel=0.03)
    assert batch.mean_wait == pytest.approx(waits.mean(), rel=0.05, abs=1e-12)
    for p in (0.3, 0.9):
        at = batch.quantile(p)
        assert (waits <= at + 1e-9).mean() >= p - 0.02
        assert (waits < at - 1e-9).mean() <= p + 0.02


@pytest.mark.slow
def test_a_long_tailed_residual_agrees_with_exact_moments():
    # Always busy: n' = Poisson(lambda (a + b n) R), so that both moments are known.
    rate, fixed, per_row, residual = 432.413, 0.191425, 0.000999035, LogNormal(1.0, 2.0)
    mean = rate * fixed / (1 - rate * per_row)
    second = rate**2 * 3 * (fixed**2 + 2 * fixed * per_row * mean) + mean
    second /= 1 - rate**2 * per_row**2 * 3
    exact = (second - mean) / rate**2 / (2 * mean / rate) + (fixed * mean + per_row * second) / mean
    state = solve(MicroBatchServer(rate, fixed=fixed, per_row=per_row, residual=residual))
    assert state.mean_latency == pytest.approx(exact, rel=0.03)
    assert state.rows_per_batch == pytest.approx(mean, rel=0.01)


def test_an_infinite_mean_latency_is_said_to_be_one():
    with pytest.raises(NotSolvableError, match="mean latency is infinite"):
        solve(MicroBatchServer(100.0, fixed=0.1, per_row=0.008, residual=LogNormal(1.0, 2.0)))


def test_batches_that_outlast_their_interval_count_for_the_capacity():
    assert MicroBatchServer(1.0, cap=100, trigger_interval=1, fixed=0.5).max_arrival_rate == 100
    assert MicroBatchServer(1.0, cap=100, trigger_interval=1, fixed=2.0).max_arrival_rate == pytest.approx(50)
    random = MicroBatchServer(1.0, cap=100, trigger_interval=1, fixed=0.99, residual=with_scv(1.0, 1.0))
    assert random.max_arrival_rate == pytest.approx(79.2, rel=0.01)


def test_too_few_batches_for_an_interval_are_refused():
    with pytest.raises(ConfigurationError, match="simulate more jobs"):
        simulate(MicroBatchServer(1e5, fixed=1.0), jobs=1_000_000)


@pytest.mark.parametrize(("load", "tolerance"), [(0.5, 1e-6), (0.9, 1e-5), (0.99, 5e-4)])
def test_near_saturation_a_cap_of_one_is_the_md1_queue(load, tolerance):
    state = MicroBatchServer(arrival_rate=10 * load, cap=1, fixed=0.1).solve()
    assert state.mean_latency == pytest.approx(0.1 * (1 + load / (2 * (1 - load))), rel=tolerance)


@pytest.mark.parametrize(
    ("scv", "load", "is_solved"),
    [(1, 0.5, True), (2, 0.4, True)]
    + [
        pytest.param(*each, marks=pytest.mark.slow)
        for each in ((1, 0.6, True), (5, 0.3, True), (1, 0.671, False), (5, 0.365, False))
    ],
)
def test_batches_that_vary_much_have_the_mean_of_their_moments_or_none(scv, load, is_solved):
    """Without a cap a batch has the rows that came in the one before: their moments follow from each other."""
    fixed, per_row = 0.5, 1e-3
    rate, second = load / per_row, 1 + scv
    mean = fixed / (1 - load)
    square = second * (fixed**2 + 2 * fixed * load * mean + per_row * load * mean) / (1 - second * load**2)
    rows, rows_square = rate * mean, rate * mean + rate**2 * square
    latency = square / (2 * mean) + (fixed * rows + per_row * rows_square) / rows
    server = MicroBatchServer(arrival_rate=rate, fixed=fixed, per_row=per_row, residual=with_scv(1.0, scv))
    if not is_solved:
        with pytest.raises(NotSolvableError, match=r"so near to what it can bear.*use simulate\(\)"):
            server.solve()
    else:
        assert server.solve().mean_latency == pytest.approx(latency, rel=0.008)


@pytest.mark.parametrize(
    ("rate", "fixed", "poll"), [(10, 0.02, 0.3), (20, 0.01, 0.3), (3, 0.05, 0.3), (500, 0.002, 0.01), (100, 0.2, 0.01)]
)
def test_rows_that_come_between_two_looks_come_evenly(rate, fixed, poll):
    server = MicroBatchServer(rate, fixed=fixed, poll=poll)
    solved, run = solve(server), simulate(server, jobs=200_000, seed=1)
    assert solved.mean_latency == pytest.approx(run.mean_latency.value, abs=3 * run.mean_latency.half_width)
    assert solved.rows_per_batch == pytest.approx(run.rows_per_batch.value, abs=3 * run.rows_per_batch.half_width)
    assert solved.quantile(0.95) == pytest.approx(run.quantile(0.95).value, rel=0.01)
