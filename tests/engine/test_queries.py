"""Windows and joins in the query dialect: the rows of the event dialect, and what is refused."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apps_queries import Bid, Payment, alone, both
from msgspec.structs import replace
from support import write_batches

from penstock import App, Event, Session, Tumbling, reducers
from penstock.app.reducers import BUILT_IN
from penstock.app.window import Count
from penstock.engine.query.native import conform
from penstock.engine.query.queries import _SPARK
from penstock.errors import EmissionError, TopologyError
from penstock.testing import TopologyDriver

APPS = Path(__file__).parent / "apps_queries.py"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
SINKS = ("TumblingOut", "SlidingOut", "innerOut", "leftOut", "fullOut")


def given(chance):
    """Bids and payments at times of their own, whose prices differ, out of order by less than the lateness."""
    prices = random.Random(2).sample(range(1000), 200)
    seconds = [second / 8 for second in chance.sample(range(480), 400)]  # often a whole gap apart, and never two at once
    bids = [
        Bid(chance.choice("abc"), chance.choice(["x", "y", None]), price, T0 + timedelta(seconds=at))
        for price, at in zip(prices, seconds[:200], strict=True)
    ]
    payments = [Payment(chance.choice("abc"), number, T0 + timedelta(seconds=at)) for number, at in enumerate(seconds[200:220])]
    for events in (bids, payments):
        events.sort(key=lambda event: event.at + timedelta(seconds=chance.uniform(0, 4.9)))
    return bids, payments


def cut(events, parts):
    return [events[number * len(events) // parts : (number + 1) * len(events) // parts] for number in range(parts)]


def rows(events):
    """Events, but for what the sketches say, which is not the same in both dialects, and close: all prices differ."""
    if "about" not in events[0].__struct_fields__:
        return Counter(map(repr, events))
    assert all(abs(event.about - event.bids) <= 1 for event in events)
    return Counter(repr(replace(event, about=0)) for event in events)


@pytest.mark.slow
def test_the_query_dialect_has_the_rows_of_the_event_dialect(run_app, tmp_path):
    bids, payments = given(random.Random(1))
    driver = TopologyDriver(both("event"))
    driver.batch({"Bids": bids, "Payments": payments})
    driver.finish()
    batches = [{"Bids": some, "Payments": others} for some, others in zip(cut(bids, 4), cut(payments, 4), strict=True)]
    sources = write_batches(both("event"), batches, tmp_path)
    result = run_app("in_query", file=APPS, sources=sources)
    for sink in SINKS:
        found, wanted = rows(result.output(sink)), rows(driver.output(sink))
        assert (sink, list(found - wanted), list(wanted - found)) == (sink, [], [])
        assert result.output(sink), sink
    assert result.report["counts"]["late"] == 0


def stragglers(chance, parts):
    """Micro-batches of bids and payments, of which many are late, by microseconds or by much, and some come on a watermark."""
    batches, reached = [], 0
    for _ in range(parts):
        reached += chance.randrange(0, 6_000_000)
        times = [max(0, reached - int(chance.expovariate(1 / 3e6))) for _ in range(24)]
        times += [max(0, reached // 1000 * 1000 - behind + chance.choice([-1, 0, 1])) for behind in (0, 1_000_000, 2_000_000)]
        moments = [T0 + timedelta(microseconds=time) for time in times]
        bids = [Bid(chance.choice("ab"), None, chance.randrange(1000), moment) for moment in moments]
        payments = [Payment(chance.choice("ab"), chance.randrange(1000), moment) for moment in chance.sample(moments, 12)]
        batches.append({"Bids": bids, "Payments": payments})
    return batches


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "inner", "left", "full"])
@pytest.mark.parametrize("seed", [1, 2])
def test_late_events_are_the_same_in_both_dialects(run_app, tmp_path, kind, seed):
    app = alone(kind, "event")
    batches = stragglers(random.Random(f"{kind} {seed}"), 8)
    if len(app.topology().sources) == 1:
        batches = [{"Bids": batch["Bids"]} for batch in batches]
    driver = TopologyDriver(app)
    for batch in batches:
        driver.batch(batch)
    driver.finish()
    (tally,) = driver.elements.values()
    assert tally.late + tally.late_in_part > 3
    result = run_app(kind, file=APPS, sources=write_batches(app, batches, tmp_path))
    found, wanted = (Counter(map(repr, out.output("Out"))) for out in (result, driver))
    assert (list(found - wanted), list(wanted - found)) == ([], [])
    if kind in ("inner", "left", "full"):
        assert result.report["counts"]["late"] == tally.late


def settled(bids, payments):
    """What the join of `one_query` is to say, by its definition."""
    wanted = []
    for bid in bids:
        near = [p.amount for p in payments if p.item == bid.item and -1 <= (p.at - bid.at).total_seconds() <= 4]
        wanted += [(bid.item, bid.price, amount) for amount in near or [None]]
    return Counter(wanted)


TOO_LARGE = b'{"item": "a", "bidder": null, "price": 99999999999999999999, "at": "2026-01-01T00:00:00Z"}'
"""An event, but no column can hold it."""


def with_bad_lines(tmp_path, bids, payments):
    """The sources' URIs, four files each, and one line in each that is no event."""
    parts = zip(cut(bids, 4), cut(payments, 4), strict=True)
    batches = [{"Bids": [*some, TOO_LARGE], "Payments": [b"oh", *others]} for some, others in parts]
    return write_batches(both("event"), batches, tmp_path)


