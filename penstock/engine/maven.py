"""Jars from Maven Central, with what they depend on, by the Ivy that PySpark carries."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from penstock.engine.java import java_home
from penstock.errors import JarNotFoundError

MODULE = """\
<ivy-module version="2.0">
  <info organisation="penstock" module="fetched"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org={group} name={artifact} rev={version} conf="default-&gt;default"/>
    {exclusions}
    {overrides}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True)
class Jars:
    """An artifact and what it depends on.

    Parameters
    ----------
    excluded: (group, regular expression of artifacts) that are left out.
    overridden: (group, artifact, version) to use in place of the version that is asked for.
    """

    group: str
    artifact: str
    version: str
    excluded: tuple[tuple[str, str], ...] = ()
    overridden: tuple[tuple[str, str, str], ...] = ()

    @property
    def directory(self) -> Path:
        """Where they are kept, in the user's cache, once they have been fetched."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
        return cache / f"{self.artifact}-{self.version}"

    def fetch(self) -> Path:
        """The directory that holds them, fetched if it is not there.

        Raises
        ------
        JarNotFoundError: they cannot be fetched.
        """
        target, cache = self.directory, self.directory.parent
        if target.exists():
            return target
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            draft, module = Path(scratch) / "jars", Path(scratch) / "ivy.xml"
            module.write_text(self._module())
            ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
            command: list[str | Path] = [
                java_home() / "bin" / "java", "-jar", ivy, "-ivy", module, "-confs", "default", "-types", "jar", "bundle",
                "-retrieve", f"{draft}/[artifact]-[revision](-[classifier]).[ext]", "-cache", cache / "ivy",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode or not draft.is_dir() or "UNRESOLVED" in done.stdout:
                raise JarNotFoundError(
                    f"{self.group}:{self.artifact}:{self.version} cannot be fetched from Maven Central, and is not in {cache}: "
                    "connect this machine once, or copy that directory from one that has it."
                )
            if not target.exists():
                shutil.move(draft, target)
        return target

    def _module(self) -> str:
        exclusions = [
            f'<exclude org={quoteattr(group)} module={quoteattr(artifact)} matcher="regexp"/>'
            for group, artifact in self.excluded
        ]
        overrides = [
            f"<override org={quoteattr(group)} module={quoteattr(artifact)} rev={quoteattr(version)}/>"
            for group, artifact, version in self.overridden
        ]
        return MODULE.format(
            group=quoteattr(self.group), artifact=quoteattr(self.artifact), version=quoteattr(self.version),
            exclusions="\n    ".join(exclusions), overrides="\n    ".join(overrides),
        )  # fmt: skip
