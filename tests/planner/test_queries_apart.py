"""Which queries pay: the model beside a simulation event by event, and beside what the engine accepts."""

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from penstock.app.loader import load_app
from penstock.engine.query.group import group_elements
from penstock.errors import ConfigurationError, TopologyError
from penstock.planner.arrivals import Flow
from penstock.planner.gate import Gate, Work, pass_gate
from penstock.planner.grouping import Elements, best_grouping, groupings

APP = Path(__file__).parents[2] / "benchmarks" / "apps" / "placement.py"


@pytest.fixture(scope="module")
def topology():
    app, _ = load_app(APP)
    yield app.topology()
    sys.modules.pop("placement", None)


def elements(topology, trigger=2.0, rate=500.0, heavy=4e-4, fixed=0.2, hop=0.1):
    plain = topology.to_json()
    work = {"digest": heavy, "enrich": heavy / 2}
    return Elements(
        {one["name"]: one["inputs"] for one in plain["elements"]},
        {one["name"]: one["emits"] for one in plain["elements"]},
        {one["name"]: bool(one["key"]) for one in plain["elements"]},
        ["Readings"],
        {one["name"]: work.get(one["name"], 2e-5) for one in plain["elements"]},
        fixed,
        hop,
        rate,
        trigger,
    )


def simulated(given, groups, path):
    """The mean wait of events along a path: each query starts at multiples of the interval, and takes what is there."""
    random = np.random.default_rng(2)
    events = random.uniform(0, 400 * given.trigger, 4000)
    visible = events.copy()
    rows = given.rate * given.trigger
    loads = {group: sum(given.work[name] for name in groups if groups[name] == group) for group in set(groups.values())}
    for group in dict.fromkeys(groups[name] for name in path):
        inside = [name for name in given.feeders if groups[name] == group]
        depth = {}
        for name in inside:
            depth[name] = given.keyed[name] + max((depth[one] for one in given.feeders[name] if one in depth), default=0)
        beside = sum(load for other, load in loads.items() if other != group) * given.rate
        lasts = given.fixed + given.hop * max(depth.values()) + rows * loads[group] * (1 + beside)
        ends = []
        free = 0.0
        for start in np.arange(0, 500) * given.trigger:
            if start >= free:
                free = start + lasts
                ends.append((start, free))
        starts = np.array([start for start, _ in ends])
        visible = np.array([ends[place][1] for place in np.searchsorted(starts, visible)])
    return float((visible - events).mean())


PATH = ("parse", "digest", "enrich", "Ranks")


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"digest": "b", "enrich": "b", "Ranks": "b"},
        {"digest": "b", "enrich": "c", "Ranks": "c"},
        {"Counts": "b", "alert": "c"},
    ],
)
def test_the_worst_path_waits_as_long_as_in_a_simulation(topology, groups):
    given = elements(topology)
    whole = {name: groups.get(name, "main") for name in given.feeders}
    others = [("parse", "Counts", "alert"), ("parse", "pick", "tag")]
    worst = max(simulated(given, whole, path) for path in (PATH, *others))
    assert given.placed(whole).worst == pytest.approx(worst, rel=0.03)


@pytest.mark.parametrize(("fixed", "heavy"), [(0.4, 1e-3), (0.7, 6e-4)])
def test_a_query_that_outlasts_its_trigger_goes_on_at_once(topology, fixed, heavy):
    """Beside the gate that predictions are made with."""
    given = elements(topology, trigger=1.0, rate=500.0, heavy=heavy, fixed=fixed, hop=0.0)
    together = dict.fromkeys(given.feeders, "main")
    per_row = sum(given.work.values())
    events = np.sort(np.random.default_rng(3).uniform(0, 400, 200_000))
    flow = Flow(events, np.arange(1.0, len(events) + 1))
    passage = pass_gate(flow, Gate(trigger=1.0), Work(fixed, per_row), until=400.0, free=0.0)
    _, latencies = passage.latencies(flow, 50.0, 350.0)
    assert given.placed(together).worst == pytest.approx(float(latencies.mean()), rel=0.05)


def test_no_more_queries_than_are_allowed(topology, monkeypatch):
    monkeypatch.setattr("penstock.planner.grouping.MOST", 0)
    assert best_grouping(elements(topology, heavy=2e-3), 1).best.queries == 1


def test_groupings_are_all_partitions_each_once():
    found = [tuple(groups.values()) for groups in groupings(list("abcde"), 5)]
    assert len(found) == len(set(found)) == 52  # Bell's number
    assert len(list(groupings(list("abcde"), 2))) == 16


def test_what_is_possible_is_what_the_engine_accepts(topology):
    given = elements(topology)
    names = list(given.feeders)
    for groups in islice(groupings(names, 3), 0, None, 7):
        try:
            group_elements(topology, groups)
            accepted = True
        except TopologyError:
            accepted = False
        assert given.is_possible(groups) == accepted, groups


def test_the_best_is_that_of_trying_all_and_the_search_by_moves_comes_close(topology, monkeypatch):
    for heavy, trigger in ((4e-4, 2.0), (2e-3, 1.0), (1e-4, 0.5)):
        given = elements(topology, trigger, heavy=heavy)
        exact = best_grouping(given, 3)
        assert exact.exact
        assert exact.best.worst == pytest.approx(
            min(given.placed(one).worst for one in groupings(list(given.feeders), 3) if given.is_possible(one))
        )
        assert given.least() <= exact.best.worst + 1e-9
        with monkeypatch.context() as patched:
            patched.setattr("penstock.planner.grouping.MOST", 0)
            moved = best_grouping(given, 3)
        assert not moved.exact
        assert exact.best.worst <= moved.best.worst <= exact.together.worst + 1e-9
        assert moved.gap >= moved.best.worst / exact.best.worst - 1 - 1e-9 or moved.best.worst == exact.best.worst


def test_no_queries_are_refused(topology):
    with pytest.raises(ConfigurationError, match="1 or more"):
        best_grouping(elements(topology), 0)
