"""Calls to a slow HTTP service for each event, many at once: the price of each order in the customer's currency."""

from functools import cache

from aiohttp import ClientConnectionError, ClientSession, TCPConnector
from aiolimiter import AsyncLimiter
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from penstock import App, Event, shared


class Order(Event):
    id: int
    currency: str
    euros: float


class Priced(Event):
    id: int
    price: float


def order(number: int) -> Order:
    """The n-th order."""
    return Order(number, ("USD", "JPY", "CHF")[number % 3], float(number))


app = App("enrichment")
service = app.parameter("service", "http://127.0.0.1:8099", help="Where the service is.")
at_once = app.parameter("at-once", 50, help="Calls that are under way at once in each task.")
per_second = app.parameter("per-second", 1000, help="Calls that a process makes in a second, at most.")

orders = app.source("Orders", Order, sample=order)
priced = app.stream("Priced", Priced)
app.sink("Output", priced)


@shared
async def client():
    """The process's client: its connections serve all micro-batches."""
    async with ClientSession(service, connector=TCPConnector(limit=at_once), raise_for_status=True) as session:
        yield session


@cache
def limiter() -> AsyncLimiter:
    """What holds calls back, so that the service gets no more than it allows."""
    return AsyncLimiter(per_second, 1)


@retry(
    retry=retry_if_exception_type(ClientConnectionError), stop=stop_after_attempt(3), wait=wait_exponential(0.1), reraise=True
)
async def rate(currency: str) -> float:
    """Ask the service, and ask again where it could not be reached."""
    async with limiter(), (await client()).get(f"/rates/{currency}") as answer:
        return float((await answer.json())["rate"])


@app.element(orders, emits=priced, concurrency=at_once, timeout="10 s")
async def price(order):
    yield priced(order.id, round(order.euros * await rate(order.currency), 2))
