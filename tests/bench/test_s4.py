"""The S4 evaluation's cells, its arithmetic and its report, on cells that are made up."""

import json

import msgspec
import pyarrow.parquet as pq
import pytest

from penstock.bench.cluster import Cluster
from penstock.bench.s4.agenda import USAGE, Agenda, read_cells
from penstock.bench.s4.campaign import campaign
from penstock.bench.s4.cells import KILLS, Cell, cells_of
from penstock.bench.s4.follow import Course, LedgerFollower
from penstock.bench.s4.report import CellReport, write_parquet
from penstock.bench.s4.search import BOUND_S, Search, searches_of, sustained
from penstock.bench.s4.workload import expected, words_file
from penstock.cli import main
from penstock.errors import ConfigurationError
from penstock.runs.batches import BatchRecord
from penstock.runtime.histogram import Histogram
from penstock.runtime.tally import SourceTally


def record(batch, committed, rows, latency_ms=500.0):
    latencies = Histogram()
    latencies.add(latency_ms, rows)
    sources = {"RawWords": SourceTally(rows=rows)}
    return BatchRecord(batch=batch, committed_us=round(committed * 1e6), latency_ms=latencies, sources=sources)


@pytest.mark.parametrize("scale", ["quick", "standard", "full"])
def test_every_scale_has_every_kind_of_cell_and_each_name_once(scale):
    cells = cells_of(scale)
    assert {cell.nodes for cell in cells} == {1, 2, 3}
    assert {cell.kill for cell in cells if cell.kind == "faults"} == {kill for _, kill in KILLS}
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names)
    assert [cell.nodes for cell in cells] == sorted(cell.nodes for cell in cells)  # a cluster is started once


def test_an_unknown_scale_is_refused():
    with pytest.raises(ConfigurationError, match="choose quick, standard, full"):
        cells_of("tiny")


def a_trial(rate, *, kept):
    latency = {"max": BOUND_S * (0.5 if kept else 2)}
    return {"kind": "grid", "nodes": 1, "keys": 8, "rate": rate, "trial": True, "latency": latency}


def drained(throughput):
    return {"kind": "grid", "nodes": 1, "keys": 8, "rate": None, "trial": False, "throughput": throughput}


@pytest.mark.parametrize("limit", [650.0, 930.0, 1400.0])
def test_a_search_closes_in_on_what_is_sustained(limit):
    cells, search = [drained(1000.0)], Search(1, 8, 7)
    while (trial := search.next(cells)) is not None:
        assert trial.trial
        cells.append(a_trial(trial.rate, kept=trial.rate <= limit))
    assert len(cells) == 8
    found = sustained(cells[1:])
    assert found.rate <= limit < found.over
    assert found.over / found.rate < 1.05


def test_a_search_leaves_its_bracket_where_the_rate_lies_outside():
    for limit in (120.0, 5000.0):
        cells = [drained(1000.0)]
        while (trial := Search(1, 8, 12).next(cells)) is not None:
            cells.append(a_trial(trial.rate, kept=trial.rate <= limit))
        found = sustained(cells[1:])
        assert found.rate <= limit
        assert found.rate > 0.9 * limit


def test_a_rate_above_one_that_failed_is_not_believed_and_a_failed_cell_was_not_sustained():
    trials = [a_trial(500.0, kept=True), a_trial(700.0, kept=False), a_trial(800.0, kept=True)]
    assert sustained(trials).rate == 500.0
    assert sustained([{"rate": 400.0, "error": "has not ended"}]).over == 400.0
    assert Search(1, 8, 4).next([]) is None  # it begins with what the cluster does at most


def test_an_agenda_goes_on_where_it_was(tmp_path):
    (tmp_path / "cells").mkdir()
    cells = [Cell("faults", 1, 8, 500, 100, kill="driver"), Cell("grid", 1, 8, None, 100), Cell("grid", 2, 8, 500, 100)]
    searches = [Search(1, 8, 2)]
    result = {"latency": {"max": 1.0}, **dict.fromkeys(USAGE, 0)}
    seen = []
    for turn in range(10):
        agenda = Agenda(cells, searches, tmp_path)  # a new one, as after Ctrl-C
        if (cell := agenda.next()) is None:
            break
        seen.append((cell.nodes, cell.kind, cell.trial))
        measured = {**result, **msgspec.to_builtins(cell), "events": 100, "throughput": 900.0}
        if turn == 1:
            agenda.fail(cell, "has not ended in time")
        else:
            agenda.record(cell, measured)
    assert seen == [(1, "grid", False), (1, "grid", True), (1, "grid", True), (1, "faults", False), (2, "grid", False)]
    assert Agenda(cells, searches, tmp_path).left == 0
    assert {cell["kind"] for cell in read_cells(tmp_path)} == {"grid", "resources", "faults"}


def test_a_failed_cell_is_measured_again_the_next_time_but_not_now(tmp_path):
    (tmp_path / "cells").mkdir()
    agenda = Agenda([Cell("grid", 1, 8, 500, 100)], [], tmp_path)
    agenda.fail(agenda.next(), "no broker")
    assert agenda.next() is None
    assert Agenda([Cell("grid", 1, 8, 500, 100)], [], tmp_path).next() is not None


def test_only_the_quick_scale_does_without_searches():
    assert searches_of("quick") == []
    assert {(search.nodes, search.keys) for search in searches_of("standard")} == {
        (n, k) for n in (1, 2, 3) for k in (1, 2, 4, 8)
    }


def test_what_must_come_out_is_counted_by_division(tmp_path):
    file = words_file(tmp_path, 400)
    words = file.read_text().split()
    counts = expected(words, 4)
    assert len(words) == 512
    assert counts["Three"] == 4 * 128  # the paper's quarter
    assert counts["Eleven"] == 4 * sum(int(word) % 11 == 0 for word in words if word.isdigit())


