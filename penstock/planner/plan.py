"""A plan: a file that says how an application is to be run, which a person reads and edits and ``penstock run`` obeys."""

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
from penstock.runs.layout import MAIN
from penstock.storage import durable

VERSION = 1


class SourceGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a source lets rows into a micro-batch, and how many; None leaves it as the application has it.

    Parameters
    ----------
    min_rows: rows that open the gate (K). max_delay_s: seconds after which one row opens it.
    max_rows: most rows in a micro-batch.
    """

    min_rows: int | None = None
    max_delay_s: float | None = None
    max_rows: int | None = None

    def options(self) -> dict[str, str]:
        """As a source's URI has them."""
        given = {
            "min_rows": self.min_rows,
            "max_delay": None if self.max_delay_s is None else f"{self.max_delay_s:g} s",
            "max_rows": self.max_rows,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an application is to be run.

    Parameters
    ----------
    version: of the file's form.
    application, topology: whose, by name and by a digest of its elements and streams; None for a query that is not
        Penstock's, which no run can obey.
    trigger_s: seconds between the starts of micro-batches; 0 starts one as soon as the last is over.
    sources: by name. groups: a group's name by element; empty for all in one.
    cores: of a local master; None for what there is.
    goal: what was asked for, as ``{"p95": 2.0}`` in seconds, or ``{"holding_cost": c1, "transfer_cost": c2}``.
    expected: figures by name, with 90% bands; predicted. holds_to: rows per second up to which the goal is expected to be met.
    because: in a sentence. assumed: what the prediction rests on besides the recordings.
    made, recordings: when, and from what.
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
        """What its file holds, for a person to read."""
        return json.dumps(msgspec.to_builtins(self), indent=2) + "\n"

    def write(self, path: Path) -> None:
        """Write it.

        Raises
        ------
        SinkError: the file cannot be written.
        """
        try:
            durable.write(path, self.text, 0o666)
        except OSError as error:
            raise SinkError(f"The plan cannot be written to {path} ({error.strerror}).") from error

    def applied(self, topology: Topology, options: RunOptions) -> RunOptions:
        """The options of a run that obeys the plan.

        Raises
        ------
        ConfigurationError: the plan is of another application, or of other code, or names what there is not; or the machine
            has fewer cores than it needs.
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
        given = [
            name for name, value in (("--trigger", options.trigger), ("--group", options.groups or None)) if value is not None
        ]
        if given:
            raise ConfigurationError(f"{given[0]} and a plan both decide that: leave out the one, or edit the plan.")
        return replace(
            options,
            trigger=self.trigger_s,
            groups=self._groups(topology),
            sources=self._sources(topology, options.sources),
            master=self._master(options.master),
        )

    def _groups(self, topology: Topology) -> dict[str, str]:
        """A group for every element, so that a run that has other groups is moved to these."""
        known = [element.name for element in topology.elements]
        for name in self.groups:
            if name not in known:
                raise ConfigurationError(
                    f"The plan groups element {name}, which there is not; the application has {', '.join(known)}."
                )
        return {name: self.groups.get(name, MAIN) for name in known}

    def _sources(self, topology: Topology, given: Mapping[str, str]) -> dict[str, str]:
        declared = {source.name: source.uri for source in topology.sources}
        chosen = dict(given)
        for name, gate in self.sources.items():
            if name not in declared:
                raise ConfigurationError(
                    f"The plan names source {name}, which there is not; the application has {', '.join(declared)}."
                )
            options = gate.options()
            text = given.get(name) or declared[name]
            if not options or text is None:
                continue  # without a place the run itself says so
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
        local = re.fullmatch(r"local\[(\d+|\*)\]", master)
        if self.cores is None or local is None:
            return master
        there = (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
        if there < self.cores:
            raise ConfigurationError(
                f"The plan is for {self.cores} cores, and {master} has {there}: run it where there are as many, or make a plan "
                f"for {there} (--cores {there})."
            )
        return f"local[{self.cores}]"


def read_plan(path: Path) -> Plan:
    """A plan from its file.

    Raises
    ------
    SourceError: the file is missing or no JSON. ConfigurationError: it is no plan; says where and what is allowed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(f"The plan {path} cannot be read ({error.strerror}).") from error
    try:
        return msgspec.json.decode(content, type=Plan)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path} is no plan that can be obeyed: {error}.") from error
    except msgspec.DecodeError as error:
        raise SourceError(f"{path} is no JSON ({error}): mend it, or make the plan anew with `penstock plan`.") from error


def digest(topology: Description) -> str:
    """What tells a topology from another: its elements, their keys, and the streams between them."""
    kept = [[one.name, one.dialect, one.key, one.inputs, one.emits] for one in topology.elements]
    streams = [[stream.name, stream.fields] for stream in topology.streams]
    return sha256(json.dumps([kept, streams], sort_keys=True).encode()).hexdigest()[:16]
