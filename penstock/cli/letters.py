"""``penstock letters``: say what became a dead letter in a run, and write it out to be read again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from penstock.cli.arguments import RUN, WRITTEN, refuse_given
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError, SinkError
from penstock.visible import line as one_line

if TYPE_CHECKING:
    from penstock.runs.letters import Letter

OTHER_FILES = ("csv", "parquet", "text")
"""Formats of files that are not lines of JSON, or would take these for something else."""


@command()
@click.argument("run", type=RUN)
@click.option("--of", "place", metavar="ELEMENT", help="Only those of an element, or of 'decoding SOURCE'.")
@click.option("--show", type=click.IntRange(min=1), metavar="N", help="Show the last N whole.")
@click.option("--replay", type=WRITTEN, metavar="FILE", help="Write the events, to be read again.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON lines.")
def letters(run: Path, place: str | None, show: int | None, replay: Path | None, as_json: bool) -> None:
    """Say what became a dead letter in a run, and why; write the events to a file, to be read again once that is mended.

    \b
    Example:
      penstock letters runs/divisibility
      penstock letters runs/divisibility --of "decoding RawWords" --replay again.jsonl
    """
    from penstock.runs.letters import letters_of
    from penstock.runs.manifest import manifest_of

    chosen = [letter for letter in letters_of(run) if place in (None, letter.place)]
    if place is not None and not chosen:
        places = sorted({letter.place for letter in letters_of(run)})
        raise ConfigurationError(f"{run} has no dead letters of {place}; there are {', '.join(places) or 'none at all'}.")
    if replay is not None:
        refuse_given("prints, and --replay writes a file: give one of them", "show", "as_json")
    if replay is not None and chosen:
        _replay(chosen, replay, manifest_of(run).sources)
    elif as_json:
        for letter in chosen[-show:] if show else chosen:
            echo(msgspec.json.encode(letter).decode())
    elif show:
        echo("\n\n".join(map(_whole, chosen[-show:])) or "No dead letters.")
    else:
        echo(_summary(chosen))


def _summary(found: list[Letter]) -> str:
    """The numbers of dead letters by place and error, the most frequent first, as text."""
    if not found:
        return "No dead letters."
    groups = Counter((letter.place, letter.error, letter.line or "") for letter in found)
    lines = [f"{len(found):,} dead letters:"]
    lines += [
        f"  {count:>8,}  " + one_line(f"{place}: {error}{f' ({line})' if line else ''}")
        for (place, error, line), count in groups.most_common(20)
    ]
    if len(groups) > 20:
        lines.append(f"  and {len(groups) - 20:,} other kinds")
    return "\n".join(lines)


def _whole(letter: Letter) -> str:
    payload = letter.raw if letter.raw is not None else json.dumps(letter.event, ensure_ascii=False)
    line = f" ({letter.line})" if letter.line else ""
    return f"{one_line(f'{letter.place}: {letter.error}{line}')}\n  {one_line(f'{letter.stream}: {payload}')}"


def _replay(found: list[Letter], file: Path, sources: Mapping[str, str]) -> None:
    """Write the events of the dead letters, which must be of one stream, to a new file of JSON lines.

    Args:
        sources: the URI of each source of the run.
    """
    from penstock.connectors.uri import Uri

    streams = sorted({letter.stream for letter in found})
    if len(streams) != 1:
        raise ConfigurationError(f"The dead letters are of the streams {', '.join(streams)}: choose those of one with --of.")
    [stream] = streams
    read = Uri.parse(sources.get(stream, ""))
    if read.scheme in OTHER_FILES and file.resolve().is_relative_to(Path(read.place).resolve()):
        raise ConfigurationError(
            f"The events are written as JSON lines, and {read.place} is read as {read.scheme}: name a file elsewhere, and read "
            "it by a run of its own."
        )
    # What could not be decoded is written as it came; such a line would be none of JSON.
    taken = [letter for letter in found if letter.raw is None or read.scheme not in OTHER_FILES]
    lines = [line for letter in taken if (line := letter.again()) is not None]
    try:
        with file.open("x", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)
    except FileExistsError:
        raise SinkError(f"{file} exists: name another file, or remove it.") from None
    except OSError as error:
        raise SinkError(f"The events cannot be written to {file} ({error.strerror}).") from error
    into = "put the file into the directory that the source reads, or " if read.scheme == "jsonl" else ""
    echo(
        f"{len(lines):,} events of {stream} are in {file}, as JSON lines. Mend what was wrong; then {into}read it by a run of "
        f"its own: penstock run APP.py --source {stream}=jsonl:{file} --name NAME"
        if stream in sources
        else f"{len(lines):,} events of {stream} are in {file}, as JSON lines. No source brings them, but an element does."
    )
    if len(lines) < len(found):
        echo(f"{len(found) - len(lines):,} are left out: they are no single event, or no line of JSON.")
