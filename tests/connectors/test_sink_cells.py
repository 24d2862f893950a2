"""What results and tables may be, at each sink: exact, a dead letter, or refused; never something else, and no run stops twice
at it.
"""

import time

import psycopg
import pytest
from sink_cells import DOORS, EXPECTED, TABLES, VALUES, outcome

CELLS = [
    pytest.param(tried, door, marks=pytest.mark.servers if door == "PostgreSQL" else ())
    for tried in EXPECTED
    for door, wanted in zip(DOORS, EXPECTED[tried], strict=True)
    if wanted
]


@pytest.mark.parametrize(("tried", "door"), CELLS)
def test_what_comes_of_it_is_what_the_table_says(request, tmp_path, tried, door):
    postgres = _database(request.getfixturevalue("postgres")) if door == "PostgreSQL" else None
    assert outcome(tried, door, tmp_path, postgres) == EXPECTED[tried][DOORS.index(door)]


def test_all_of_it_is_tried_at_each_door():
    assert set(EXPECTED) == {*VALUES, *TABLES}


def _database(server):
    name = f"d{time.time_ns()}"
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.uri.removesuffix("penstock") + name
