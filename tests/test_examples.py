"""The examples give the figures that another method gives for the same input."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from penstock.app.loader import load_app
from penstock.engine import RunOptions, run
from penstock.testing import TopologyDriver

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch):
    """Loads an example's app.py, each of which is a module of that name, and its neighbours."""

    def load(name, **parameters):
        for module in ("app", "words", "flights"):
            sys.modules.pop(module, None)
        monkeypatch.syspath_prepend(str(EXAMPLES / name))
        return load_app(EXAMPLES / name / "app.py", parameters)

    return load


@pytest.mark.parametrize("keys", [1, 2, 4, 8])
def test_divisibility_counts_every_multiple_of_three_once_for_each_key(example, keys):
    app, _ = example("divisibility", keys=str(keys))
    from words import words

    texts = list(words(2_000, seed=3))
    driver = TopologyDriver(app)
    driver.batch({"RawWords": [app.topology().sources[0].event_type(text) for text in texts]})
    totals = {total.by: total.count for total in driver.output("Output")}
    assert totals["Three"] == 500 * keys
    assert totals["Eleven"] == keys * sum(text.isdigit() and int(text) % 11 == 0 for text in texts)


def test_enrichment_prices_every_order_in_order():
    script = EXAMPLES / "enrichment" / "compare.py"
    said = subprocess.run([sys.executable, script, "20"], capture_output=True, text=True, check=True)
    assert "20 events: " in said.stdout  # it checks the results itself
    assert "nclosed" not in said.stderr


@pytest.mark.slow
@pytest.mark.spark
def test_flights_agree_with_duckdb(example, tmp_path, spark):
    app, reference = example("flights")
    from flights import table

    frame = table("2013-01-15")
    frame.to_parquet(tmp_path / "flights.parquet", index=False, coerce_timestamps="us")
    source = f"replay:{tmp_path / 'flights.parquet'}?time=when&speed=1e9&max_rows=4000"
    options = RunOptions(runs=tmp_path, sources={"Flights": source}, until_idle=True, quiet=True, spark=spark.get())
    result = run(app, options, application=reference)
    assert result.report["counts"]["processed"] == len(frame)
    assert result.report["batches"] >= 3

    for sink, column in (("Carriers", "carrier"), ("Airports", "origin")):
        last = {delay.of: (delay.flights, delay.mean, delay.greatest) for delay in result.output(sink)}
        expected = duckdb.sql(
            f"select {column}, count(dep_delay), avg(dep_delay), max(dep_delay) from frame group by {column}"
        ).fetchall()
        for name, count, mean, greatest in expected:
            assert last[name][0] == count
            assert last[name][1:] == pytest.approx((mean, greatest))
    boards = {ranking.board: ranking for ranking in result.output("Boards")}
    busiest = duckdb.sql(
        "select origin || '-' || dest as route, count(*) n from frame group by route order by n desc, route limit 10"
    ).fetchall()
    assert list(zip(boards["routes"].names, boards["routes"].values, strict=True)) == busiest
    numbered = frame.assign(number=range(len(frame)))
    latest = duckdb.sql(
        "select tailnum, arg_max(arr_delay, number) d from numbered where arr_delay is not null and tailnum is not null "
        "group by tailnum order by d desc, tailnum limit 10"
    ).fetchall()
    assert len(numbered) == len(frame)
    assert list(zip(boards["aircraft"].names, boards["aircraft"].values, strict=True)) == latest


def test_trending_agrees_with_a_count_of_the_window(example):
    app, _ = example("trending")
    module = sys.modules["app"]
    every = [module.message(number) for number in range(1500)]
    driver = TopologyDriver(app)
    for start in range(0, 1500, 300):
        driver.batch({"Messages": every[start : start + 300]})
    driver.batch()  # the watermark of the last messages: topics not heard of for a minute leave
    final = driver.output("Output")[-1]
    now = module.slot_of(every[-1].at)
    counted = {}
    for message in every:
        for topic in message.text.replace("#", "").split():
            if now - module.window < module.slot_of(message.at):
                counted[topic] = counted.get(topic, 0) + 1
    best = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    assert dict(zip(final.topics[:5], final.counts[:5], strict=True)) == dict(best[:5])
