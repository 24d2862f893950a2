"""``penstock new``: a small project that runs and has a passing test."""

import os
import re
import shlex
from pathlib import Path

import click

from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError, SinkError
from penstock.extras import DISTRIBUTION

LONGEST = 100
NAME = re.compile(rf"[A-Za-z](?=.{{0,{LONGEST - 1}}}\Z)(?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
"""The names of projects, as pyproject.toml takes them."""

APP = '''\
"""Counts how often each word has been said."""

from penstock import App, Event, ProcessingElement


class Word(Event):
    text: str


class Count(Event):
    text: str
    seen: int


app = App("{name}")
words = app.source("Words", Word, uri="jsonl:input")
counts = app.stream("Counts", Count)
app.sink("Output", counts)


@app.element(words, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1

    def on_batch(self):
        yield counts(text=self.key, seen=self.seen)
'''

TEST = """\
from app import Word, app
from penstock.testing import TopologyDriver


def test_words_are_counted_by_their_text():
    driver = TopologyDriver(app)
    driver.batch({"Words": [Word("gate"), Word("water"), Word("gate")]})
    driver.batch({"Words": [Word("gate")]})
    last = {count.text: count.seen for count in driver.output("Output")}
    assert last == {"gate": 3, "water": 1}
"""

INPUT = "".join(
    f'{{"text": "{word}"}}\n'
    for word in ["the", "gate", "lets", "the", "water", "through", "when", "the", "gate", "is", "open"]
)

PROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["{distribution}[spark]"]

[dependency-groups]
dev = ["pytest>=8"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

IGNORED = """\
# what runs leave
runs/
spool/
__pycache__/
.pytest_cache/
.venv/
"""

README = """\
# {name}

    penstock run app.py --until-idle     # reads input/*.jsonl, writes runs/{name}/output/Output/
    penstock graph app.py                # draws the topology
    python -m pytest                     # tests it without Spark (pip install pytest)
"""


@command()
@click.argument("name")
def new(name: str) -> None:
    """Make a small project in a new directory: an application, its input, and a test that passes.

    \b
    Example:
      penstock new hello && cd hello && penstock run app.py --until-idle
    """
    target = Path(os.path.normpath(name))
    if not NAME.fullmatch(target.name):
        raise ConfigurationError(
            f"{name!r} must be letters, digits, '-' and '_', {LONGEST} at most; it begins with a letter, and ends with one or "
            "with a digit."
        )
    if target.exists() or target.is_symlink():
        raise ConfigurationError(f"{target} exists already; choose another name, or remove it.")
    files = {
        "app.py": APP.replace("{name}", target.name),
        "test_app.py": TEST,
        "input/words.jsonl": INPUT,
        "README.md": README.replace("{name}", target.name),
        "pyproject.toml": PROJECT.replace("{name}", target.name).replace("{distribution}", DISTRIBUTION),
        ".gitignore": IGNORED,
    }
    try:
        for path, text in files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text)
    except OSError as error:
        raise SinkError(f"{target} cannot be made ({error.strerror}); choose another place.") from error
    echo(f"Made {target}/. Next: cd {shlex.quote(str(target))} && penstock run app.py --until-idle")
