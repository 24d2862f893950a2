"""Compression of pages: what the state store need not take in does not pass through its socket, nor to its files."""

from typing import Any

import pyarrow as pa

SHORT = 16 << 10
"""Shorter pages are stored as they are: a call of the store takes longer than their bytes."""
MARK = b"\xc1"
"""The first byte of a compressed page: no value in MessagePack and no message of Arrow begins with it."""
LENGTH = 8
"""The bytes that hold the length of the content, behind the mark."""

_codec = pa.Codec("zstd", compression_level=1)


def compressed(content: bytes) -> bytes:
    """Return what is stored for the content of a page: itself if it is short, or is no longer than its compressed form."""
    if len(content) < SHORT:
        return content
    packed: bytes = _codec.compress(content, asbytes=True)
    return content if len(packed) >= len(content) else MARK + len(content).to_bytes(LENGTH, "little") + packed


def restored(stored: bytes) -> Any:
    """Return the content of a page, as bytes or a buffer of Arrow, of what `compressed` has returned."""
    if stored[:1] != MARK:
        return stored
    length = int.from_bytes(stored[1 : 1 + LENGTH], "little")
    return _codec.decompress(memoryview(stored)[1 + LENGTH :], decompressed_size=length)
