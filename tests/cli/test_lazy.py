"""The help lists what there is, and imports none of it."""

import subprocess
import sys

import click
import pytest

from penstock.cli.main import VERBS, cli
from penstock.cli.queue import COMMANDS, queue


@pytest.mark.parametrize(("group", "names"), [(cli, VERBS), (queue, COMMANDS)], ids=["penstock", "queue"])
def test_each_command_that_is_listed_exists(group, names):
    context = click.Context(group)
    for name, line in names.items():
        assert group.get_command(context, name).name == name
        assert line.endswith(".")


@pytest.mark.parametrize("command", [["--help"], ["queue", "--help"]])
def test_help_waits_for_no_heavy_library(command):
    script = (
        "import sys; from penstock.cli import main\n"
        f"try: main({command})\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'pyarrow', 'pyspark', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_that_is_misspelt_is_refused_with_the_right_one():
    with pytest.raises(click.UsageError, match="solve"):
        queue.main(["slove"], standalone_mode=False)
