"""Histograms and births against numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.histogram import Histogram
from penstock.runtime.lineage import NONE
from penstock.runtime.tally import Births, ElementTally

VALUES = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=200)


@given(VALUES, st.floats(0.01, 1))
def test_quantiles_are_within_one_per_cent(values, probability):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = float(np.quantile(values, probability, method="inverted_cdf"))
    assert histogram.quantile(probability) == pytest.approx(exact, rel=0.0101)
    assert histogram.mean == pytest.approx(np.mean(values))
    assert histogram.greatest == max(values)


@given(VALUES, VALUES)
def test_merging_is_adding_all(first, second):
    apart, together = Histogram(), Histogram()
    other = Histogram()
    for value in first:
        apart.add(value)
        together.add(value)
    for value in second:
        other.add(value)
        together.add(value)
    apart.merge(other)
    assert apart.counts == together.counts
    assert apart.total == pytest.approx(together.total)


def test_an_empty_histogram_has_no_quantiles():
    assert Histogram().summary() == {"p50": None, "p95": None, "p99": None, "max": None}


@given(st.lists(st.integers(10**15, 10**15 + 10**9), min_size=1, max_size=300))
def test_latency_is_right_to_the_width_of_a_bin(born):
    committed = 10**15 + 2 * 10**9
    births = Births.of(np.array([*born, NONE], np.int64))
    latencies = births.latencies_ms(committed)
    assert latencies.count == births.count == len(born)
    exact = np.quantile((committed - np.array(born)) / 1e3, 0.5, method="inverted_cdf")
    assert latencies.quantile(0.5) == pytest.approx(exact, rel=0.02)
    assert latencies.mean == pytest.approx((committed - np.mean(born)) / 1e3, abs=births.width_us / 1e3)


def test_a_timed_loop_hands_out_every_item_and_samples_some():
    tally = ElementTally()
    assert list(tally.timed(range(1000))) == list(range(1000))
    assert tally.events == 1000
    assert tally.service_us.count == 16
    assert tally.busy_us > 0
