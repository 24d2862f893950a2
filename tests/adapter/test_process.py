"""An adapter as a child of a run."""

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
