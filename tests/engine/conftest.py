"""Runs applications of `apps_engine.py` on Spark."""

from pathlib import Path

import pytest

from penstock.app.loader import load_app
from penstock.engine import RunOptions, run

APPS = Path(__file__).parent / "apps_engine.py"


@pytest.fixture
def run_app(tmp_path):
    """Run an application on local[2] until it is idle; options as in `RunOptions`, sources by name."""

    def run_one(which, file=APPS, **options):
        app, reference = load_app(f"{file}:{which}")
        given = {"until_idle": True, "quiet": True, "master": "local[2]", "runs": tmp_path / "runs", **options}
        return run(app, RunOptions(**given), application=reference)

    return run_one