def test_the_warm_up_is_not_measured_and_recovery_is_when_nothing_more_waits_than_before():
    steady = [record(n, 100 + n, 100) for n in range(11)]  # 100 words a second, the first 100 of which warm up
    paused = [record(11, 118, 100), record(12, 120, 900), record(13, 121, 100), record(14, 122, 100)]
    course = Course.of([*steady, *paused], 100)
    assert course.throughput(101, 110) == pytest.approx(100)
    assert course.throughput(110, 110) == 0
    assert course.words[-1] == 100 * 10 + 1200
    assert course.latency()["p95"] == pytest.approx(0.5, rel=0.01)
    # Nothing runs from 110 to 118; at 120 all that is due has been processed.
    assert course.recovered(110.5, 100.0, 100.0, 2200) == pytest.approx(9.5)


def test_a_ledger_is_read_as_it_grows(tmp_path):
    import msgspec

    path = tmp_path / "batches.jsonl"
    follower = LedgerFollower(path)
    assert follower.look() == 0
    lines = [msgspec.json.encode(record(n, n, 10)) + b"\n" for n in range(3)]
    path.write_bytes(lines[0] + lines[1][:20])
    assert follower.look() == 10
    path.write_bytes(b"".join(lines))
    assert follower.look() == 30
    assert [one.batch for one in follower.records] == [0, 1, 2]


def cell(kind, nodes, rate, throughput, **more):
    load = {
        "processor": 0.4,
        "memory": 5e8,
        "peak": 6e8,
        "written_bytes": 1e4,
        "received_bytes": 1e5,
        "received_packets": 90.0,
        "sent_bytes": 1e5,
        "sent_packets": 80.0,
    }
    usage = {f"node-{n + 1}": load for n in range(nodes)}
    return {
        "kind": kind,
        "name": f"{kind}{nodes}{rate}{throughput}",
        "nodes": nodes,
        "keys": 8,
        "rate": rate,
        "events": 1000,
        "lost": 0,
        "duplicated": 0,
        "processed": 250,
        "expected": 250,
        "throughput": throughput,
        "seconds": 20.0,
        "repetition": 1,
        "trial": False,
        "latency": {"p95": 1.5},
        "notes": [],
        "usage": usage,
        **more,
    }


def test_the_report_stands_alone_and_says_what_it_means(tmp_path):
    cells = [cell("grid", nodes, None, 1000.0 * nodes**0.9) for nodes in (1, 2, 3)]
    cells += [cell("resources", 2, 500, 500.0), {"kind": "grid", "name": "broken", "trial": False, "error": "no broker"}]
    cells += [cell("grid", 2, rate, rate, trial=True, latency={"max": rate / 100}) for rate in (1200.0, 1600.0)]
    fault = {"kill": "1 of 2", "recovery_seconds": 7.0, "struck": 10.0, "course": [[1, 100], [12, 500], [20, 1000]]}
    speeds = {f"throughput_{when}": 500.0 for when in ("before", "during", "after")}
    cells.append(cell("faults", 2, 500, 480.0, **fault, **speeds))
    (tmp_path / "cells").mkdir()
    for one in cells:
        (tmp_path / "cells" / f"{one['name']}.json").write_text(json.dumps(one))
    found = read_cells(tmp_path)
    write_parquet(tmp_path, found)
    CellReport(found, "penstock bench s4 --quick").write(tmp_path)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    for written in (page, text):
        assert "0 events were lost and 0 counted twice" in written.replace("lost 0", "0")
        assert "2 nodes 1.87, 3 nodes 2.69" in written
        assert "broken: no broker" in written
        assert "1,200" in written  # the greater trial let words wait for 16 s
        assert "55%" in written

    assert "http" not in page.replace("http-equiv", "").replace("data:image", "")
    table = pq.read_table(tmp_path / "cells.parquet")
    assert table.num_rows == len(cells)
    assert {"kind", "nodes", "keys", "rate", "events", "lost", "duplicated", "throughput", "seconds"} <= set(table.column_names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--cpu", "0"], ["--cpu"]), (["--output", "/proc/nowhere"], ["/proc/nowhere", "--output"]), (["--medium"], ["--medium"])],
)
def test_wrong_use_is_one_sentence(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["bench", "s4", *arguments])
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert "Traceback" not in said
    assert all(word in said for word in words)


@pytest.mark.servers
def test_a_given_cluster_is_measured_and_the_rest_is_left_out(tmp_path):
    said: list[str] = []
    cells = [Cell("grid", 1, 2, 400, 800), Cell("faults", 1, 2, 400, 800, kill="driver"), Cell("grid", 1, 8, None, 1500)]
    given = {"cpu": None, "memory": 1536, "isolated": None, "command": "penstock bench s4", "say": said.append}
    with Cluster(nodes=1, directory=tmp_path / "cluster", memory=1536) as cluster:
        assert campaign(cells, [], tmp_path / "s4", master=cluster.master, **given) == 0, said
    assert any("1 cells are left out" in line for line in said)
    found = {cell["name"]: cell for cell in read_cells(tmp_path / "s4")}
    assert {cell["kind"] for cell in found.values()} == {"grid", "resources"}
    for cell in found.values():
        assert (cell["lost"], cell["duplicated"]) == (0, 0)
    measured = found["grid-nodes1-keys8-ratemax-words1500-1"]
    assert measured["processed"] == measured["expected"] > 0
    assert 0 < measured["latency"]["p50"] <= measured["latency"]["max"] <= measured["seconds"]
    assert "were lost" in (tmp_path / "s4" / "report.md").read_text()
