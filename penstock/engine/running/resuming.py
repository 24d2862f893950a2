"""Whether a start can go on with the run in a directory: refusals, before anything is changed."""

import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.app.state import check_state_fits
from penstock.connectors.schedule import UNTOLD
from penstock.engine.session.versions import Spark, installed
from penstock.errors import ConfigurationError, IncompatibleStateError, PenstockError
from penstock.runs.files import BEFORE_MANIFEST, HOPS, JOURNALS, MANIFEST
from penstock.runs.manifest import Head, Manifest, head_of
from penstock.runs.report import report_of_run
from penstock.storage import durable
from penstock.storage.place import is_local, path_of


def refuse_no_run(directory: Path) -> None:
    """Refuse a directory that has files but no manifest, as it may not be that of a run."""
    names = durable.names(directory)
    strange = sorted(name for name in names if not re.fullmatch(BEFORE_MANIFEST, name))
    if MANIFEST in names or not strange:
        return
    others = "" if len(strange) == 1 else f" and {len(strange) - 1} more"
    lost = any(re.fullmatch(JOURNALS, name) for name in names)
    mend = f"it was a run, put its {MANIFEST} back, or move the directory away" if lost else "you want this one, empty it first"
    raise ConfigurationError(
        f"{directory} holds {strange[0]}{others} and no {MANIFEST}, so it is not the directory of a run, and nothing in it was "
        f"changed: choose another --name or --runs; if {mend}."
    )


def refuse_copied(directory: Path, earlier: Head) -> None:
    """Refuse a copy of a run that still exists: in their sinks, each would take the other's micro-batches for its own."""
    if not earlier.place or is_at(directory, earlier.place):
        return
    original, other = path_of(earlier.place), None
    with suppress(OSError, PenstockError):  # a run that cannot be read cannot go on
        other = head_of(original)
    if other is None or earlier.run not in (other.run, *other.discarded):
        return
    probe = f".here-{uuid.uuid4().hex}"
    durable.write(directory / probe, b"", kept="no")
    same = (original / probe).exists()  # the same directory by another path, such as a second mount
    durable.remove(directory / probe)
    if not same:
        raise IncompatibleStateError(
            f"{directory} is a copy of the run in {earlier.place}, and both would write to the same sinks as if they "
            "were one: go on in that one, or start under another --name, with other sinks."
        )


def refuse_other(directory: Path, stored: Manifest, present: Manifest) -> None:
    """Refuse to resume a run with what does not fit it: its mode, sources, parameters, groups, state, place, version of Spark.

    Args:
        stored: of the run.
        present: of this start.

    Raises:
        IncompatibleStateError, ConfigurationError: something does not fit; the text says what, and what is allowed.
    """
    # Once the input has ended, a start can only write the report, if an earlier one was killed before it did.
    report = report_of_run(directory)
    if stored.ended and report is not None and report.ended:
        raise ConfigurationError(
            f"The input of {directory.name} has ended: its windows have closed, and no event can come after that. "
            "Start afresh with --fresh, or under another --name; where more input is to come, run with --until-idle=pause."
        )
    _refuse_moved(directory, stored)
    _refuse_older_spark(directory, stored)
    check_state_fits(stored.state, present.state)
    mend = f"use the same, or start afresh with --fresh, or under another --name than {directory.name}"
    if stored.mode != present.mode:
        raise ConfigurationError(
            f"{directory.name} was begun in {stored.mode}, and would now run in {present.mode} and read all of its "
            f"input again: {mend}."
        )
    for name, value in stored.parameters.items():
        if present.parameters.get(name) != value:
            raise ConfigurationError(
                f"Parameter --{name} was {value} when this run began, and is now {present.parameters.get(name)}: {mend}."
            )
    _refuse_other_sources(stored, present, mend)
    _refuse_other_groups(stored, present, mend)


def _refuse_other_sources(stored: Manifest, present: Manifest, mend: str) -> None:
    """Refuse other sources, other places of theirs, and another thing in the same place."""
    if list(stored.sources) != list(present.sources):
        raise ConfigurationError(
            f"The sources were {', '.join(stored.sources)} when this run began, and are now "
            f"{', '.join(present.sources)}; Spark knows them by their order: {mend}."
        )
    for name, place in stored.sources.items():
        now = present.sources.get(name)
        if now != place:
            raise ConfigurationError(f"Source {name} was read from {place} when this run began, and now from {now}: {mend}.")
    # The same place may hold another topic or file by now, and the offsets of the old one would be wrong there.
    for name, identity in stored.identities.items():
        now = present.identities.get(name)
        if identity not in (None, now, UNTOLD):
            raise ConfigurationError(
                f"Source {name} is another {present.sources[name].partition(':')[0]} than the one that this run began "
                f"with, though in the same place, and the offsets of the old one do not apply to it: {mend}."
            )


