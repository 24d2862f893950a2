"""From what Python workers are forked: the PySpark that is installed, and compiled, not the archive of its sources."""

import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.engine.daemon import leave_out_archive
from penstock.engine.session import start_session

ARCHIVE = str(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([ARCHIVE, "/a"], ["/a"]),
        (["/opt/spark/python/lib/pyspark.zip", "/a"], ["/opt/spark/python/lib/pyspark.zip", "/a"]),
        (["/a"], ["/a"]),
    ],
)
def test_only_the_archive_of_what_is_installed_is_left_out(monkeypatch, before, after):
    installed = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
    monkeypatch.setattr(sys, "path", before + installed)
    leave_out_archive()
    assert sys.path == after + installed


@pytest.mark.slow
def test_workers_have_everything_loaded(tmp_path):
    def told(batches):
        import pyspark

        for batch in batches:
            loaded = "penstock.runtime.hop" in sys.modules and "pyspark.zip" not in pyspark.__file__
            yield pa.RecordBatch.from_pydict({"loaded": [loaded] * batch.num_rows})

    if SparkSession.getActiveSession() is not None:
        SparkSession.getActiveSession().stop()
    with (tmp_path / "spark.log").open("wb") as log:
        spark = start_session("daemon", "local[1]", log, {})
        try:
            assert spark.range(1).mapInArrow(told, "loaded boolean").collect()[0].loaded
        finally:
            spark.stop()
