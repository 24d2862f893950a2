"""Watching a query that somebody else has written, by the public listener alone."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

import penstock
from penstock.bench.servers.process import await_ready, free_port, kill, spawn
from penstock.engine.running.watch import lost_a_part
from penstock.engine.session.java import java_home
from penstock.errors import SinkError
from penstock.planner import calibrate, observe


@pytest.mark.slow
def test_a_query_of_ones_own_is_watched(spark, tmp_path):
    session = spark.get()
    with penstock.watch(session, tmp_path / "kept" / "progress.jsonl") as watching:
        rows = session.readStream.format("rate").option("rowsPerSecond", 500).load()
        query = (
            rows.selectExpr("value % 7 AS key")
            .writeStream.format("noop")
            .queryName("watched")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="500 milliseconds")
            .start()
        )
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


@pytest.mark.parametrize(
    ("failure", "lost"),
    [
        (
            "org.apache.spark.SparkException: Job aborted due to stage failure: A shuffle map stage with indeterminate output "
            "was failed and retried. However, Spark cannot rollback the ResultStage 50",
            True,
        ),
        (
            "Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times, most recent failure: Lost task 1.3 in stage "
            "2.0 (TID 9) (10.0.0.1 executor 2): ExecutorLostFailure (executor 2 exited)",
            True,
        ),
        ("Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: RuntimeError: indeterminate output", False),
        ("RuntimeError: ExecutorLostFailure", False),
    ],
)
def test_only_what_the_cluster_has_lost_is_repeated(failure, lost):
    assert lost_a_part(failure) is lost


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def connect(tmp_path):
    """The address of a server of Spark Connect."""
    home, port = Path(pyspark.__file__).parent, free_port()
    command = [
        home / "bin" / "spark-submit",
        "--master",
        "local[2]",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--conf",
        f"spark.connect.grpc.binding.port={port}",
        "--conf",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf",
        "spark.ui.enabled=false",
        "spark-internal",
    ]
    environment = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_DIRS": str(tmp_path / "scratch")}
    server = spawn(command, tmp_path / "server.log", environment)
    try:
        await_ready("server of Spark Connect", server, tmp_path / "server.log", lambda: listens(port))
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill(server)


@pytest.mark.slow
def test_a_query_is_watched_over_connect(connect, tmp_path):
    """In a client that has no JVM, and no session of Spark's own beside it."""
    client = [sys.executable, Path(__file__).parent / "watch_over_connect.py", connect, tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "SPARK_CONNECT_MODE_ENABLED": "1"}
    ended = subprocess.run(client, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr[-2000:]
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["name"] == "watched"
    assert seen["batches"] >= 8
    assert 0 < seen["p95"] < 60
    assert observe(tmp_path / "progress.jsonl").queries[0].batches == seen["batches"]
