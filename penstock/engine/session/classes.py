"""An archive of Spark's parsed classes, for the JVM's class data sharing, which makes later starts some seconds shorter.

The first JVM that ends writes a draft of the archive, beside the Python environment. The next start tries the draft, and makes
it the archive. The JVM itself ignores an archive for another version or other jars, but would crash on an archive that was cut
off, hence the trial.
"""

import os
import shutil
import subprocess
import time
import uuid
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pyspark

OWN = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
"""JVM options by which users control class data sharing themselves."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Silences the JVM's messages on signed jars, which it leaves out, and on an archive for other jars, which it does not use."""
WRITTEN_S = 10.0
"""A draft that has not changed for this many seconds is complete."""
UNDER_WAY_S = 600.0
"""Seconds for which other starts write no draft after one JVM was told to."""
TRIAL_S = 60.0
"""The timeout in seconds for a JVM to start with a draft and end."""
OLD_S = 30 * 86_400.0
"""The age in seconds at which an archive for other jars is removed; a younger one may be in use by another environment."""
ROOM = 2 << 30
"""Bytes that must be free on the disk to write an archive, which has some 200 MB."""


def sharing(java: Path, given: str) -> str:
    """Return the JVM options to use the archive, or to write one if there is none; empty if neither is possible.

    Args:
        java: the home of Java.
        given: the other options of the JVM.
    """
    if any(option in given for option in OWN):
        return ""
    place = _place()
    if place is None:
        return ""
    archive = place / f"spark-{_digest(java)}.jsa"
    with suppress(OSError):
        _adopt(archive, java)
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive} -Xshare:auto {QUIET}"
        drafts = list(place.glob(f"{archive.name}.*.draft"))
        if not drafts and " " not in str(place) and shutil.disk_usage(place).free > ROOM:
            draft = place / f"{archive.name}.{uuid.uuid4().hex}.draft"
            draft.touch()  # so that other starts write none
            return f"-XX:ArchiveClassesAtExit={draft} {QUIET}"
    return ""


def _place() -> Path | None:
    """Return the archive's directory: beside PySpark, or else in the user's cache; None if neither can be written."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    for place in (Path(pyspark.__file__).parent.parent / ".penstock-classes", Path(home) / "penstock"):
        with suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(place, os.W_OK):
                return place
    return None


def _digest(java: Path) -> str:
    """Return a digest of everything that an archive depends on: the version of Java, and Spark's jars."""
    release = java / "release"
    spark = _spark_home()
    jars = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in (spark / "jars").glob("*.jar"))
    version = release.read_text() if release.exists() else str(java)
    return sha256(repr((version, str(spark), jars)).encode()).hexdigest()[:16]


def _spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _adopt(archive: Path, java: Path) -> None:
    """Make a complete draft the archive, and remove other drafts, and old archives for other jars."""
    now = time.time()
    for draft in archive.parent.glob("*.draft"):
        stat = draft.stat()
        if stat.st_size and now - stat.st_mtime > WRITTEN_S:
            if draft.name.startswith(archive.name) and not archive.exists() and _is_whole(draft, java):
                draft.replace(archive)
            else:
                draft.unlink()
        elif not stat.st_size and now - stat.st_mtime > UNDER_WAY_S:
            draft.unlink()
    for other in archive.parent.glob("*.jsa"):
        if other != archive and now - other.stat().st_mtime > OLD_S:
            other.unlink()


def _is_whole(draft: Path, java: Path) -> bool:
    """Whether Spark starts with a draft, while the JVM verifies all of it."""
    checks = (
        f"-XX:SharedArchiveFile={draft} -Xshare:auto -XX:+VerifySharedSpaces -XX:-CreateCoredumpOnCrash -XX:ErrorFile=/dev/null"
    )
    environment = {**os.environ, "JAVA_HOME": str(java), "SPARK_SUBMIT_OPTS": f"{checks} {QUIET}"}
    command = [str(_spark_home() / "bin" / "spark-submit"), "--version"]
    with suppress(OSError, subprocess.TimeoutExpired):
        return not subprocess.run(command, env=environment, capture_output=True, timeout=TRIAL_S, check=False).returncode
    return False
