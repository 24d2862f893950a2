"""Plans: files that say how to run an application, for a person to read and edit, and for ``penstock run`` to obey."""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from penstock.app.description import Description
from penstock.app.topology import Topology
from penstock.connectors.registry import is_gated, read_uri
from penstock.engine.running.options import RunOptions
from penstock.errors import ConfigurationError, SinkError, SourceError
from penstock.kinds.coding import finite
from penstock.runs.layout import MAIN
from penstock.storage import durable

VERSION = 1


class SourceGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a source lets rows into a micro-batch, and how many; None leaves the application's own value.

    Args:
        min_rows: rows that open the gate (K).
        max_delay_s: seconds after which one row opens it.
        max_rows: most rows in a micro-batch.
    """

    min_rows: int | None = None
    max_delay_s: float | None = None
    max_rows: int | None = None

    def options(self) -> dict[str, str]:
        """The gate as options of a source's URI."""
        options = {
            "min_rows": self.min_rows,
            "max_delay": None if self.max_delay_s is None else f"{self.max_delay_s:g} s",
            "max_rows": self.max_rows,
        }
        return {name: str(value) for name, value in options.items() if value is not None}


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to run an application.

    Args:
        version: of the file format.
        application, topology: the application's name, and a digest of its elements and streams; None for a query that is not
            Penstock's: no run can obey its plan.
        trigger_s: seconds between the starts of micro-batches; 0 starts one as soon as the last is over.
        sources: gates by name of the source.
        groups: a group's name by element; empty for all in one.
        cores: of a local master; None for all that there are.
        goal: of the plan, as ``{"p95": 2.0}`` in seconds, or ``{"holding_cost": c1, "transfer_cost": c2}``.
        expected: predicted figures by name, with 90% bands.
        holds_to: rows per second up to which the goal is expected to be met.
        because: the reason in a sentence.
        assumed: sentences on what the prediction assumes besides the recordings.
        made, recordings: when the plan was made, and from which recordings.
    """

    version: int = VERSION
    application: str | None
    topology: str | None
    trigger_s: float
    sources: dict[str, SourceGate] = {}
    groups: dict[str, str] = {}
    cores: int | None = None
    goal: dict[str, float] = {}
    expected: dict[str, Any] = {}
    holds_to: float | None = None
    because: str = ""
    assumed: list[str] = []
    made: str = ""
    recordings: list[str] = []

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ValueError(f"version is {self.version}; this Penstock reads plans of version {VERSION}")
        if not (0 <= self.trigger_s < math.inf):
            raise ValueError(f"trigger_s is {self.trigger_s}; give seconds, 0 or more")
        for name, gate in self.sources.items():
            for field, least in (("min_rows", 1), ("max_delay_s", 0), ("max_rows", 1)):
                value = getattr(gate, field)
                if value is not None and not least <= value < math.inf:
                    raise ValueError(f"{field} of source {name} is {value}; give a number of {least} or more")
            if (gate.min_rows or 1) > (gate.max_rows or math.inf):
                raise ValueError(
                    f"source {name} has min_rows {gate.min_rows} above max_rows {gate.max_rows}; lower the one or raise the "
                    "other"
                )
        if self.cores is not None and self.cores < 1:
            raise ValueError(f"cores is {self.cores}; give 1 or more, or null")

    @property
    def text(self) -> str:
        """The content of the plan's file: indented JSON."""
        return json.dumps(finite(msgspec.to_builtins(self)), indent=2, allow_nan=False) + "\n"

    def write(self, path: Path) -> None:
        """Write the plan to a file.

        Raises:
            SinkError: the file cannot be written, or holds something other than a plan.
        """
        try:
            if path.exists() and path.stat().st_size:
                read_plan(path)
            durable.write(path, self.text, 0o666)
        except (SourceError, ConfigurationError) as error:
            raise SinkError(f"{path} is there, and no plan: name another file.") from error
        except OSError as error:
            raise SinkError(f"The plan cannot be written to {path} ({error.strerror}).") from error

    def applied(self, topology: Topology, options: RunOptions) -> RunOptions:
        """The options of a run that obeys the plan.

        Raises:
            ConfigurationError: the plan is for another application or other code, names an element or source that does not
                exist, or sets an option that is given, too; or the machine has too few cores.
        """
        if self.application is None:
            raise ConfigurationError(
                "The plan is of a query that is not Penstock's: set its options by hand, as `penstock tune` says them."
            )
        if self.application != topology.application:
            raise ConfigurationError(
                f"The plan is of application {self.application}, and this is {topology.application}: make one for it with "
                "`penstock plan`."
            )
        if self.topology != digest(topology.describe()):
            raise ConfigurationError(
                f"The plan was made for other code: the elements or streams of {topology.application} have changed since. "
                "Record the application as it is now, and make the plan anew."
            )
        conflicting = [
            name for name, value in (("--trigger", options.trigger), ("--group", options.groups or None)) if value is not None
        ]
        if conflicting:
            raise ConfigurationError(f"{conflicting[0]} and a plan both set that: leave out one of them, or edit the plan.")
        return replace(
            options,
            trigger=self.trigger_s,
            groups=self._groups(topology),
            sources=self._sources(topology, options.sources),
            master=self._master(options.master),
        )

    def _groups(self, topology: Topology) -> dict[str, str]:
        """The group of every element, so that a run with other groups is moved to these."""
        known = [element.name for element in topology.elements]
        for name in self.groups:
            if name not in known:
                raise ConfigurationError(
                    f"The plan groups element {name}, which the application does not have; it has {', '.join(known)}."
                )
        return {name: self.groups.get(name, MAIN) for name in known}

    def _sources(self, topology: Topology, given: Mapping[str, str]) -> dict[str, str]:
        """The URIs of the sources, with the plan's gates among their options."""
        declared = {source.name: source.uri for source in topology.sources}
        chosen = dict(given)
        for name, gate in self.sources.items():
            if name not in declared:
                raise ConfigurationError(
                    f"The plan names source {name}, which the application does not have; it has {', '.join(declared)}."
                )
            options = gate.options()
            text = given.get(name) or declared[name]
            if not options or text is None:
                continue  # if the source has no place, the run refuses it
            if not isinstance(text, str):
                raise ConfigurationError(f"The plan sets a gate for source {name}, which is an object and takes none.")
            uri = read_uri(text, "sources")
            if not is_gated(str(uri)):
                raise ConfigurationError(
                    f"The plan sets a gate for source {name}, and {uri.scheme}: has none: take it out of the plan."
                )
            chosen[name] = str(replace(uri, options={**uri.options, **options}))
        return chosen

    def _master(self, master: str) -> str:
        """The local master with the plan's cores; other masters are left as they are."""
        local = re.fullmatch(r"local\[(\d+|\*)\]", master)
        if self.cores is None or local is None:
            return master
        there = (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
        if there < self.cores:
            raise ConfigurationError(
                f"The plan is for {self.cores} cores, and {master} has {there}: run it where there are as many, or make a plan "
                f"for {there} (--what-if cores={there})."
            )
        return f"local[{self.cores}]"


def read_plan(path: Path) -> Plan:
    """Read a plan from its file.

    Raises:
        SourceError: the file is missing or no JSON.
        ConfigurationError: it is no valid plan; says where, and what is allowed.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SourceError(f"The plan {path!s:.200} cannot be read ({why}).") from error
    try:
        return msgspec.json.decode(content, type=Plan)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path} is no plan that can be obeyed: {error}.") from error
    except msgspec.DecodeError as error:
        raise SourceError(f"{path} is no JSON ({error}): mend it, or make the plan anew with `penstock plan`.") from error


def digest(topology: Description) -> str:
    """A hash of a topology: its elements, their keys, and the streams between them with their fields."""
    elements = [[each.name, each.dialect, each.key, each.inputs, each.emits] for each in topology.elements]
    streams = [[stream.name, stream.fields] for stream in topology.streams]
    return sha256(json.dumps([elements, streams], sort_keys=True).encode()).hexdigest()[:16]
