"""Durations as people write them: ``"10 s"``, ``"1 hour"``, ``timedelta``, or seconds."""

import re
from datetime import timedelta
from numbers import Real

from penstock.errors import ConfigurationError

SECONDS_PER_UNIT = {
    "us": 1e-6,
    "microsecond": 1e-6,
    "ms": 1e-3,
    "millisecond": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
}

Duration = str | float | int | timedelta


def seconds(duration: Duration) -> float:
    """Return a duration in seconds.

    Args:
        duration: a number of seconds, a ``timedelta``, or text such as ``"250 ms"`` or ``"1 hour"``.

    Raises:
        ConfigurationError: the text is not a number and a unit, or the duration is negative.
    """
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, Real) and not isinstance(duration, bool):
        try:
            value = float(duration)
        except OverflowError:
            value = float("inf")
    elif isinstance(duration, str):
        value = _parse(duration)
    else:
        raise ConfigurationError(f"{duration!r} is not a duration: give a number of seconds, a timedelta, or a text as '10 s'.")
    if not 0 <= value < float("inf"):  # nor NaN
        raise ConfigurationError(f"A duration must be zero or more and finite, not {duration!r}.")
    return value


def seconds_of(name: str, duration: Duration) -> float:
    """Return what `seconds` returns; its errors begin with the name of an option, or what else was given the duration.

    Raises:
        ConfigurationError: as `seconds`.
    """
    try:
        return seconds(duration)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def above_zero(name: str, duration: Duration) -> float:
    """Return what `seconds_of` returns, which must leave some time.

    Raises:
        ConfigurationError: as `seconds_of`, or it is zero.
    """
    if not (value := seconds_of(name, duration)):
        raise ConfigurationError(f"{name} {duration} leaves no time; give more, as 30s.")
    return value


def _parse(text: str) -> float:
    match = re.fullmatch(r"\s*([0-9.]+(?:e-?\d+)?)\s*([a-z]*)\s*", text.lower())
    if match:
        number, unit = match.groups()
        singular = unit.removesuffix("s") if len(unit) > 3 else unit  # of seconds and days, but not of ms
        factor = SECONDS_PER_UNIT.get(unit or "s", SECONDS_PER_UNIT.get(singular))
        try:
            if factor is not None:
                return float(number) * factor
        except ValueError:
            pass
    raise ConfigurationError(f"{text!r} is not a duration: write a number and a unit, such as '250 ms', '10 s' or '1 hour'.")


def multiple_after(time: float, interval: float) -> float:
    """Return the first whole multiple of an interval after a time, to the microsecond; all are in seconds.

    >>> multiple_after(1_700_000_000.3, 0.1)
    1700000000.4
    """
    step = max(1, round(interval * 1e6))
    return (round(time * 1e6) // step + 1) * step / 1e6
