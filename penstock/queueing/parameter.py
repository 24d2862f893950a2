"""Checks of a model's parameters; each error names the wrong value and what is allowed."""

import math
from numbers import Real
from typing import Any

from penstock.errors import ConfigurationError

LARGEST = 1e300


def rate(name: str, value: Any, *, zero: bool = False, infinite: bool = False) -> float:
    """Check a rate (events or transfers per second) or any other positive quantity.

    Raises:
        ConfigurationError: the value is not a number, is NaN or negative, is zero or infinite where that is not allowed, or is
            so small or so large that figures computed with it would overflow.
    """
    allowed = ("a number above zero" if not zero else "zero or a positive number") + (", or infinity" if infinite else "")
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigurationError(f"{name} is {value!r}; give {allowed}.")
    number = _float(value)
    in_range = number >= 0 if zero else number > 0
    if math.isnan(number) or not in_range or (math.isinf(number) and not infinite):
        raise ConfigurationError(f"{name} is {value!r}; give {allowed}.")
    least = 0.0 if zero else 1 / LARGEST
    if math.isfinite(number) and not least <= number <= LARGEST:
        raise ConfigurationError(f"{name} is {value!r}; give {allowed}, from {least:g} to {LARGEST:g}.")
    return number


def _float(value: Any) -> float:
    """Return a number as a float; NaN for an integer that is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.nan


def count(name: str, value: Any, *, infinite: bool = False, least: int = 1, most: float = math.inf) -> float:
    """Check a number of events: an integer from ``least`` to ``most``, or infinity where allowed.

    Raises:
        ConfigurationError: the value is anything else.
    """
    span = f"of {least} or more" if most == math.inf else f"from {least:,} to {most:,}"
    allowed = f"an integer {span}" + (", or infinity" if infinite else "")
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else _float(value)
    if number == math.inf and infinite:
        return math.inf
    if not math.isfinite(number) or number != int(number) or not least <= number <= most:
        raise ConfigurationError(f"{name} is {value!r}; give {allowed}.")
    return int(value)


MOST_JOBS = 1_000_000_000
"""How many jobs may be simulated; each takes 16 bytes."""


def jobs(value: Any, least: int) -> int:
    """Check a number of jobs to simulate: an integer from ``least`` to `MOST_JOBS`.

    Raises:
        ConfigurationError: the value is anything else.
    """
    return int(count("jobs", value, least=least, most=MOST_JOBS))


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Check a choice among names.

    Raises:
        ConfigurationError: the value is none of them.
    """
    if not isinstance(value, str) or value not in choices:
        raise ConfigurationError(f"{name} is {value!r}; choose {' or '.join(map(repr, choices))}.")
    return str(value)


def seed(value: Any) -> int:
    """Check the seed of a random generator.

    Raises:
        ConfigurationError: the value is not an integer of zero or more.
    """
    return int(count("seed", value, least=0))


def fraction(name: str, value: Any) -> float:
    """Check a probability between 0 and 1, both excluded.

    Raises:
        ConfigurationError: the value is anything else.
    """
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else _float(value)
    if not 0 < number < 1:
        raise ConfigurationError(f"{name} is {value!r}; give a fraction between 0 and 1.")
    return number


def quantile_limit(limit: Any) -> tuple[float, float] | None:
    """Check a bound on a quantile: a fraction of events, and the time in seconds within which they must be done.

    Raises:
        ConfigurationError: it is neither None nor such a pair.
    """
    if limit is None:
        return None
    if not isinstance(limit, tuple | list) or len(limit) != 2:
        raise ConfigurationError(f"max_quantile is {limit!r}; give (p, seconds), as (0.99, 0.05).")
    return fraction("p of max_quantile", limit[0]), rate("seconds of max_quantile", limit[1])
