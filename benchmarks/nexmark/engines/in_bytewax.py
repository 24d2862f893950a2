"""NEXMark's queries in Bytewax, one worker, with recovery each second.

    python in_bytewax.py INPUT OUTPUT QUERY...

INPUT has a directory of JSON Lines for each source; OUTPUT/QUERY gets what a query says, as JSON Lines. Prints a JSON object
for
each query: the seconds from its start to its end.
"""

import heapq
import itertools
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import msgspec
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.operators.windowing import (
    EventClock,
    SessionWindower,
    SlidingWindower,
    TumblingWindower,
    collect_window,
    fold_window,
)
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

T0 = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 1000
Row = dict[str, Any]


class Person(msgspec.Struct):
    id: int
    name: str
    city: str
    state: str
    ts: datetime


class Auction(msgspec.Struct):
    id: int
    item: str
    expires: datetime
    seller: int
    category: int
    ts: datetime


class Bid(msgspec.Struct):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    extra: str
    ts: datetime


DIRECTORIES = {Person: "Persons", Auction: "Auctions", Bid: "Bids"}
BY_TS = EventClock(ts_getter=lambda event: event.ts, wait_for_system_duration=timedelta(seconds=4))
SIDE = {number: f"value {number}" for number in range(50)}
NUMBERS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


class Reading(StatefulSourcePartition[Any, int]):
    """The events of some kinds, in the order of their times; begun anew, it leaves out those it has read."""

    def __init__(self, given: Path, kinds: Iterable[type], done: int) -> None:
        of_kinds = [self._events(given / DIRECTORIES[kind], kind) for kind in kinds]
        events = of_kinds[0] if len(of_kinds) == 1 else heapq.merge(*of_kinds, key=lambda event: event.ts)
        self._events_left = itertools.islice(events, done, None)
        self._done = done

    @staticmethod
    def _events(directory: Path, kind: type) -> Iterator[Any]:
        decode = msgspec.json.Decoder(kind).decode
        for path in sorted(directory.glob("*.jsonl")):
            with path.open("rb") as lines:
                yield from map(decode, lines)

    def next_batch(self) -> list[Any]:
        batch = list(itertools.islice(self._events_left, BATCH))
        if not batch:
            raise StopIteration
        self._done += len(batch)
        return batch

    def snapshot(self) -> int:
        return self._done


class Source(FixedPartitionedSource[Any, int]):
    def __init__(self, given: Path, kinds: Iterable[type]) -> None:
        self._given, self._kinds = given, tuple(kinds)

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Reading:
        return Reading(self._given, self._kinds, resume_state or 0)


def q00(bids: Stream) -> Stream:
    return op.map("row", bids, msgspec.structs.asdict)


def q01(bids: Stream) -> Stream:
    def convert(bid: Bid) -> Row:
        return {"auction": bid.auction, "bidder": bid.bidder, "price": 0.908 * bid.price, "ts": bid.ts}

    return op.map("convert", bids, convert)


def q02(bids: Stream) -> Stream:
    def select(bid: Bid) -> Row | None:
        return {"auction": bid.auction, "price": bid.price} if bid.auction % 123 == 0 else None

    return op.filter_map("select", bids, select)


def q03(events: Stream) -> Stream:
    def by_seller(event: Person | Auction) -> tuple[str, Any] | None:
        if isinstance(event, Person) and event.state in ("OR", "ID", "CA"):
            return str(event.id), event
        if isinstance(event, Auction) and event.category == 10:
            return str(event.seller), event
        return None

    def join(state: tuple[Person | None, list[int]] | None, event: Person | Auction) -> tuple[Any, list[Row]]:
        person, waiting = state or (None, [])
        if isinstance(event, Person):
            person = event
        else:
            waiting = [*waiting, event.id]
        if person is None:
            return (person, waiting), []
        return (person, []), [
            {"name": person.name, "city": person.city, "state": person.state, "id": auction} for auction in waiting
        ]

    keyed = op.filter_map("by_seller", events, by_seller)
    return op.key_rm("rows", op.stateful_flat_map("join", keyed, join))


