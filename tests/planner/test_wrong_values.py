"""Wrong targets, settings and places of plans are refused in a sentence, wherever they are given."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from penstock.errors import ConfigurationError, SourceError
from penstock.planner import Setting, Target, read_plan


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("nope", 1.0), ("p95", "1 s"), ("p95", True), ("p95", float("inf")), ("p95", float("nan")), ("p95", 0), ("p95", None)],
)
def test_a_target_is_a_figure_and_seconds(name, seconds):
    with pytest.raises(ConfigurationError, match="give one of mean, p50, p95, p99, and seconds above zero"):
        Target(name, seconds)


@pytest.mark.parametrize("rate", [[1], Decimal(1), datetime.timedelta(1), True, 0, "fast"], ids=repr)
def test_a_rate_is_a_number(rate):
    with pytest.raises(ConfigurationError, match="rate"):
        Setting(rate=rate)


def test_numbers_of_numpy_are_numbers():
    assert Setting(rate=np.int64(3)).rate_from(7.0) == 3.0


@pytest.mark.parametrize("arrivals", [{}, datetime.timedelta(1), [[1]], 10**400], ids=lambda value: repr(value)[:20])
def test_arrivals_are_times(arrivals):
    with pytest.raises(ConfigurationError, match="arrivals"):
        Setting(arrivals=arrivals)


@pytest.mark.parametrize("place", ["none.json", "x\0y", "a" * 1000])
def test_a_plan_that_cannot_be_read_is_named(place):
    with pytest.raises(SourceError, match="cannot be read"):
        read_plan(place)
