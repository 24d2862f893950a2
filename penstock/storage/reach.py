"""Checks that a store can be reached, and turns errors of the stores' libraries into a `StoreError` with a clear text."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import PenstockError, StoreError
from penstock.storage import durable
from penstock.storage.place import AT_FIRST_S, in_objects, is_local, ours, path_of

LIBRARIES = ("aiobotocore", "aiohttp", "botocore", "requests")
"""Libraries for stores. Not all of their exceptions derive from `OSError`."""
WHERE = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "HADOOP_USER_NAME",
    "PENSTOCK_WEBHDFS",
)
"""Environment variables that determine a store's address and the credentials."""
MOST = 200
"""The most characters of a library's error that a text quotes."""


@contextmanager
def reaching(place: Path) -> Iterator[None]:
    """Within the block, turn any error on a path in a store into a `StoreError`. Errors on a local path stay as they are.

    Raises:
        StoreError: the store does not answer, knows no such bucket, or refuses.
    """
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:  # the libraries have exception classes with no common base
        if is_local(place):
            raise
        raise refusal(place, error) from error


def refusal(place: Path, error: Exception) -> StoreError:
    """Return the error for a path whose store did not answer, or refused a request."""
    causes = (
        "the bucket and its room, AWS_ENDPOINT_URL, and your credentials"
        if in_objects(place)
        else "the host and its room, and PENSTOCK_WEBHDFS"
    )
    reason = " ".join(str(error).split())[:MOST].rstrip(".")
    return StoreError(f"{place} cannot be reached, or refuses ({reason}): check {causes}.")


def is_of_store(error: Exception) -> bool:
    """Whether an error may come from a library for stores."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in LIBRARIES


def check(place: Path, *, by_spark: bool = False) -> None:
    """Check that a path's store can be used: that it answers, and lists the path.

    Args:
        by_spark: whether Spark must be able to reach it, too.

    Raises:
        StoreError: see `reaching`.
    """
    meet(place, by_spark=by_spark)
    with reaching(place):
        durable.names(place)


def meet(place: Path, *, by_spark: bool = False) -> None:
    """Check that a path's store answers within seconds. Later requests to it are made with longer timeouts and retries.

    A store that has answered once is not checked again by this process.

    Args:
        by_spark: whether Spark must be able to reach it, too.

    Raises:
        StoreError: see `reaching`.
    """
    if not is_local(place):
        with reaching(place):
            _meet(str(place), tuple(os.environ.get(name) for name in WHERE))
            if by_spark:
                _meet_namenode(str(place))


@lru_cache(maxsize=64)
def _meet(place: str, where: tuple[str | None, ...]) -> None:
    """Send one request to a path's store. Cached, so that a store that answered is not asked again; failures are not cached.

    Args:
        where: the values of the variables in `WHERE`, which are part of the cache's key only.
    """
    path = path_of(place, patient=False)
    store = ours(path).fs
    if not in_objects(path):
        store.exists("/")
        return
    store.retries = 1  # the library below it has retries of its own
    bucket, _, key = ours(path).path.partition("/")
    literal, *pattern = re.split(r"[*?\[]", key)
    prefix = literal if pattern or not key else f"{key.rstrip('/')}/"  # some users may list only this part of a bucket
    try:
        store.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except FileNotFoundError as error:
        raise StoreError(
            f"{place}: there is no bucket {bucket}, or you may not see it: make it, or correct its name."
        ) from error


def _meet_namenode(place: str) -> None:
    """Check that Spark's port of the NameNode accepts connections; Penstock itself uses the one of WebHDFS. A URI without a
    port is not checked, as its host may be the logical name of several NameNodes.
    """
    at = urlsplit(place)
    if at.scheme != "hdfs" or at.port is None:
        return
    try:
        socket.create_connection((at.hostname, at.port), AT_FIRST_S[0]).close()
    except OSError as error:
        raise StoreError(
            f"{place}: WebHDFS answers, but nothing does at {at.hostname}:{at.port}, where Spark reaches the NameNode "
            f"({error}): correct the port, which mostly is 8020."
        ) from error
