"""A run that was recorded on Spark (80 micro-batches of `benchmarks/apps/keyed.py`), as its directory is."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.ui.server import Page, beside
from penstock.web.access import Access

RECORDED = Path(__file__).parent / "recorded" / "keyed"


@pytest.fixture
def runs(tmp_path):
    """A directory with that run in it."""
    shutil.copytree(RECORDED, tmp_path / "runs" / "keyed")
    return tmp_path / "runs"


@pytest.fixture
def lag(runs):
    """Has the last micro-batches of that run read a topic of two partitions, and leave what comes before given ends."""

    def leave(latest):
        progress = runs / "keyed" / "progress.jsonl"
        lines = [json.loads(line) for line in progress.read_text().splitlines()]
        for one in lines[-3:]:
            one["numInputRows"] = one["sources"][0]["numInputRows"] = 2_000
            one["sources"][0] |= {
                "startOffset": {"t": {"0": 10_000, "1": 9_000}},
                "endOffset": {"t": {"0": 11_000, "1": 10_000}},
                "latestOffset": {"t": latest},
            }
        progress.write_text("".join(f"{json.dumps(one)}\n" for one in lines))

    return leave


@pytest.fixture
def served(runs):
    """Serve a page until the test is over; returns its address."""
    with ExitStack() as servers:
        yield lambda access=None, hosts=(): servers.enter_context(beside(Page(runs, access or Access(), hosts), "127.0.0.1", 0))
