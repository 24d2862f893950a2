"""Runs in a session of somebody else's: one after the other and side by side; the session is as it was."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import load

from penstock.app.loader import load_app
from penstock.connectors.declaration import Jars, Release
from penstock.engine.running.execution import run
from penstock.engine.running.options import RunOptions
from penstock.engine.session import maven
from penstock.engine.session.spark import STREAMING, beside, refuse_session
from penstock.errors import ConfigurationError, RunFailedError

pytestmark = pytest.mark.spark

APPS = Path(__file__).parent / "apps_engine.py"
WORDS = ["ant", "bee", "ant"]


def write(place):
    place.mkdir(parents=True)
    (place / "0.jsonl").write_text("".join(json.dumps({"text": word}) + "\n" for word in WORDS))
    return f"jsonl:{place}"


def settings(spark):
    return dict(row for row in spark.sql("SET").collect())


def test_two_runs_go_on_side_by_side_in_a_session_and_leave_it_as_it_was(spark, tmp_path):
    session = spark.get()
    session.range(2).createOrReplaceTempView("two")
    before = settings(session)
    app, reference = load("counting")

    def start(partitions):
        uri = write(tmp_path / f"in-{partitions}")
        options = RunOptions(
            name=f"run-{partitions}",
            runs=tmp_path / "runs",
            sources={"Words": uri},
            partitions=partitions,
            until_idle=True,
            quiet=True,
            spark=session,
        )
        return run(app, options, application=reference)

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(start, (2, 3)))
    for result in results:
        assert {(count.key, count.seen) for count in result.output("Out")} == {("ant", 2), ("bee", 1)}
        assert result.report["counts"]["processed"] == len(WORDS)
    for partitions in (2, 3):
        planned = (tmp_path / "runs" / f"run-{partitions}" / "checkpoint" / "main" / "offsets" / "0").read_text().splitlines()
        assert json.loads(planned[1])["conf"]["spark.sql.shuffle.partitions"] == str(partitions)
    assert settings(session) == before
    assert not session.streams.active
    session.sparkContext.parallelize([(1,)]).toDF(["one"]).createOrReplaceTempView("ours")
    assert session.table("ours").count() == 1
    assert session.table("two").count() == 2


def test_a_session_beside_has_what_the_other_knows(spark):
    session = spark.get()
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.range(5).createOrReplaceTempView("five")
    with beside(session) as own:
        assert own.table("five").count() == 5
        assert own.conf.get("spark.sql.ansi.enabled") == "false"
        assert {name: own.conf.get(name) for name in STREAMING} == STREAMING
        own.conf.set("spark.sql.shuffle.partitions", "77")
    assert session.conf.get("spark.sql.shuffle.partitions") != "77"
    session.conf.unset("spark.sql.ansi.enabled")


def test_a_session_of_spark_connect_is_refused():
    with pytest.raises(ConfigurationError, match="is of Spark Connect"):
        refuse_session(SimpleNamespace(version="4.3.0"))


def test_a_session_that_lacks_a_connector_is_refused_with_the_files_that_it_needs(spark, monkeypatch):
    there = Jars("org.apache.spark", "core", (Release("{spark}"),), provides="org.apache.spark.SparkConf")
    lacking = Jars("org.example", "connector", (Release("{spark}"),), provides="org.example.Source")
    monkeypatch.setattr(maven, "jars_of", lambda wanted: [Path(f"/cache/{jars.artifact}.jar") for jars in wanted])
    maven.refuse_lacking(spark.get(), [there])
    said = r"lacks org\.example:connector: .* spark\.jars=/cache/connector\.jar \(spark-submit"
    with pytest.raises(ConfigurationError, match=said):
        maven.refuse_lacking(spark.get(), [there, lacking])


def test_workers_of_another_python_are_said_in_a_sentence(spark, tmp_path):
    """Spark asks the driver which it has, and its workers compare; here the driver is made to say another."""
    session, (app, reference) = spark.get(), load_app(f"{APPS}:passing")
    options = RunOptions(
        spark=session, sources={"Words": write(tmp_path / "in")}, until_idle=True, quiet=True, runs=tmp_path / "runs"
    )
    own, session.sparkContext.pythonVer = session.sparkContext.pythonVer, "3.99"
    try:
        with pytest.raises(RunFailedError, match=r"the workers have Python 3\.\d+, and the driver 3\.99: .*--archives"):
            run(app, options, application=reference)
    finally:
        session.sparkContext.pythonVer = own
