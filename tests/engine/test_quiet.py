"""A query to which nothing comes is slowed, and goes on at once when something does."""

import time

import pytest

from penstock.engine.running import quiet
from penstock.engine.running.quiet import Quiet


def interval_of(query):
    executor = query._jsq.streamingQuery().triggerExecutor()
    field = executor.getClass().getDeclaredField("intervalMs")
    field.setAccessible(True)
    return field.getLong(executor)


def await_true(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_silent_query_is_slowed_until_something_comes(spark, tmp_path, monkeypatch):
    given, calm, seen = tmp_path / "in", Quiet(), []
    given.mkdir()

    def batch(frame, number):
        calm.begin(lambda: query)
        seen.append((interval_of(query), frame.count()))

    frame = spark.get().readStream.schema("value string").text(str(given))
    query = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(batch).start()
    try:
        await_true(lambda: query._jsq.streamingQuery().triggerExecutor() is not None)
        calm.look([query])
        assert interval_of(query) == 0
        for number in range(2):
            for much, interval in ((3600.0, 200), (0.5, 500)):
                monkeypatch.setattr(quiet, "SLOWER", ((much, 0.5), (0.5, 0.2)))
                time.sleep(0.6)
                calm.look([query])
                assert interval_of(query) == interval
            (given / f"{number}.txt").write_text("one\n")
            await_true(lambda wanted=number + 1: len(seen) == wanted)
            assert seen[-1] == (0, 1)
            await_true(lambda: not query.status["isDataAvailable"])
    finally:
        query.stop()
