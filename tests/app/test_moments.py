"""Times as whole microseconds: exact, whenever they are."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from penstock.app.window.windowing import microseconds, moment

EAST = timezone(timedelta(hours=5, minutes=45))


@given(st.datetimes())
def test_every_microsecond_is_told_from_the_next(at):
    aware = at.replace(tzinfo=UTC)
    assert microseconds(aware) == microseconds(at)
    assert moment(microseconds(aware)) == aware
    if datetime(2, 1, 1) < at < datetime(9999, 1, 1):
        assert microseconds(aware.astimezone(EAST)) == microseconds(aware)
        assert microseconds(at + timedelta(microseconds=1)) == microseconds(at) + 1


def test_the_end_of_time():
    assert moment(microseconds(datetime.max)) == datetime.max.replace(tzinfo=UTC)
