"""Watching a query that somebody else has written, by the public listener alone."""

import time

import pytest

import penstock
from penstock.errors import SinkError
from penstock.planner import calibrate, observe


@pytest.mark.slow
def test_a_query_of_ones_own_is_watched(spark, tmp_path):
    session = spark.get()
    with penstock.watch(session, tmp_path / "kept" / "progress.jsonl") as watching:
        rows = session.readStream.format("rate").option("rowsPerSecond", 500).load()
        query = (
            rows.selectExpr("value % 7 AS key").writeStream.format("noop").queryName("watched")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="500 milliseconds").start()
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(query.recentProgress) < 14:
            time.sleep(0.2)
        query.stop()
        time.sleep(1)  # the listener hears of progress a little later
        seen = watching.observe()
        assert seen.queries[0].name == "watched"
        assert seen.queries[0].batches >= 8
        assert watching.predict().setting.interval == pytest.approx(calibrate(seen).today.interval)
        assert watching.tune(p95="10 s").feasible
    assert observe(watching.path).queries[0].batches == seen.queries[0].batches  # what was kept stays


def test_a_place_that_cannot_be_written_is_refused(spark, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="give watch\\(\\) another path"):
        penstock.watch(spark.get(), tmp_path / "file" / "progress.jsonl")
