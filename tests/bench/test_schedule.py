"""The simulated schedule of a micro-batch's tasks: bounds that any schedule keeps, and one by hand."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).parents[2] / "benchmarks" / "schedule.py"
# By its file: with the directory on the path, its queueing.py would stand before the tests' directory of that name.
spec = spec_from_file_location("schedule", FILE)
schedule = sys.modules["schedule"] = module_from_spec(spec)
spec.loader.exec_module(schedule)
Job, MicroBatch, Stage, makespan = schedule.Job, schedule.MicroBatch, schedule.Stage, schedule.makespan

SECONDS = st.lists(st.floats(0.001, 10.0), min_size=1, max_size=12)


def test_a_schedule_by_hand():
    stages = {0: Stage((), [3.0, 1.0, 1.0]), 1: Stage((0,), [2.0, 2.0, 2.0])}
    assert makespan(stages, 1, 0.0) == pytest.approx(11.0)
    assert makespan(stages, 2, 0.0) == pytest.approx(3.0 + 4.0)
    assert makespan(stages, 3, 0.0) == pytest.approx(3.0 + 2.0)
    assert makespan(stages, 3, 0.5) == pytest.approx(3.5 + 3 * 0.5 + 2.0)  # the driver starts tasks one after another


@given(st.lists(SECONDS, min_size=1, max_size=4), st.integers(1, 8), st.floats(0.0, 0.1))
def test_no_schedule_is_quicker_than_its_work_or_slower_than_one_core(tasks, cores, start):
    stages = {number: Stage((number - 1,) if number else (), one) for number, one in enumerate(tasks)}
    took = makespan(stages, cores, start)
    work, longest = sum(map(sum, tasks)), sum(map(max, tasks))
    assert max(longest, work / cores) <= took + 1e-9
    assert took <= work + start * sum(map(len, tasks)) + 1e-9


@given(SECONDS, st.floats(0.0, 5.0), st.floats(0.0, 0.1))
def test_on_one_core_it_is_what_was_measured(tasks, alone, start):
    job = Job(0.0, {0: Stage((), tasks)}, sum(tasks) + start * len(tasks))
    assert MicroBatch(1, job.ended + alone, [job]).on(1) == pytest.approx(job.ended + alone)
