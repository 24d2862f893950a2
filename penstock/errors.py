"""The exceptions of Penstock: one tree. Each is also a subclass of the builtin that a caller would expect.

PenstockError
├── TopologyError (ValueError)             the graph of elements and streams is not runnable
│   └── CyclicTopologyError
├── EventSchemaError (TypeError)           an event type has a field that cannot be carried
├── EmissionError (TypeError)              an element emitted what it had not declared
├── StateError (TypeError)                 declared state cannot be kept
│   └── IncompatibleStateError             stored state does not fit the code
├── LateEventError                         an event came after the watermark had passed it, or its windows had closed
├── ConfigurationError (ValueError)        an option, a URI or a duration is not understood
├── UnstableServerError (ValueError)       a queue would grow without bound
├── NotSeriesParallelError (ValueError)    a graph is not composed of series and parallel parts
├── InfeasibleAllocationError (ValueError) constraints contradict each other, or no amount of resources is enough
├── NotSolvableError (ArithmeticError)     a method cannot reach the accuracy asked for
├── ApplicationNotFoundError (LookupError) the file to run holds no application
├── MissingExtraError (ImportError)        an optional part of the distribution is not installed
├── SourceError (OSError)                  a source cannot be read
├── SinkError (OSError)                    a sink cannot be written
├── StoreError (OSError)                   a store that holds files does not answer, or refuses
├── PortInUseError (OSError)               the adapter cannot listen on its host and port
├── RefusedError (RuntimeError)            an adapter refused what a client sent
├── RunLockedError (RuntimeError)          another process is running this run
├── JavaNotFoundError (RuntimeError)       no Java that Spark can use
├── JarNotFoundError (RuntimeError)        a part of Spark or Kafka cannot be fetched
├── ClusterError (RuntimeError)            the Spark master cannot be reached
└── RunFailedError (RuntimeError)          the run stopped; the text says what happened to its events
"""

from typing import Any

from penstock.masked import discreet
from penstock.visible import visible


class PenstockError(Exception):
    """Base of all errors that Penstock raises on purpose. The text is meant for the user; secrets in addresses and settings
    are masked.
    """

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*(visible(discreet(word)) if isinstance(word, str) else word for word in words), **named)


class TopologyError(PenstockError, ValueError):
    """The declared elements and streams do not make a runnable topology."""


class CyclicTopologyError(TopologyError):
    """The elements form a cycle; a topology is acyclic."""


class EventSchemaError(PenstockError, TypeError):
    """A field of an event type has a type that no stream can carry."""


class EmissionError(PenstockError, TypeError):
    """An element emitted something other than an event of a stream it declared."""


class StateError(PenstockError, TypeError):
    """A processing element declares state that cannot be kept."""


class IncompatibleStateError(StateError):
    """The state in a checkpoint does not fit the application that is to resume from it."""


class LateEventError(PenstockError):
    """An event came after the watermark had passed its time, or after all its windows had closed."""


class ConfigurationError(PenstockError, ValueError):
    """An option, a URI or a duration is not understood."""


class UnstableServerError(PenstockError, ValueError):
    """Work arrives faster than the server can do it, so its queue would grow without bound."""


class NotSeriesParallelError(PenstockError, ValueError):
    """A graph is not series-parallel-decomposable; ``witness`` names four tasks that prove it.

    ``witness`` is (a, b, c, d): paths lead from a to c, from b to c and from b to d, and none from a to d. Where the
    only flaw is a transfer that other transfers imply, it is the transfer b -> c, with d the next task after b and a
    the last one before c on the longer way.
    """

    def __init__(self, text: str, witness: tuple[Any, Any, Any, Any]) -> None:
        super().__init__(text)
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.witness)


class InfeasibleAllocationError(PenstockError, ValueError):
    """No allocation meets the constraints: they contradict each other, or the cost limit is out of reach."""


class NotSolvableError(PenstockError, ArithmeticError):
    """A method cannot reach the accuracy asked for within its limits; another may."""


class ApplicationNotFoundError(PenstockError, LookupError):
    """The file or module named holds no application."""


class MissingExtraError(PenstockError, ImportError):
    """An optional part of the distribution is not installed; the text has the command that installs it."""


class SourceError(PenstockError, OSError):
    """A source is missing or unreadable, or its data has another shape than declared."""


class SinkError(PenstockError, OSError):
    """A sink cannot be written."""


class StoreError(PenstockError, OSError):
    """A store that holds a run's files does not answer, or refuses a request."""


class PortInUseError(PenstockError, OSError):
    """The adapter or the page cannot listen on its host and port."""


class RefusedError(PenstockError, RuntimeError):
    """An adapter refused a client's request; ``status`` is the HTTP status, 0 where no response came."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status)


class RunLockedError(PenstockError, RuntimeError):
    """Another process is running the same run."""


class JavaNotFoundError(PenstockError, RuntimeError):
    """No Java 17 or later that Spark can use was found."""


class JarNotFoundError(PenstockError, RuntimeError):
    """A jar cannot be fetched from Maven Central, and is not in the cache."""


class ClusterError(PenstockError, RuntimeError):
    """The Spark master cannot be reached or refused the application."""


class RunFailedError(PenstockError, RuntimeError):
    """A run stopped because of a failure; events that it had not finished are still queued."""
