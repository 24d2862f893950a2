"""The archive of Spark's classes: made by the first JVM, tried before it is used, left alone where the user has his own."""

import os
import subprocess

import pytest

from penstock.engine.session import classes
from penstock.engine.session.java import java_home


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(classes, "_place", lambda: tmp_path)
    return tmp_path


def started(options):
    """A JVM of Spark's with some options, to its end."""
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_SUBMIT_OPTS": options}
    command = [classes._spark_home() / "bin" / "spark-submit", "--version"]
    return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)


def aged(path):
    os.utime(path, (1, 1))


def test_the_first_writes_it_and_the_others_leave_it_to_that(place):
    first = classes.sharing(java_home(), "-Dmine=1")
    assert "ArchiveClassesAtExit" in first
    assert classes.sharing(java_home(), "") == ""
    [draft] = place.glob("*.draft")
    aged(draft)  # whoever was to write it was killed
    assert "ArchiveClassesAtExit" in classes.sharing(java_home(), "")
    assert not draft.exists()


@pytest.mark.parametrize("given", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine.jsa"])
def test_who_shares_in_a_way_of_his_own_is_left_alone(place, given):
    assert classes.sharing(java_home(), given) == ""
    assert list(place.iterdir()) == []


def test_a_place_that_cannot_be_written_is_done_without(monkeypatch):
    monkeypatch.setattr(classes, "_place", lambda: None)
    assert classes.sharing(java_home(), "") == ""


@pytest.mark.slow
def test_an_archive_is_used_once_it_is_whole_and_not_before(place):
    started(classes.sharing(java_home(), ""))
    [draft] = place.glob("*.draft")
    content = draft.read_bytes()
    assert len(content) > 1_000_000
    assert classes.sharing(java_home(), "") == ""  # it may still be written
    aged(draft)
    used = classes.sharing(java_home(), "")
    [archive] = place.glob("*.jsa")
    assert f"-XX:SharedArchiveFile={archive}" in used
    started(used)
    archive.unlink()
    cut = place / f"{archive.name}.cut.draft"
    cut.write_bytes(content[: len(content) // 3])
    aged(cut)
    assert "ArchiveClassesAtExit" in classes.sharing(java_home(), "")
    assert not archive.exists()
    assert not cut.exists()
