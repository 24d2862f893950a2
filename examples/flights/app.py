"""Every flight that left New York in 2013, replayed: who is late, where, and which routes are busiest."""

from datetime import datetime

from penstock import App, Event, ProcessingElement


class Flight(Event):
    when: datetime
    carrier: str
    origin: str
    dest: str
    tailnum: str | None = None
    dep_delay: float | None = None
    arr_delay: float | None = None


class Delay(Event):
    of: str
    flights: int
    mean: float
    greatest: float


class Aircraft(Event):
    tailnum: str
    delay: float
    board: str = "aircraft"


class Route(Event):
    route: str
    flights: int
    board: str = "routes"


class Ranking(Event):
    board: str
    names: list[str]
    values: list[float]


app = App("flights")
top = app.parameter("top", 10, help="How many routes and aircraft to rank.")

flights = app.source("Flights", Flight, event_time="when", lateness="1 day")
carriers = app.stream("CarrierDelays", Delay)
airports = app.stream("AirportDelays", Delay)
aircraft = app.stream("Aircraft", Aircraft)
routes = app.stream("Routes", Route)
rankings = app.stream("Rankings", Ranking)
app.sink("Carriers", carriers)
app.sink("Airports", airports)
app.sink("Boards", rankings)


class DelayStatistics(ProcessingElement):
    flights: int = 0
    total: float = 0.0
    greatest: float = 0.0

    def on_event(self, flight):
        if flight.dep_delay is not None:
            self.flights += 1
            self.total += flight.dep_delay
            self.greatest = max(self.greatest, flight.dep_delay)

    def summary(self):
        return str(self.key), self.flights, self.total / max(1, self.flights), self.greatest


@app.element(flights, key="carrier", emits=carriers)
class PerCarrier(DelayStatistics):
    def on_batch(self):
        yield carriers(*self.summary())


@app.element(flights, key="origin", emits=airports)
class PerAirport(DelayStatistics):
    def on_batch(self):
        yield airports(*self.summary())


@app.element(flights, key="tailnum", emits=aircraft)
class PerAircraft(ProcessingElement):
    delay: float = 0.0

    def on_event(self, flight):
        if flight.arr_delay is not None:
            self.delay = flight.arr_delay

    def on_batch(self):
        if self.key is not None:
            yield aircraft(self.key, self.delay)


@app.element(flights, key=["origin", "dest"], emits=routes)
class PerRoute(ProcessingElement):
    flights: int = 0

    def on_event(self, flight):
        self.flights += 1

    def on_batch(self):
        yield routes("-".join(self.key), self.flights)


@app.element([aircraft, routes], key="board", emits=rankings)
class Board(ProcessingElement):
    values: dict[str, float] = {}

    def on_event(self, entry):
        if isinstance(entry, Aircraft):
            self.values[entry.tailnum] = entry.delay
        else:
            self.values[entry.route] = entry.flights

    def on_batch(self):
        best = sorted(self.values.items(), key=lambda item: (-item[1], item[0]))[:top]
        yield rankings(self.key, [name for name, _ in best], [value for _, value in best])
