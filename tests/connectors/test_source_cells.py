"""What files and tables hold, at each door through which they come: exact, a dead letter, or refused; never something else."""

import pytest
from source_cells import DOORS, EXPECTED, FORMS, SHAPES, outcome

CELLS = [(tried, door) for tried in EXPECTED for door, wanted in zip(DOORS, EXPECTED[tried], strict=True) if wanted]


@pytest.mark.parametrize(("tried", "door"), CELLS)
def test_what_comes_of_it_is_what_the_table_says(tmp_path, tried, door):
    assert outcome(tried, door, tmp_path) == EXPECTED[tried][DOORS.index(door)]


def test_all_of_it_is_tried_at_each_door():
    assert set(EXPECTED) == {*SHAPES, *FORMS}