def q05(bids: Stream) -> Stream:
    def add(counts: Counter[int], bid: Bid) -> Counter[int]:
        counts[bid.auction] += 1
        return counts

    def hottest(closed: tuple[str, tuple[int, Counter[int]]]) -> list[Row]:
        _, (number, counts) = closed
        most = max(counts.values())
        start = T0 + number * timedelta(seconds=2)
        return [{"auction": auction, "start": start, "bids": most} for auction, n in counts.items() if n == most]

    windower = SlidingWindower(length=timedelta(seconds=10), offset=timedelta(seconds=2), align_to=T0)
    keyed = op.key_on("all", bids, lambda bid: "all")
    counted = fold_window("count", keyed, BY_TS, windower, Counter, add, lambda one, other: one + other)
    return op.flat_map("hottest", counted.down, hottest)


def q07(bids: Stream) -> Stream:
    def keep(best: list[Bid], bid: Bid) -> list[Bid]:
        if best and bid.price < best[0].price:
            return best
        return [*(other for other in best if other.price == bid.price), bid]

    def merge(one: list[Bid], other: list[Bid]) -> list[Bid]:
        most = max(bid.price for bid in one + other)
        return [bid for bid in one + other if bid.price == most]

    def rows(closed: tuple[str, tuple[int, list[Bid]]]) -> list[Row]:
        _, (number, best) = closed
        start = T0 + number * timedelta(seconds=10)
        return [
            {"auction": bid.auction, "bidder": bid.bidder, "price": bid.price, "ts": bid.ts, "start": start} for bid in best
        ]

    windower = TumblingWindower(length=timedelta(seconds=10), align_to=T0)
    keyed = op.key_on("all", bids, lambda bid: "all")
    return op.flat_map("rows", fold_window("best", keyed, BY_TS, windower, list, keep, merge).down, rows)


def q08(events: Stream) -> Stream:
    def rows(closed: tuple[str, tuple[int, list[Person | Auction]]]) -> list[Row]:
        _, (number, events) = closed
        start = T0 + number * timedelta(seconds=10)
        sells = any(isinstance(event, Auction) for event in events)
        return [{"id": one.id, "name": one.name, "start": start} for one in events if sells and isinstance(one, Person)]

    windower = TumblingWindower(length=timedelta(seconds=10), align_to=T0)
    keyed = op.key_on("by_seller", events, lambda event: str(event.id if isinstance(event, Person) else event.seller))
    return op.flat_map("rows", collect_window("collect", keyed, BY_TS, windower).down, rows)


def q11(bids: Stream) -> Stream:
    def add(visit: tuple[int, datetime, datetime] | None, bid: Bid) -> tuple[int, datetime, datetime]:
        return merge(visit, (1, bid.ts, bid.ts))

    def merge(
        one: tuple[int, datetime, datetime] | None, other: tuple[int, datetime, datetime]
    ) -> tuple[int, datetime, datetime]:
        return (one[0] + other[0], min(one[1], other[1]), max(one[2], other[2])) if one else other

    def row(closed: tuple[str, tuple[int, tuple[int, datetime, datetime]]]) -> Row:
        bidder, (_, (count, first, last)) = closed
        return {"bidder": int(bidder), "bids": count, "start": first, "end": last + timedelta(seconds=10)}

    windower = SessionWindower(gap=timedelta(seconds=10, microseconds=-1))
    keyed = op.key_on("by_bidder", bids, lambda bid: str(bid.bidder))
    return op.map("row", fold_window("visit", keyed, BY_TS, windower, lambda: None, add, merge).down, row)


def q13(bids: Stream) -> Stream:
    def look_up(bid: Bid) -> Row | None:
        value = SIDE.get(bid.auction % 100)
        if value is None:
            return None
        return {"auction": bid.auction, "bidder": bid.bidder, "price": bid.price, "ts": bid.ts, "value": value}

    return op.filter_map("look_up", bids, look_up)


def q14(bids: Stream) -> Stream:
    def count(bid: Bid) -> Row | None:
        price, hour = 0.908 * bid.price, bid.ts.hour
        if not 1_000_000 < price < 50_000_000:
            return None
        part = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
        cs = bid.extra.count("c")
        return {"auction": bid.auction, "bidder": bid.bidder, "price": price, "time": part, "ts": bid.ts, "cs": cs}

    return op.filter_map("count", bids, count)


