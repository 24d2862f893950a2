"""``penstock predict``: predict the latency of a recorded query at another setting."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from penstock.app.display import rounded
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.recording import observed
from penstock.cli.setting import recordings, setting_of, setting_options
from penstock.errors import ConfigurationError
from penstock.kinds.coding import finite

if TYPE_CHECKING:
    from penstock.planner import Prediction


@command()
@recordings
@setting_options
@click.option("--following", metavar="RUN", help="A recording that grows: take the query at its present speed.")
@click.option("--method", type=click.Choice(["simulated", "solved"]), default="simulated", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the prediction as JSON.")
def predict(
    sources: tuple[str, ...],
    query: str | None,
    recorded_cores: float | None,
    following: str | None,
    method: Any,
    as_json: bool,
    **given: Any,
) -> None:
    """Predict the latency of a recorded query at a setting that was not tried.

    SOURCE is the directory of a run, a file of progress as JSON lines, or a Spark event log. Several, recorded at other
    settings, make a better model.

    \b
    Example:
      penstock predict runs/divisibility --trigger 2s --rate 5000
    """
    from penstock.planner import calibrate

    calibration = calibrate(observed(sources, query, recorded_cores))
    if following is not None:
        calibration = calibration.following(observed((following,), query), now=time.time())
    setting = setting_of(given)
    if setting.max_delay is not None and (calibration.complete(setting).min_rows or 1) <= 1:
        raise ConfigurationError("--max-delay is how long rows wait for --min-rows, and there is none; give both.")
    prediction = calibration.predict(setting, method=method)
    if as_json:
        echo(json.dumps(finite(prediction.to_json()), indent=2))
        return
    for note in calibration.observation.notes:
        echo(f"note: {note.text}", err=True)
    echo(shown(prediction))


def shown(found: Prediction) -> str:
    """A prediction as text for a person."""
    from penstock.planner.prediction import LATENCIES

    trigger = found.setting.interval
    every = f"a trigger of {trigger:g} s" if trigger else "one micro-batch after the other"
    lines = [f"At {rounded(found.rate)} rows/s and {every} (predicted, {found.method}; in brackets 90% bands):"]
    for name in LATENCIES:
        low, high = found.band(name)
        lines.append(f"  latency {name:5} {getattr(found, name):8.2f} s  ({low:.2f} to {high:.2f})")
    lines += [
        f"  utilisation   {found.utilisation:8.0%}",
        f"  keeps up with {found.keeps_up}",
        f"  {rounded(found.rows_per_batch)} rows per micro-batch, {found.batches_per_day:,.0f} micro-batches and "
        f"{found.files_per_day:,.0f} files a day (one per partition and micro-batch), "
        f"{rounded(found.rows_per_file)} rows per file",
    ]
    return "\n".join([*lines, *(f"  assumed: {text}" for text in found.assumptions)])