def check_settled(run, bids, payments):
    report = json.loads((run / "report.json").read_text())
    lines = [line for path in (run / "output" / "Out").glob("*.jsonl") for line in path.read_text().splitlines()]
    said = [(one["item"], one["price"], one["amount"]) for one in map(json.loads, lines)]
    assert Counter(said) == settled(bids, payments)
    counts, events = report["counts"], len(bids) + len(payments)
    assert (counts["accepted"], counts["processed"], counts["dead_lettered"]) == (events + 8, events, 8)
    assert (counts["lost"], counts["duplicated"], counts["queued"], counts["dead_letters"]) == (0, 0, 0, 8)
    assert report["elements"]["settle"]["events"] == events
    letters = [line for path in (run / "dead-letters").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert {letter["element"] for letter in map(json.loads, letters)} == {"Bids", None}
    return report


@pytest.mark.slow
def test_a_query_over_json_is_one_query(run_app, tmp_path):
    bids, payments = given(random.Random(3))
    result = run_app("one_query", file=APPS, sources=with_bad_lines(tmp_path, bids, payments))
    report = check_settled(result.directory, bids, payments)
    assert len(list(result.directory.glob("batches-*.jsonl"))) == 1
    assert report["batches"] <= 6  # one for each file, one that the watermark brings about, and the last
    assert report["latency_ms"]["max"] is not None


@pytest.mark.slow
def test_a_query_over_json_that_is_killed_loses_nothing(tmp_path):
    chance = random.Random(4)
    bids, payments = given(chance)
    sources = with_bad_lines(tmp_path, bids, payments)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{APPS}:one_query",
        "--until-idle",
        "--master",
        "local[2]",
        "--runs",
        str(tmp_path),
        "--name",
        "run",
        *(f"--source={name}={uri}" for name, uri in sources.items()),
    ]
    environment = {**os.environ, "PYTHONPATH": str(APPS.parent.parent.parent)}
    for _ in range(3):
        planned = len(list(tmp_path.glob("run/checkpoint/*/offsets/[0-9]*")))
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if len(list(tmp_path.glob("run/checkpoint/*/offsets/[0-9]*"))) > planned:
                time.sleep(chance.uniform(0, 3))
                break
            time.sleep(0.02)
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not (tmp_path / "run" / "report.json").exists():  # also where the input had ended, and the kill came before the report
        subprocess.run(command, env=environment, check=True, timeout=300)
    check_settled(tmp_path / "run", bids, payments)


class Seen(Event):
    item: str
    seen: int


def refused(window=None, late="drop", results="final", **fields):
    app = App("refused")
    bids = app.source("Bids", Bid, event_time="at", late=late)
    seen = app.stream("Seen", Seen)
    with pytest.raises(TopologyError) as raised:
        app.aggregate(
            bids,
            key="item",
            window=window or Tumbling("1 s"),
            into=seen,
            results=results,
            dialect="query",
            **(fields or {"seen": reducers.count()}),
        )
    return str(raised.value)


def test_what_spark_has_no_words_for_is_refused():
    assert "plans no windows of 5 events" in refused(Count(5))
    assert "plans no windows of 1 d in Europe/Zurich" in refused(Tumbling("1 day", zone="Europe/Zurich"))
    assert "judges each event of a session by itself" in refused(Session("1 s"))
    assert "leave out allowed=" in refused(Tumbling("1 s", allowed="1 s"))
    assert "late='drop' on source Bids" in refused(late="dead-letter")
    assert "once, at its end" in refused(results="updates")
    assert "is Python" in refused(seen=reducers.fold(0, lambda state, _: state + 1, lambda a, b: a + b))


def test_spark_has_each_reducer_that_is_let_through():
    assert set(_SPARK) == BUILT_IN


def test_a_dialect_or_a_source_that_does_not_fit_is_refused():
    app = App("refused")
    bids, seen = app.source("Bids", Bid, event_time="at", late="drop"), app.stream("Seen", Seen)
    payments = app.source("Payments", Payment)
    with pytest.raises(TopologyError, match="choose event, query"):
        app.aggregate(bids, key="item", window=Tumbling("1 s"), into=seen, dialect="sql", seen=reducers.count())
    with pytest.raises(TopologyError, match="read Payments from a source with event_time="):
        app.join(bids, payments, key="item", within=("0 s", "1 s"), emits=seen, dialect="query")(lambda left, right: {})


class Place(Event):
    lat: float
    lon: float


class Placed(Event):
    k: str
    n: int
    at: Place | None
    several: list[Place]
    named: dict[str, Place]


BY_LON = "named_struct('lon', 2.0D, 'lat', 1.0D)"


def conformed(spark, columns):
    app = App("placed")
    placed = app.stream("Placed", Placed)
    return [
        row.asDict(recursive=True) for row in conform("E", spark.get().sql(f"SELECT 'a' AS k, {columns}"), placed).collect()
    ]


@pytest.mark.spark
def test_events_within_a_row_are_matched_by_name(spark):
    place = {"lat": 1.0, "lon": 2.0}
    columns = f"array({BY_LON}) AS several, map('x', {BY_LON}) AS named"
    assert conformed(spark, f"1 AS n, {BY_LON} AS at, {columns}") == [
        {"k": "a", "n": 1, "at": place, "several": [place], "named": {"x": place}}
    ]
    assert conformed(spark, f"1 AS n, IF(true, NULL, {BY_LON}) AS at, {columns}")[0]["at"] is None
    with pytest.raises(EmissionError, match="Column at has no field lat; it has lon, x"):
        conformed(spark, f"1 AS n, named_struct('lon', 2.0D, 'x', 1.0D) AS at, {columns}")
    with pytest.raises(EmissionError, match="Column n is double, and the stream has a whole number: round it"):
        conformed(spark, f"1.9D AS n, {BY_LON} AS at, {columns}")
