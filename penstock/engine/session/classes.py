"""Spark's classes, kept as the JVM has parsed them: its class data sharing makes the next starts some seconds shorter.

The first JVM that ends writes them into a draft, beside the Python environment; the next start tries it and makes it the
archive. The JVM itself checks that an archive is of its own version and jars, and does without it where it is not; one that
was cut off it would die of, therefore the trial.
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
"""Options by which a user says what is to be shared."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""The JVM says of each signed jar that it is left out, and of an archive of other jars that it is not used."""
WRITTEN_S = 10.0
"""A draft that has not changed for so long has been written to its end."""
UNDER_WAY_S = 600.0
"""So long the next starts leave it to one JVM to write a draft."""
TRIAL_S = 60.0
"""For a JVM to start with a draft and end."""
OLD_S = 30 * 86_400.0
"""An archive of other jars is removed then: until then another environment may use it."""
ROOM = 2 << 30
"""Bytes that must be free for it; an archive has some 200 MB."""


def sharing(java: Path, given: str) -> str:
    """Options for a JVM: to use the archive, or to write it where there is none; empty where neither is to be.

    Parameters
    ----------
    java: its home. given: the options that it has besides.
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
            draft.touch()  # so that others know
            return f"-XX:ArchiveClassesAtExit={draft} {QUIET}"
    return ""


def _place() -> Path | None:
    """Beside the environment, or where its user keeps what can be made again; None where neither can be written."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    for place in (Path(pyspark.__file__).parent.parent / ".penstock-classes", Path(home) / "penstock"):
        with suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(place, os.W_OK):
                return place
    return None


def _digest(java: Path) -> str:
    """Of what an archive is good for: a Java, and Spark's jars."""
    release = java / "release"
    spark = _spark_home()
    jars = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in (spark / "jars").glob("*.jar"))
    version = release.read_text() if release.exists() else str(java)
    return sha256(repr((version, str(spark), jars)).encode()).hexdigest()[:16]


def _spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _adopt(archive: Path, java: Path) -> None:
    """Make a draft that is finished the archive, and remove what is of no use: other drafts, old archives of other jars."""
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
    """Whether Spark starts with it, every byte checked."""
    checks = (
        f"-XX:SharedArchiveFile={draft} -Xshare:auto -XX:+VerifySharedSpaces -XX:-CreateCoredumpOnCrash -XX:ErrorFile=/dev/null"
    )
    environment = {**os.environ, "JAVA_HOME": str(java), "SPARK_SUBMIT_OPTS": f"{checks} {QUIET}"}
    command = [str(_spark_home() / "bin" / "spark-submit"), "--version"]
    with suppress(OSError, subprocess.TimeoutExpired):
        return not subprocess.run(command, env=environment, capture_output=True, timeout=TRIAL_S, check=False).returncode
    return False
