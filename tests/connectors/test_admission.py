"""Admission and the schedules, without Spark."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import Admission
from penstock.connectors.schedule import ArrivalSchedule
from penstock.engine.query.compile import bucket_labels


def test_the_admission_waits_for_rows_or_time():
    admission = Admission(min_rows=10, max_delay=5.0, max_rows=25, last=100.0)
    assert admission.admit(0, 200.0) == 0
    assert admission.admit(9, 104.9) == 0
    assert admission.admit(9, 105.0) == 9
    assert admission.admit(9, 109.0) == 0
    assert admission.admit(10, 109.0) == 10
    assert admission.admit(60, 109.1) == 25


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 20), st.integers(1, 40))
def test_the_admission_loses_and_invents_nothing(arrivals, least, most):
    admission = Admission(min(least, most), 7.0, most, 0.0)
    waiting = admitted = 0
    for second, arrived in enumerate(arrivals):
        waiting += arrived
        taken = admission.admit(waiting, float(second))
        assert 0 <= taken <= min(waiting, most)
        waiting -= taken
        admitted += taken
    assert admitted + waiting == sum(arrivals)


@pytest.mark.parametrize(("scv", "tolerance"), [(0.0, 1e-9), (1.0, 0.05), (10.0, 0.5)])
def test_schedules_have_the_rate_and_variation_they_claim(scv, tolerance):
    gaps = np.diff(ArrivalSchedule(rate=500, scv=scv, seed=1).times(0, 400_000), prepend=0)
    assert gaps.mean() == pytest.approx(1 / 500, rel=0.03)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(scv, abs=tolerance)


@given(st.integers(0, 3), st.integers(1, 20_000), st.integers(0, 20_000))
def test_what_is_due_agrees_with_the_times(seed, count, start):
    schedule = ArrivalSchedule(rate=100, scv=1.0, seed=seed, count=count)
    end = min(count, start + 50)
    for number, time in zip(range(start, end), schedule.times(start, end) if start < end else (), strict=True):
        assert ArrivalSchedule(rate=100, scv=1.0, seed=seed, count=count).due(float(time)) == number + 1
    assert schedule.due(1e9) == count


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64, 200])
def test_every_bucket_has_a_label_of_its_own(partitions):
    assert len(set(bucket_labels(partitions))) == partitions
