"""How values go on beyond those recorded."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.tail import HEAVY, tail_of


@given(index=st.floats(1.5, 3.0), seed=st.integers(0, 1000))
def test_a_pareto_tail_is_found_and_goes_on(index, seed):
    random = np.random.default_rng(seed)
    values = random.pareto(index, 20_000) + 1
    tail = tail_of(values)
    assert tail.index == pytest.approx(index, rel=0.25)
    further = tail.extended(np.repeat(values, 10), random)
    assert np.quantile(further, 0.9999) == pytest.approx(10 ** (4 / index), rel=0.8)
    assert np.quantile(further, 0.5) == pytest.approx(np.quantile(values, 0.5), rel=1e-9)


def test_what_falls_faster_stays_as_it_was_recorded():
    random = np.random.default_rng(0)
    for values in (random.lognormal(0, 0.1, 5000), random.normal(1, 0.1, 5000), np.ones(5000), np.ones(3)):
        tail = tail_of(values)
        assert math.isinf(tail.index) or tail.index < HEAVY
        assert tail.extended(values, random) is values
