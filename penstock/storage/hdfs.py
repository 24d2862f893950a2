"""HDFS as Python reaches it: over HTTP (WebHDFS), which every NameNode serves, with no library of Hadoop's."""

import os
from typing import Any

from fsspec import register_implementation as register_filesystem
from fsspec.implementations.webhdfs import WebHDFile, WebHDFS
from fsspec.utils import infer_storage_options
from upath import UPath
from upath.registry import register_implementation as register_path

PLACE = "PENSTOCK_WEBHDFS"
"""The environment variable that names the host and port of WebHDFS, where that is not the NameNode's usual one."""
PORT = 9870
TIMEOUT_S = (5.0, 60.0)
"""To connect, and to wait for an answer."""
BLOCK = 16 << 20
"""Bytes that are sent in one request."""


class Hdfs(WebHDFS):  # type: ignore[misc]  # has no types
    """A file system as Spark knows it by ``hdfs://HOST:PORT`` or ``webhdfs://HOST:PORT``."""

    protocol = ("hdfs", "webhdfs")
    blocksize = BLOCK

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        layer: str = "hdfs",
        timeout: tuple[float, float] = TIMEOUT_S,
        **options: Any,
    ) -> None:
        self._timeout = timeout
        name, _, number = (os.environ.get(PLACE) or "").partition(":")
        if layer == "hdfs":
            host, port = name or host, int(number or PORT)
        user = os.environ.get("HADOOP_USER_NAME") or os.environ.get("USER") or "root"
        super().__init__(host, port or PORT, **{"user": user, **options})

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **given: Any) -> bytes:
        """What a file holds; of a whole one, without asking for its size first."""
        if start is not None or end is not None:
            return bytes(super().cat_file(path, start, end, **given))
        told = self._call("OPEN", path=path, redirect=False)
        if "Location" not in told.headers:  # a gateway that answers for its DataNodes
            return bytes(told.content)
        sent = self.session.get(self._apply_proxy(told.headers["Location"]))
        if sent.status_code == 404:  # it was removed since the NameNode has said where it is
            raise FileNotFoundError(path)
        sent.raise_for_status()
        return bytes(sent.content)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **given: Any) -> None:
        """Write a file in one request."""
        to = self._call("CREATE", "put", path, redirect=False, overwrite=str(mode == "overwrite").lower())
        self._send("put", to, value)

    def append(self, path: str, value: bytes) -> None:
        """Append to a file."""
        self._send("post", self._call("APPEND", "post", path, redirect=False), value)

    def exists(self, path: str, **given: Any) -> bool:
        """Whether there is something; where that cannot be told (`OSError`), it does not say that there is nothing."""
        return self._kind(path) is not None

    def isdir(self, path: str) -> bool:
        """Whether it is a directory; raises as `exists` does."""
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Whether it is a file; raises as `exists` does."""
        return self._kind(path) == "file"

    def _kind(self, path: str) -> str | None:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return None

    def replace(self, path: str, to: str) -> None:
        """Rename a file, in the place of the one that is there, at once."""
        self._rename(path, to, "OVERWRITE")

    def rename_new(self, path: str, to: str) -> bool:
        """Rename a file to a name that is free, at once; returns whether it was."""
        try:
            self._rename(path, to, "NONE")
        except FileExistsError:
            return False
        return True

    def _rename(self, path: str, to: str, options: str) -> None:
        self._call("RENAME", "put", path, destination=self._strip_protocol(to), renameoptions=options)

    def _call(self, *given: Any, **named: Any) -> Any:
        try:
            return super()._call(*given, **named)
        except RuntimeError as error:  # what the NameNode says, without its kind
            kind = FileExistsError if "already exists" in str(error) else OSError
            raise kind(str(error)) from error

    def _send(self, method: str, told: Any, value: bytes) -> None:
        """Send data to the DataNode that a NameNode has told of."""
        where = self._apply_proxy(told.headers["Location"])
        sent = self.session.request(method, where, data=value, headers={"content-type": "application/octet-stream"})
        sent.raise_for_status()

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **given: Any) -> "_HdfsFile":
        return _HdfsFile(self, path, mode=mode, block_size=block_size or BLOCK, tempdir="", autocommit=True)

    def _connect(self) -> None:
        super()._connect()
        send = self.session.request

        def request(*given: Any, **named: Any) -> Any:
            return send(*given, **{"timeout": self._timeout, **named})

        self.session.request = request

    @staticmethod
    def _process_info(info: dict[str, Any]) -> dict[str, Any]:
        return WebHDFS._process_info(info) | {"mtime": info["modificationTime"] / 1e3}  # type: ignore[no-any-return]

    @staticmethod
    def _get_kwargs_from_urls(urlpath: str) -> dict[str, Any]:
        given = infer_storage_options(urlpath)
        if "host" not in given:
            return {}
        found = {"host": given["host"], "port": given.get("port"), "layer": given["protocol"]}
        return found | ({"user": given["username"]} if "username" in given else {})


class _HdfsFile(WebHDFile):  # type: ignore[misc]  # has no types
    """A file whose first block is sent as it is made: to make an empty one, and append to that, takes a third of a second."""

    def _initiate_upload(self) -> None:
        self._begun = False

    def _upload_chunk(self, final: bool = False) -> bool:
        (self.fs.append if self._begun else self.fs.pipe_file)(self.path, self.buffer.getvalue())
        self._begun = True
        return True


class HdfsPath(UPath):
    """A path in it."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self.is_absolute():  # what `relative_to` makes has no host
            return super().__str__()
        options = self.storage_options
        port = options.get("port")
        return f"{self.protocol}://{options['host']}{f':{port}' if port else ''}{self.path}"


for one in Hdfs.protocol:
    register_filesystem(one, Hdfs, clobber=True)
    register_path(one, HdfsPath, clobber=True)
