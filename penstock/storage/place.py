"""Paths made of texts: a path on a local disk, or the URI of a store, both with the methods of `pathlib.Path`."""

import errno
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from penstock.errors import ConfigurationError
from penstock.extras import needs

if TYPE_CHECKING:
    from upath import UPath

OBJECTS = ("s3a", "s3")
"""URI schemes of object stores: writes are atomic, and there is no renaming. Spark's name of S3 is ``s3a``."""
TREES = ("hdfs", "webhdfs")
"""URI schemes of file systems in which renaming a file is atomic."""


PATIENCE = {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 5, "mode": "standard"}}
"""Settings of the S3 client, times in seconds; it finds credentials where AWS's own tools do."""
AT_FIRST = {"connect_timeout": 3, "read_timeout": 20, "retries": {"total_max_attempts": 1, "mode": "standard"}}
AT_FIRST_S = (3.0, 20.0)
"""Settings of the S3 client, and HDFS's seconds to connect and to answer, for a store's first request, which must fail fast."""
STORES = (*OBJECTS, *TREES)


def path_of(place: str | Path, *, patient: bool = True) -> Path:
    """Return a place as a path: a `pathlib.Path`, or one in a store, which has its methods.

    Args:
        patient: whether to retry, with long timeouts, if a store does not answer.

    Raises:
        ConfigurationError: the URI's scheme is unknown, or it has no host.
        MissingExtraError: the store's module is not installed.
    """
    if not isinstance(place, str):
        return place
    scheme, colon, rest = place.partition("://")
    if not colon:
        return Path(place)
    if scheme not in STORES:
        schemes = ", ".join(f"{scheme_}://" for scheme_ in ("s3a", *TREES))
        raise ConfigurationError(f"{place}: there is no store {scheme}://; there are {schemes}, and paths of a local disk.")
    if not urlsplit(place).netloc:
        raise ConfigurationError(f"{place} names no {'bucket' if scheme in OBJECTS else 'host'}: write {scheme}://NAME/...")
    scheme = "s3a" if scheme in OBJECTS else scheme
    uri = f"{scheme}://{rest.rstrip('/')}"
    with needs():
        if scheme in OBJECTS:
            from upath.implementations.cloud import S3Path

            if patient:
                return cast(Path, S3Path(uri, use_listings_cache=False, config_kwargs=PATIENCE))
            uncached = {"skip_instance_cache": True}  # a new client: a cached one may know another address of the store
            return cast(Path, S3Path(uri, use_listings_cache=False, config_kwargs=AT_FIRST, **cast(Any, uncached)))
        from penstock.storage.hdfs import HdfsPath

        return cast(Path, HdfsPath(uri) if patient else HdfsPath(uri, timeout=AT_FIRST_S))


def absolute(place: str | Path) -> Path:
    """Return a place as a path that does not depend on the process's working directory, and that Spark takes for the same.

    Spark removes ``..`` without following links, and takes what follows ``//`` for the name of a host.

    Raises:
        ConfigurationError: as `path_of` and `real`; or ``~`` stands for the home of a user that does not exist.
    """
    path = path_of(place)
    if not is_local(path):
        return path
    try:
        path = path.expanduser().absolute()
    except RuntimeError:
        raise ConfigurationError(f"{place}: there is no home directory that ~ stands for; write the whole path.") from None
    if ".." in path.parts:
        path = real(path)
    return Path("/", *path.parts[1:])


def on_disk(name: str, place: str | Path) -> Path:
    """Return the path of a directory that must be on a disk of this machine.

    Args:
        name: of the option that it is given by.

    Raises:
        ConfigurationError: it is empty, or in a store.
    """
    if not str(place) or "://" in str(place):
        raise ConfigurationError(f"{name} {str(place)!r}: name a directory on a disk of this machine.")
    return Path(place)


def real(path: Path) -> Path:
    """Return a path by the one name that all its spellings share, following links; one in a store as it is.

    Raises:
        ConfigurationError: links lead back to themselves.
    """
    try:
        return path.resolve() if is_local(path) else path
    except RuntimeError:
        raise ConfigurationError(f"{path} is a link that leads back to itself; name another place.") from None


def is_local(path: Path) -> bool:
    """Whether a path is in this machine's file system, and not in a store."""
    return isinstance(path, Path)


def in_objects(path: Path) -> bool:
    """Whether a path is in an object store."""
    return not is_local(path) and ours(path).protocol in OBJECTS


def ours(path: Path) -> "UPath":
    """Return a path in a store with its real type, for type checkers."""
    return cast("UPath", path)


def address(path: Path) -> str:
    """Return the URI by which Spark reads and writes a path."""
    return f"file://{path.absolute()}" if is_local(path) else str(path)


def here_of(run: Path) -> Path:
    """Return a run's directory on this machine: its own, or for a run in a store a temporary one with a derived name."""
    if is_local(run):
        return run
    return _of_user() / f"{run.name}-{sha256(str(run).encode()).hexdigest()[:8]}"


def _of_user() -> Path:
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"


def make_of_user() -> Path:
    """Make the private temporary directory of this user on this machine, if it is missing.

    Raises:
        PermissionError: it belongs to another user, who could tamper with files that are sent to executors from it.
    """
    place = _of_user()
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(place))
    return place
