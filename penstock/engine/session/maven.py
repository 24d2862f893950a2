"""Fetching jars and their dependencies from Maven Central, by the Ivy that PySpark contains."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.connectors.declaration import Jars
from penstock.engine.session.java import java_home
from penstock.engine.session.versions import installed
from penstock.errors import ConfigurationError, JarNotFoundError

MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="penstock" module="fetched"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
    {exclusions}
    {overrides}
  </dependencies>
</ivy-module>
"""
ATTEMPTS = 2
"""How often a download is tried. It has many small files, and a server may refuse one only for a moment."""


def jars_of(wanted: Iterable[Jars]) -> list[Path]:
    """Return the files of artifacts without those that Spark has. They are fetched from Maven Central on first use.

    Raises:
        JarNotFoundError: an artifact cannot be fetched.
    """
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    files = [file for jars in dict.fromkeys(wanted) for file in sorted(fetch(jars).glob("*.jar"))]
    return [file for file in files if not (spark / file.name).exists()]  # a container image may have them there


def refuse_lacking(spark: SparkSession, wanted: Iterable[Jars]) -> None:
    """Check that a session which a user has started has the jars that a run needs, as none can be added to it.

    Raises:
        ConfigurationError: it lacks some; the text names the files.
        JarNotFoundError: they cannot be fetched.
    """
    loader = spark._jsparkSession.sharedState().jarClassLoader()  # which also has jars that were added later
    lacking = [jars for jars in dict.fromkeys(wanted) if jars.provides and not _loads(loader, jars.provides)]
    if lacking:
        names = ", ".join(f"{jars.group}:{jars.artifact}" for jars in lacking)
        raise ConfigurationError(
            f"The session that was given lacks {names}: give a --master in place of a session, or start it with spark.jars="
            f"{','.join(map(str, jars_of(lacking)))} (spark-submit --jars)."
        )


def _loads(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


def fetch(jars: Jars) -> Path:
    """Return the directory with an artifact and its dependencies: of a version that is there, or else of the first preferred.

    Raises:
        JarNotFoundError: none of its versions can be fetched.
    """
    artifacts = list(_artifacts(jars))
    present = [artifact for artifact in artifacts if artifact.directory.exists()]  # looking for newer ones would take time
    failure: JarNotFoundError | None = None
    for artifact in present or artifacts:
        try:
            return artifact.fetch()
        except JarNotFoundError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _artifacts(jars: Jars) -> Iterator["_Artifact"]:
    minor = "{}.{}".format(*installed().minor)
    for release in jars.versions:
        if minor in (release.sparks or (minor,)):
            overridden = tuple((group, name, of.format(spark=installed().version)) for group, name, of in release.overridden)
            yield _Artifact(jars, release.version.format(spark=installed().version), overridden)


@dataclass(frozen=True)
class _Artifact:
    """One version of an artifact, with the versions of dependencies that it overrides."""

    jars: Jars
    version: str
    overridden: tuple[tuple[str, str, str], ...]

    @property
    def directory(self) -> Path:
        """The directory for its files in the user's cache, which exists once they have been fetched."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
        return cache / f"{self.jars.artifact}-{self.version}"

    def fetch(self) -> Path:
        """Return the directory with its files, and fetch them if it does not exist.

        Raises:
            JarNotFoundError: they cannot be fetched.
        """
        target, cache = self.directory, self.directory.parent
        if target.exists():
            return target
        with _alone(cache), tempfile.TemporaryDirectory(dir=cache) as scratch:
            # Another process may have fetched it while this one waited for the lock.
            if target.exists():
                return target
            draft, module = Path(scratch) / "jars", Path(scratch) / "ivy.xml"
            module.write_text(self._module())
            ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
            command: list[str | Path] = [
                java_home() / "bin" / "java",
                "-jar",
                ivy,
                "-ivy",
                module,
                "-confs",
                "default",
                "-types",
                *(["tar.gz"] if self.jars.archive else ["jar", "bundle"]),
                "-retrieve",
                f"{draft}/[artifact]-[revision](-[classifier]).[ext]",
                "-cache",
                cache / "ivy",
            ]
            # Moved into place as a whole, so that the target directory is never incomplete.
            for _ in range(ATTEMPTS):
                done = subprocess.run(command, capture_output=True, text=True)
                if not done.returncode and draft.is_dir() and "UNRESOLVED" not in done.stdout:
                    if self.jars.archive:
                        self._unpack(draft)
                    shutil.move(draft, target)
                    return target
        raise JarNotFoundError(
            f"{self.jars.group}:{self.jars.artifact}:{self.version} cannot be fetched from Maven Central{_why(done.stdout)}, "
            f"and is not in {cache}: connect this machine once, or copy that directory from one that has it."
        )

    @staticmethod
    def _unpack(draft: Path) -> None:
        for archive in list(draft.iterdir()):
            shutil.unpack_archive(archive, draft)
            archive.unlink()

    def _module(self) -> str:
        archive = quoteattr(self.jars.archive)
        packed = f'<artifact name={quoteattr(self.jars.artifact)} type="tar.gz" ext="tar.gz" m:classifier={archive}/>'
        parts = packed if self.jars.archive else ""
        dependencies = [
            f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} "
            f'conf="default-&gt;default" transitive="{str(not parts).lower()}">{parts}</dependency>'
            for group, artifact, version in ((self.jars.group, self.jars.artifact, self.version), *self.jars.besides)
        ]
        exclusions = [
            f'<exclude org={quoteattr(group)} module={quoteattr(artifact)} matcher="regexp"/>'
            for group, artifact in self.jars.excluded
        ]
        overrides = [
            f"<override org={quoteattr(group)} module={quoteattr(artifact)} rev={quoteattr(version)}/>"
            for group, artifact, version in self.overridden
        ]
        return MODULE.format(
            dependencies="\n    ".join(dependencies), exclusions="\n    ".join(exclusions), overrides="\n    ".join(overrides)
        )


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Within the block, no other process fetches: Ivy's cache of downloads does not support two at a time."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "fetching.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _why(said: str) -> str:
    """Return the line of Ivy's output that gives the reason, in brackets; empty if there is none."""
    lines = said.splitlines()
    telling = next((line for sign in ("Server access", "FAILED", "not found") for line in lines if sign in line), "")
    return telling and f" ({telling.strip()})"
