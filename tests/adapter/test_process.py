"""An adapter as a child of a run."""

import fcntl
import math
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.adapter import process
from penstock.adapter.process import AdapterProcess
from penstock.bench.servers.process import free_port
from penstock.cli.main import cli
from penstock.errors import ConfigurationError, PenstockError, PortInUseError
from penstock.web.access import Access
from penstock.web.exposure import check_exposure
from penstock.web.server import Port, url_of


def test_a_port_that_somebody_else_has_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LEAVING_S", math.inf)  # as long as an adapter of an earlier run may take to leave
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host, port = taken.getsockname()
        with pytest.raises(PortInUseError, match=f"Something listens on {host}:{port} already"):
            AdapterProcess([], host, port, tmp_path / "adapter.log").__enter__()


def test_the_port_of_a_run_that_goes_on_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LEAVING_S", math.inf)
    log = tmp_path / "adapter.log"
    with (
        socket.create_server(("127.0.0.1", 0)) as adapters,
        log.open("ab") as adapter,
        (tmp_path / "adapter.run").open("ab") as run,
    ):
        fcntl.flock(adapter, fcntl.LOCK_SH)
        fcntl.flock(run, fcntl.LOCK_SH)
        with pytest.raises(PortInUseError, match="choose another port with --port"):
            AdapterProcess([], *adapters.getsockname(), log).__enter__()


def test_an_adapter_whose_run_is_gone_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LEAVING_S", 0.5)
    log = tmp_path / "adapter.log"
    with socket.create_server(("127.0.0.1", 0)) as adapters, log.open("ab") as adapter:
        fcntl.flock(adapter, fcntl.LOCK_SH)
        waited = []
        monkeypatch.setattr(process.time, "sleep", waited.append)
        monkeypatch.setattr(process.time, "monotonic", lambda: sum(waited))
        with pytest.raises(PortInUseError):
            AdapterProcess([], *adapters.getsockname(), log).__enter__()
    assert sum(waited) >= 0.5


def test_an_adapter_that_others_serve_for_is_not_called_started(tmp_path, monkeypatch):
    """Another run's adapter has the port a moment before ours, which cannot start."""
    listening, start = [], AdapterProcess._start

    def started(self):
        listening.append(socket.create_server(self._address))
        start(self)

    monkeypatch.setattr(AdapterProcess, "_start", started)
    (tmp_path / "adapter.log").write_text("Listening on http://127.0.0.1:1; Ctrl-C stops.\n")  # of an earlier start
    app = str(Path(__file__).parent / "app.py")
    port = free_port()
    with pytest.raises(PortInUseError, match="cannot listen on"):
        AdapterProcess(
            [app, "--spool", str(tmp_path), "--port", str(port)], "127.0.0.1", port, tmp_path / "adapter.log"
        ).__enter__()
    listening[0].close()


@pytest.mark.parametrize("host", ["a..b", ".", "x" * 300, "*", "no-such-host.invalid"])
def test_a_host_that_there_is_none_of_is_refused(host):
    with pytest.raises(ConfigurationError, match=r"cannot listen on .*; choose another with --host"):
        check_exposure("The adapter", host, tokens=False, secret=False)
    if host != "*":
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            Port(host, 0)


def test_an_address_of_six_has_brackets():
    assert url_of("::1", 8470, None) == "http://[::1]:8470"


@pytest.mark.parametrize(
    "content", ['{"produce": ["\\ud800aaaaaaaaa"]}', "[" * 200_000, '{"produce": ["ümlautümlaut"]}', '{"a": 1}']
)
def test_tokens_that_no_header_can_carry_are_refused(tmp_path, content):
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(ConfigurationError, match="The tokens in"):
        Access.read(tmp_path / "tokens")


@pytest.mark.parametrize(
    "options",
    [
        ("--gate", "Words=²"),
        ("--receive-within", "0 s"),
        ("--plan", "[" * 100_000),
        ("--plan", '{"gates": {"Words": {"batch_size": 1e400}}}'),
    ],
    ids=str,
)
def test_an_option_of_the_adapter_that_is_none_is_refused(tmp_path, options):
    name, text = options
    if name == "--plan":
        (tmp_path / "plan.json").write_text(text)
        text = str(tmp_path / "plan.json")
    app = str(Path(__file__).parent / "app.py")
    result = CliRunner().invoke(cli, ["adapter", app, "--spool", str(tmp_path / "spool"), "--port", "0", name, text])
    assert result.exit_code == 2 or isinstance(result.exception, PenstockError)
