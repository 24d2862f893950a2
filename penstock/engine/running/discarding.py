"""What `--fresh` removes of an earlier run in the same directory."""

import os
import re
from pathlib import Path

from penstock.connectors.checkpoint import clear_checkpoint
from penstock.connectors.files.sink import remove_output
from penstock.runs.files import CHECKPOINTS, DRAFTS, HOPS, JOURNALS, LOG, MANIFEST, MOVING, NOTES, OURS, OUTPUT, SAID, WORKSHOPS
from penstock.runtime.output import DEAD_LETTERS
from penstock.storage import durable, journal


def discard(directory: Path, here: Path, runs: list[str]) -> None:
    """Remove the files that earlier starts of a run have written, and no others. The manifest stays: it notes this removal.

    Args:
        here: the directory of the files that only this machine needs; see `Recording`.
        runs: the identifiers of earlier runs.
    """
    for name in durable.names(directory):
        path = directory / name
        set_aside = re.fullmatch(rf"\.({JOURNALS})\.(?:taken|draft|lock)", name)
        if set_aside:
            journal.clear(directory / set_aside[1])
        elif re.fullmatch(JOURNALS, name):
            journal.clear(path)
        elif re.fullmatch(rf"{OURS}|{DRAFTS}", name) and name not in (MANIFEST, LOG):
            path.unlink(missing_ok=True)
    for place in (directory / DEAD_LETTERS, *_within(directory / OUTPUT)):
        remove_output(place, runs)
    for hop in _within(directory / HOPS):
        for group in _within(hop):
            remove_output(group, runs)
        durable.remove_empty(hop)
    for name in durable.names(directory / OUTPUT):
        if re.fullmatch(NOTES, name):
            durable.remove(directory / OUTPUT / name)
    checkpoints = [name for name in durable.names(directory) if re.fullmatch(CHECKPOINTS, name)]
    for checkpoint in (path for name in checkpoints for path in _within(directory / name)):
        clear_checkpoint(checkpoint)
    for name in (OUTPUT, HOPS, *checkpoints):
        durable.remove_empty(directory / name)
    clear_workshops(directory)
    os.truncate(here / LOG, 0)
    for name in durable.names(here):  # the same directory, except for a run in a store
        if re.fullmatch(SAID, name):
            (here / name).unlink(missing_ok=True)


def _within(directory: Path) -> list[Path]:
    """Return the subdirectories of a directory."""
    return [path for name in durable.names(directory) if (path := directory / name).is_dir()]


def clear_workshops(directory: Path) -> None:
    """Remove the directories in which moves of a run have worked."""
    for name in durable.names(directory / MOVING):
        if re.fullmatch(WORKSHOPS, name):
            durable.remove(directory / MOVING / name)
    durable.remove_empty(directory / MOVING)
