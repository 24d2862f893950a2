"""Names of events and requests, without a server: what is an id, and what is an envelope."""

import msgspec
import pytest

from penstock import Event
from penstock.adapter.body import BodyReader, Malformed, Parsed
from penstock.adapter.names import EventNames, unwrap
from penstock.connectors.log import Request
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
    assert (kept.ids, parsed.rejected) == (["event d=1", "event d=2"], [])


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


class Enveloped(Event):
    key: str
    events: list[int]


@pytest.mark.parametrize(
    ("message", "key", "events"),
    [
        (b'{"key": "a", "events": [1, 2]}', None, b'{"key": "a", "events": [1, 2]}'),
        (b'{"key": "a", "events": [{"key": "b", "events": [1]}]}', "a", b'[{"key": "b", "events": [1]}]'),
        (b'{"key": "a", "events": {"key": "b", "events": [1]}}', "a", b'{"key": "b", "events": [1]}'),
    ],
)
def test_an_event_that_looks_like_an_envelope_is_one_or_the_other(message, key, events):
    assert unwrap(message, Enveloped)[:2] == (key, events)


def test_an_event_that_may_be_an_envelope_is_refused():
    with pytest.raises(RequestProblem, match="send it in an array"):
        unwrap(b'{"key": "a", "events": []}', Enveloped)


def test_half_of_a_surrogate_pair_is_of_its_event_alone():
    key, events, lines = unwrap(b'{"key": "k9", "events": [{"d": "\\ud800"}, {"d": "ok"}]}', Numbered)
    parsed = BodyReader(Numbered, 1000).read(events, lines=lines)
    assert (key, parsed.rows, [one.index for one in parsed.rejected]) == ("k9", [1], [0])
    parsed = BodyReader(Numbered, 1000).read(b'{"d": "a", "more": "\\ud800"}')
    assert (parsed.rows, [one.index for one in parsed.rejected]) == ([], [0])


@pytest.mark.parametrize(
    "message",
    [
        b'{"key": "\\ud800", "events": [{"d": "a"}]}',
        b'{"key": "a", "events": [{"d": "\\ud800"}], "more": 1}',
        b'{"key": "a", "events": [{"d": "\\ud800"}]',
        b'{"key": 5, "events": [{"d": "\\ud800"}]}',
        b'{"key": "a", "events": [{"d": "\\ud800"}]} ,',
        b'["\\ud800"]',
        b'{[1]: "\\ud800"}',
        b'{{}: "\\ud800", "key": "a"}',
        b'{"key": "a" "events": ["\\ud800"]}',
        b'{"\\ud800"}',
        b'{"\\ud800":',
    ],
)
def test_what_is_no_envelope_is_none_with_half_a_pair_either(message):
    assert unwrap(message, Numbered)[0] is None


def test_the_other_events_of_a_message_stay_as_they_are():
    events = b'[ {"d":"12345678901234567.891", "n":1e2}, {"d":"\\ud800"}, {"d":"\xc3\xa9"}]'
    key, found, _ = unwrap(b' { "key" : "k", "events": ' + events + b" } ", Numbered)
    assert (key, found) == ("k", events)


@pytest.mark.parametrize(
    "body", [b'\xef\xbb\xbf[{"d":"a"}]', '[{"d":"a"}]'.encode("utf-16"), b'{"d": NaN}', b'{"d": "\\ud800"']
)
def test_a_body_that_is_not_json_is_no_event(body):
    with pytest.raises(Malformed):
        BodyReader(Numbered, 1000).read(body)


@pytest.mark.parametrize("limit", [20, 30, 10_000])
def test_a_request_is_the_same_whatever_the_greatest_event(limit):
    """A repeated one is known after a restart with another --max-event."""
    body = b'[{"d": "a", "n": 1}, {"d": "b"} ]'
    parsed = BodyReader(Numbered, limit).read(body)
    whole = BodyReader(Numbered, 10_000).read(body)
    request = Request("client", "key", 2, parsed.rows)
    assert request.judge(parsed.payloads, ()).names == request.judge(whole.payloads, ()).names
