"""Progress reports say how many rows were read, also where Spark counts the files that it has listed."""

import pytest

from penstock.runs.progress import Noted, ProgressSums


def report(rows, seconds=2.0):
    return {"numInputRows": rows, "inputRowsPerSecond": rows / 4, "processedRowsPerSecond": rows / seconds}


def progress(*rows):
    whole = report(sum(rows)) | {"name": "main", "batchId": 3, "durationMs": {"triggerExecution": 2000}}
    return whole | {"sources": [{"description": f"source {place}", **report(each)} for place, each in enumerate(rows)]}


def test_files_are_replaced_by_rows_and_the_rates_follow():
    told = Noted({"Lines": 1000}).added_to(progress(2, 30), ["Lines", "Messages"])
    assert [source["numInputRows"] for source in told["sources"]] == [1000, 30]
    assert told["numInputRows"] == 1030
    assert told["sources"][0] == {"description": "source 0", **report(1000)}
    assert told["processedRowsPerSecond"] == pytest.approx(1030 / 2)
    sums = ProgressSums()
    sums.add([told])
    assert sums.busiest == (2000, 1030)


@pytest.mark.parametrize(
    ("rows", "given", "wanted"),
    [
        ({"Lines": 0}, (2,), 0),  # files without a row
        ({"Lines": 7}, (0,), 7),
        ({"Lines": 7}, (-1,), 7),  # Spark does not know
        ({"Lines": 7, "Others": 5}, (1, 1, 1), 19),  # a query that reads the first one twice
    ],
)
def test_what_spark_counts_may_be_nothing(rows, given, wanted):
    told = Noted(rows).added_to(progress(*given), ["Lines", "Others", "Lines"][: len(given)])
    assert told["numInputRows"] == wanted
    assert told["batchId"] == 3


def test_without_notes_a_report_stays_as_it_is():
    assert Noted().added_to(progress(3), ["Lines"]) == progress(3)
    assert Noted(delivered={"Out": 0.25}).added_to(progress(3), []) == {**progress(3), "delivered": {"Out": 0.25}}
