"""A contender: a row of contenders.toml, the environment that it needs, and its process."""

import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.bench.servers.process import Process, spawn
from penstock.connectors.declaration import Jars, Release
from penstock.connectors.kafka.place import JARS
from penstock.engine.session.java import java_home
from penstock.engine.session.maven import fetch, jars_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / "data" / "peers"


@dataclass(frozen=True)
class Contender:
    """An engine with the application.

    Args:
        name: of its row.
        title: for people.
        note: how it is written, and what recovers it.
        python: requirements of its environment; the clone's own environment where there are none.
        maven: coordinates of Java libraries.
        java: a directory of sources to compile.
        programs: that the machine must have.
        command: with placeholders, see contenders.toml.
        share: of the words that wait it gets, where all of them would take minutes.
        options: whether it takes the contract's options, or names them in its command.
    """

    name: str
    title: str
    note: str
    command: list[str]
    python: list[str] = field(default_factory=list)
    maven: list[str] = field(default_factory=list)
    java: str = ""
    programs: list[str] = field(default_factory=list)
    options: bool = True
    share: float = 1.0

    def prepare(self) -> dict[str, str]:
        """Make its environment unless it is there; returns what stands for the placeholders."""
        for program in self.programs:
            if shutil.which(program) is None:
                sys.exit(f"{self.title} needs {program}: install it (Debian has it as {program}), or name others with --only.")
        place = ENVIRONMENTS / self.name
        values = {"java": str(java_home() / "bin" / "java"), "python": sys.executable}
        if self.python:
            values["python"] = str(_environment(place / "venv", self.python))
            values["kafka_jars"] = ",".join(map(str, jars_of([JARS])))
        if self.maven:
            libraries = [fetch(_jars(coordinate)) for coordinate in self.maven]
            classes = _compiled(HERE / self.java, place / "classes", libraries)
            values["jars"] = ":".join([str(classes), *(f"{library}/*" for library in libraries)])
        return values

    def start(self, brokers: str, words: str, totals: str, keys: int, state: Path, log: Path) -> Process:
        """Start it."""
        given = {"brokers": brokers, "words": words, "totals": totals, "keys": str(keys), "state": str(state)}
        values = self.prepare() | given
        command = [part.format(**values) for part in self.command]
        command = [str(HERE / part) if part.endswith(".py") else part for part in command]
        if self.options:
            command += [part for name, value in given.items() for part in (f"--{name}", value)]
        return spawn(command, log)


def read_contenders() -> list[Contender]:
    """The rows of contenders.toml."""
    rows: dict[str, dict[str, Any]] = tomllib.loads((HERE / "contenders.toml").read_text())
    return [Contender(name, **row) for name, row in rows.items()]


def _environment(directory: Path, requirements: Sequence[str]) -> Path:
    python, noted = directory / "bin" / "python", directory / "requirements.txt"
    wanted = "\n".join(requirements)
    if not noted.exists() or noted.read_text() != wanted:
        venv.create(directory, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
        noted.write_text(wanted)
    return python


def _jars(coordinate: str) -> Jars:
    group, artifact, version = coordinate.split(":")
    return Jars(group, artifact, (Release(version),))


def _compiled(sources: Path, classes: Path, libraries: Sequence[Path]) -> Path:
    compiler = java_home() / "bin" / "javac"
    if not compiler.exists():
        sys.exit(
            f"{compiler} is missing: install a Java with its compiler (default-jdk-headless), or leave out this contender."
        )
    shutil.rmtree(classes, ignore_errors=True)
    path = ":".join(f"{library}/*" for library in libraries)
    subprocess.run([compiler, "-cp", path, "-d", classes, *sources.glob("*.java")], check=True)
    return classes
