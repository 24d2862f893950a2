"""Runs that were begun by one version of Penstock and are gone on with by the next: where they lie, packed, and which there
are.
"""

import platform
import shutil
import socket
import tarfile
from pathlib import Path

from crashpoints.runner import Place
from crashpoints.workloads import WORKLOADS, Workload

KEPT = Path(__file__).parent
UNPACKED = Path("/tmp/penstock-stored")
"""Where each lay when it was made, which the checkpoint of a run that keeps state says of its files."""

NAMES = (
    "jsonl",
    "parquet",
    "sqlite",
    "sqlite-key",
    "delta-key",
    "iceberg",
    "log",
    "two-groups",
    "windows",
    "windows-two-groups",
    "join",
    "columns",
    "query",
    "moved",
)
"""The workloads of the crash points that are kept: each dialect of state, windows, timers, joins, groups, and sinks that are
files.
"""


def workload_of(name: str) -> Workload:
    """The workload of a stored run."""
    return next(workload for workload in WORKLOADS if workload.name == name)


def pack(name: str, version: str) -> Path:
    """Keep a run as it lies unpacked; returns where."""
    _make_anonymous(UNPACKED / name / "world")
    (KEPT / version).mkdir(exist_ok=True)
    archive = KEPT / version / f"{name}.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.add(UNPACKED / name / "world", "world", filter=_kept)
    return archive


def _make_anonymous(world: Path) -> None:
    """Take out of what a run says of its starts on which machine they were made, and where this clone lies."""
    for path in (world / "runs" / "run" / "starts.jsonl", world / "runs" / "run" / "manifest.json"):
        text = path.read_text()
        own = text.replace(str(KEPT.parent.parent), "/penstock").replace(socket.gethostname(), "localhost")
        path.write_text(own.replace(platform.platform(), platform.system()))


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """What a start needs of a run: its log, and the application as it was sent, are none of that."""
    name = Path(member.name).name
    return None if name == "spark.log" or name.startswith("application-") else member


def unpack(archive: Path) -> Place:
    """A stored run where it lay."""
    base = UNPACKED / archive.name.removesuffix(".tar.xz")
    if base.exists():
        shutil.rmtree(base)
    base.mkdir(parents=True)
    with tarfile.open(archive) as file:
        file.extractall(base, filter="tar")
    return Place(base)
