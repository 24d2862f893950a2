"""NEXMark's queries as Flink SQL, in one local cluster of Flink's own, parallelism 2.

    python in_flink.py INPUT OUTPUT QUERY...

INPUT has a directory of JSON Lines for each source. A query's changes go to OUTPUT/QUERY as Debezium's JSON, for Flink's
files take no updates otherwise. Prints a JSON object for each query: the seconds from its start to its end.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

TABLES = {
    "person": ("Persons", "id BIGINT, name STRING, city STRING, state STRING, ts TIMESTAMP_LTZ(3)"),
    "auction": (
        "Auctions",
        "id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMP_LTZ(6), seller BIGINT,"
        " category BIGINT, ts TIMESTAMP_LTZ(3)",
    ),
    "bid": (
        "Bids",
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, extra STRING, ts TIMESTAMP_LTZ(3)",
    ),
}
DAY = """COUNT(*) AS bids, COUNT(*) FILTER (WHERE price < 10000) AS low,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle, COUNT(*) FILTER (WHERE price >= 1000000) AS high"""
DISTINCT = """COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
    COUNT(DISTINCT auction) AS auctions, COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions"""
QUERIES = {
    "q00": "SELECT auction, bidder, price, channel, url, extra, ts FROM bid",
    "q01": "SELECT auction, bidder, 0.908 * CAST(price AS DOUBLE) AS price, ts FROM bid",
    "q02": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q03": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q04": """
        SELECT category, SUM(price) / CAST(COUNT(*) AS DOUBLE) AS price FROM (
            SELECT a.id, a.category, MAX(b.price) AS price FROM auction a JOIN bid b
            ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category)
        GROUP BY category""",
    "q05": """
        WITH counted AS (
            SELECT auction, window_start, window_end, COUNT(*) AS bids
            FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
            GROUP BY auction, window_start, window_end),
        most AS (SELECT window_start, window_end, MAX(bids) AS bids FROM counted GROUP BY window_start, window_end)
        SELECT c.auction, c.window_start AS `start`, c.bids FROM counted c JOIN most m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.bids""",
    "q07": """
        WITH given AS (SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))),
        most AS (SELECT window_start, window_end, MAX(price) AS price FROM given GROUP BY window_start, window_end)
        SELECT g.auction, g.bidder, g.price, g.ts, g.window_start AS `start` FROM given g JOIN most m
        ON g.window_start = m.window_start AND g.window_end = m.window_end AND g.price = m.price""",
    "q08": """
        WITH p AS (
            SELECT id, name, window_start, window_end FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end),
        a AS (
            SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end)
        SELECT p.id, p.name, p.window_start AS `start` FROM p JOIN a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q09": """
        SELECT id, seller, category, bidder, price, ts, expires FROM (
            SELECT a.id, a.seller, a.category, b.bidder, b.price, b.ts, a.expires,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts) AS place
            FROM auction a JOIN bid b ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.expires
        ) WHERE place = 1""",
    "q11": """
        SELECT bidder, COUNT(*) AS bids, window_start AS `start`, window_end + INTERVAL '0.001' SECOND AS `end`
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '9.999' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q13": """
        SELECT auction, bidder, price, ts, `value` FROM (SELECT *, MOD(auction, 100) AS number FROM bid)
        JOIN side USING (number)""",
    "q14": """
        SELECT auction, bidder, 0.908 * CAST(price AS DOUBLE) AS price,
            CASE WHEN HOUR(ts) BETWEEN 8 AND 18 THEN 'day' WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'night'
            ELSE 'other' END AS `time`,
            ts, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS cs
        FROM bid WHERE 0.908 * CAST(price AS DOUBLE) > 1000000 AND 0.908 * CAST(price AS DOUBLE) < 50000000""",
    "q15": f"SELECT `day`, {DAY}, {DISTINCT} FROM (SELECT *, DATE_FORMAT(ts, 'yyyy-MM-dd') AS `day` FROM bid) GROUP BY `day`",
    "q16": f"SELECT channel, FLOOR(ts TO DAY) AS `start`, {DAY}, {DISTINCT} FROM bid GROUP BY channel, FLOOR(ts TO DAY)",
    "q17": f"""
        SELECT auction, FLOOR(ts TO DAY) AS `start`, {DAY}, MIN(price) AS least, MAX(price) AS most,
            AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS total
        FROM bid GROUP BY auction, FLOOR(ts TO DAY)""",
    "q18": """
        SELECT auction, bidder, price, channel, url, extra, ts FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid) WHERE place = 1""",
    "q19": """
        SELECT auction, ARRAY_SORT(ARRAY_AGG(price), FALSE) AS prices FROM (
            SELECT auction, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
        WHERE place <= 10 GROUP BY auction""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.ts, a.item, a.category FROM bid b JOIN auction a ON b.auction = a.id
        AND b.ts BETWEEN a.ts - INTERVAL '1' DAY AND a.ts + INTERVAL '1' DAY WHERE a.category = 10""",
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
            FROM bid) WHERE channel_id <> ''""",
    "q22": """
        SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS `one`, SPLIT_INDEX(url, '/', 4) AS `two`,
            SPLIT_INDEX(url, '/', 5) AS `three`
        FROM bid""",
}
"""Of the 23: not 6 (an OVER of a stream with updates), 10 (Parquet, which needs jars beside), 12 (by the clock)."""


def main() -> None:
    given, out = Path(sys.argv[1]), Path(sys.argv[2])
    tables = prepared(given, out)
    for query in sys.argv[3:]:
        print(json.dumps({"query": query, "seconds": run(tables, query, out / query)}), flush=True)


def prepared(given: Path, out: Path) -> TableEnvironment:
    """Flink with the tables, and a checkpoint each second."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{out.absolute()}/checkpoints",
    }
    for name, value in settings.items():
        tables.get_config().set(name, value)
    for table, (source, columns) in TABLES.items():
        at = {
            "connector": "filesystem",
            "path": f"file://{(given / source).absolute()}",
            "format": "json",
            "json.timestamp-format.standard": "ISO-8601",
        }
        tables.execute_sql(
            f"CREATE TABLE {table} ({columns}, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) WITH ({_options(at)})"
        )
    side = ", ".join(f"({number}, 'value {number}')" for number in range(50))
    tables.execute_sql(f"CREATE VIEW side AS SELECT * FROM (VALUES {side}) AS side (number, `value`)")
    return tables


def run(tables: TableEnvironment, query: str, out: Path) -> float:
    """Run a query to its end; returns the seconds it took."""
    at = {
        "connector": "filesystem",
        "path": f"file://{out.absolute()}",
        "format": "debezium-json",
        "debezium-json.timestamp-format.standard": "ISO-8601",
    }
    began = time.monotonic()
    tables.execute_sql(f"CREATE TABLE {query} WITH ({_options(at)}) AS {QUERIES[query]}").wait()
    return time.monotonic() - began


def _options(given: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in given.items())


if __name__ == "__main__":
    main()
