"""Times as whole microseconds: exact, whenever they are."""

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kinds.moment_columns import all_microseconds, timestamps
from penstock.kinds.moments import SECOND, microseconds, moment, whole

EAST = timezone(timedelta(hours=5, minutes=45))


@given(st.datetimes())
def test_every_microsecond_is_told_from_the_next(at):
    aware = at.replace(tzinfo=UTC)
    assert microseconds(aware) == microseconds(at)
    assert moment(microseconds(aware)) == aware
    if datetime(2, 1, 1) < at < datetime(9999, 1, 1):
        assert microseconds(aware.astimezone(EAST)) == microseconds(aware)
        assert microseconds(at + timedelta(microseconds=1)) == microseconds(at) + 1


@given(st.lists(st.none() | st.datetimes().flatmap(lambda at: st.sampled_from([at, at.replace(tzinfo=UTC)]))))
def test_columns_of_times_are_those_of_single_times(moments):
    known = [at for at in moments if at is not None]
    for times in (known, [at for at in known if at.tzinfo]):
        assert all_microseconds(times).tolist() == list(map(microseconds, times))
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        for times in (moments, known, [at for at in known if at.tzinfo]):
            assert timestamps(times, kind).equals(pa.array(times, kind))
            assert timestamps(times, kind).type == kind


def test_what_is_no_time_makes_no_column():
    with pytest.raises(pa.ArrowException):
        timestamps(["2026-01-01"], pa.timestamp("us"))


def test_the_end_of_time():
    assert moment(microseconds(datetime.max)) == datetime.max.replace(tzinfo=UTC)


LAST_MS = 253_402_300_799_999


@given(st.integers(-LAST_MS, LAST_MS))
def test_whole_milliseconds_come_back_from_seconds_in_all_years(milliseconds):
    assert whole(milliseconds / 1000) == milliseconds * 1000


@given(st.integers(-(10**15), 8 * 10**15))  # to 2223
def test_microseconds_come_back_from_seconds(us):
    assert whole(us / SECOND) == us
