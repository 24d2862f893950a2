"""The handbook builds without a warning, asks nothing of any other machine, and has every public member."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def handbook(tmp_path_factory):
    place = tmp_path_factory.mktemp("handbook")
    for earlier in ("0.0.9", "0.0.10"):
        (place / earlier).mkdir()
    subprocess.run([sys.executable, ROOT / "scripts/handbook.py", "--to", place], check=True, capture_output=True)
    return place


@pytest.mark.slow
def test_it_needs_no_other_machine(handbook):
    for page in handbook.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded[0]}"


@pytest.mark.slow
def test_every_public_member_is_in_the_reference(handbook):
    pages = handbook / penstock.__version__ / "reference"
    for module in (
        "penstock",
        "penstock.planner",
        "penstock.queueing",
        "penstock.allocation",
        "penstock.kinds",
        "penstock.testing",
        "penstock.client",
    ):
        page = (pages / f"{module}.html").read_text()
        for name in importlib.import_module(module).__all__:
            found = getattr(importlib.import_module(module), name)
            if module != "penstock" and found is getattr(penstock, name, None):
                continue  # which is on that page
            if getattr(found, "__doc__", None) and callable(found):
                assert f".{name}" in page, f"{name} is missing in {module}"
    assert "penstock queue optimize" in (pages / "commands.html").read_text()


@pytest.mark.slow
def test_search_versions_and_a_list_for_programs(handbook):
    built = handbook / penstock.__version__
    assert "dead" in (built / "searchindex.js").read_text()
    assert json.loads((handbook / "versions.js").read_text().split("=")[1].rstrip(";\n")) == [
        penstock.__version__,
        "0.0.10",
        "0.0.9",
    ]
    listed = (built / "llms.txt").read_text()
    assert listed.startswith("# Penstock\n\n> ")
    for target in re.findall(r"\]\(([^)]+)\)", listed):
        assert (built / target).exists(), target
