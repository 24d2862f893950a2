"""Which changes of code a checkpoint survives."""

import pytest

from penstock.app.state import check_state_fits
from penstock.errors import IncompatibleStateError

STORED = {"Counter": {"key": {"text": "str"}, "state": {"seen": "int", "last": "str"}, "stage": 1}}


def changed(**changes):
    return {"Counter": {**STORED["Counter"], **changes}}


@pytest.mark.parametrize(
    "present",
    [
        STORED,
        changed(state={"seen": "int", "last": "str", "first": "str"}),
        changed(state={"seen": "float", "last": "str | None"}),
        {**STORED, "Other": {"key": {"text": "str"}, "state": {}, "stage": 2}},
    ],
)
def test_additions_and_wider_types_fit(present):
    check_state_fits(STORED, present)


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ({}, "Counter has stored state but is no longer"),
        (changed(key={"size": "int"}), "keyed by text .str. and is now keyed by size .int."),
        (changed(stage=2), "behind 1 keyed hops and is now behind 2"),
        (changed(state={"seen": "int"}), "'last', which the code dropped"),
        (changed(state={"seen": "str", "last": "str"}), "'seen' was stored as int and is now str"),
    ],
)
def test_what_would_lose_or_spoil_state_is_refused(present, words):
    with pytest.raises(IncompatibleStateError, match=words) as caught:
        check_state_fits(STORED, present)
    assert "--fresh" in str(caught.value)
