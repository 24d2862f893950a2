"""NEXMark's queries as SQL of Spark's Structured Streaming, in one session, local[2].

    python in_spark.py INPUT OUTPUT QUERY...

INPUT has a directory of JSON Lines for each source; a file is a micro-batch. What a query says goes to OUTPUT/QUERY as JSON
Lines, in a directory for each micro-batch where results are updated. Prints a JSON object for each query: Spark's progress.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

TABLES = {
    "person": ("Persons", "id BIGINT, name STRING, city STRING, state STRING, ts TIMESTAMP"),
    "auction": (
        "Auctions",
        "id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMP, seller BIGINT,"
        " category BIGINT, ts TIMESTAMP",
    ),
    "bid": ("Bids", "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, extra STRING, ts TIMESTAMP"),
}
DAY = """count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS low,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle, count(*) FILTER (WHERE price >= 1000000) AS high"""
DISTINCT = """size(collect_set(bidder)) AS bidders, size(collect_set(bidder) FILTER (WHERE price < 10000)) AS low_bidders,
    size(collect_set(auction)) AS auctions, size(collect_set(auction) FILTER (WHERE price >= 1000000)) AS high_auctions"""
QUERIES = {
    "q00": "SELECT auction, bidder, price, channel, url, extra, ts FROM bid",
    "q01": "SELECT auction, bidder, 0.908D * price AS price, ts FROM bid",
    "q02": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q03": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q05": """
        SELECT one.auction, w.start, one.bids FROM (
            SELECT w, max(bids) AS most, collect_list(struct(auction, bids)) AS counted FROM (
                SELECT window(ts, '10 seconds', '2 seconds') AS w, auction, count(*) AS bids FROM bid GROUP BY 1, 2)
            GROUP BY w) LATERAL VIEW explode(filter(counted, x -> x.bids = most)) AS one""",
    "q07": """
        SELECT one.auction, one.bidder, one.price, one.ts, w.start FROM (
            SELECT window(ts, '10 seconds') AS w, max(price) AS most, collect_list(struct(auction, bidder, price, ts)) AS given
            FROM bid GROUP BY 1) LATERAL VIEW explode(filter(given, x -> x.price = most)) AS one""",
    "q08": """
        SELECT id, name, w.start FROM (
            SELECT p.id, p.name, p.w FROM (SELECT id, name, window(ts, '10 seconds') AS w FROM person) p
            JOIN (SELECT seller, window(ts, '10 seconds') AS w FROM auction) a ON p.id = a.seller AND p.w = a.w)
        GROUP BY id, name, w""",
    "q09": """
        SELECT id, seller, category, best.bidder, best.price, best.ts, expires FROM (
            SELECT a.id, a.seller, a.category, a.expires, a.ts AS opened,
                max_by(struct(b.bidder, b.price, b.ts), struct(b.price, -unix_micros(b.ts))) AS best
            FROM auction a JOIN bid b ON b.auction = a.id AND b.ts >= a.ts AND b.ts <= a.ts + INTERVAL 70 SECONDS
                AND b.ts <= a.expires
            GROUP BY a.id, a.seller, a.category, a.expires, a.ts)""",
    "q10": """
        SELECT auction, bidder, price, ts, date_format(ts, 'yyyy-MM-dd') AS day, date_format(ts, 'HH:mm') AS minute FROM bid""",
    "q11": """
        SELECT bidder, bids, w.start, w.end + INTERVAL '0.000001' SECOND AS end FROM (
            SELECT bidder, session_window(ts, '9.999999 seconds') AS w, count(*) AS bids FROM bid GROUP BY 1, 2)""",
    "q13": "SELECT auction, bidder, price, ts, value FROM bid JOIN side ON auction % 100 = number",
    "q14": """
        SELECT auction, bidder, 0.908D * price AS price,
            CASE WHEN hour(ts) BETWEEN 8 AND 18 THEN 'day' WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'night'
            ELSE 'other' END AS time,
            ts, length(extra) - length(replace(extra, 'c', '')) AS cs
        FROM bid WHERE 0.908D * price > 1000000 AND 0.908D * price < 50000000""",
    "q15": f"SELECT date_format(ts, 'yyyy-MM-dd') AS day, {DAY}, {DISTINCT} FROM bid GROUP BY 1",
    "q16": f"SELECT channel, date_trunc('DAY', ts) AS start, {DAY}, {DISTINCT} FROM bid GROUP BY 1, 2",
    "q17": f"""
        SELECT auction, date_trunc('DAY', ts) AS start, {DAY}, min(price) AS least, max(price) AS most, avg(price) AS mean,
            sum(price) AS total
        FROM bid GROUP BY 1, 2""",
    "q18": """
        SELECT last.auction, last.bidder, last.price, last.channel, last.url, last.extra, last.ts FROM (
            SELECT max_by(struct(auction, bidder, price, channel, url, extra, ts), ts) AS last
            FROM bid GROUP BY bidder, auction)""",
    "q19": "SELECT auction, slice(sort_array(collect_list(price), false), 1, 10) AS prices FROM bid GROUP BY auction",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.ts, a.item, a.category FROM bid b JOIN auction a ON b.auction = a.id
        AND b.ts BETWEEN a.ts - INTERVAL 1 DAY AND a.ts + INTERVAL 1 DAY WHERE a.category = 10""",
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
            FROM bid) WHERE channel_id <> ''""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS one, split_part(url, '/', 5) AS two,
            split_part(url, '/', 6) AS three
        FROM bid""",
}
"""Of the 23: not 4 (two aggregations, the second without a window), 6 (ranks over what has closed), 12 (by the clock)."""
UPDATED = frozenset({"q15", "q16", "q17", "q18", "q19"})
"""Queries whose results are updated; the others append."""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MICROSECONDS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def main() -> None:
    given, out = Path(sys.argv[1]), Path(sys.argv[2])
    spark = prepared(given)
    for query in sys.argv[3:]:
        print(json.dumps({"query": query, "progress": run(spark, query, out / query)}), flush=True)
    spark.stop()


def prepared(given: Path) -> SparkSession:
    """Spark with the tables."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.ui.enabled", False)
        .getOrCreate()
    )
    for table, (source, columns) in TABLES.items():
        frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(f"{given / source}")
        frame.withWatermark("ts", "4 seconds").createOrReplaceTempView(table)
    side = [(number, f"value {number}") for number in range(50)]
    spark.createDataFrame(side, "number BIGINT, value STRING").createOrReplaceTempView("side")
    return spark


def run(spark: SparkSession, query: str, out: Path) -> list[dict[str, Any]]:
    """Run a query to the end of its input; returns its progress."""

    def write(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").options(**MICROSECONDS).json(f"{out}/{number:05d}")

    stream = spark.sql(QUERIES[query]).writeStream.option("checkpointLocation", f"{out}-checkpoint")
    if query in UPDATED:
        writer = stream.outputMode("update").foreachBatch(write)
    else:
        writer = stream.format("parquet" if query == "q10" else "json").options(path=str(out), **MICROSECONDS)
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    return [json.loads(entry.json) for entry in running.recentProgress]


if __name__ == "__main__":
    main()
