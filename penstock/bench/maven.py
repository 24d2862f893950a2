"""Jars from Maven Central, with their dependencies, by the Ivy that PySpark carries."""

import os
import subprocess
from pathlib import Path

import pyspark

from penstock.engine.java import java_home
from penstock.errors import ConnectorNotFoundError


def fetch_jars(group: str, artifact: str, version: str) -> Path:
    """The directory that holds an artifact and all that it needs; fetched once, and kept in the user's cache.

    Raises
    ------
    ConnectorNotFoundError: it cannot be fetched.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    target, whole = cache / f"{artifact}-{version}", cache / f"{artifact}-{version}.complete"
    if whole.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command: list[str | Path] = [
        java_home() / "bin" / "java", "-jar", ivy, "-dependency", group, artifact, version, "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]", "-cache", cache / "ivy",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or "UNRESOLVED" in done.stdout:
        raise ConnectorNotFoundError(
            f"{group}:{artifact}:{version} cannot be fetched from Maven Central; connect this machine once."
        )
    whole.touch()
    return target