class Statistics(StatefulBatchLogic[Bid, Row, dict[str, Any]]):
    """Counts of bids by price, and of who bids on what."""

    def __init__(self, resumed: dict[str, Any] | None) -> None:
        self.of = resumed or {"bids": [0, 0, 0], "bidders": set(), "low": set(), "auctions": set(), "high": set()}

    def on_batch(self, values: list[Bid]) -> tuple[Iterable[Row], bool]:
        of = self.of
        for bid in values:
            level = (bid.price >= 10_000) + (bid.price >= 1_000_000)
            of["bids"][level] += 1
            of["bidders"].add(bid.bidder)
            of["auctions"].add(bid.auction)
            if level == 0:
                of["low"].add(bid.bidder)
            if level == 2:
                of["high"].add(bid.auction)
        low, middle, high = of["bids"]
        row = {
            "bids": low + middle + high,
            "low": low,
            "middle": middle,
            "high": high,
            "bidders": len(of["bidders"]),
            "low_bidders": len(of["low"]),
            "auctions": len(of["auctions"]),
            "high_auctions": len(of["high"]),
        }
        return [row], self.RETAIN

    def snapshot(self) -> dict[str, Any]:
        return {name: value.copy() for name, value in self.of.items()}


def q15(bids: Stream) -> Stream:
    keyed = op.key_on("by_day", bids, lambda bid: f"{bid.ts:%Y-%m-%d}")
    return op.map("row", op.stateful_batch("count", keyed, Statistics), lambda said: {"day": said[0], **said[1]})


def q16(bids: Stream) -> Stream:
    def row(said: tuple[str, Row]) -> Row:
        start, _, channel = said[0].partition(" ")
        return {"channel": channel, "start": f"{start}T00:00:00Z", **said[1]}

    keyed = op.key_on("by_channel", bids, lambda bid: f"{bid.ts:%Y-%m-%d} {bid.channel}")
    return op.map("row", op.stateful_batch("count", keyed, Statistics), row)


class Prices(StatefulBatchLogic[Bid, Row, list[int]]):
    """Statistics of an auction's prices."""

    def __init__(self, resumed: list[int] | None) -> None:
        self.low, self.middle, self.high, self.least, self.most, self.total = resumed or (0, 0, 0, 1 << 62, 0, 0)

    def on_batch(self, values: list[Bid]) -> tuple[Iterable[Row], bool]:
        for bid in values:
            if bid.price < 10_000:
                self.low += 1
            elif bid.price < 1_000_000:
                self.middle += 1
            else:
                self.high += 1
            self.least, self.most = min(self.least, bid.price), max(self.most, bid.price)
            self.total += bid.price
        count = self.low + self.middle + self.high
        row = {
            "bids": count,
            "low": self.low,
            "middle": self.middle,
            "high": self.high,
            "least": self.least,
            "most": self.most,
            "mean": self.total / count,
            "total": self.total,
        }
        return [row], self.RETAIN

    def snapshot(self) -> list[int]:
        return [self.low, self.middle, self.high, self.least, self.most, self.total]


def q17(bids: Stream) -> Stream:
    def row(said: tuple[str, Row]) -> Row:
        start, _, auction = said[0].partition(" ")
        return {"auction": int(auction), "start": f"{start}T00:00:00Z", **said[1]}

    keyed = op.key_on("by_auction", bids, lambda bid: f"{bid.ts:%Y-%m-%d} {bid.auction}")
    return op.map("row", op.stateful_batch("count", keyed, Prices), row)


class Last(StatefulBatchLogic[Bid, Row, Bid | None]):
    """The last bid."""

    def __init__(self, resumed: Bid | None) -> None:
        self.bid = resumed

    def on_batch(self, values: list[Bid]) -> tuple[Iterable[Row], bool]:
        for bid in values:
            if self.bid is None or bid.ts >= self.bid.ts:
                self.bid = bid
        return [msgspec.structs.asdict(self.bid)], self.RETAIN

    def snapshot(self) -> Bid | None:
        return self.bid


def q18(bids: Stream) -> Stream:
    keyed = op.key_on("by_both", bids, lambda bid: f"{bid.bidder} {bid.auction}")
    return op.key_rm("rows", op.stateful_batch("last", keyed, Last))


