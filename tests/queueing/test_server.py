"""Parameters, stability and its limits."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from queueing.servers import stream_servers

from penstock.errors import ConfigurationError, PenstockError
from penstock.queueing import (
    LingerBatch,
    LogNormal,
    MicroBatchServer,
    NotSolvableError,
    StreamServer,
    UnstableServerError,
    solve,
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrival_rate": -1}, "arrival_rate is -1; give a number above zero"),
        ({"arrival_rate": math.nan}, "arrival_rate is nan"),
        ({"arrival_rate": math.inf}, "arrival_rate is inf"),
        ({"service_rate": "fast"}, "service_rate is 'fast'"),
        ({"service_rate": True}, "service_rate is True"),
        ({"batch_size": 0}, "batch_size is 0; give an integer of 1 or more, or infinity"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"batch_size": None}, "batch_size is None"),
        ({"timer_rate": -0.1}, "timer_rate is -0.1; give zero or a positive number, or infinity"),
        ({"transfer_rate": 0}, "transfer_rate is 0"),
        ({"timer": "never"}, "timer is 'never'; choose 'idle' or 'always'"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_is_allowed(change, words):
    given = {"arrival_rate": 1, "service_rate": 2, "batch_size": 3, "timer_rate": 4, **change}
    with pytest.raises(ConfigurationError) as caught:
        StreamServer(**given)
    assert words in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threshold": 10, "cap": 5}, "give a cap of at least the threshold"),
        ({"per_key": 1.0}, "keys is 0"),
        ({"fixed": 0.0}, "give at least one"),
        ({"residual": LogNormal(2.0, 0.1)}, "mean 1"),
        ({"residual": "noisy"}, "mean 1"),
        ({"delay": -1}, "delay is -1"),
    ],
)
def test_a_wrong_micro_batch_parameter_is_named(change, words):
    with pytest.raises(ConfigurationError, match=words):
        MicroBatchServer(**{"arrival_rate": 1.0, "fixed": 0.1, **change})


def test_integral_floats_and_infinity_are_batch_sizes():
    assert StreamServer(1, 2, 10.0, 0).batch_size == 10
    assert StreamServer(1, 2, math.inf, 1).batch_size == math.inf
    assert LingerBatch(100, math.inf, 0.1).mean_batch == pytest.approx(11)


def test_stability_limits_of_the_papers_figures():
    # ERRATA: Figure 5's limit is 908.33 and Figure 7's smallest batches are 3, 4 and 8.
    assert StreamServer(600, 1000, 15, 1000, 600).max_arrival_rate == pytest.approx(908.327, abs=1e-3)
    assert [StreamServer(750, 1000, 1, 0, gamma).min_batch_size for gamma in (900, 600, 300)] == [3, 4, 8]


def test_the_limit_itself_is_unstable_in_exact_arithmetic():
    # rho = 1/2, xi = 1, K = 1: rho + rho xi / K = 1.
    assert not StreamServer(0.5, 1, 1, 0, 0.5).is_stable
    assert StreamServer(0.5, 1, 1, 0, math.nextafter(0.5, 1)).is_stable
    assert not StreamServer(1, 1, 5, 0).is_stable
    assert StreamServer(math.nextafter(1, 0), 1, 5, 0).slack == 2**-53


@given(stream_servers(least_slack=0.001))
def test_limits_separate_stable_from_unstable(server):
    limit = server.max_arrival_rate
    assert replace(server, arrival_rate=limit * (1 - 1e-9)).is_stable
    assert not replace(server, arrival_rate=limit * (1 + 1e-9)).is_stable
    least = server.min_batch_size
    assert least <= server.batch_size
    assert replace(server, batch_size=least).is_stable
    assert least == 1 or not replace(server, batch_size=least - 1).is_stable


@given(st.floats(0.1, 3), st.integers(1, 50), st.floats(0, 5), st.floats(0.05, 5), st.sampled_from(["idle", "always"]))
def test_an_unstable_server_says_by_how_much_and_what_would_help(load, size, timer_rate, transfer_rate, timer):
    server = StreamServer(load, 1.0, size, timer_rate, transfer_rate, timer)
    assume(not server.is_stable)
    with pytest.raises(UnstableServerError) as caught:
        solve(server)
    assert isinstance(caught.value, ValueError)
    assert "give an arrival_rate below" in str(caught.value)
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("size", [1, 10, math.inf])
@pytest.mark.parametrize("timer_rate", [5e-324, 1e-310, 1e-300])
def test_a_timer_that_hardly_runs_is_none(size, timer_rate):
    """However small: its rate may vanish beside the arrival rate, or what that is of it be beyond all numbers."""
    server = StreamServer(3.0, 1.0, size, timer_rate, 0.5, "always")
    assert server.busy_jobs_per_transfer >= 1e300 if math.isinf(size) else server.busy_jobs_per_transfer == pytest.approx(size)
    with pytest.raises(UnstableServerError, match="give an arrival_rate below"):
        solve(server)


@pytest.mark.parametrize("timer", ["idle", "always"])
@pytest.mark.parametrize("timer_rate", [5e-324, 1e-310, 1e-200, 1e-60, 1e-20, 4e-16, 1e-15])
def test_a_timer_that_hardly_runs_changes_nothing(timer_rate, timer):
    none = solve(StreamServer(0.5, 1.0, 10, 0.0, 1.0))
    assert solve(StreamServer(0.5, 1.0, 10, timer_rate, 1.0, timer)).mean_jobs == pytest.approx(none.mean_jobs, rel=1e-12)
    if timer_rate < 1e-100:
        with pytest.raises(NotSolvableError, match="too small beside the other rates"):
            solve(StreamServer(0.5, 1.0, math.inf, timer_rate, 1.0, timer))


def test_a_server_that_never_transfers_says_so():
    with pytest.raises(UnstableServerError, match="no job is ever transferred"):
        solve(StreamServer(1, 2, math.inf, 0))


def test_an_unstable_micro_batch_server_says_its_limit():
    with pytest.raises(UnstableServerError, match="at most|largest batches take 100"):
        solve(MicroBatchServer(arrival_rate=200, cap=100, fixed=1.0))


def test_errors_belong_to_the_tree():
    assert issubclass(UnstableServerError, PenstockError)
