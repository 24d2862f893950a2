"""Prototypes whose timer does several steps in one call, each of which may fail independently."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from penstock.app.element import Emitted, ProcessingElement
from penstock.app.stream import Emission


class Stepwise(ProcessingElement):
    """A prototype whose timer runs a series of steps, such as closing windows. If one raises, the container runs each alone."""

    form: ClassVar[str]
    """The kind of state, in words. A prototype of another form would misread the same stored state."""
    by_input: ClassVar[bool] = False
    """Whether the state holds events by the position of their stream among the inputs."""

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """Return the facts, besides types, that must stay the same for stored state to keep its meaning, as JSON by name."""
        return {"form": cls.form}

    def is_due(self) -> bool:
        """Whether a step is due."""
        raise NotImplementedError

    def step(self) -> Iterable[Emission]:
        """Do the next step, and return its emissions; by default it has none, and is done by being skipped."""
        self.skip()
        return ()

    def skip(self) -> Any:
        """Skip the next step, which has failed; returns the event that is lost by it, if there is one."""
        raise NotImplementedError

    def rearm(self) -> None:
        """Set the timer for the next step."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Whether the state equals that of a new instance, so that this one can be removed."""
        return False

    def would_say(self) -> bool:
        """Whether the next event completes a result, which is then emitted with it rather than by the timer."""
        return False

    def without_result(self, event: Any) -> Emitted:
        """Process an event but skip the result that it completes, because computing that has failed."""
        raise NotImplementedError

    def batch_steps(self) -> Sequence[int]:
        """Return what ``on_batch`` has to do, as steps each of which may fail independently; none if it is one step."""
        return ()

    def batch_step(self, step: int) -> Iterable[Emission]:
        """Do one step of ``on_batch``."""
        raise NotImplementedError

    def skip_batch_step(self, step: int) -> None:
        """Skip a step of ``on_batch`` that has failed."""
        raise NotImplementedError

    def undo(self) -> Callable[[], None] | None:
        """Return a function that undoes all steps from now on; None if the container must restore the encoded state instead."""
        return None

    def on_timer(self) -> Emitted:
        """Do all steps that are due."""
        return self._steps()

    def _steps(self) -> Iterator[Emission]:
        while self.is_due():
            yield from self.step()
        self.rearm()


def emissions(emitted: Emitted) -> Iterable[Emission]:
    """Return a hook's emissions as an iterable, whether it yielded them, returned one, or returned None."""
    if emitted is None:
        return ()
    return (emitted,) if isinstance(emitted, Emission) else emitted


def field_of(reader: Any) -> str | None:
    """Return the name of the field that an `operator.attrgetter` reads; None without a reader."""
    return None if reader is None else str(reader.__reduce__()[1][0])
