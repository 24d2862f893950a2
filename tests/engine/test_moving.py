"""A run is moved to other groups and partitions: sums, timers and order are what they would have been."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PySparkException

from penstock.cli.main import main
from penstock.engine.moving.move import Move
from penstock.engine.running.ledger import Ledger
from penstock.errors import IncompatibleStateError, RunFailedError
from penstock.runs.overview import overview

FILE = Path(__file__).parent / "apps_moving.py"
START = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS, SHOPS = 40, 7


def sale(number):
    at = START + timedelta(seconds=number)
    return {"shop": f"shop {number * 31 % SHOPS}", "item": number * 7 % ITEMS, "amount": number % 10, "at": at}


@pytest.fixture
def sell(run_app, tmp_path):
    """Write some more sales, and run until they are handled; the last go on far beyond all timers."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    done = 0

    def run(events, end=False, **options):
        nonlocal done
        lines = [sale(number) for number in range(done, done + events)]
        done += events
        path = inbox / f"{done:09d}.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        return run_app("app", file=FILE, sources={"Sales": f"jsonl:{inbox}"}, until_idle=True if end else "pause", **options)

    return run


def check(result, events):
    """All results are those of one Python loop over all sales."""
    amounts, sales_of, items = Counter(), Counter(), Counter()
    for number in range(events):
        one = sale(number)
        amounts[one["shop"]] += one["amount"]
        sales_of[one["shop"]] += 1
        items[one["item"]] += 1
    last = {total.shop: (total.amount, total.sales) for total in result.output("Totals")}
    assert last == {shop: (amounts[shop], sales_of[shop]) for shop in amounts}
    assert sorted(total.shop for total in result.output("Totals") if total.closed) == sorted(amounts)
    assert {one.item: one.most for one in result.output("Most")} == items
    closed = result.output("Closed")
    assert sorted((one.item, one.sales) for one in closed) == sorted(items.items())
    counts = result.report["counts"]
    assert (counts["accepted"], counts["lost"], counts["duplicated"], counts["dead_letters"]) == (events, 0, 0, 0)
    instances = {name: element["instances"] for name, element in result.report["elements"].items()}
    assert instances == {"CountsItems": ITEMS, "SumsShops": SHOPS, "KeepsMost": ITEMS}


def executed(result):
    """The micro-batches that Spark says to have run."""
    progress = map(json.loads, (result.directory / "progress.jsonl").read_text().splitlines())
    return {(one["name"], one["batchId"]) for one in progress if "addBatch" in one["durationMs"]}


def moves(result):
    return [json.loads(line) for line in (result.directory / "moves.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_is_moved_to_other_groups_and_partitions(sell):
    sell(300, partitions=2)
    result = sell(200, groups={"KeepsMost": "behind"}, partitions=3, end=True)
    check(result, 500)
    assert result.report["batches"] == overview(result.directory).batches == len(executed(result))
    assert sorted(path.name for path in (result.directory / "checkpoint").iterdir()) == ["behind@1", "main@1"]


@pytest.mark.slow
def test_a_run_is_moved_to_other_partitions_and_back(sell):
    sell(500, partitions=2)
    sell(300, partitions=5)
    sell(200, partitions=3)
    result = sell(100, end=True)
    check(result, 1100)
    assert [move["after"]["partitions"] for move in moves(result)] == [5, 3]
    assert {move["instances"] for move in moves(result)} == {2 * ITEMS + SHOPS}
    assert len({move["checksum"] for move in moves(result)}) == 2  # the counts have gone on in between
    assert sorted(path.name for path in (result.directory / "checkpoint").iterdir()) == ["main@2"]


@pytest.mark.slow
def test_a_run_that_an_older_version_has_moved_gets_a_new_number(sell):
    """Older versions have not told which moves they have begun."""
    sell(200, partitions=2)
    manifest = sell(100, partitions=3).directory / "manifest.json"
    told = json.loads(manifest.read_bytes())
    assert (told["layout"].pop("begun"), told["layout"]["moves"]) == (1, 1)
    manifest.write_text(json.dumps(told))
    result = sell(100, partitions=4, end=True)
    check(result, 400)
    assert sorted(path.name for path in (result.directory / "checkpoint").iterdir()) == ["main@2"]


@pytest.mark.slow
def test_a_run_is_moved_to_other_groups_and_back(sell):
    sell(300, partitions=2)
    apart = sell(200, groups={"KeepsMost": "behind"})
    assert sorted(path.name for path in (apart.directory / "hops").iterdir()) == ["Items"]
    sell(200, groups={"KeepsMost": "behind", "SumsShops": "shops"}, partitions=3)
    sell(100)  # says nothing of groups, and keeps them
    groups = json.loads((apart.directory / "manifest.json").read_text())["groups"]
    assert groups == {"CountsItems": "main@2", "KeepsMost": "behind@2", "SumsShops": "shops@2"}
    sell(100, groups=dict.fromkeys(groups, "main"))
    result = sell(50, end=True)
    check(result, 950)
    assert not any((result.directory / "hops").iterdir())
    assert [move["instances"] for move in moves(result)] == [2 * ITEMS + SHOPS] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "stage"),
    [("before", "_move_state"), ("after", "_move_state"), ("after", "_continue"), ("after", "_continued"), ("before", "tidy")],
)
def test_a_move_that_dies_leaves_the_one_layout_or_the_other(sell, monkeypatch, stage, when):
    sell(200, partitions=2)
    whole = getattr(Move, stage)

    def dies(*given):
        if when == "after":
            whole(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Move, stage, staticmethod(dies) if stage == "tidy" else dies)
        with pytest.raises(KeyboardInterrupt):
            sell(100, partitions=3, groups={"KeepsMost": "behind"})
    sell(100, partitions=3, groups={"KeepsMost": "behind"})
    result = sell(0, end=True)
    check(result, 400)
    names = sorted(path.name for path in (result.directory / "checkpoint").iterdir())
    # No two moves have one number: a driver that was paused in the first one would go on among the files of the second.
    moved = 1 if stage == "tidy" else 2
    assert names == [f"behind@{moved}", f"main@{moved}"]


