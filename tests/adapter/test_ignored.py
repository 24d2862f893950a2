"""What a client sends is used or refused, and never ignored; who waits is answered when the adapter stops."""

import json
import signal
import threading
import time

import httpx
import pytest
from adapters import RunningAdapter
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.servers

WORD = json.dumps({"text": "gate", "size": 1})


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    with RunningAdapter(tmp_path_factory.mktemp("spool")) as running:
        yield running


def test_ids_of_two_fields_are_two_ids(adapter):
    """The same value in two fields names two events."""
    first = httpx.post(f"{adapter.url}/streams/Words?id=text", content='{"text": "7", "size": 1}').json()
    other = httpx.post(f"{adapter.url}/streams/Words?id=size", content='{"text": "x", "size": 7}').json()
    again = httpx.post(f"{adapter.url}/streams/Words?id=size", content='{"text": "y", "size": 7}').json()
    assert (first["accepted"], other["accepted"], again["duplicates"]) == (1, 1, 1)


REFUSED = [
    ("POST", "/streams/Words?idd=text", {}, "There is no parameter idd here; there is id."),
    ("POST", "/streams/Words?Id=text", {}, "There is no parameter Id here; there is id."),
    ("POST", "/streams/Words?id=text&id=size", {}, "The parameter id is given 2 times: give it once."),
    ("POST", "/streams/Words?id=text", {"Idempotency-Key": "k"}, "give one of the two"),
    ("POST", "/streams/Words", [("Idempotency-Key", "k"), ("Idempotency-Key", "l")], "There are several Idempotency-Keys"),
    ("GET", "/streams/Counts?ofset=0", {}, "There is no parameter ofset here; there is offset."),
    ("GET", "/streams/Counts?offset=0&offset=1", {}, "The parameter offset is given 2 times: give it once."),
    ("GET", "/results/Counts/a", {}, "The key of stream Counts is text/by; give a value for each, as in a URL."),
    ("GET", "/results/Counts/a/1/2", {}, "The key of stream Counts is text/by"),
]


@pytest.mark.parametrize(("method", "path", "headers", "says"), REFUSED, ids=[f"{one[0]} {one[1]}" for one in REFUSED])
def test_a_name_that_would_be_ignored_is_refused(adapter, method, path, headers, says):
    answer = httpx.request(method, adapter.url + path, headers=headers, content=WORD if method == "POST" else None)
    assert (answer.status_code, says in answer.json()["detail"]) == (400, True)
    documented = httpx.get(f"{adapter.url}/openapi.json").json()["paths"]
    place = path.partition("?")[0].replace("/results/Counts/a/1/2", "/results/Counts/{key}").replace("Counts/a", "Counts/{key}")
    assert "400" in documented[place][method.lower()]["responses"]


def test_a_socket_refuses_them_too(adapter):
    place = f"{adapter.url.replace('http', 'ws')}/streams/Words"
    with connect(f"{place}?id=text") as socket:
        socket.send(f'{{"key": "k", "events": [{WORD}]}}')
        answer = json.loads(socket.recv())
        assert (answer["status"], "give one of the two" in answer["detail"]) == (400, True)
    with pytest.raises(InvalidStatus, match="400"):
        connect(f"{place}?ids=text").__enter__()


def test_who_waits_at_a_gate_is_answered_when_the_adapter_stops(tmp_path):
    with RunningAdapter(tmp_path / "spool", "--gate", "Words=1000,20s") as adapter:
        answers = []

        def post():
            answers.append(httpx.post(f"{adapter.url}/streams/Words", content=WORD, timeout=30).json())

        threads = [threading.Thread(target=post) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        begun = time.monotonic()
        adapter.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert adapter.process.wait(10) == 0
        assert time.monotonic() - begun < 9  # and not after the time that is left to requests, 10 s
    assert [answer.get("accepted") for answer in answers] == [1, 1, 1]


def test_a_request_that_no_waiting_helps_is_too_large(tmp_path):
    with RunningAdapter(tmp_path / "spool", "--max-held", "1000") as adapter:
        answer = httpx.post(f"{adapter.url}/streams/Words", content=json.dumps([{"text": "x" * 100}] * 20))
        assert (answer.status_code, "send fewer events at a time" in answer.json()["detail"]) == (413, True)
        assert httpx.post(f"{adapter.url}/streams/Words", content=WORD).status_code == 200


def test_a_token_that_is_not_known_is_told_from_none(tmp_path):
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"produce": ["a-secret-that-is-long-enough"]}))
    with RunningAdapter(tmp_path / "spool", "--tokens", tokens) as adapter:
        place = f"{adapter.url}/streams/Words"
        assert "A token is needed" in httpx.post(place, content=WORD).json()["detail"]
        wrong = httpx.post(place, content=WORD, headers={"Authorization": "Bearer wrong"})
        assert (wrong.status_code, "This token is not known" in wrong.json()["detail"]) == (401, True)
