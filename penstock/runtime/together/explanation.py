"""Explains how each element of an application is executed, and why."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.app.element import Element
from penstock.app.topology import Topology
from penstock.runtime.compiling.function import compile_function
from penstock.runtime.compiling.source import NotCompiledError
from penstock.runtime.key import KeyReader
from penstock.runtime.together.reading import reads_of
from penstock.runtime.together.ways import ways_of


class Execution(NamedTuple):
    """How an element is executed (``by``) and the reason (``why``), in words."""

    element: str
    dialect: str
    by: str
    why: str


def executions(topology: Topology) -> Iterator[Execution]:
    """Yield the execution of each element of an application."""
    for element in topology.elements:
        yield Execution(element.name, element.dialect, *_execution(element))


def _execution(element: Element) -> tuple[str, str]:
    match element.dialect:
        case "query":
            return "Spark's plan", "it is in the query dialect"
        case "batch":
            return "record batches", "its function takes many events at once"
    if element.asynchronous:
        return "one event of an instance after the other, many instances at once", "its function is asynchronous"
    if not element.keyed and element.prototype is None:
        try:
            compile_function(element)
        except NotCompiledError as error:
            return "one event after the other", str(error)
        return "one event after the other, compiled", "its source is there, and it yields or returns outside of try and with"
    ways = ways_of(element)
    if isinstance(ways, str):
        return "one event after the other", ways
    why = "its windows and reducers allow it; events that do not, such as late ones, go one by one"
    try:
        reads_of(element, KeyReader(element.key, element.inputs[0].event_type, 1))
    except NotCompiledError as error:
        return "many events at once", f"{why}; not in columns, as {error}"
    return "many events at once, in columns", why
