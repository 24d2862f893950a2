"""``penstock tune``: say which trigger to set for a latency target."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.app.display import rounded
from penstock.cli.arguments import WRITTEN, bounds, pairs
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.page import write_page
from penstock.cli.recording import observed
from penstock.cli.setting import recordings, target_of, what_if
from penstock.kinds.coding import finite

if TYPE_CHECKING:
    from penstock.planner import Setting, Tuning

EVERY_S = 10.0
"""Seconds between two looks at a recording that grows."""


@command()
@recordings
@bounds
@click.option("--what-if", "supposed", multiple=True, metavar="NAME=VALUE", help="Another rate (2x), arrivals or cores.")
@click.option("--live", is_flag=True, help=f"Look again every {EVERY_S:g} s while the recording grows, until Ctrl-C.")
@click.option("--html", type=WRITTEN, metavar="FILE", help="Write a page with the curve.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def tune(
    sources: tuple[str, ...],
    query: str | None,
    recorded_cores: float | None,
    supposed: tuple[str, ...],
    live: bool,
    html: Path | None,
    as_json: bool,
    **given: str | None,
) -> None:
    """Say which trigger to set for a latency target, what it is expected to do, and what limits the query.

    SOURCE is the directory of a run, a file of progress as JSON lines (penstock.watch writes one), or a Spark event log.

    \b
    Example:
      penstock tune progress.jsonl --p95 5s --html tuning.html
    """
    from penstock.planner import tune as tuned

    target, setting = target_of(given), what_if(pairs("--what-if", supposed))
    while True:
        observation = observed(sources, query, recorded_cores)
        answer = tuned(observation, target, setting, now=time.time() if live else None)
        _tell(answer, sources, setting, html, as_json=as_json)
        if not live:
            return
        time.sleep(EVERY_S)


def _tell(answer: Tuning, sources: tuple[str, ...], setting: Setting, html: Path | None, *, as_json: bool) -> None:
    from penstock.planner.page import page

    if html is not None:
        write_page(html, page(answer, ", ".join(Path(source).name for source in sources)))
    echo(json.dumps(finite(answer.to_json()), indent=2) if as_json else shown(answer))
    if html is not None and not as_json:
        echo(f"  page      {html}")


def shown(answer: Tuning) -> str:
    """The answer as text for a person."""
    lines = []
    if answer.measured:
        figures = ", ".join(f"{name} {value:.2f} s" for name, value in answer.measured.items())
        lines.append(f"  today     {figures} ({answer.latency_of})")
    if answer.today is not None:
        trigger = answer.today.setting.interval
        low, high = answer.today.band(answer.target.name)
        lines.append(
            f"  unchanged {answer.target.name} {getattr(answer.today, answer.target.name):.2f} s ({low:.2f} to {high:.2f} in "
            f"90%; predicted) at a trigger of {trigger:g} s and {rounded(answer.today.rate)} rows/s"
        )
    lines += [f"  limits    {verdict}" for verdict in answer.verdicts]
    if answer.chosen is not None:
        lines += [f"  set       {name} {value}" for name, value in answer.options.items()]
        lines.append(
            f"            {answer.chosen.files_per_day:,.0f} files a day, {rounded(answer.chosen.rows_per_file)} rows per "
            f"file, {answer.chosen.utilisation:.0%} utilisation (predicted)"
        )
    lines.append(f"  because   {answer.reason}")
    if answer.max_rate is not None:
        lines.append(f"  holds     up to {rounded(answer.max_rate)} rows/s (predicted)")
    if answer.besides:
        lines.append(f"  besides   {answer.besides}")
    chosen = answer.chosen or answer.today
    lines += [f"  assumed   {text}" for text in (chosen.assumptions if chosen else ())]
    return "\n".join([answer.headline, *lines])
