"""Arrivals are taken for what they are, and made again like it at another rate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner.queries import BEGAN, tell, written

from penstock.planner import observe
from penstock.planner.arrivals import arrivals_of
from penstock.queueing.distribution import HyperExponential


def windows(times, width=1.0):
    edges = np.arange(0, times[-1], width)
    return np.diff(edges), np.histogram(times, edges)[0].astype(float)


def two_rates(random, seconds=320):
    cells = np.arange(0, seconds, 0.1)
    counts = random.poisson(np.where((cells // 8) % 2, 150.0, 50.0))
    return np.repeat(cells, counts) + random.random(int(counts.sum())) * 0.1


@pytest.mark.parametrize("kind", ["poisson", "regular", "bursty", "recorded"])
def test_arrivals_are_told_apart(kind):
    random = np.random.default_rng(4)
    times = {
        "poisson": lambda: np.cumsum(random.exponential(1e-3, 200_000)),
        "regular": lambda: np.arange(200_000) * 1e-3,
        "bursty": lambda: np.cumsum(HyperExponential(1e-3, 10.0).sample(random, 200_000)),
        "recorded": lambda: np.sort(two_rates(random)),
    }[kind]()
    model = arrivals_of([windows(times)])
    assert model.kind == kind
    assert abs(model.rate - 1000) < 5 * model.error + 1


@given(rate=st.floats(50, 5000), kind=st.sampled_from([None, "poisson", 0.0, 8.0]), seed=st.integers(0, 50))
def test_a_flow_has_the_rate_that_is_asked_for(rate, kind, seed):
    random = np.random.default_rng(seed)
    model = arrivals_of([windows(np.sort(two_rates(random)))])
    flow = model.flow(rate, 320.0, random, kind)
    scv = {None: 60.0, "poisson": 1.0}.get(kind, kind)
    assert flow.count(300.0) == pytest.approx(rate * 300, abs=6 * np.sqrt(max(scv, 0.1) * rate * 300) + rate * 8)


def test_what_was_recorded_comes_again_with_its_bursts():
    random = np.random.default_rng(1)
    model = arrivals_of([windows(np.sort(two_rates(random)))])
    flow = model.flow(3000.0, 320.0, random)
    per_second = np.diff([flow.count(float(second)) for second in range(320)])
    assert np.quantile(per_second, 0.9) / np.quantile(per_second, 0.1) == pytest.approx(3.0, rel=0.2)


def test_given_times_are_replayed_at_the_rate():
    random = np.random.default_rng(2)
    model = arrivals_of([windows(np.cumsum(random.exponential(1e-2, 20_000)))])
    flow = model.flow(10.0, 100.0, random, (0.0, 1.0, 1.1, 5.0))
    assert flow.count(90.0) == pytest.approx(900, abs=5)


def test_nothing_can_be_said_of_one_window():
    assert arrivals_of([(np.array([1.0]), np.array([5.0]))]) is None
    assert arrivals_of([(np.ones(20), np.zeros(20))]) is None


def pieces(period, rows, number, trigger_zero_s=0.01, seed=0):
    """Windows of a query that waits for pieces of rows, split where it last found nothing."""
    random = np.random.default_rng(seed)
    counts = random.poisson(rows, number).astype(float)
    widths = np.full(number, period) + random.normal(0.0, 0.002, number)
    parted = np.stack([widths - trigger_zero_s, np.full(number, trigger_zero_s)], axis=1).ravel()
    return (widths, counts), (parted, np.stack([np.zeros(number), counts], axis=1).ravel())


def landed(flow):
    """When many rows come at once, and how many, within the first 40 seconds."""
    jumps = (np.diff(flow.times) == 0) & (np.diff(flow.counts) > 0) & (flow.times[1:] < 40)
    return flow.times[1:][jumps], np.diff(flow.counts)[jumps]


def test_pieces_that_come_evenly_keep_their_phase_and_grow_with_the_rate():
    whole, parted = pieces(0.5, 250, 60)
    found = arrivals_of([whole], [parted])
    assert (found.kind, found.steady) == ("recorded", True)
    phases = []
    for seed in range(20):
        times, rows = landed(found.flow(2000.0, 60.0, np.random.default_rng(seed)))
        assert np.abs((times - times[0] + 0.25) % 0.5 - 0.25).max() < 0.02
        assert rows.mean() == pytest.approx(1000, rel=0.05)
        phases.append(times[0] % 0.5)
    assert np.ptp(phases) > 0.35  # of the grid of triggers nothing is known


def test_the_recording_that_shows_pieces_counts_whichever_it_is():
    whole, parted = pieces(0.5, 250, 60)
    coarse = (np.full(20, 2.0), np.full(20, 4000.0))
    found = arrivals_of([whole, coarse], [parted, coarse])
    assert found.kind == "recorded"
    assert found.rate == pytest.approx(2000)
    times, rows = landed(found.flow(2000.0, 60.0, np.random.default_rng(1)))
    assert len(times) == pytest.approx(80, abs=2)
    assert rows.mean() == pytest.approx(1000, rel=0.05)


def test_a_piece_that_came_while_a_micro_batch_ran_lands_at_once_too():
    whole, (widths, counts) = pieces(0.25, 100, 80)
    busy = np.arange(80) % 5 == 0  # no trigger found nothing before these
    merged = [pair for number, pair in enumerate(zip(widths.reshape(-1, 2), counts.reshape(-1, 2), strict=True))]
    parted_widths = np.concatenate([[pair[0].sum()] if busy[n] else pair[0] for n, pair in enumerate(merged)])
    parted_counts = np.concatenate([[pair[1].sum()] if busy[n] else pair[1] for n, pair in enumerate(merged)])
    found = arrivals_of([whole], [(parted_widths, parted_counts)])
    times, rows = landed(found.flow(400.0, 40.0, np.random.default_rng(2)))
    assert len(times) == pytest.approx(160, abs=3)
    assert rows.std() < 0.2 * rows.mean()


@pytest.mark.parametrize(("phase", "late", "trigger"), [(0.11, 0.0, 0.5), (0.0, 0.004, 0.5), (0.11, 0.01, 0.0)])
def test_starts_that_wait_for_rows_are_no_grid_of_triggers(tmp_path, phase, late, trigger):
    random = np.random.default_rng(3)
    told = []
    for number in range(60):
        start = number / 2 + phase + random.random() * late - BEGAN % 0.5
        ends = [np.array([250.0, 250.0]) * count for count in (number, number + 1, number + 1)]
        told.append(tell(start, number, 500, 0.2, ends, "query", "run", None))
    [series] = observe(written(tmp_path / "told", told)).queries[0].cold
    assert series.trigger() == trigger


def test_a_long_recording_of_a_source_that_is_nearly_round_has_no_trigger(tmp_path):
    random = np.random.default_rng(4)
    told = []
    for number in range(400):
        ends = [np.array([250.0, 250.0]) * count for count in (number, number + 1, number + 1)]
        told.append(tell(number * 10.03 + 3.3 + random.random() * 0.01, number, 500, 0.2, ends, "query", "run", None))
    [series] = observe(written(tmp_path / "told", told)).queries[0].cold
    assert series.trigger() == 0.0


def test_pieces_that_are_left_out_stay_left_out():
    random = np.random.default_rng(5)
    gaps = np.where(random.random(80) < 0.25, 2.0, 1.0)
    parted = np.stack([gaps - 0.01, np.full(80, 0.01)], axis=1).ravel()
    counts = np.stack([np.zeros(80), np.full(80, 1000.0)], axis=1).ravel()
    found = arrivals_of([(gaps, np.full(80, 1000.0))], [(parted, counts)])
    times, rows = landed(found.flow(found.rate, 60.0, np.random.default_rng(1)))
    assert rows.mean() == pytest.approx(1000, rel=0.05)
    assert np.sum(np.diff(times) > 1.5) > 3
