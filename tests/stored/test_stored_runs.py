"""Every run that an earlier version, or this one, has begun and not ended goes on, and comes to what it must."""

import pytest
from crashpoints.on_spark import started
from stored_runs import KEPT, NAMES, unpack, workload_of

pytestmark = [pytest.mark.servers, pytest.mark.slow]

ARCHIVES = sorted(KEPT.glob("*/*.tar.xz"))


def test_all_kinds_of_runs_are_kept_of_each_version():
    versions = {archive.parent.name for archive in ARCHIVES}
    assert versions
    assert {(archive.parent.name, archive.name.partition(".")[0]) for archive in ARCHIVES} >= {
        (version, name) for version in versions for name in NAMES
    }


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: f"{archive.parent.name}-{archive.name.partition('.')[0]}")
def test_a_stored_run_goes_on(archive):
    place = unpack(archive)
    workload = workload_of(archive.name.partition(".")[0])
    ended = started(workload, place.world)
    assert ended is not None
    assert ended["error"] == ""
