"""Prototypes whose timers do several things at once, each of which may fail for itself."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from penstock.app.element import Emitted, ProcessingElement
from penstock.app.stream import Emission


class Stepwise(ProcessingElement):
    """A prototype whose timer takes steps: windows that close, say. If one raises, the container takes them one by one."""

    form: ClassVar[str]
    """What its state is, in words: a prototype of another form would take the same state for something else."""
    by_input: ClassVar[bool] = False
    """Whether its state holds events by the place of their stream among its inputs."""

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """What must stay as it is, besides the types, for stored state to mean the same: JSON, by what it is in words."""
        return {"form": cls.form}

    def is_due(self) -> bool:
        """Whether there is a step to take."""
        raise NotImplementedError

    def step(self) -> Iterable[Emission]:
        """Take the next step."""
        raise NotImplementedError

    def skip(self) -> Any:
        """Leave out the next step, which has failed; returns the event that is lost by that, if it is one."""
        raise NotImplementedError

    def rearm(self) -> None:
        """Set the timer for the step that comes next."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Whether nothing is kept that an instance made anew would not have, so that this one can be forgotten."""
        return False

    def would_say(self) -> bool:
        """Whether the next event makes a result due, which is said with it and not by the timer."""
        return False

    def without_result(self, event: Any) -> Emitted:
        """Take in an event and leave out the result that it makes due, which has failed."""
        raise NotImplementedError

    def undo(self) -> Callable[[], None] | None:
        """What takes back all steps from now on; None where the state is to be put back as it was encoded."""
        return None

    def on_timer(self) -> Emitted:
        """Take all steps that are due."""
        return self._steps()

    def _steps(self) -> Iterator[Emission]:
        while self.is_due():
            yield from self.step()
        self.rearm()


def emissions(emitted: Emitted) -> Iterable[Emission]:
    """What a hook has yielded, returned, or not."""
    if emitted is None:
        return ()
    return (emitted,) if isinstance(emitted, Emission) else emitted


def field_of(reader: Any) -> str | None:
    """The field that an `operator.attrgetter` reads; None where there is none."""
    return None if reader is None else str(reader.__reduce__()[1][0])
