"""The image without a container runtime: its recipe carried out in a directory of this machine, by the recipe's own
commands.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "deploy" / "Dockerfile"
PLACES = re.compile(
    r"(?:(?<=local://)|(?<=local\\://)|(?<![\w./]))/(?=(?:opt|app|work|runs|spool|home/penstock|tmp/penstock|var/lib/apt)\b)"
)
OF_THE_SYSTEM = ("apt-get", "useradd", "chown")
"""Commands whose part this machine has played before: its own packages, and its own user."""


def instructions(recipe: Path = RECIPE) -> list[tuple[str, str]]:
    """Each instruction of a recipe, and what follows it."""
    text = re.sub(r"^#.*\n", "", recipe.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


class Image:
    """What the recipe makes, below a directory.

    A virtual environment stands for the Python of the image that it begins with.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        python, stand_ins = directory / "python", directory / "stand-ins"
        subprocess.run([sys.executable, "-m", "venv", python], check=True)
        stand_ins.mkdir()
        for name in OF_THE_SYSTEM:
            (stand_ins / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
            (stand_ins / name).chmod(0o755)
        self.environment = {
            "PATH": f"{stand_ins}:{python}/bin:{os.environ['PATH']}",
            "HOME": str(directory / "home" / "penstock"),
            "PIP_COMPILE": "0",  # here it would take a minute
            **{name: os.environ[name] for name in ("JAVA_HOME", "PIP_FIND_LINKS", "PIP_CERT") if name in os.environ},
        }
        for instruction, given in instructions():
            getattr(self, f"_{instruction.lower()}")(given)

    def moved(self, text: str) -> str:
        """Places of the image, as they are called on this machine."""
        return PLACES.sub(f"{self.directory}/", text)

    def _from(self, given: str) -> None:
        assert given.startswith("python:3.")

    def _run(self, given: str) -> None:
        command = self.moved(given).replace("--no-cache-dir", "--quiet --disable-pip-version-check")  # pip has half a GB here
        done = subprocess.run(["sh", "-ec", command], env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        self.said += done.stdout.splitlines()

    def _copy(self, given: str) -> None:
        *names, target = given.split()
        place = Path(self.moved(target))
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, place)

    def _env(self, given: str) -> None:
        name, _, value = given.partition("=")
        self.environment[name] = self.moved(value)

    def _user(self, given: str) -> None:
        assert given.isdecimal()  # a name says nothing to Kubernetes' runAsNonRoot

    def _workdir(self, given: str) -> None:
        self.work = Path(self.moved(given))

    def _entrypoint(self, given: str) -> None:
        self.entrypoint = self.moved(given.strip('[]"'))

    def _cmd(self, given: str) -> None:
        self.command = [given.strip('[]"')]
