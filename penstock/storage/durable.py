"""Files that are there whole or not at all, and stay once the call returns: on a disk, in HDFS, in an object store.

On a disk a file's bytes are kept once the file is synced, and its name once its directory is: after a power failure a file that
was renamed may have its old name otherwise, and one that was made may be gone.
"""

import errno
import fnmatch
import os
import shutil
import stat
import uuid
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from penstock.storage.place import here_of, in_objects, is_local, make_of_user, ours


def read(path: Path) -> bytes:
    """What a file holds.

    Raises
    ------
    FileNotFoundError: it is not there.
    """
    if is_local(path):
        return path.read_bytes()
    # In one request: whoever opens a file asks for its size first, and so does who would read it in parts at once.
    whole = {"max_concurrency": 1} if in_objects(path) else {}
    content: bytes = ours(path).fs.cat_file(ours(path).path, **whole)
    return content


PRIVATE = 0o600
"""The mode of what is written here unless told otherwise: for its owner alone."""


Kept = Literal["name", "bytes", "no"]
"""What of a file a failure of the machine leaves: all; its bytes, under this name or that which it had; or neither for sure."""


def write(path: Path, content: str | bytes, mode: int = PRIVATE, *, kept: Kept = "name") -> None:
    """Put a file in the place of the one that is there, if there is one, and which keeps its mode.

    Parameters
    ----------
    mode: of a new file.
    kept: what stays once the call returns; else a crash of the machine may leave the one that was there, or an empty one.
    """
    data = content.encode() if isinstance(content, str) else content
    if in_objects(path):  # an object is there whole or not at all
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
    """Put a file where there is none; returns whether there was none. Of several who try at once, one succeeds."""
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
        if not done:  # else it has the other name
            draft.unlink(missing_ok=True)


def move(path: Path, to: Path) -> None:
    """Move a file, in the place of the one that is there, if there is one; in an object store it is copied first.

    On a disk it may be where it was after a power failure, until `sync_names` has been called for the directory that it is
    moved to.

    Raises
    ------
    FileNotFoundError: it is not there.
    """
    if is_local(path):
        os.replace(path, to)
    elif in_objects(path):
        _copy_object(path, to)
        ours(path).fs.rm_file(ours(path).path)
    else:
        ours(path).fs.replace(str(path), str(to))


def names(directory: Path) -> list[str]:
    """The names in a directory, in no order; none where there is no such directory.

    In an object store a directory may hold an object that marks it, which is not one of them; `iterdir` would have it.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        if is_local(directory):
            return [path.name for path in directory.iterdir()]
        here = ours(directory).path.rstrip("/")
        found = (path.rstrip("/") for path in ours(directory).fs.ls(here, detail=False))
        return [path.rpartition("/")[2] for path in found if path != here]
    return []


def matching(directory: Path, pattern: str) -> list[Path]:
    """What is in a directory and has a name of a pattern, in order; the directory's own name is no pattern."""
    return sorted((directory / name for name in fnmatch.filter(names(directory), pattern)), key=str)


def sizes(directory: Path) -> dict[Path, int]:
    """The files in a directory, in the order of their names, with their sizes in bytes."""
    if is_local(directory):
        return {path: path.stat().st_size for path in sorted(directory.iterdir()) if path.is_file()}
    here = ours(directory).path.rstrip("/")
    found = {one["name"].rstrip("/"): one for one in ours(directory).fs.ls(here, detail=True)}
    files = {name: one for name, one in found.items() if name != here and one["type"] == "file"}
    return {directory / name.rpartition("/")[2]: int(files[name]["size"]) for name in sorted(files)}


def make(directory: Path, mode: int = 0o777) -> None:
    """Make a directory, where a file needs one before it can be written.

    Parameters
    ----------
    mode: of one that is made on a disk, but for what the user's mask takes away; not of those that it is in.
    """
    if not is_local(directory) or directory.is_dir():
        return
    made = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode, exist_ok=True)
    for each in made:
        sync_names(each.parent)


def make_here(run: Path) -> None:
    """Make what a run needs of this machine alone, for its owner alone; one that is there keeps the mode that it has.

    Raises
    ------
    OSError: it cannot be made, or is another user's, who could change what is sent to executors from it.
    """
    if not is_local(run):
        make_of_user()
    here = here_of(run)
    make(here, 0o700)
    sync_names(here.parent)  # who made it may have been killed before that


def remove(tree: Path) -> None:
    """Remove a directory and what it holds, or a file, if it is there."""
    if is_local(tree):
        if tree.is_dir() and not tree.is_symlink():
            shutil.rmtree(tree, ignore_errors=True)
        else:
            tree.unlink(missing_ok=True)
    else:
        with suppress(FileNotFoundError):
            ours(tree).fs.rm(ours(tree).path, recursive=True)


def remove_empty(directory: Path) -> None:
    """Remove a directory, if nothing is in it; an object store has none that is empty."""
    if is_local(directory):
        with suppress(OSError):
            directory.rmdir()
    elif not in_objects(directory) and not names(directory):
        remove(directory)


def copy(tree: Path, to: Path) -> None:
    """Copy a file, or a directory and what it holds."""
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
    """A file to write to; `sync` before it is closed."""
    return path.open("wb", buffering=1 << 20) if is_local(path) else path.open("wb")  # a store's has a buffer of its own


def sync(file: BinaryIO) -> None:
    """Have what was written to a file kept, where its being closed does not see to that."""
    file.flush()
    try:
        number = file.fileno()
    except (OSError, AttributeError):  # a store's has none
        return
    os.fsync(number)


def sync_names(directory: Path) -> None:
    """Have the names in a directory on a disk kept: what was made in it, moved to it, or removed.

    Some file systems sync no directory, and need not; and who may not read one cannot sync it.
    """
    if is_local(directory):
        try:
            sync_path(directory)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EPERM):
                raise


def sync_path(path: Path) -> None:
    """Have a file, or the names in a directory, on a disk kept as it is now, whoever has written it."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _copy_object(path: Path, to: Path) -> None:
    """Copy an object in one request, if its store does that; those above 5 GB are copied in parts, for which its size is
    asked.
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
    """Whether a store has refused to create an object since there is one of its name."""
    answer = getattr(error.__cause__, "response", {})
    return isinstance(error, FileExistsError) or answer.get("Error", {}).get("Code") == "PreconditionFailed"


def private(path: Path, flags: str) -> BinaryIO:
    """A file on a disk, for its owner alone if it is made.

    Parameters
    ----------
    flags: as `open` has them.
    """
    return open(path, flags, opener=lambda name, how: os.open(name, how, PRIVATE))  # type: ignore[return-value]


def _drafted(path: Path, data: bytes, mode: int = PRIVATE, *, synced: bool = True) -> Path:
    """What is to be a file, under another name beside it."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.draft")
    if not is_local(path):
        ours(draft).fs.pipe_file(ours(draft).path, data)
        return draft
    with open(draft, "wb", opener=lambda name, how: os.open(name, how, mode)) as file:
        with suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        file.write(data)
        if synced:
            sync(file)
    return draft
