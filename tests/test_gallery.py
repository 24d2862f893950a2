"""The gallery: each application gives what was worked out by hand, in memory and on Spark, whatever the cut into
micro-batches.
"""

import json
import random
from pathlib import Path

import msgspec
import pytest

from penstock.app.loader import load_app
from penstock.engine import RunOptions, run
from penstock.testing import TopologyDriver

GALLERY = Path(__file__).parent.parent / "examples/gallery"
NAMES = sorted(path.stem for path in GALLERY.glob("*.py"))


def lines(path):
    return path.read_text().splitlines()


def inputs(name):
    """The lines of each source."""
    return {place.name: lines(place / "1.jsonl") for place in sorted((GALLERY / "input" / name).iterdir())}


def plain(events):
    """Results to be compared, in no order; times are compared as times."""
    found = [json.loads(event if isinstance(event, str) else msgspec.json.encode(event)) for event in events]
    return sorted(json.dumps(one, sort_keys=True).replace("+00:00", "Z") for one in found)


def expected(name):
    return plain(lines(GALLERY / "expected" / f"{name}.jsonl"))


def test_there_are_ten_and_each_has_its_input():
    assert len(NAMES) >= 10
    for name in NAMES:
        app, _ = load_app(GALLERY / f"{name}.py")
        assert {source.name for source in app.topology().sources} == set(inputs(name))


@pytest.mark.parametrize("name", NAMES)
def test_in_memory_in_one_micro_batch(name):
    app, _ = load_app(GALLERY / f"{name}.py")
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch(inputs(name))
    driver.finish()
    assert plain(driver.output(app.topology().sinks[0].name)) == expected(name)


ONE_BY_ONE = [name for name in NAMES if name != "change_data"]
"""Those whose results are not one for each micro-batch."""


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_in_memory_cut_anywhere(name):
    app, _ = load_app(GALLERY / f"{name}.py")
    driver = TopologyDriver(app, dead_letters=True)
    given = inputs(name)
    rows = [(source, line) for source in given for line in given[source]]
    rows.sort(key=lambda row: json.loads(row[1]).get("at", ""))
    random_ = random.Random(7)
    while rows:
        batch = {}
        for source, line in rows[: (count := random_.randint(1, 2))]:
            batch.setdefault(source, []).append(line)
        driver.batch(batch)
        rows = rows[count:]
    driver.finish()
    assert plain(driver.output(app.topology().sinks[0].name)) == expected(name)


def test_late_readings_correct_their_hour_and_those_too_late_are_kept():
    app, _ = load_app(GALLERY / "late_data.py")
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Readings": inputs("late_data")["Readings"]})
    driver.batch({"Readings": ['{"meter": "m1", "watt_hours": 95, "at": "2026-03-01T06:00:00Z"}']})
    driver.batch({"Readings": ['{"meter": "m1", "watt_hours": 7, "at": "2026-03-01T00:30:00Z"}']})
    driver.batch({"Readings": ['{"meter": "m1", "watt_hours": 1, "at": "2026-03-01T23:00:00Z"}']})
    driver.batch()  # in which the watermark closes what is kept
    driver.batch({"Readings": ['{"meter": "m1", "watt_hours": 8, "at": "2026-03-01T00:40:00Z"}']})
    corrected = [hour for hour in driver.output("Hours") if hour.corrected]
    assert [(hour.start.hour, hour.watt_hours) for hour in corrected] == [(0, 227.0)]
    assert [letter["element"] for letter in driver.dead_letters] == ["Meter"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_on_spark(name, tmp_path, spark):
    app, reference = load_app(GALLERY / f"{name}.py")
    sources = {source: f"jsonl:{GALLERY / 'input' / name / source}" for source in inputs(name)}
    options = RunOptions(runs=tmp_path, sources=sources, until_idle=True, quiet=True, spark=spark.get())
    result = run(app, options, application=reference)
    assert plain(result.output(app.topology().sinks[0].name)) == expected(name)
    assert result.report["counts"]["lost"] == 0
