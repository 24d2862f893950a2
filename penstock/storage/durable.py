"""Atomic, durable writes of files on a local disk, in HDFS and in object stores.

On a disk, a file's bytes are durable once the file is synced, and its name once its directory is. Without the latter, a power
failure may undo a renaming, or the creation of a file.
"""

import errno
import fnmatch
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from penstock.storage.place import here_of, in_objects, is_local, make_of_user, ours


def read(path: Path) -> bytes:
    """Return a file's content.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if is_local(path):
        return path.read_bytes()
    # In one request: to open the file, or to read parts of it concurrently, takes another one for its size.
    whole = {"max_concurrency": 1} if in_objects(path) else {}
    content: bytes = ours(path).fs.cat_file(ours(path).path, **whole)
    return content


PRIVATE = 0o600
"""The default mode of files written here: only their owner has access."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within the block, an error that names no file, as that of a full disk, gets this one's name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:  # one of Penstock's own has a sentence, and no number
            error.filename = str(path)
        raise


Kept = Literal["name", "bytes", "no"]
"""How much of a write survives a failure of the machine: all, only the bytes (perhaps under the old name), or nothing."""


def write(path: Path, content: str | bytes, mode: int = PRIVATE, *, kept: Kept = "name") -> None:
    """Write a file atomically. A file that is there is replaced, and the new one gets its mode; a link's target is replaced.

    Args:
        mode: of a file that was not there.
        kept: what survives a failure of the machine once the call returns; with less, the old file, or an empty one, may be
            left.

    Raises:
        OSError: it cannot be written, or what is there is no file, such as a device.
    """
    data = content.encode() if isinstance(content, str) else content
    if is_local(path) and path.is_symlink():
        path = path.resolve()
    if in_objects(path):  # writing an object is atomic
        path.write_bytes(data)
        return
    draft = _drafted(path, data, mode, synced=kept != "no")
    if not is_local(path):
        ours(path).fs.replace(str(draft), str(path))
        return
    draft.replace(path)
    if kept == "name":
        sync_names(path.parent)


def create(path: Path, content: bytes) -> bool:
    """Create a file, and return whether there was none of its name. Of several processes that try at once, one succeeds."""
    if in_objects(path):
        try:
            ours(path).fs.pipe_file(ours(path).path, content, mode="create")
        except OSError as error:
            if _is_there(error):
                return False
            raise
        return True
    draft, done = _drafted(path, content), False
    try:
        if is_local(path):
            os.link(draft, path)
            sync_names(path.parent)
            return True
        done = bool(ours(path).fs.rename_new(str(draft), str(path)))
        return done
    except FileExistsError:
        return False
    finally:
        if not done:  # otherwise the draft was renamed
            draft.unlink(missing_ok=True)


def move(path: Path, to: Path) -> None:
    """Move a file, and replace one that is there. In an object store, the file is copied and then removed.

    On a disk, a power failure may undo the move until `sync_names` has been called for the target's directory.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if is_local(path):
        os.replace(path, to)
    elif in_objects(path):
        _copy_object(path, to)
        ours(path).fs.rm_file(ours(path).path)
    else:
        ours(path).fs.replace(str(path), str(to))


def names(directory: Path) -> list[str]:
    """Return the names in a directory, in no order; an empty list if there is no such directory.

    In an object store, an object may stand for the directory itself. It is left out, which `iterdir` does not do.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        if is_local(directory):
            return [path.name for path in directory.iterdir()]
        own_path = ours(directory).path.rstrip("/")
        paths = (path.rstrip("/") for path in ours(directory).fs.ls(own_path, detail=False))
        return [path.rpartition("/")[2] for path in paths if path != own_path]
    return []


def matching(directory: Path, pattern: str) -> list[Path]:
    """Return the paths in a directory whose names match a pattern, sorted. The directory's own path is taken literally."""
    return sorted((directory / name for name in fnmatch.filter(names(directory), pattern)), key=str)


def sizes(directory: Path) -> dict[Path, int]:
    """Return the files in a directory, sorted by name, with their sizes in bytes."""
    if is_local(directory):
        files_there: dict[Path, int] = {}
        for path in sorted(directory.iterdir()):
            with suppress(FileNotFoundError):  # it is moved away at this moment
                if path.is_file():
                    files_there[path] = path.stat().st_size
        return files_there
    own_path = ours(directory).path.rstrip("/")
    entries = {entry["name"].rstrip("/"): entry for entry in ours(directory).fs.ls(own_path, detail=True)}
    files = {name: entry for name, entry in entries.items() if name != own_path and entry["type"] == "file"}
    return {directory / name.rpartition("/")[2]: int(files[name]["size"]) for name in sorted(files)}