@pytest.mark.slow
def test_what_was_begun_when_a_run_died_is_finished_before_it_is_moved(sell, monkeypatch):
    sell(200, partitions=2, groups={"KeepsMost": "behind"})
    whole = Ledger.commit

    def dies(ledger, record):
        whole(ledger, record)
        raise RuntimeError("killed here")

    with (
        monkeypatch.context() as patched
    ):  # the ledger is ahead of Spark's log of commits, and the hop holds what nobody has read
        patched.setattr(Ledger, "commit", dies)
        with pytest.raises(RunFailedError):
            sell(100)
    sell(50, partitions=3, groups=dict.fromkeys(["CountsItems", "SumsShops", "KeepsMost"], "main"))
    check(sell(0, end=True), 350)


def test_a_query_with_state_of_sparks_own_is_not_moved(run_app, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    sources = {"Words": f"jsonl:{tmp_path / 'in.jsonl'}"}
    run_app("native", sources=sources)
    with pytest.raises(IncompatibleStateError, match="query elements .* leave them in their group"):
        run_app("native", sources=sources, groups={"keep_long": "apart"})


@pytest.mark.slow
def test_a_failure_of_sparks_in_a_move_is_a_sentence_and_nothing_has_moved(sell, monkeypatch):
    sell(100, partitions=2)

    def full(*_):
        raise PySparkException("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.engine.moving.move.repack", full)
        with pytest.raises(RunFailedError, match="No space left on device. What was not committed is still queued"):
            sell(100, partitions=3)
    result = sell(100)
    assert json.loads((result.directory / "manifest.json").read_text())["partitions"] == 2
    check(sell(0, end=True), 300)


@pytest.mark.slow
def test_rescale_moves_a_run_and_reads_nothing(sell, spark, tmp_path, capsys):
    sell(200, partitions=2)
    spark.leave()
    rescale = ["rescale", "moving", "--runs", str(tmp_path / "runs"), "--json"]
    main([*rescale, "--partitions", "3"])
    moved = json.loads(capsys.readouterr().out)
    assert (moved["before"]["partitions"], moved["after"]["partitions"], moved["instances"]) == (2, 3, 2 * ITEMS + SHOPS)
    with pytest.raises(SystemExit):
        main([*rescale, "--partitions", "3"])
    assert "nothing to move" in capsys.readouterr().err
    check(sell(100, end=True), 300)


@pytest.mark.slow
def test_windows_that_have_closed_stay_closed_and_groups_that_have_not_begun_come_along(run_app, tmp_path):
    """More partitions than keys, so that some have no instance; and a group to which nothing has come yet."""
    inbox = tmp_path / "in"
    inbox.mkdir()

    def sell(name, *sales, end=False, **options):
        lines = [
            {"shop": "s", "item": item, "amount": amount, "at": START + timedelta(seconds=second)}
            for item, second, amount in sales
        ]
        (inbox / name).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        return run_app(
            "windows",
            file=FILE,
            sources={"Sales": f"jsonl:{inbox}?max_files=1"},
            until_idle=True if end else "pause",
            **options,
        )

    apart = {"KeepsRare": "rare"}
    sell("a.jsonl", (1, 5, 1), (2, 10, 1), partitions=2, groups=apart)
    sell("b.jsonl", (1, 500, 1))  # closes the first minute
    result = sell("c.jsonl", (1, 6, 1), (3, 501, 2000), partitions=4)  # late for item 1
    assert [(one.item, one.sales) for one in result.output("PerMinute")].count((1, 1)) == 1
    result = sell("d.jsonl", (2, 7, 1), (1, 505, 1), (3, 506, 3000), groups=dict.fromkeys(["KeepsRare"], "main"))
    result = sell("e.jsonl", (3, 507, 4000), end=True)
    closed = sorted((one.item, one.sales) for one in result.output("PerMinute"))
    assert closed == [(1, 1), (1, 2), (2, 1), (3, 3)]
    assert [(one.item, one.sales) for one in result.output("Kept")] == [(3, 1), (3, 2), (3, 3)]
    assert (result.report["counts"]["late"], result.report["counts"]["lost"]) == (2, 0)


@pytest.mark.slow
def test_a_source_may_be_called_as_if_it_had_been_moved(run_app, tmp_path):
    """What an attempt to move has left is removed at each start, and nothing else."""
    for words in (["one"], ["one", "two"]):
        (tmp_path / f"{len(words)}.jsonl").write_text(f'{{"text": "{words[-1]}"}}\n')
        result = run_app("dotted", file=FILE, sources={"Words.1": f"jsonl:{tmp_path}/*.jsonl"}, until_idle="pause")
        assert [event.text for event in result.output("Out")] == words
        counts = result.report["counts"]
        assert (counts["accepted"], counts["lost"], counts["duplicated"]) == (len(words), 0, 0)
    ledger = (result.directory / "batches-read-Words.1.jsonl").read_text().splitlines()
    assert [json.loads(line)["batch"] for line in ledger] == [0, 1]
