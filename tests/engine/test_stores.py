"""A run that lies in a store does what it does on a disk: groups with files between them, a move, a start afresh."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.storage import durable
from penstock.storage.place import path_of

pytestmark = [pytest.mark.servers, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
WORDS = 2_000


@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_a_run_in_a_store_is_divided_moved_and_begun_afresh(request, tmp_path, kind):
    example, runs = ROOT / "examples" / "divisibility", f"{request.getfixturevalue(kind).uri}/{tmp_path.name}"
    make = [sys.executable, str(example / "words.py"), str(tmp_path / "words"), "--count", str(WORDS), "--files", "2"]
    subprocess.run(make, check=True)
    command = [
        sys.executable, "-m", "penstock", "run", str(example / "app.py"), "--keys", "2", "--until-idle=pause", "--runs", runs,
        "--source", f"RawWords=text:{tmp_path / 'words'}", "--name", "run", "--group", "AggregationReceiver=other",
    ]  # fmt: skip
    for partitions, more in (("2", ()), ("3", ()), ("2", ("--fresh",))):
        ran = subprocess.run(
            [*command, "--partitions", partitions, *more], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        report = json.loads(durable.read(path_of(runs) / "run" / "report.json"))
        assert report["streams"]["Three"] == WORDS // 4 * 2
        counts = report["counts"]
        assert counts["accepted"] == counts["processed"] == WORDS
        assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
