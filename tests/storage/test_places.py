"""Files in each kind of place, and what is said of a place that cannot be used."""

import socket

import pytest

from benchmarks.servers.s3 import KEYS
from penstock.bench.servers.process import free_port
from penstock.errors import ConfigurationError, StoreError
from penstock.storage import durable
from penstock.storage.place import AT_FIRST, in_objects, ours, path_of
from penstock.storage.reach import check, meet


def test_files_are_written_read_moved_and_removed(places):
    durable.make(places)
    durable.write(places / "one", "1")
    durable.write(places / "one", b"2")
    assert durable.read(places / "one") == b"2"
    assert not durable.create(places / "one", b"3")
    assert durable.create(places / "two", b"4")
    durable.move(places / "one", places / "three = 3")
    with pytest.raises(FileNotFoundError):
        durable.move(places / "one", places / "three = 3")
    assert sorted(durable.names(places)) == ["three = 3", "two"]
    assert durable.sizes(places) == {places / "three = 3": 1, places / "two": 1}
    if in_objects(places):  # as Spark marks directories
        ours(places).fs.pipe_file(f"{ours(places / 'a').path}/", b"")
    durable.make(places / "a" / "b")
    durable.write(places / "a" / "b" / "c", b"5")
    durable.copy(places / "a", places / "d")
    assert durable.read(places / "d" / "b" / "c") == b"5"
    durable.remove(places / "a")
    durable.remove(places / "a")
    assert not (places / "a").exists()
    assert durable.names(places / "a") == []


@pytest.mark.parametrize("place", ["hdfs://host:9000/a", "webhdfs://host:9870/a", "s3://bucket/a", "/a"])
def test_a_path_below_another_is_told_by_its_parts(place):
    below = path_of(place) / "b" / "c=1"
    assert below.is_relative_to(path_of(place))
    assert below.relative_to(path_of(place)).parts == ("b", "c=1")
    assert str(below.relative_to(path_of(place))) == "b/c=1"


def test_a_file_of_several_blocks_is_whole(places):
    durable.make(places)
    with durable.opened(places / "large") as file:
        for number in range(20):
            file.write(bytes([number]) * 2_000_000)
        durable.sync(file)
        assert file.tell() == 40_000_000
    content = durable.read(places / "large")
    assert content == b"".join(bytes([number]) * 2_000_000 for number in range(20))


@pytest.mark.parametrize(("place", "said"), [("gs://bucket/x", "there is no store gs://"), ("s3a:///x", "names no bucket")])
def test_a_place_that_is_none_is_refused(place, said):
    with pytest.raises(ConfigurationError, match=said):
        path_of(place)


def test_a_bucket_that_is_missing_and_a_wrong_key_are_said(s3):
    with pytest.raises(StoreError, match="there is no bucket nowhere"):
        check(path_of("s3a://nowhere/runs"))
    check(path_of(f"{s3.uri}/runs"))


def test_a_store_that_does_not_answer_is_not_taken_for_an_empty_one(monkeypatch):
    monkeypatch.setenv("PENSTOCK_WEBHDFS", "127.0.0.1:1")
    place = path_of("hdfs://127.0.0.1:1/runs")
    for asked in (place.exists, place.is_dir, place.is_file, lambda: durable.names(place)):
        with pytest.raises(OSError, match="refused"):
            asked()
    with pytest.raises(StoreError, match="cannot be reached, or refuses"):
        check(place)


@pytest.fixture
def nobody(request):
    """The address of a server that is not there, has no address, or takes connections and never answers."""
    if request.param == "refuses":
        yield f"127.0.0.1:{free_port()}"
    elif request.param == "is nowhere":
        yield "no.such.host.invalid:9000"
    else:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            yield f"127.0.0.1:{silent.getsockname()[1]}"


@pytest.mark.parametrize("nobody", ["refuses", "is nowhere", "is silent"], indirect=True)
@pytest.mark.parametrize("place", ["s3a://bucket/runs", "hdfs://127.0.0.1:1/runs"])
def test_of_a_store_that_never_answered_it_is_said_within_seconds(nobody, place, monkeypatch):
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://{nobody}", "PENSTOCK_WEBHDFS": nobody}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("penstock.storage.place.AT_FIRST_S", (1.0, 1.0))
    monkeypatch.setattr("penstock.storage.place.AT_FIRST", {**AT_FIRST, "read_timeout": 1})
    with pytest.raises(StoreError, match=r"cannot be reached, or refuses .*: check the (bucket|host)") as refused:
        meet(path_of(place))
    assert "\n" not in str(refused.value)


def test_what_is_wrong_with_an_s3_store_is_named(s3, monkeypatch):
    with pytest.raises(StoreError, match="there is no bucket nowhere"):
        meet(path_of("s3a://nowhere/in/*.jsonl"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.environment["AWS_ENDPOINT_URL"] + "/")
    with pytest.raises(StoreError, match=r"signature.*your credentials"):
        meet(path_of("s3a://bucket/another"))


def test_an_hdfs_that_only_we_can_reach_is_refused(hdfs):
    meet(path_of(f"{hdfs.uri}/runs"))
    with pytest.raises(StoreError, match=r"WebHDFS answers, but nothing does at 127.0.0.1:\d+, where Spark .*correct the port"):
        meet(path_of(f"hdfs://127.0.0.1:{free_port()}/runs"), by_spark=True)
