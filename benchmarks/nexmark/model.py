"""NEXMark's events, their sources, and a generator with the published proportions and hot keys.

P. Tucker, K. Tufte, V. Papadimos and D. Maier, NEXMark: A Benchmark for Queries over Data Streams (2008); proportions as in
the generator of Apache Beam and of github.com/nexmark/nexmark: of 50 events 1 is a person, 3 are auctions and 46 bids.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from penstock import App, Event
from penstock.app.stream import Source

T0 = datetime(2026, 1, 1, tzinfo=UTC)
RATE = 100.0
"""Events per second of event time."""
LATENESS_S = 4.0
FIRST, PERSONS, AUCTIONS, OF = 1000, 1, 3, 50
HOT_AUCTION, HOT_BIDDER, HOT_SELLER = 2, 4, 4
"""All but one of so many go to the hot one."""
ACTIVE_PEOPLE, IN_FLIGHT = 1000, 100
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


class Person(Event):
    id: int
    name: str
    city: str
    state: str
    ts: datetime


class Auction(Event):
    id: int
    item: str
    initial_bid: int
    reserve: int
    expires: datetime
    seller: int
    category: int
    ts: datetime


class Bid(Event):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    extra: str
    ts: datetime


def persons(app: App) -> Source[Person]:
    """The source of persons."""
    return app.source("Persons", Person, event_time="ts", lateness=LATENESS_S)


def auctions(app: App) -> Source[Auction]:
    """The source of auctions."""
    return app.source("Auctions", Auction, event_time="ts", lateness=LATENESS_S)


def bids(app: App) -> Source[Bid]:
    """The source of bids."""
    return app.source("Bids", Bid, event_time="ts", lateness=LATENESS_S)


def events(count: int, seed: int = 1, rate: float = RATE) -> Iterator[Person | Auction | Bid]:
    """Events in the order of their times."""
    chance = random.Random(seed)
    for number in range(count):
        epoch, offset = divmod(number, OF)
        at = T0 + timedelta(microseconds=round(number / rate * 1e6))
        last_person = epoch
        last_auction = epoch * AUCTIONS + min(offset - PERSONS, AUCTIONS) - 1 if offset >= PERSONS else epoch * AUCTIONS - 1
        if offset < PERSONS:
            yield Person(FIRST + last_person, f"person {last_person}", chance.choice(CITIES), chance.choice(STATES), at)
        elif offset < PERSONS + AUCTIONS:
            yield _auction(chance, number, last_auction + 1, last_person, at, rate)
        else:
            yield _bid(chance, last_auction, last_person, at)


def _auction(chance: random.Random, number: int, own: int, last_person: int, at: datetime, rate: float) -> Auction:
    horizon = IN_FLIGHT * OF / AUCTIONS / rate
    length = 0.001 + chance.random() * 2 * horizon
    first_price = _price(chance)
    return Auction(
        FIRST + own,
        f"item {own}",
        first_price,
        first_price + _price(chance),
        at + timedelta(microseconds=round(length * 1e6)),
        FIRST + _of_people(chance, last_person, HOT_SELLER, 0),
        10 + chance.randrange(5),
        at,
    )


def _bid(chance: random.Random, last_auction: int, last_person: int, at: datetime) -> Bid:
    if chance.randrange(HOT_AUCTION):
        auction = last_auction // 100 * 100
    else:
        auction = chance.randint(max(0, last_auction - IN_FLIGHT), last_auction)
    channel = chance.choice(CHANNELS) if chance.random() < 0.5 else f"channel-{chance.randrange(10_000)}"
    path = "/".join(_word(chance) for _ in range(3))
    url = f"https://www.nexmark.com/{path}/item.htm?query=1&channel_id={chance.randrange(100)}"
    return Bid(
        FIRST + auction,
        FIRST + _of_people(chance, last_person, HOT_BIDDER, 1),
        _price(chance),
        channel,
        url,
        _word(chance, 20),
        at,
    )


def _of_people(chance: random.Random, last: int, hot: int, shift: int) -> int:
    if chance.randrange(hot):
        return last // 100 * 100 + shift
    return chance.randint(max(0, last - ACTIVE_PEOPLE), last + 10)  # some have bid before they registered


def _price(chance: random.Random) -> int:
    return round(10 ** (chance.random() * 6) * 100)


def _word(chance: random.Random, length: int = 4) -> str:
    return "".join(chance.choice("abcdefghijkl") for _ in range(length))
