"""Finding the Java that Spark needs."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from penstock.errors import JavaNotFoundError

SUPPORTED = (17, 21)


@cache
def java_home() -> Path:
    """Return the home of a Java that Spark supports: from JAVA_HOME, from PATH, or from the system's usual directories.

    Raises:
        JavaNotFoundError: there is none; the text says what to install.
    """
    configured = os.environ.get("JAVA_HOME")
    if configured and not (Path(configured) / "bin" / "java").exists():
        raise JavaNotFoundError(f"JAVA_HOME is {configured}, where there is no bin/java: set it to Java 17 or 21, or unset it.")
    unsupported = []
    for home in _candidates():
        version = _version(home)
        if version in SUPPORTED:
            return home
        unsupported.append(f"Java {version} in {home}")
    seen = f" (found {', '.join(unsupported)})" if unsupported else ""
    raise JavaNotFoundError(
        f"Spark needs Java 17 or 21{seen}: install it, as `apt-get install openjdk-17-jre-headless` or "
        "`brew install openjdk@17`, or set JAVA_HOME."
    )


def _candidates() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for root in ("/usr/lib/jvm", "/opt/homebrew/opt", "/Library/Java/JavaVirtualMachines"):
        for java in sorted(Path(root).glob("*/bin/java")) + sorted(Path(root).glob("*/Contents/Home/bin/java")):
            yield java.parent.parent


def _version(home: Path) -> int | None:
    try:
        answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match[1]) if match else None
