"""Packing: the interference against what is known otherwise, and the packings against all there are."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.planner.interference import Load, shared
from penstock.planner.packing import pack


def load(name, rate=100.0, trigger=2.0, fixed=0.3, per_row=1e-3, tasks=2.0, ratios=(1.0,)):
    return Load(name, rate, trigger, fixed, per_row, tasks, ratios)


def test_alone_the_latency_is_that_of_the_formula():
    """Rows come evenly and wait for the trigger, then for the micro-batch: from its duration to that plus the interval."""
    found = shared([load("a")], 2.0)["a"]
    duration = 0.3 + 1e-3 * 200
    assert found["p50"] == pytest.approx(duration + 1.0, abs=0.06)
    assert found["p95"] == pytest.approx(duration + 1.9, abs=0.06)


def test_two_that_begin_together_take_as_long_as_their_work():
    """Each alone keeps both cores busy for 0.2 s after 0.3 s on one: together 0.3 s side by side, and then 0.4 s by halves."""
    found = shared([load("a"), load("b")], 2.0)
    assert found["a"]["p95"] == pytest.approx(0.3 + 0.4 + 1.9, abs=0.06)
    assert found["a"]["p95"] == pytest.approx(found["b"]["p95"], abs=0.01)


def test_enough_cores_leave_each_as_it_is():
    alone = shared([load("a")], 8.0)["a"]
    assert shared([load(name) for name in "abc"], 8.0)["a"] == pytest.approx(alone)


def test_too_much_for_the_cores_has_no_end():
    assert math.isinf(shared([load("a", rate=900.0), load("b", rate=900.0)], 2.0)["a"]["p95"])


def partitions(names):
    """All ways to divide names into groups."""
    for labels in product(range(len(names)), repeat=len(names)):
        groups = {}
        for name, label in zip(names, labels, strict=True):
            groups.setdefault(label, []).append(name)
        yield list(groups.values())


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(10, 600), st.sampled_from([1.0, 2.0, 5.0])), min_size=2, max_size=4))
@settings(max_examples=5, deadline=None)
def test_no_packing_has_fewer_drivers(given):
    loads = [load(str(number), rate=rate, trigger=trigger) for number, (rate, trigger) in enumerate(given)]
    by_name = {one.name: one for one in loads}
    alone = {name: shared([one], 2.0, span=600)[name]["p95"] for name, one in by_name.items()}
    bound = 1.3 * max(alone.values())
    answer = pack(loads, 2.0, bound)
    fine = [
        len(groups)
        for groups in partitions(list(by_name))
        if all(
            one["p95"] <= bound for group in groups for one in shared([by_name[name] for name in sorted(group)], 2.0).values()
        )
    ]
    assert len(answer.drivers) == answer.fewest == min(fine)
    assert sorted(name for driver in answer.drivers for name in driver.names) == sorted(by_name)


def test_those_of_which_no_two_fit_need_a_driver_each():
    answer = pack([load(name, rate=900.0) for name in "abc"], 2.0)
    assert (answer.fewest, len(answer.drivers), answer.gap) == (3, 3, 0.0)


def test_many_are_packed_with_a_certified_gap():
    loads = [load(f"app-{number}", rate=20.0 + 10 * number, trigger=5.0) for number in range(20)]
    answer = pack(loads, 4.0)
    assert (answer.fewest, len(answer.drivers), answer.gap) == (2, 5, 1.5)
    for driver in answer.drivers:
        assert all(driver.together[name] <= answer.bounds[name] for name in driver.names)


def test_one_that_misses_its_bound_alone_is_said():
    with pytest.raises(ConfigurationError, match=r"a has a p95 of 2\.\d+ s on 2 cores even alone"):
        pack([load("a"), load("b")], 2.0, 1.0)
    with pytest.raises(ConfigurationError, match="each once"):
        pack([load("a"), load("a")], 2.0)