def make(directory: Path, mode: int = 0o777) -> None:
    """Make a directory and its parents on a local disk; stores need none.

    Args:
        mode: of the directory if it is made, less the user's umask; its parents have the default mode.
    """
    if not is_local(directory) or directory.is_dir():
        return
    missing = [level for level in (directory, *directory.parents) if not level.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode, exist_ok=True)
    for level in missing:
        sync_names(level.parent)


def make_here(run: Path) -> None:
    """Make a run's directory on this machine (`here_of`), private to its owner; an existing one keeps its mode.

    Raises:
        OSError: it cannot be made, or belongs to another user, who could tamper with files that are sent to executors from it.
    """
    if not is_local(run):
        make_of_user()
    here = here_of(run)
    make(here, 0o700)
    sync_names(here.parent)  # the process that made it may have been killed before it did this


def remove(tree: Path) -> None:
    """Remove a file, or a directory with its content, if it is there."""
    if is_local(tree):
        if tree.is_dir() and not tree.is_symlink():
            shutil.rmtree(tree, ignore_errors=True)
        else:
            tree.unlink(missing_ok=True)
    else:
        with suppress(FileNotFoundError):
            ours(tree).fs.rm(ours(tree).path, recursive=True)


def remove_empty(directory: Path) -> None:
    """Remove a directory if it is empty; in an object store there are no empty ones."""
    if is_local(directory):
        with suppress(OSError):
            directory.rmdir()
    elif not in_objects(directory) and not names(directory):
        remove(directory)


def copy(tree: Path, to: Path) -> None:
    """Copy a file, or a directory with its content; on a disk the copy is synced."""
    if tree.is_dir():
        for name in names(tree):
            copy(tree / name, to / name)
        return
    make(to.parent)
    to.write_bytes(read(tree))
    if is_local(to):
        sync_path(to)
        sync_names(to.parent)


def opened(path: Path) -> BinaryIO:
    """Open a file for writing. Callers must call `sync` before they close it."""
    return path.open("wb", buffering=1 << 20) if is_local(path) else path.open("wb")  # in a store it is buffered anyway


def sync(file: BinaryIO) -> None:
    """Sync a file's bytes to disk. For a file in a store this only flushes: closing makes it durable."""
    file.flush()
    try:
        descriptor = file.fileno()
    except (OSError, AttributeError):  # a file in a store
        return
    os.fsync(descriptor)


def sync_names(directory: Path) -> None:
    """Sync a directory on a local disk, which makes it durable that files were created in it, moved to it or removed.

    Errors of file systems that cannot sync directories, and of directories that may not be read, are ignored.
    """
    if is_local(directory):
        try:
            sync_path(directory)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EPERM):
                raise


def sync_path(path: Path) -> None:
    """Sync a file or a directory on a local disk, whichever process has written it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_object(path: Path, to: Path) -> None:
    """Copy an object within its store by one request. If the store refuses, as for objects above 5 GB, it is copied in parts,
    which takes a request for its size.
    """
    store, (bucket, _, key) = ours(path).fs, ours(path).path.partition("/")
    target, _, name = ours(to).path.partition("/")
    try:
        store.call_s3("copy_object", Bucket=target, Key=name, CopySource={"Bucket": bucket, "Key": key})
    except FileNotFoundError:
        raise
    except OSError:
        store.cp_file(ours(path).path, ours(to).path)


def _is_there(error: OSError) -> bool:
    """Whether a store refused to create an object because there is one of that name."""
    answer = getattr(error.__cause__, "response", {})
    return isinstance(error, FileExistsError) or answer.get("Error", {}).get("Code") == "PreconditionFailed"


def private(path: Path, flags: str) -> BinaryIO:
    """Open a file on a local disk; if it is created, only its owner has access.

    Args:
        flags: the mode argument of `open`.
    """
    return open(path, flags, opener=lambda name, how: os.open(name, how, PRIVATE))  # type: ignore[return-value]


def _drafted(path: Path, data: bytes, mode: int = PRIVATE, *, synced: bool = True) -> Path:
    """Write the content of a file under a temporary name beside it, and return that path."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.draft")
    if not is_local(path):
        ours(draft).fs.pipe_file(ours(draft).path, data)
        return draft
    try:
        with naming(path), open(draft, "wb", opener=lambda name, how: os.open(name, how, mode)) as file:
            with suppress(FileNotFoundError):
                there = path.stat().st_mode
                if not stat.S_ISREG(there):
                    raise OSError(errno.EINVAL, "it is no file", str(path))
                os.fchmod(file.fileno(), stat.S_IMODE(there))
            file.write(data)
            if synced:
                sync(file)
    except BaseException:  # such as a full disk, which a draft at each attempt would not make emptier
        draft.unlink(missing_ok=True)
        raise
    return draft
