"""HDFS from Python: over HTTP (WebHDFS), which every NameNode serves, so that no Hadoop library is needed."""

import os
from typing import Any

from fsspec import register_implementation as register_filesystem
from fsspec.implementations.webhdfs import WebHDFile, WebHDFS
from fsspec.utils import infer_storage_options
from upath import UPath
from upath.registry import register_implementation as register_path

PLACE = "PENSTOCK_WEBHDFS"
"""The environment variable for the host and port of WebHDFS, if they are not the NameNode's host and `PORT`."""
PORT = 9870
TIMEOUT_S = (5.0, 60.0)
"""Timeouts to connect, and to wait for an answer."""
BLOCK = 16 << 20
"""The most bytes that are sent in one request."""


class Hdfs(WebHDFS):  # type: ignore[misc]  # has no types
    """A file system that Spark addresses as ``hdfs://HOST:PORT`` or ``webhdfs://HOST:PORT``."""

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
        """Return a file's content. For a whole file this saves the request for its size."""
        if start is not None or end is not None:
            return bytes(super().cat_file(path, start, end, **given))
        answer = self._call("OPEN", path=path, redirect=False)
        if "Location" not in answer.headers:  # a gateway answers with the content itself
            return bytes(answer.content)
        response = self.session.get(self._apply_proxy(answer.headers["Location"]))
        if response.status_code == 404:  # it was removed since the NameNode answered
            raise FileNotFoundError(path)
        response.raise_for_status()
        return bytes(response.content)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **given: Any) -> None:
        """Write a file in one request."""
        answer = self._call("CREATE", "put", path, redirect=False, overwrite=str(mode == "overwrite").lower())
        self._send("put", answer, value)

    def append(self, path: str, value: bytes) -> None:
        """Append to a file."""
        self._send("post", self._call("APPEND", "post", path, redirect=False), value)

    def exists(self, path: str, **given: Any) -> bool:
        """Whether there is a file or directory. Raises `OSError` if that cannot be determined, in place of returning False."""
        return self._kind(path) is not None

    def isdir(self, path: str) -> bool:
        """Whether a path is a directory; raises as `exists` does."""
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Whether a path is a file; raises as `exists` does."""
        return self._kind(path) == "file"

    def _kind(self, path: str) -> str | None:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return None

    def replace(self, path: str, to: str) -> None:
        """Rename a file atomically, and replace a file that has the new name."""
        self._rename(path, to, "OVERWRITE")

    def rename_new(self, path: str, to: str) -> bool:
        """Rename a file atomically if the new name is free; returns whether it was."""
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
        except RuntimeError as error:  # fsspec drops the class of the NameNode's exception
            kind = FileExistsError if "already exists" in str(error) else OSError
            raise kind(str(error)) from error

    def _send(self, method: str, told: Any, value: bytes) -> None:
        """Send data to the DataNode that a NameNode's answer ``told`` redirects to."""
        if "Location" not in told.headers:
            raise OSError(f"{told.url} names no DataNode to write to")
        address = self._apply_proxy(told.headers["Location"])
        response = self.session.request(method, address, data=value, headers={"content-type": "application/octet-stream"})
        response.raise_for_status()

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
        options = infer_storage_options(urlpath)
        if "host" not in options:
            return {}
        arguments = {"host": options["host"], "port": options.get("port"), "layer": options["protocol"]}
        return arguments | ({"user": options["username"]} if "username" in options else {})


class _HdfsFile(WebHDFile):  # type: ignore[misc]  # has no types
    """A file that is created with its first block. Creating an empty one and appending to it takes a third of a second."""

    def _initiate_upload(self) -> None:
        self._begun = False

    def _upload_chunk(self, final: bool = False) -> bool:
        (self.fs.append if self._begun else self.fs.pipe_file)(self.path, self.buffer.getvalue())
        self._begun = True
        return True


class HdfsPath(UPath):
    """A path in HDFS."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self.is_absolute():  # a result of `relative_to` has no host
            return super().__str__()
        options = self.storage_options
        port = options.get("port")
        return f"{self.protocol}://{options['host']}{f':{port}' if port else ''}{self.path}"


for one in Hdfs.protocol:
    register_filesystem(one, Hdfs, clobber=True)
    register_path(one, HdfsPath, clobber=True)
