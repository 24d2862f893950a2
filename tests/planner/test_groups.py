"""Groups that are joined by hops: what one makes visible arrives at the next at once."""

import json

import numpy as np
import pytest
from planner.queries import manifest, progress, written

from penstock.app.description import ElementDescription
from penstock.errors import ConfigurationError
from penstock.planner import Setting, calibrate, observe
from penstock.runs.starts import Environment, Loaded, Start, note_start

FIRST, SECOND = {"fixed": 0.4, "per_row": 1e-4}, {"fixed": 0.7, "per_row": 2e-4}


def two_groups(trigger, rate, seconds, seed):
    """The progress of both, and the latencies of rows from their arrival at the first until the second is done."""
    random = np.random.default_rng(seed + 100)
    born = np.cumsum(random.exponential(1 / rate, int(rate * seconds)))
    told, waits = progress(trigger=trigger, births=born, seconds=seconds, seed=seed, name="first", **FIRST)
    there = born[: len(waits)] + waits
    more, rest = progress(trigger=trigger, births=there, seconds=seconds, seed=seed + 1, name="second", **SECOND)
    kept = slice(int(0.1 * len(rest)), None)
    return told + more, (there[: len(rest)] + rest - born[: len(rest)])[kept]


def run_of(path, told, trigger, edges=(("one", "two"),)):
    """A run's directory, as the engine leaves it, without what it would have measured besides."""
    path.mkdir()
    written(path / "progress.jsonl", told)
    elements = [
        ElementDescription(
            name,
            "event",
            [],
            [f"to {name}"],
            [f"to {after}" for before, after in edges if before == name],
            0,
            None,
            None,
            "processing",
        )
        for name in ("one", "two", "three")
    ]
    groups = {"one": "first", "two": "second", "three": "third"}
    manifest(elements, groups).write(path)
    environment = Environment("0.1.0", "4.3.0", "3.11.7", "Linux", 2)
    note_start(
        path,
        Start(
            time=0.0,
            environment=environment,
            application=Loaded(None, "app", {}),
            master="local[2]",
            trigger=trigger,
            resumed=False,
        ),
    )
    for group in ("first", "second", "third"):
        (path / f"batches-{group}.jsonl").touch()
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("trigger", "rate"), [(2.0, 1000), (0.0, 500), (5.0, 1500)])
def test_the_latency_through_two_groups_is_predicted(tmp_path, trigger, rate):
    one, _ = two_groups(1.0, 1000, 200, 1)
    two, _ = two_groups(4.0, 1000, 300, 2)
    calibration = calibrate(observe(run_of(tmp_path / "a", one, 1.0), run_of(tmp_path / "b", two, 4.0)))
    assert [query.observed.name for query in calibration.queries] == ["first", "second"]
    _, latencies = two_groups(trigger, rate, 900, 7)
    found = calibration.predict(Setting(trigger=trigger, rate=rate))
    assert found.mean == pytest.approx(latencies.mean(), rel=0.05)
    assert found.p95 == pytest.approx(np.quantile(latencies, 0.95), rel=0.06)


def test_a_group_that_reads_from_two_others_is_refused(tmp_path):
    told, _ = two_groups(1.0, 500, 60, 1)
    third, _ = progress(name="third", seconds=60)
    with pytest.raises(ConfigurationError, match="reads from several groups"):
        observe(run_of(tmp_path / "a", told + third, 1.0, edges=(("one", "three"), ("two", "three"))))


def test_back_to_back_the_groups_hold_each_other_up(tmp_path):
    """Recordings back to back last half as long again: settings without a trigger are taken to last so, others are not."""
    calm, _ = two_groups(2.0, 1000, 200, 1)
    random = np.random.default_rng(5)
    born = np.cumsum(random.exponential(1 / 600, 600 * 200))
    slower = {"fixed": 0.6, "per_row": 1.5e-4}, {"fixed": 1.05, "per_row": 3e-4}
    told, waits = progress(trigger=0, births=born, seconds=200, seed=3, name="first", **slower[0])
    there = born[: len(waits)] + waits
    more, rest = progress(trigger=0, births=there, seconds=200, seed=4, name="second", **slower[1])
    hurried, latencies = told + more, (there[: len(rest)] + rest - born[: len(rest)])[len(rest) // 10 :]
    calibration = calibrate(observe(run_of(tmp_path / "a", calm, 2.0), run_of(tmp_path / "b", hurried, 0.0)))
    found = calibration.predict(Setting(trigger=0, rate=600), replicates=0)
    assert found.mean == pytest.approx(latencies.mean(), rel=0.06)
    _, usual = two_groups(3.0, 800, 600, 9)
    assert calibration.predict(Setting(trigger=3, rate=800), replicates=0).mean == pytest.approx(usual.mean(), rel=0.03)


def test_a_file_source_has_its_rows_fixed_when_it_is_asked(tmp_path):
    told, _ = progress(trigger=1, seed=1)
    for one in told:
        one["durationMs"]["latestOffset"] = 200
        one["durationMs"]["addBatch"] -= 190
    listed = json.loads(json.dumps(told).replace("KafkaV2[Subscribe[topic]]", "FileStreamSource[file:/in]"))
    series = [observe(written(tmp_path / f"{n}.jsonl", of)).queries[0].series[0] for n, of in enumerate((told, listed))]
    assert np.allclose(series[0].admitted - series[0].started, 0.2)
    assert np.allclose(series[1].admitted - series[1].started, 0.0)
