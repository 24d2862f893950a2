"""What a run keeps is bounded: old micro-batches become sums, and what one group leaves for another is removed."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from penstock.cli.main import main
from penstock.engine.running.ledger import Ledger
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.overview import overview
from penstock.runs.progress import ProgressFile, ProgressSums
from penstock.runs.tail import FileTail
from penstock.runs.totals import Totals
from penstock.runtime.tally import ElementTally, SourceTally

APP = Path(__file__).parent / "apps_moving.py"


def record(batch):
    made = BatchRecord(batch=batch, committed_us=batch * 10**6, offsets=f"{batch:x}", dead_lettered=batch % 2)
    made.sources["Words"] = SourceTally(rows=batch, accepted=batch, newest_us=100 - batch)
    made.elements["Counts"] = ElementTally(events=batch, instances={batch % 2: batch})
    made.latency_ms.add(batch + 1.0)
    return made


def total(records):
    totals = Totals()
    for one in records:
        totals.add(one, frozenset({"Words"}), frozenset())
    return totals


def test_the_sums_of_a_ledger_stay_as_it_is_shortened(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(path, "main", (), keep=4)
    tail, seen = FileTail(path), []
    for batch in range(20):
        assert ledger.commit(record(batch))
        assert len(path.read_bytes().splitlines()) <= 7
        seen.extend(tail.lines(seen.clear))
        followed = total(msgspec.json.decode(line, type=BatchRecord) for line in seen)
        whole = total(record(number) for number in range(batch + 1))
        assert total(records_in(path)) == whole == followed
        assert [one.batch for one in records_in(path)][-3:] == list(range(batch + 1))[-3:]
    ledger.close()
    again = Ledger(path, "main", (), keep=4)
    assert again.last == 19
    assert not again.commit(record(19))
    assert again.commit(record(20))
    assert total(again.records()) == total(record(number) for number in range(21))


def test_a_crash_while_a_ledger_is_shortened_leaves_it_whole(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    ledger = Ledger(path, "main", (), keep=2)
    for batch in range(4):
        ledger.commit(record(batch))

    def dies(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            ledger.commit(record(4))
    again = Ledger(path, "main", (), keep=2)
    assert again.last == 4
    assert again.commit(record(5))
    assert total(again.records()) == total(record(number) for number in range(6))
    assert len(path.read_bytes().splitlines()) <= 4


def progress(number, query="main"):
    return {
        "id": query,
        "batchId": number // 2,
        "name": query,
        "numInputRows": number,
        "durationMs": {"triggerExecution": 10},
        "stateOperators": [{"numRowsDroppedByWatermark": number}],
    }


def test_the_sums_of_progresses_stay_as_they_are_dropped(tmp_path):
    file, told = ProgressFile(tmp_path / "progress.jsonl", 4), []
    for number in range(2, 40, 2):
        for query in ("main", "other"):
            told.append(progress(number, query))
            file.note(told[-1])
            whole = ProgressSums()
            whole.add(told)
            assert file.sums() == whole
            assert len((tmp_path / "progress.jsonl").read_text().splitlines()) <= 7
    assert ProgressFile(tmp_path / "progress.jsonl", 4).sums() == whole
    assert whole.busiest == (10 * 19, sum(range(2, 40, 2)))


@pytest.mark.slow
def test_what_a_run_has_forgotten_still_counts(run_app, tmp_path, capsys):
    inbox = tmp_path / "in"
    inbox.mkdir()
    line = '{"shop":"a","item":%d,"amount":1,"at":"2026-01-01T00:00:%02dZ"}\n'

    def sell(first, last):
        for number in range(first, last):
            file = inbox / f"{number:03d}.jsonl"
            file.write_text(line % (number % 3, number))
            os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes files by their age
        return run_app(
            "app",
            file=APP,
            sources={"Sales": f"jsonl:{inbox}?max_files=1"},
            groups={"KeepsMost": "behind"},
            retain=3,
            until_idle="pause",
        )

    sell(0, 9)
    result = sell(9, 13)
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"], counts["lost"], counts["duplicated"]) == (13, 13, 0, 0)
    assert result.report["streams"]["Items"] == 13
    assert {one.item: one.most for one in result.output("Most")} == {0: 5, 1: 4, 2: 4}
    ledgers = {name: list(records_in(result.directory / f"batches-{name}.jsonl")) for name in ("main", "behind")}
    assert all(len(records) <= 5 for records in ledgers.values())
    assert ledgers["main"][0].summed  # the other may have taken several micro-batches of this one's at once
    assert overview(result.directory).batches == result.report["batches"] > 13
    lines = [json.loads(one) for one in (result.directory / "progress.jsonl").read_text().splitlines()]
    assert len(lines) <= 5
    assert "sums" in lines[0]
    left = sorted(path.name for path in (result.directory / "hops").rglob("*.parquet"))
    assert left[0] > "00000008"  # what the last micro-batch has taken stays, for Spark might have repeated it
    main(["status", "--runs", str(result.directory.parent)])
    assert f" {result.report['batches']} " in capsys.readouterr().out
