"""What is said where a store does not answer, or refuses."""

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
"""Whose errors are not all of Python's own for input and output."""
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
"""The environment's say on where a store is, and who asks."""
MOST = 200
"""Characters of a library's own words that are shown."""


@contextmanager
def reaching(place: Path) -> Iterator[None]:
    """Within the block, what goes wrong with a place in a store is said in a sentence.

    Raises
    ------
    StoreError: the store does not answer, knows no such bucket, or refuses.
    """
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:  # libraries for stores have trees of their own
        if is_local(place):
            raise
        raise refusal(place, error) from error


def refusal(place: Path, error: Exception) -> StoreError:
    """The error for a place whose store has not done what was asked of it."""
    where = (
        "the bucket and its room, AWS_ENDPOINT_URL, and your credentials"
        if in_objects(place)
        else "the host and its room, and PENSTOCK_WEBHDFS"
    )
    reason = " ".join(str(error).split())[:MOST].rstrip(".")
    return StoreError(f"{place} cannot be reached, or refuses ({reason}): check {where}.")


def is_of_store(error: Exception) -> bool:
    """Whether an error is one of those that the libraries for stores raise."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in LIBRARIES


def check(place: Path, *, by_spark: bool = False) -> None:
    """Refuse a place whose store cannot be used.

    Parameters
    ----------
    by_spark: whether Spark is to reach it, too.

    Raises
    ------
    StoreError: see `reaching`.
    """
    meet(place, by_spark=by_spark)
    with reaching(place):
        durable.names(place)


def meet(place: Path, *, by_spark: bool = False) -> None:
    """See that a place's store is there, and answers within seconds; all later questions are asked with more patience.

    What has answered once is not asked again by this process.

    Parameters
    ----------
    by_spark: whether Spark is to reach it, too.

    Raises
    ------
    StoreError: see `reaching`.
    """
    if not is_local(place):
        with reaching(place):
            _meet(str(place), tuple(os.environ.get(name) for name in WHERE))
            if by_spark:
                _meet_namenode(str(place))


@lru_cache(maxsize=64)
def _meet(place: str, where: tuple[str | None, ...]) -> None:
    """What raises is not remembered.

    Parameters
    ----------
    where: the store is, as far as the place does not say so.
    """
    path = path_of(place, patient=False)
    store = ours(path).fs
    if not in_objects(path):
        store.exists("/")
        return
    store.retries = 1  # besides those of the library below
    bucket, _, key = ours(path).path.partition("/")
    before, *pattern = re.split(r"[*?\[]", key)
    prefix = before if pattern or not key else f"{key.rstrip('/')}/"  # some may see no more of a bucket
    try:
        store.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except FileNotFoundError as error:
        raise StoreError(
            f"{place}: there is no bucket {bucket}, or you may not see it: make it, or correct its name."
        ) from error


def _meet_namenode(place: str) -> None:
    """See that something listens where Spark is to reach HDFS, which is not where Penstock does; a name of several has no
    port.
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
