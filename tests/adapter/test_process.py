"""An adapter as a child of a run."""

import fcntl
import math
import socket

import pytest

from penstock.adapter import process
from penstock.adapter.process import AdapterProcess
from penstock.errors import PortInUseError


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
