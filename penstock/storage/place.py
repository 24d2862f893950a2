"""Places as texts: a path on a local disk, or a URI of a store, as a path of `pathlib`'s kind."""

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
"""Schemes of object stores: a file is there whole or not at all, and cannot be renamed. Spark knows S3 as ``s3a``."""
TREES = ("hdfs", "webhdfs")
"""Schemes of file systems whose files can be renamed at once."""


PATIENCE = {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 5, "mode": "standard"}}
"""Settings of the S3 client, times in seconds; credentials are found where its own tools find them."""
AT_FIRST = {"connect_timeout": 3, "read_timeout": 20, "retries": {"total_max_attempts": 1, "mode": "standard"}}
AT_FIRST_S = (3.0, 20.0)
"""Settings of the S3 client, and the seconds for HDFS to connect and to answer, while a store has yet to show that it is
there.
"""
STORES = (*OBJECTS, *TREES)


def path_of(place: str | Path, *, patient: bool = True) -> Path:
    """A path: Python's own, or one in a store, which has its methods.

    Parameters
    ----------
    patient: whether a store is asked again, and waited for, where it does not answer.

    Raises
    ------
    ConfigurationError: no such store is known. MissingExtraError: the module for it is not installed.
    """
    if not isinstance(place, str):
        return place
    scheme, colon, rest = place.partition("://")
    if not colon:
        return Path(place)
    if scheme not in STORES:
        known = ", ".join(f"{one}://" for one in ("s3a", *TREES))
        raise ConfigurationError(f"{place}: there is no store {scheme}://; there are {known}, and paths of a local disk.")
    if not urlsplit(place).netloc:
        raise ConfigurationError(f"{place} names no {'bucket' if scheme in OBJECTS else 'host'}: write {scheme}://NAME/...")
    scheme = "s3a" if scheme in OBJECTS else scheme
    uri = f"{scheme}://{rest.rstrip('/')}"
    with needs():
        if scheme in OBJECTS:
            from upath.implementations.cloud import S3Path

            if patient:
                return cast(Path, S3Path(uri, use_listings_cache=False, config_kwargs=PATIENCE))
            alone = {"skip_instance_cache": True}  # a client that knows nothing of where the store was before
            return cast(Path, S3Path(uri, use_listings_cache=False, config_kwargs=AT_FIRST, **cast(Any, alone)))
        from penstock.storage.hdfs import HdfsPath

        return cast(Path, HdfsPath(uri) if patient else HdfsPath(uri, timeout=AT_FIRST_S))


def absolute(place: str | Path) -> Path:
    """A path that means the same in every process."""
    path = path_of(place)
    return path.expanduser().absolute() if is_local(path) else path


def is_local(path: Path) -> bool:
    """Whether a path is one of a disk that this machine has mounted."""
    return isinstance(path, Path)


def in_objects(path: Path) -> bool:
    """Whether it is one in an object store."""
    return not is_local(path) and ours(path).protocol in OBJECTS


def ours(path: Path) -> "UPath":
    """A path in a store as what it really is."""
    return cast("UPath", path)


def address(path: Path) -> str:
    """What Spark is to be told of a path."""
    return f"file://{path.absolute()}" if is_local(path) else str(path)


def here_of(run: Path) -> Path:
    """The directory of this machine that belongs to a run: its own, or one named after it where it lies in a store."""
    if is_local(run):
        return run
    return _of_user() / f"{run.name}-{sha256(str(run).encode()).hexdigest()[:8]}"


def _of_user() -> Path:
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"


def make_of_user() -> Path:
    """Make the directory of this machine that is this user's alone, where it is not there.

    Raises
    ------
    PermissionError: it is another user's, who could change what is sent to executors from it.
    """
    place = _of_user()
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(place))
    return place
