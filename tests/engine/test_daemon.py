"""From what Python workers are forked: the PySpark that is installed, and compiled, not the archive of its sources."""

import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from support import load, write_batches

from penstock.engine import RunOptions, run
from penstock.engine.session.daemon import at_once, leave_out_archive
from penstock.engine.session.descendants import descendants
from penstock.engine.session.spark import start_session

DAEMON = "-m penstock.engine.session.daemon pyspark.worker"
ARCHIVE = str(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([ARCHIVE, "/a"], ["/a"]),
        (["/opt/spark/python/lib/pyspark.zip", "/a"], ["/opt/spark/python/lib/pyspark.zip", "/a"]),
        (["/a"], ["/a"]),
    ],
)
def test_only_the_archive_of_what_is_installed_is_left_out(monkeypatch, before, after):
    installed = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
    monkeypatch.setattr(sys, "path", before + installed)
    leave_out_archive()
    assert sys.path == after + installed


@pytest.mark.slow
def test_workers_have_everything_loaded(tmp_path, spark):
    def told(batches):
        import pyspark
        from pyspark import daemon

        for batch in batches:
            loaded = "penstock.runtime.hop" in sys.modules and "pyspark.zip" not in pyspark.__file__
            loaded = loaded and daemon.worker.__qualname__.startswith("at_once.")
            yield pa.RecordBatch.from_pydict({"loaded": [loaded] * batch.num_rows})

    spark.leave()
    with (tmp_path / "spark.log").open("wb") as log:
        session = start_session("daemon", "local[1]", log, {})
        try:
            assert session.range(1).mapInArrow(told, "loaded boolean").collect()[0].loaded
        finally:
            session.stop()


def daemons():
    """The processes of this one's Spark from which workers are forked."""
    said = subprocess.run(["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    own = {str(number) for number in descendants()}
    found = {pid: parent for pid, parent, args in (line.split(maxsplit=2) for line in said.splitlines()) if DAEMON in args}
    return [pid for pid, parent in found.items() if pid in own and parent not in found]


@pytest.mark.spark
def test_functions_of_all_kinds_share_their_workers(tmp_path, spark, monkeypatch):
    """Spark has a daemon for each environment, and gives functions on states another one than those on rows."""
    app, reference = load("counting")
    session = spark.get()
    given = {"PYTHONHASHSEED": "0"}  # as that of a user's session
    monkeypatch.setattr(session.sparkContext, "environment", dict(given))
    sources = write_batches(app, [{"Words": [app.topology().sources[0].event_type("a")]}], tmp_path)
    options = RunOptions(runs=tmp_path / "runs", spark=session, sources=sources, until_idle=True, quiet=True)
    run(app, options, application=reference)
    assert len(daemons()) == 1
    assert session.sparkContext.environment == given


def test_what_a_hop_declares_its_state_with_loads_no_pandas():
    """Spark starts a process for it, which would take twice as long."""
    script = "import sys, penstock.engine.query.stateful; print('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def test_what_a_worker_writes_is_sent_at_once():
    """Or each stage of a micro-batch waits for 40 ms."""
    asked = {}

    def worker(sock, authenticated):
        asked["at once"] = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        return 7 if authenticated else 0

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        assert at_once(worker)(sock, True) == 7
    assert asked["at once"]
    first, second = socket.socketpair()
    with first, second:
        assert at_once(lambda sock, authenticated: 3)(first, False) == 3
