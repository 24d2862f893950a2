"""The recipes of CONTRIBUTING, each followed from outside the package: one file, and one row.

Those of a sink, a kind of window and a kind of field are followed by `tests/connectors/test_contracts.py`,
`tests/app/test_window_kinds.py` and `tests/kinds/kind_cells.py`.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock.cli
from penstock.cli.main import VERBS, cli
from penstock.queueing.model import MODELS, model_of

HERE = Path(__file__).parent
SERVER = "[erlang]\narrival_rate = 80\nservice_rate = 100\n"


@pytest.fixture
def erlang(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setitem(MODELS, "erlang", "erlang:ErlangServer")


def test_a_model_of_a_server_is_solved_swept_and_simulated_by_the_command_line(erlang, tmp_path):
    file = tmp_path / "server.toml"
    file.write_text(SERVER)
    solved = CliRunner().invoke(cli, ["queue", "solve", "--file", str(file)])
    assert solved.exit_code == 0, solved.output
    assert solved.output.splitlines()[2].split() == ["mean", "latency", "50", "ms"]  # 1 / (100 - 80)
    swept = CliRunner().invoke(cli, ["queue", "sweep", "--file", str(file), "--over", "arrival_rate=50,90"])
    assert swept.exit_code == 0, swept.output
    assert len(swept.output.strip().splitlines()) >= 3
    simulated = CliRunner().invoke(cli, ["queue", "simulate", "--file", str(file), "--jobs", "20000"])
    assert simulated.exit_code == 0, simulated.output


def test_its_simulation_agrees_with_its_solution(erlang):
    server = model_of("erlang")(80.0, 100.0)
    estimate = server.simulate(jobs=200_000, seed=1).mean_latency
    assert abs(estimate.value - server.solve().mean_latency) < 0.01


def test_a_verb_is_found_by_its_row(monkeypatch):
    monkeypatch.setattr(penstock.cli, "__path__", [*penstock.cli.__path__, str(HERE)])
    monkeypatch.setitem(VERBS, "greet", "Greet somebody.")
    greeted = CliRunner().invoke(cli, ["greet", "Ada"])
    assert greeted.output == "Good day, Ada.\n"
    assert "greet" in CliRunner().invoke(cli, ["--help"]).output
