"""The image's recipe and the compose file name what is there: as far as this goes without a container runtime."""

import re
from pathlib import Path

import click
import pytest
import yaml

from penstock.cli.main import cli

ROOT = Path(__file__).parent.parent
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
RECIPE = (ROOT / "deploy/Dockerfile").read_text()


def test_the_recipe_copies_what_is_there():
    for names in re.findall(r"^COPY (.+) \S+$", RECIPE, re.MULTILINE):
        assert all((ROOT / name).exists() for name in names.split())


@pytest.mark.parametrize("service", [name for name, of in COMPOSE["services"].items() if "build" in of])
def test_commands_have_the_options_they_are_given(service):
    verb, _, *given = COMPOSE["services"][service]["command"]
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in given if word.startswith("--")} <= known


def test_services_wait_for_services_and_mount_volumes_that_exist():
    services = COMPOSE["services"]
    for of in services.values():
        assert set(of.get("depends_on", ())) <= set(services)
        for volume in of.get("volumes", ()):
            assert volume.startswith("./app:") or volume.split(":")[0] in COMPOSE["volumes"]