def _refuse_other_groups(stored: Manifest, present: Manifest, mend: str) -> None:
    """Refuse other groups of elements, readers of a source and keyed hops, as each group has a checkpoint of its own."""
    for name, group in stored.groups.items():
        if present.groups.get(name, group) != group:
            raise IncompatibleStateError(
                f"Element {name} was in group {group} when this run began, and is now in {present.groups[name]}, "
                f"which has another checkpoint: {mend}."
            )
    for name, reads in stored.reads.items():
        now_reads = present.reads.get(name, reads)
        for before, after in ((reads.sources, now_reads.handed_on), (reads.handed_on, now_reads.sources)):
            for source in sorted({*before} & {*after}):
                raise IncompatibleStateError(
                    f"Source {source} was read by {_reader(source, stored)} when this run began, and would now be read by "
                    f"{_reader(source, present)}, all of it again: it is read by the group of the first element that is "
                    f"declared on it. Declare the elements in their former order; or {mend}."
                )
    for name in stored.hops.keys() ^ present.hops.keys():
        raise IncompatibleStateError(
            f"The elements made up {_listed(stored.hops)} when this run began, and now make up {_listed(present.hops)}; "
            f"group {name} has a query and a checkpoint of its own: {mend}."
        )
    if stored.hops != present.hops:
        raise IncompatibleStateError(
            f"The groups had {stored.hops} keyed hops when this run began, and now have {present.hops}; Spark's "
            f"checkpoint fixes them: {mend}."
        )
    for name, clocks in stored.clocks.items():
        for former, clock in zip(clocks, present.clocks.get(name, clocks), strict=True):
            if former != clock:
                raise IncompatibleStateError(
                    f"The keyed elements of group {name} had {CLOCKS[former]} when this run began, and now have "
                    f"{CLOCKS[clock]}, and Spark's checkpoint fixes that: {mend}."
                )


CLOCKS = {
    "None": "no timers and no event time",
    "ProcessingTime": "timers on processing time",
    "EventTime": "a source with event times, or timers on it",
}
"""Spark's time modes, in words."""


def _reader(source: str, manifest: Manifest) -> str:
    return next((f"group {name}" for name, reads in manifest.reads.items() if source in reads.sources), "none")


def _listed(groups: Iterable[str]) -> str:
    return "the groups " + ", ".join(groups)


def _refuse_moved(directory: Path, stored: Manifest) -> None:
    """Refuse a run with state that was moved to another directory, and one whose groups hand on events by files also by another
    spelling of its directory: Spark's checkpoint has the old paths of its files.
    """
    if str(directory) != stored.place and durable.names(directory / HOPS):
        raise IncompatibleStateError(
            f"{directory} was {stored.place} when this run was started last, and Spark's checkpoint names the files between "
            "its groups by that, so that it would read them again: start it by that path, or afresh with --fresh."
        )
    if is_at(directory, stored.place) or not stored.state:
        return
    raise IncompatibleStateError(
        f"{directory} was {stored.place} when this run was started last, and Spark's checkpoint names the files of "
        "its state by that: move it back, or start afresh with --fresh."
    )


def _refuse_older_spark(directory: Path, stored: Manifest) -> None:
    """Refuse a Spark of an older minor version than the run's last one: whether it reads the checkpoint is not tested."""
    if stored.spark and Spark(stored.spark).minor > installed().minor:
        raise IncompatibleStateError(
            f"{directory.name} was run on Spark {stored.spark}, and this is {installed().version}, which may not "
            f"read what that has written: pip install pyspark=={stored.spark}, or start afresh with --fresh, or under "
            "another --name."
        )


def is_at(directory: Path, place: str) -> bool:
    """Whether a path leads to a directory, even if it is spelled differently."""
    with suppress(OSError):
        if is_local(directory) and directory.samefile(place):
            return True
    return place == str(directory)
