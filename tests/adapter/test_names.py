"""Names of events and requests, without a server: what is an id, and what is an envelope."""

import msgspec
import pytest

from penstock import Event
from penstock.adapter.body import Parsed
from penstock.adapter.names import EventNames, unwrap
from penstock.web.problem import RequestProblem


class Numbered(Event):
    d: str
    n: int = 0
    named: str = msgspec.field(name="Name", default="x")
    random: str = msgspec.field(default_factory=lambda: "r")


class Defaults(Event):
    n: int = 0


def parcel(payloads, field):
    events = [msgspec.json.decode(payload, type=Numbered) for payload in payloads]
    parsed = Parsed(list(range(len(payloads))), list(payloads), events, [])
    return EventNames(None, field, Numbered, "").parcel(parsed), parsed


@pytest.mark.parametrize(("field", "given"), [("n", b'"n":5'), ("named", b'"Name":"a"'), ("random", b'"random":"b"')])
def test_a_default_is_no_id(field, given):
    kept, parsed = parcel([b'{"d":"1"}', b'{"d":"2",%s}' % given, b'{"d":"3"}'], field)
    assert kept.payloads == [b'{"d":"2",%s}' % given]
    assert [rejection.index for rejection in parsed.rejected] == [0, 2]
    assert all("is the event's id" in rejection.reason for rejection in parsed.rejected)


def test_a_field_that_must_be_there_is_an_id():
    kept, parsed = parcel([b'{"d":"1"}', b'{"d":"2"}'], "d")
    assert (kept.ids, parsed.rejected) == (["event 1", "event 2"], [])


@pytest.mark.parametrize(
    "body", [b'{"key":7,"events":[{"n":1}]}', b'{"key":"a","events":[],"more":1}', b'{"events":[{"n":1}]}', b'{"events":null}']
)
def test_what_is_meant_as_an_envelope_and_is_none_is_refused(body):
    with pytest.raises(RequestProblem) as refused:
        unwrap(body, Defaults)
    assert refused.value.status_code == 400


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'{\n  "n": 1\n}', False),
        (b'{"n":1}\n{"n":2}', True),
        (b'{"n":1}\nnone\n', True),
        (b'{"n":1}', False),
        (b'[{"n":1},\n{"n":2}]', False),
        (b'{"n":1}\n', False),
    ],
)
def test_one_value_in_several_lines_is_one_event(body, lines):
    assert unwrap(body, Defaults) == (None, body, lines)


def test_an_envelope_has_a_key():
    assert unwrap(b'{"key":"a","events":[{"n":1}]}', Defaults) == ("a", b'[{"n":1}]', False)
