"""Runs applications of `apps_engine.py` on Spark."""

import json
import os
import time
from pathlib import Path

import pytest

from penstock.app.loader import load_app
from penstock.engine import RunOptions, run

APPS = Path(__file__).parent / "apps_engine.py"

OWN = ("master", "conf", "hops")
"""Options with which a run starts a Spark of its own."""


@pytest.fixture
def run_app(tmp_path, spark):
    """Run an application on local[2] until it is idle; options as in `RunOptions`, sources by name."""

    def run_one(which, file=APPS, steering=None, **options):
        app, reference = load_app(f"{file}:{which}")
        uris = [*options.get("sources", {}).values(), *options.get("sinks", {}).values()]
        given = {"until_idle": True, "quiet": True, "runs": tmp_path / "runs", **options}
        if any(name in options for name in OWN) or any(uri.startswith("kafka:") for uri in uris):
            spark.leave()
            given.setdefault("master", "local[2]")
        else:
            given["spark"] = spark.get()
        return run(app, RunOptions(**given), application=reference, steering=steering)

    return run_one


@pytest.fixture
def words(tmp_path):
    """A source to which files can be added."""
    directory = tmp_path / "in"
    directory.mkdir()
    numbers, began = iter(range(100)), time.time()

    def add(*texts):
        number = next(numbers)
        file = directory / f"{number:03d}.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        os.utime(file, (began - 100 + number,) * 2)  # Spark reads files by their times, which quick writes share
        return {"Words": f"jsonl:{directory}?max_files=1"}

    return add
