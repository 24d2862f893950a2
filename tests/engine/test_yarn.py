"""Runs on a real YARN with a real HDFS, the driver here or in a container of YARN's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pyspark
import pytest
from support import write_words

import penstock
from benchmarks.servers.yarn import Yarn
from penstock.storage import durable
from penstock.storage.journal import lines_of
from penstock.storage.place import path_of

pytestmark = pytest.mark.slow

SPARK = Path(pyspark.__path__[0])
APP = Path(__file__).parent / "apps_words.py"
PATIENCE_S = 240
FILES, WORDS = 5, 50


@pytest.fixture(scope="module")
def yarn(hdfs, tmp_path_factory):
    with Yarn(tmp_path_factory.mktemp("yarn"), hdfs) as running:
        yield running


@pytest.fixture
def place(hdfs):
    """A directory of a test's own in HDFS, with files of words."""
    place = f"{hdfs.uri}/{uuid4().hex}"
    write_words(f"{place}/in", FILES, WORDS)
    return place


def submitted(place, *options):
    """What begins a run in either way, and its settings."""
    run = [
        "run",
        f"{APP}:app",
        "--source",
        f"Words=jsonl:{place}/in?max_files=1",
        "--until-idle",
        "--runs",
        place,
        "--name",
        "run",
    ]
    settings = {
        "spark.yarn.jars": f"local:{SPARK}/jars/*",  # there already, on each node
        "spark.executor.instances": "1",
        "spark.executor.memory": "640m",
        **dict(options),
    }
    return [*run, "--master", "yarn"], [part for pair in settings.items() for part in ("--conf", "=".join(pair))]


def check(place):
    report = json.loads(durable.read(path_of(place) / "run" / "report.json"))
    counts = report["counts"]
    assert (counts["accepted"], counts["processed"]) == (FILES * WORDS, FILES * WORDS)
    assert (counts["lost"], counts["duplicated"], counts["queued"]) == (0, 0, 0)
    output = path_of(place) / "run" / "output" / "Out"
    lines = [
        json.loads(line)
        for name in durable.names(output)
        if name.endswith(".jsonl")
        for line in durable.read(output / name).splitlines()
    ]
    assert max(line["seen"] for line in lines) == FILES * WORDS // 5
    assert len(lines) == len({(line["text"], line["seen"]) for line in lines})


def test_the_driver_here_and_executors_on_yarn(yarn, place):
    run, settings = submitted(place)
    subprocess.run(
        [sys.executable, "-m", "penstock", *run, *settings],
        env={**os.environ, **yarn.environment},
        check=True,
        timeout=PATIENCE_S,
    )
    check(place)


def test_a_driver_on_yarn_that_is_killed_is_followed_by_another(yarn, place, tmp_path):
    own = {
        "PYSPARK_PYTHON": sys.executable,
        "PENSTOCK_WEBHDFS": yarn.environment["PENSTOCK_WEBHDFS"],
        "PYTHONPATH": str(Path(penstock.__path__[0]).parent),
    }
    run, settings = submitted(
        place, ("spark.driver.memory", "640m"), *((f"spark.yarn.appMasterEnv.{name}", value) for name, value in own.items())
    )
    submit = [SPARK / "bin" / "spark-submit", "--master", "yarn", "--deploy-mode", "cluster", *settings]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [*submit, Path(penstock.__path__[0]) / "__main__.py", *run],
            env={**os.environ, **yarn.environment},
            stdout=said,
            stderr=said,
        )
        deadline = time.monotonic() + PATIENCE_S
        while sum(1 for _ in lines_of(path_of(place) / "run" / "batches-main.jsonl")) < 2:
            assert process.poll() is None, (tmp_path / "said").read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        driver = subprocess.run(["pgrep", "-f", "ApplicationMaster.*--class.*PythonRunner"], capture_output=True, text=True)
        killed = [int(each) for each in driver.stdout.split()]
        assert killed
        for each in killed:
            os.kill(each, signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "said").read_text()[-2000:]
    check(place)
    starts = list(lines_of(path_of(place) / "run" / "starts.jsonl"))
    assert len(starts) == 2
