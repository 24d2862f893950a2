"""Columns of times, made of many times at once."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.kinds.moments import EPOCH, microseconds


def all_microseconds(moments: Sequence[datetime]) -> NDArray[np.int64]:
    """Return what `microseconds` returns, for each of many times, in a quarter of the time."""
    try:
        numbers: NDArray[np.int64] = _since_epoch(moments).to_numpy().copy()
    except TypeError:  # some are without a zone
        return np.array([microseconds(moment) for moment in moments], np.int64)
    return numbers


def timestamps(moments: Sequence[datetime | None], kind: pa.DataType) -> pa.Array:
    """Return the column of times that ``pyarrow.array`` returns, in a quarter of the time.

    Args:
        kind: a type of timestamps in microseconds.
    """
    try:
        return _since_epoch(moments).view(kind)
    except TypeError:  # some are None, or without a zone
        return pa.array(moments, kind)


def _since_epoch(moments: Sequence[Any]) -> pa.Array:
    return pa.array([moment - EPOCH for moment in moments], pa.duration("us")).view(pa.int64())
