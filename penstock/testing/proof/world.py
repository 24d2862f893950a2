"""The world of a worker process, which runs a sample by many schedules, and reloads the application for each."""

import gc
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec

from penstock.app.application import App
from penstock.app.loader import AppReference
from penstock.errors import PenstockError
from penstock.extras import needs
from penstock.runtime.letters import NOT_THE_USERS, described
from penstock.runtime.output import LETTERS, label
from penstock.testing.proof.effects import Effect, Effects
from penstock.testing.proof.observed import Calls, Killed, ObservedDriver
from penstock.testing.proof.outcome import Outcome, normal
from penstock.testing.proof.sample import Sample
from penstock.testing.proof.schedule import Kill, Place, Schedule
from penstock.testing.proof.suspects import Suspect, first_line, growing, hooks_of, size_of, suspects_of

END_S = 400 * 86_400.0
"""By how much processing time is advanced after the input, twice, so that all its timers and expiries come due."""


class CodeFacts(msgspec.Struct):
    """Facts about the application's code: its suspects, where each element begins, and the effects seen so far."""

    suspects: list[Suspect]
    first_lines: dict[str, tuple[str, int]]
    effects: list[Effect]


class World:
    """Runs a sample by schedules.

    Args:
        reference: how to load the application.
    """

    def __init__(self, reference: AppReference, sample: Sample) -> None:
        self._reference, self._sample = reference, sample
        self._effects = Effects()

    def run(self, schedule: Schedule, kept: frozenset[Place] | None = None) -> Outcome:
        """Run the sample, or only the events in ``kept``, by a schedule."""
        if kept is not None:
            schedule = schedule.only(kept)
        with _clock_of(schedule) as move_on:
            app = self._loaded()
            if schedule.again:
                self._run(app, schedule, move_on)
            return self._run(app, schedule, move_on)

    def tell(self) -> CodeFacts:
        """Return the suspects in the code, and the effects it has had so far in this process."""
        elements = self._loaded().topology().elements
        first = {element.name: where for element in elements if (where := first_line(element)) is not None}
        return CodeFacts([suspect for element in elements for suspect in suspects_of(element)], first, self._effects.found())

    def grown(self, schedule: Schedule) -> list[Effect]:
        """Return an effect for each list, and each file opened while the application was loaded, that grows with each run
        although it is no state.
        """
        app = self._loaded()
        things = [pair for element in app.topology().elements for pair in growing(element)]
        sizes = [[size_of(thing) for _, thing in things]]
        for _ in range(2):
            self._run(app, schedule)
            sizes.append([size_of(thing) for _, thing in things])
        return [
            Effect(suspect.element, suspect.file, suspect.line, f"adds to {suspect.what}, which is no state")
            for (suspect, _), before, once, twice in zip(things, *sizes, strict=True)
            if twice - once == once - before > 0
        ]

    def belonging(self) -> list[tuple[Place, list[str]]]:
        """Return, for each event of the sample, the instances and the keyed rows of tables that it reaches before any hop."""
        driver = ObservedDriver(self._loaded(), partitions=1, reread=False)
        return [
            ((source, number), sorted(driver.reached_by({source: [event]})))
            for source, events in self._sample.items()
            for number, event in enumerate(events)
        ]

    def _loaded(self) -> App:
        """Load the application, and all modules of its own, anew."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if file.endswith(".py") and not file.startswith(NOT_THE_USERS) and name != "__main__":
                del sys.modules[name]
        importlib.invalidate_caches()
        return self._reference.load()

    def _run(self, app: App, schedule: Schedule, move_on: Callable[[float], None] = lambda _: None) -> Outcome:
        outcome = Outcome()
        driver = ObservedDriver(app, partitions=schedule.partitions, reread=schedule.reread)
        try:
            for number, batch in enumerate(schedule.batches):
                move_on(schedule.jump_s)
                if schedule.restarts and number:
                    driver = self._gone_on(driver, schedule)
                kills = [kill for kill in schedule.kills if kill.batch == number]
                driver = self._batch(driver, self._events(batch), kills, schedule, outcome)
            for _ in range(2):
                driver.advance(END_S)
                driver.batch()
            driver.finish()
        except PenstockError as error:
            outcome.failed = str(error)
        _note(driver, outcome)
        return outcome

    def _batch(
        self, driver: ObservedDriver, events: dict[str, list[bytes]], kills: list[Kill], schedule: Schedule, outcome: Outcome
    ) -> ObservedDriver:
        for kill in kills:
            calls = Calls(_hooks(driver)) if kill.hook is not None else None
            try:
                with driver.uncommitted(), nullcontext() if calls is None else calls.counted(kill.hook):
                    driver.batch(events)
            except Killed:
                pass
            if kill.anew:
                driver = self._gone_on(driver, schedule)
        if schedule.counted:
            calls = Calls(_hooks(driver))
            with calls.counted(None):
                driver.batch(events)
            outcome.hooks.append(calls.count)
        else:
            driver.batch(events)
        return driver

    def _gone_on(self, driver: ObservedDriver, schedule: Schedule) -> ObservedDriver:
        after = ObservedDriver(self._loaded(), partitions=schedule.partitions, reread=schedule.reread)
        after.go_on_from(driver)
        return after

    def _events(self, batch: tuple[Place, ...]) -> dict[str, list[bytes]]:
        events: dict[str, list[bytes]] = {}
        for source, number in batch:
            events.setdefault(source, []).append(self._sample[source][number])
        return events


def _hooks(driver: ObservedDriver) -> set[Any]:
    return {code for element in driver.topology.elements for code in hooks_of(element)}


def _note(driver: ObservedDriver, outcome: Outcome) -> None:
    for stream in driver.topology.streams:
        lines = driver.lines.get(label(stream.name, "hop"), [])
        outcome.streams[stream.name] = list(map(normal, lines))
    for stream_name, instance, row in driver.moments:
        outcome.moments.setdefault(stream_name, []).append(row)
        outcome.last.setdefault(stream_name, {})[instance] = row
    for line in driver.lines.get(LETTERS, []):
        letter = json.loads(line)
        outcome.errors.setdefault(letter["element"] or f"decoding {letter['stream']}", letter["error"])
    outcome.letters = [_letter(line) for line in driver.lines.get(LETTERS, [])]
    outcome.late, outcome.events = driver.late(), driver.handed()


def _letter(line: bytes) -> str:
    letter = json.loads(line)
    return json.dumps({name: value for name, value in letter.items() if name not in ("error", "line")}, sort_keys=True)


@contextmanager
def _clock_of(schedule: Schedule) -> Iterator[Callable[[float], None]]:
    """Within the block, set the machine's clock by the schedule; yields a function that advances it by seconds."""
    if not (schedule.shift_s or schedule.jump_s or schedule.frozen):
        yield lambda _: None
        return
    with needs():
        import time_machine  # here, because it is slow to import
    moment = FROZEN_AT if schedule.frozen else time.time()
    with time_machine.travel(moment + schedule.shift_s, tick=not schedule.frozen) as clock:
        yield clock.shift


FROZEN_AT = 1_790_000_000.0
"""The time of a frozen clock, in seconds since the epoch; any time would do."""


def serve(connection: Any) -> None:
    """Answer the requests of a connection until it is closed; output of the application is discarded."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    nowhere = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stderr = nowhere
    reference, sample, path = connection.recv()
    sys.path += [entry for entry in path if entry not in sys.path]
    world = World(reference, sample)
    gc.freeze()
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send(("done", getattr(world, name)(*arguments)))
        except PenstockError as error:
            connection.send(("refused", error))
        except BaseException as error:
            connection.send(("failed", described(error)))
            if not isinstance(error, Exception):
                raise


def _end_with(parent: int) -> None:
    """End this process when its parent ends, whatever the application is doing."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
