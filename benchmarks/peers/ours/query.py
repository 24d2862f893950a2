"""The divisibility example in the query dialect: Spark plans all of it natively."""

from pyspark.sql import functions as F

from penstock import App, Event


class RawWord(Event):
    text: str


class Total(Event):
    by: str
    count: int


app = App("divisibility_query")
keys = app.parameter("keys", 4, choices=[1, 2, 4, 8], help="How many times each word is checked.")
raw_words = app.source("RawWords", RawWord)
totals = app.stream("Totals", Total)
app.sink("Output", totals)


@app.query(raw_words, emits=totals)
def check(frame):
    """Multiply numbers by keys, check them digit by digit, and count."""
    numbers = frame.where(F.col("text").rlike("^[0-9]+$"))
    keyed = numbers.select("text", F.explode(F.array(*map(F.lit, range(keys)))).alias("key"))
    digits = F.transform(F.split("text", ""), lambda digit: F.ascii(digit) - 48)
    zero = F.lit(0)
    three = F.aggregate(digits, zero, lambda total, digit: total + digit) % 3 == 0
    # Each step turns the sign of what came before it, so that the last digit counts as itself.
    eleven = F.aggregate(digits, zero, lambda total, digit: digit - total) % 11 == 0
    one = F.array(F.when(three, F.lit("Three")), F.when(eleven, F.lit("Eleven")))
    found = keyed.select(F.explode(one).alias("by")).where("by is not null")
    return found.groupBy("by").agg(F.count("*").alias("count"))
