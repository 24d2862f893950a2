"""A release, rehearsed: built, checked, installed into an empty environment, and used there."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_serves_a_new_project(tmp_path):
    said = subprocess.run([ROOT / "scripts/rehearse", tmp_path / "rehearsal"], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.count("PASSED") == 2  # by twine: the sdist and the wheel
    assert "11 events accepted = 11 processed + 0 dead-lettered + 0 queued (lost 0, duplicated 0)" in said.stdout
    assert '{"text":"gate","seen":2}' in said.stdout
