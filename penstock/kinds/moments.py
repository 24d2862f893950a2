"""Times as microseconds since the epoch."""

from datetime import UTC, datetime, timedelta

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOCAL_EPOCH = datetime(1970, 1, 1)


def microseconds(moment: datetime) -> int:
    """Return a time as microseconds since the epoch; a time without a zone is taken as UTC."""
    since = moment - (EPOCH if moment.tzinfo else LOCAL_EPOCH)
    return (
        since.days * 86_400 + since.seconds
    ) * SECOND + since.microseconds  # a float would be a microsecond off from 2243 on


def whole(seconds: float) -> int:
    """Convert seconds since the epoch that were whole milliseconds, or else microseconds, to the microseconds that they were.

    From the year 2243 on a float tells milliseconds apart, but not microseconds.
    """
    milliseconds = round(seconds * 1000)
    return milliseconds * 1000 if milliseconds / 1000 == seconds else round(seconds * SECOND)


def moment(at: int) -> datetime:
    """Return the UTC time of a number of microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=at)
