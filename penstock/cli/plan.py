"""``penstock plan``: choose how an application is to be run, for a target or a price."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from penstock.app.display import rounded
from penstock.cli.arguments import WRITTEN, bounds, pairs
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.page import write_page
from penstock.cli.probe import probed, probes, refuse_unprobed
from penstock.cli.recording import observed
from penstock.cli.setting import recordings, target_of, what_if
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.planner.planning import Goal, Planning


@command()
@recordings
@probes
@bounds
@click.option("--holding-cost", type=float, metavar="C1", help="In place of a bound: price of a row's second.")
@click.option("--transfer-cost", type=float, metavar="C2", help="And price of a micro-batch, in the same unit.")
@click.option("--fewest-cores", is_flag=True, help="Plan for the fewest cores with which the bound can be met.")
@click.option("--what-if", "supposed", multiple=True, metavar="NAME=VALUE", help="Another rate (2x), arrivals or cores.")
@click.option("-o", "--output", type=WRITTEN, metavar="FILE", help="Write the plan there.")
@click.option("--html", type=WRITTEN, metavar="FILE", help="Write a page that explains it.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    sources: tuple[str, ...],
    query: str | None,
    recorded_cores: float | None,
    probe: bool,
    length: str,
    uris: tuple[str, ...],
    runs: Path,
    holding_cost: float | None,
    transfer_cost: float | None,
    fewest_cores: bool,
    supposed: tuple[str, ...],
    output: Path | None,
    html: Path | None,
    as_json: bool,
    **latencies: str | None,
) -> None:
    """Choose how an application is to be run: for a latency target, or for the least cost.

    SOURCE is as for tune, or an application with --probe. The plan is a file to read, to edit, and to run.

    \b
    Example:
      penstock plan runs/divisibility --p95 2s -o plan.json
      penstock run examples/divisibility/app.py --plan plan.json
    """
    from penstock.planner import observe
    from penstock.planner.plan_page import plan_page
    from penstock.planner.planning import make_plan
    from penstock.planner.prices import Prices

    goal = _goal(latencies, holding_cost, transfer_cost)
    if fewest_cores and isinstance(goal, Prices):
        raise ConfigurationError("--fewest-cores is for a bound on the latency, as --p95 2s; leave out the prices.")
    setting = what_if(pairs("--what-if", supposed))
    if probe:

        def wanted(recordings: tuple[str, ...]) -> float | None:
            """The trigger that a plan from the first probes has, seconds; the third probe measures the speed there."""
            with suppress(ConfigurationError):
                return make_plan(observe(*recordings, cores=recorded_cores), goal, setting).plan.trigger_s
            return None

        sources = probed(sources, runs, length, uris, wanted)
    else:
        refuse_unprobed()
    if html is not None and output is not None and html.absolute() == output.absolute():
        raise ConfigurationError(f"-o and --html are both {html}: give the page a name of its own.")
    observation = observed(sources, query, recorded_cores)
    planning = make_plan(observation, goal, setting, fewest_cores=fewest_cores, recordings=sources)
    if output is not None:
        planning.plan.write(output)
    if html is not None:
        write_page(html, plan_page(planning, ", ".join(Path(source).name for source in sources)))
    if as_json:
        echo(msgspec.json.format(msgspec.json.encode(planning.plan), indent=2).decode())
        return
    echo(_shown(planning))
    for name, path in (("plan", output), ("page", html)):
        if path is not None:
            echo(f"  {name}      {path}")


def _goal(latencies: dict[str, str | None], holding: float | None, transfer: float | None) -> Goal:
    from penstock.planner.prices import Prices

    if holding is None and transfer is None:
        return target_of(latencies)
    if holding is None or transfer is None or any(latencies.values()):
        raise ConfigurationError(
            "Give one goal: a bound, as --p95 5s, or both prices, as --holding-cost 0.001 --transfer-cost 2."
        )
    return Prices(holding, transfer)


def _shown(planning: Planning) -> str:
    """The plan as text for a person."""
    chosen, today = planning.chosen, planning.today
    lines = [f"{planning.plan.application or 'The query'} at {rounded(chosen.rate)} rows/s:"]
    lines += [f"  limits    {verdict}" for verdict in planning.verdicts]
    lines += [f"  set       {name} {value}" for name, value in chosen.setting.options().items()]
    if planning.plan.cores is not None:
        lines.append(f"  cores     {planning.plan.cores}")
    for title, point in (("today", today), ("chosen", chosen)):
        if point is not None:
            low, high = point.band("p95")
            lines.append(
                f"  {title:9} p95 {point.p95:.2f} s ({low:.2f} to {high:.2f} in 90%), {point.batches_per_day:,.0f} "
                f"micro-batches a day, {point.utilisation:.0%} utilisation (predicted)"
            )
    lines.append(f"  because   {planning.plan.because}")
    if planning.grouping is not None:
        lines.append(f"  queries   {planning.grouping.reason}")
    if planning.plan.holds_to is not None:
        lines.append(f"  holds     up to {rounded(planning.plan.holds_to)} rows/s (predicted)")
    lines += [f"  assumed   {text}" for text in planning.plan.assumed]
    return "\n".join(lines)