class Top(StatefulBatchLogic[Bid, list[int], list[int]]):
    """The ten highest prices."""

    def __init__(self, resumed: list[int] | None) -> None:
        self.prices = resumed or []

    def on_batch(self, values: list[Bid]) -> tuple[Iterable[list[int]], bool]:
        self.prices = heapq.nlargest(10, [*self.prices, *(bid.price for bid in values)])
        return [self.prices], self.RETAIN

    def snapshot(self) -> list[int]:
        return self.prices


def q19(bids: Stream) -> Stream:
    top = op.stateful_batch("top", op.key_on("by_auction", bids, lambda bid: str(bid.auction)), Top)
    return op.map("row", top, lambda said: {"auction": int(said[0]), "prices": said[1]})


def q20(events: Stream) -> Stream:
    def by_auction(event: Auction | Bid) -> tuple[str, Any] | None:
        if isinstance(event, Bid):
            return str(event.auction), event
        return (str(event.id), event) if event.category == 10 else None

    def join(state: tuple[Auction | None, list[Bid]] | None, event: Auction | Bid) -> tuple[Any, list[Row]]:
        auction, bids = state or (None, [])
        if isinstance(event, Auction):
            auction, new = event, bids
        else:
            new = [event]
            bids = [] if auction else [*bids, event]
        if auction is None:
            return (None, bids), []
        within = [bid for bid in new if abs(bid.ts - auction.ts) <= timedelta(days=1)]
        return (auction, []), [
            {
                "auction": bid.auction,
                "bidder": bid.bidder,
                "price": bid.price,
                "ts": bid.ts,
                "item": auction.item,
                "category": 10,
            }
            for bid in within
        ]

    keyed = op.filter_map("by_auction", events, by_auction)
    return op.key_rm("rows", op.stateful_flat_map("join", keyed, join))


def q21(bids: Stream) -> Stream:
    def number(bid: Bid) -> Row | None:
        said = re.search("(&|^)channel_id=([^&]*)", bid.url)
        channel = NUMBERS.get(bid.channel.lower()) or (said[2] if said else "")
        if not channel:
            return None
        return {"auction": bid.auction, "bidder": bid.bidder, "price": bid.price, "channel": bid.channel, "channel_id": channel}

    return op.filter_map("number", bids, number)


def q22(bids: Stream) -> Stream:
    def divide(bid: Bid) -> Row:
        one, two, three = bid.url.split("/")[3:6]
        return {
            "auction": bid.auction,
            "bidder": bid.bidder,
            "price": bid.price,
            "channel": bid.channel,
            "one": one,
            "two": two,
            "three": three,
        }

    return op.map("divide", bids, divide)


HELPERS: dict[str, type] = {"q15": Statistics, "q17": Prices, "q18": Last, "q19": Top}
"""What counts as a query's code, too."""
KINDS: dict[str, tuple[type, ...]] = {"q03": (Person, Auction), "q08": (Person, Auction), "q20": (Auction, Bid)}
"""What a query reads, where that is not bids."""
QUERIES: dict[str, Callable[[Stream], Stream]] = {
    one.__name__: one for one in (q00, q01, q02, q03, q05, q07, q08, q11, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)
}
"""Of the 23: not 4, 6 and 9 (no timers on event time), 10 (Parquet), 12 (by the clock)."""


def main() -> None:
    given, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for query in sys.argv[3:]:
        print(json.dumps({"query": query, "seconds": run(given, query, out / query)}), flush=True)


def run(given: Path, query: str, out: Path) -> float:
    """Run a query to the end of its input; returns the seconds it took."""
    flow = Dataflow(query)
    rows = QUERIES[query](op.input("read", flow, Source(given, KINDS.get(query, (Bid,)))))
    lines = op.map("line", rows, lambda row: ("all", msgspec.json.encode(row).decode()))
    op.output("write", lines, FileSink(out))
    recovery = out.with_suffix(".recovery")
    recovery.mkdir(parents=True)
    init_db_dir(recovery, 1)
    began = time.monotonic()
    run_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(recovery))
    return time.monotonic() - began


if __name__ == "__main__":
    main()
