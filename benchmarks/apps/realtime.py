"""Two topologies of query-dialect elements, for benchmarks/realtime.py: one without state, one that counts."""

from pyspark.sql import functions as F

from penstock import App, Event


class Reading(Event):
    key: str
    sent: float


class Count(Event):
    key: str
    seen: int
    sent: float


stateless = App("stateless")
readings = stateless.source("Readings", Reading)
kept = stateless.stream("Kept", Reading)
stateless.sink("Out", kept, key="key")


@stateless.query(readings, emits=kept)
def keep(frame):
    return frame.where(F.length("key") > 0).withColumn("key", F.upper("key"))


counting = App("counting")
counted_readings = counting.source("Readings", Reading)
counts = counting.stream("Counts", Count)
counting.sink("Out", counts, key="key")


@counting.query(counted_readings, emits=counts)
def count(frame):
    return frame.groupBy("key").agg(F.count("*").alias("seen"), F.max("sent").alias("sent"))
