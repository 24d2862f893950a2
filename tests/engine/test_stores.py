"""A run that lies in a store does what it does on a disk: groups with files between them, a move, a start afresh."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from adapters import required

from benchmarks.servers.s3 import S3, gateway
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
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(example / "app.py"),
        "--keys",
        "2",
        "--until-idle=pause",
        "--runs",
        runs,
        "--source",
        f"RawWords=text:{tmp_path / 'words'}",
        "--name",
        "run",
        "--group",
        "AggregationReceiver=other",
    ]
    for partitions, more in (("2", ()), ("3", ()), ("2", ("--fresh",))):
        ran = subprocess.run(
            [*command, "--partitions", partitions, *more],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        report = json.loads(durable.read(path_of(runs) / "run" / "report.json"))
        assert report["streams"]["Three"] == WORDS // 4 * 2
        counts = report["counts"]
        assert counts["accepted"] == counts["processed"] == WORDS
        assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0


@pytest.fixture
def small(tmp_path):
    """A server of S3's API with room for very little, and where its data lie."""
    required(gateway(), "Go, to build the S3 gateway with; see https://go.dev/doc/install")
    data = tmp_path / "small" / "data"
    data.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(data)], capture_output=True)
    if mounted.returncode:
        if os.environ.get("CI"):
            pytest.fail("CI must be able to mount a tmpfs, to test a full store")
        pytest.skip("FULL STORE NOT TESTED: mounting a tmpfs needs root")
    try:
        with S3(tmp_path / "small") as server:
            yield server, data
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)


def test_a_store_that_is_full_stops_a_run_with_a_sentence_and_there_is_room_again(small, tmp_path):
    server, data = small
    (tmp_path / "in").mkdir()
    for number in range(40):
        file = tmp_path / "in" / f"{number}.txt"
        file.write_text("word\n" * 50)
        os.utime(file, (1_700_000_000 + number,) * 2)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(ROOT / "examples/divisibility/app.py"),
        "--keys",
        "2",
        "--until-idle",
        "--runs",
        f"{server.uri}/runs",
        "--name",
        "run",
        "--source",
        f"RawWords=text:{tmp_path / 'in'}?max_files=1",
    ]
    environment = {**os.environ, **server.environment, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as run:
        commits = data / "bucket" / "runs" / "run" / "checkpoint" / "main" / "commits"
        while not (commits / "1").exists():
            assert run.poll() is None
            time.sleep(0.1)
        ballast = data / "ballast"
        with pytest.raises(OSError, match="No space left"):
            ballast.write_bytes(bytes(20_000_000))
        said = run.communicate(timeout=200)[1]
    assert run.returncode == 2
    assert "The run stopped" in said
    assert "Nothing is lost" in said
    assert "Traceback" not in said
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=200m", str(data)], check=True)
    subprocess.run(command, env=environment, check=True, timeout=280)
    counts = json.loads((data / "bucket" / "runs" / "run" / "report.json").read_text())["counts"]
    assert (counts["accepted"], counts["processed"]) == (2000, 2000)
    assert (counts["lost"], counts["duplicated"], counts["queued"]) == (0, 0, 0)
