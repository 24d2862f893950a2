"""The help lists what there is, and imports none of it."""

import subprocess
import sys

import click
import pytest

from penstock.allocation import METHODS
from penstock.cli.allocate import WAYS
from penstock.cli.main import VERBS, cli
from penstock.cli.queue import COMMANDS, queue


@pytest.mark.parametrize(("group", "names"), [(cli, VERBS), (queue, COMMANDS)], ids=["penstock", "queue"])
def test_each_command_that_is_listed_exists(group, names):
    context = click.Context(group)
    for name, line in names.items():
        assert group.get_command(context, name).name == name
        assert line.endswith(".")


HEAVY = {"numpy", "scipy", "pyarrow", "pyspark", "pandas", "rich", "numba", "confluent_kafka", "starlette"}


def loaded_by(script):
    """Which heavy libraries a script has loaded, and what it has printed."""
    script = f"import sys\n{script}\nprint(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *lines, loaded = done.stdout.splitlines()
    return loaded, lines


def test_help_waits_for_no_heavy_library():
    commands = [[], ["queue"], *([verb] for verb in VERBS), *(["queue", name] for name in COMMANDS)]
    script = f"""
from penstock.cli import main
for command in {commands}:
    try: main([*command, "--help"])
    except SystemExit: pass
    print(command, [name for name in {HEAVY} if name in sys.modules])
"""
    loaded, lines = loaded_by(script)
    assert (loaded, [line for line in lines if line.startswith("[") and not line.endswith("[]")]) == ("[]", [])


@pytest.mark.parametrize(
    ("words", "wanted"), [("penstock tu", "plain,tune"), ("penstock tune --rec", "plain,--recorded-cores")]
)
def test_completion_waits_for_none_either(words, wanted):
    script = f"""
import os
os.environ.update(_PENSTOCK_COMPLETE="bash_complete", COMP_WORDS={words!r}, COMP_CWORD="{len(words.split()) - 1}")
from penstock.cli import main
try: main([])
except SystemExit: pass
"""
    loaded, lines = loaded_by(script)
    assert loaded == "[]"
    assert wanted in lines


def test_the_ways_to_allocate_are_those_that_there_are():
    assert WAYS == METHODS


def test_a_command_that_is_misspelt_is_refused_with_the_right_one():
    with pytest.raises(click.UsageError, match="solve"):
        queue.main(["slove"], standalone_mode=False)
