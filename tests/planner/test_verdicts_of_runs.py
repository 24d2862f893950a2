"""Verdicts on what only a run of Penstock records: keys, instances, what its sinks take; and on short recordings."""

from dataclasses import replace

import pytest
from planner.queries import progress, written

from penstock.planner import observe, verdicts


def observed(path, change, **query):
    told, _ = progress(**query)
    for number, one in enumerate(told):
        change(one, number)
    return observe(written(path / "a", told))


def with_query(observation, **values):
    return replace(observation, queries=(replace(observation.queries[0], **values),))


def nothing(one, number):
    pass


@pytest.mark.parametrize(
    ("share", "cores", "service", "kind"),
    [
        (0.9, None, 300.0, "skewed"),
        (0.5, None, 300.0, "healthy"),
        (0.9, None, 5.0, "healthy"),  # so little work that its place harms nobody
        (0.7, 2, 300.0, "healthy"),
        (0.9, 2, 300.0, "skewed"),  # two cores do no better than one partition and the rest
    ],
)
def test_one_key_has_most_events(tmp_path, share, cores, service, kind):
    seen = observed(tmp_path, nothing)
    setting = replace(seen.queries[0].setting, partitions=4, cores=cores)
    measured = {"hottest": {"Counter": ("7", share)}, "service_us": {"Counter": service}, "events": {"Counter": 1.0}}
    found = verdicts(with_query(seen, **measured, setting=setting))[0]
    assert found.kind == kind
    if kind == "skewed":
        assert "key 7 has 90% of the events of Counter" in found.text


@pytest.mark.parametrize(("growth", "kind"), [(100, "state growing"), (0, "healthy")])
def test_instances_grow_that_pages_hide(tmp_path, growth, kind):
    seen = observed(tmp_path, nothing, state=4096)
    times = [record.started for record in seen.queries[0].records]
    instances = tuple((time, 2000 + growth * number) for number, time in enumerate(times))
    assert verdicts(with_query(seen, instances=instances))[0].kind == kind


def test_a_sink_that_takes_long_is_named(tmp_path):
    def slowly(one, number):
        one["delivered"] = {"Out": 2.4, "Fast": 0.01}

    found = verdicts(observed(tmp_path, slowly, trigger=5.0, fixed=3.0, rate=300, seconds=300))[0]
    assert (found.kind, found.confident) == ("slow sink", True)
    assert "sink Out takes 2.40 s" in found.text


def test_a_sink_that_is_slow_once_in_a_while_is_not_the_cause(tmp_path):
    def hourly(one, number):
        one["delivered"] = {"Hourly": 2.0} if number % 60 == 30 else {}

    assert verdicts(observed(tmp_path, hourly))[0].kind == "healthy"


def test_a_fixed_cost_that_is_no_sinks_is_not_blamed_on_one(tmp_path):
    def quickly(one, number):
        one["delivered"] = {"Out": 0.05}

    assert verdicts(observed(tmp_path, quickly, trigger=5.0, fixed=3.0, rate=300, seconds=300))[0].kind == "healthy"


@pytest.mark.parametrize(("collected", "kind"), [(300, "garbage collection"), (20, "healthy")])
def test_garbage_collection_that_was_measured(tmp_path, collected, kind):
    def counted(one, number):
        one["executors"] = {"tasksMs": 1000 * number, "collectionMs": collected * number}

    assert verdicts(observed(tmp_path, counted))[0].kind == kind


def test_pauses_are_no_garbage_collection_where_there_was_none(tmp_path):
    def counted(one, number):
        one["executors"] = {"tasksMs": 1000 * number, "collectionMs": 5 * number}

    found = verdicts(observed(tmp_path, counted, trigger=0.0, pauses=0.06, seconds=300))
    assert "garbage collection" not in [one.kind for one in found]


def test_waiting_at_the_gate(tmp_path):
    seen = observed(tmp_path, nothing, trigger=8.0, seconds=300)
    setting = replace(seen.queries[0].setting, trigger=0.0, min_rows=100_000.0, max_delay=8.0)
    found = verdicts(with_query(seen, setting=setting))[0]
    assert found.kind == "waiting at the gate"
    assert "opens for 100,000 rows or after 8 s" in found.text
    sparse = replace(setting, max_delay=0.5)  # rows come seldom, and wait for nothing
    assert verdicts(with_query(seen, setting=sparse))[0].kind != "waiting at the gate"


def test_a_short_recording_of_a_query_that_drowns(tmp_path):
    seen = observed(tmp_path, nothing, trigger=0.0, rate=2000, per_row=1e-3, fixed=0.5, seconds=60)
    assert seen.queries[0].batches < 8
    found = verdicts(seen)[0]
    assert (found.kind, found.confident) == ("saturated", False)
    assert verdicts(observed(tmp_path, nothing, seconds=5))[0].kind == "unclear"


def test_tasks_of_an_event_log_are_their_own_querys(tmp_path):
    entries = []
    for number, (name, collecting) in enumerate((("calm", 5), ("collecting", 400))):
        told, _ = progress(name=name, seconds=200)
        job = {"Event": "SparkListenerJobStart", "Stage IDs": [number], "Properties": {"sql.streaming.queryId": told[0]["id"]}}
        metrics = {"Executor Run Time": 1000, "JVM GC Time": collecting}
        tasks = [{"Event": "SparkListenerTaskEnd", "Stage ID": number, "Task Metrics": metrics}] * 20
        entries += [job, *tasks, *({"Event": "QueryProgressEvent", "progress": one} for one in told)]
    log = written(tmp_path / "log", entries)
    kinds = {name: [one.kind for one in verdicts(observe(log, query=name))] for name in ("calm", "collecting")}
    assert "garbage collection" in kinds["collecting"]
    assert "garbage collection" not in kinds["calm"]
