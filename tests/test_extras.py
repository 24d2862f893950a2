"""A part that is not installed is one sentence with the command that mends it."""

import re
import sys
from importlib.abc import MetaPathFinder

import pytest

from penstock.cli import main
from penstock.errors import MissingExtraError
from penstock.extras import EXTRA_OF, needs


class Missing(MetaPathFinder):
    """As if a module were not installed."""

    def __init__(self, name):
        self._name = name

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def without(monkeypatch):
    def hide(name, *dependants):
        for module in [module for module in sys.modules if module.startswith((name, *dependants))]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setattr(sys, "meta_path", [Missing(name), *sys.meta_path])

    return hide


@pytest.mark.parametrize(("module", "extra"), [("scipy", "models"), ("granian", "adapter"), ("confluent_kafka", "kafka")])
def test_a_missing_part_names_its_extra(without, module, extra):
    without(module)
    with pytest.raises(MissingExtraError, match=re.escape(f"pip install 'penstock-streams[{extra}]'")), needs():
        __import__(module)
    assert EXTRA_OF[module] == extra


def test_what_is_no_extra_is_not_explained_away(without):
    without("surely_not_there")
    with pytest.raises(ModuleNotFoundError) as caught, needs():
        __import__("surely_not_there")
    assert not isinstance(caught.value, MissingExtraError)


def test_the_command_line_says_it_in_one_sentence(without, capsys):
    without("matplotlib", "penstock.bench.figures")
    with pytest.raises(SystemExit) as exit_:
        main(["queue", "sweep", "--arrival-rate", "1", "--service-rate", "2", "--over", "batch-size=1", "--plot", "a.png"])
    assert exit_.value.code == 2
    assert "pip install 'penstock-streams[models]'" in capsys.readouterr().err
