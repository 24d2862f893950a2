"""``penstock observe``: say what a recording shows of a query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.app.display import rounded
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.probe import probed, probes, refuse_unprobed
from penstock.cli.recording import observed
from penstock.cli.setting import recordings
from penstock.errors import ConfigurationError
from penstock.kinds.coding import finite

if TYPE_CHECKING:
    from penstock.planner import Calibration, Observation


@command()
@recordings
@probes
@click.option("--json", "as_json", is_flag=True, help="Print what was seen as JSON.")
def observe(
    sources: tuple[str, ...],
    query: str | None,
    recorded_cores: float | None,
    probe: bool,
    length: str,
    uris: tuple[str, ...],
    runs: Path,
    as_json: bool,
) -> None:
    """Say what a recording shows: arrivals, durations of micro-batches, what limits, and what it does not tell.

    \b
    Example:
      penstock observe runs/divisibility
      penstock observe app.py --probe --source Words=generator:poisson?rate=2000
    """
    from penstock.planner import calibrate, verdicts

    if probe:
        sources = probed(sources, runs, length, uris)
    else:
        refuse_unprobed()
    observation = observed(sources, query, recorded_cores)
    try:
        calibration = calibrate(observation)
    except ConfigurationError as error:
        calibration, reason = None, str(error)
    else:
        reason = ""
    answer = {
        "queries": [] if calibration is None else _queries(calibration),
        "arrivals": None if calibration is None else _arrivals(calibration),
        "verdicts": [{"kind": v.kind, "text": v.text, "confident": v.confident} for v in verdicts(observation)],
        "notes": [note.text for note in observation.notes] + ([reason] if reason else []),
        "kind": "measured; durations of micro-batches are fitted",
    }
    echo(json.dumps(finite(answer), indent=2) if as_json else _shown(observation, answer))
    if probe and not as_json:
        echo(f"Predict with: penstock predict {' '.join(sources)} --trigger 3s")


def _queries(calibration: Calibration) -> list[dict[str, Any]]:
    """The observation and the fit of each query, for JSON."""
    import numpy as np

    queries = []
    for model in calibration.queries:
        seen, durations = model.observed, model.durations
        phases: dict[str, list[float]] = {}
        for record in seen.records:
            if record.ran and record.rows:
                for name, value in record.phases.items():
                    phases.setdefault(name, []).append(value)
        queries.append(
            {
                "name": seen.name,
                "upstream": seen.upstream,
                "batches": seen.batches,
                "setting": seen.setting.given(),
                "trigger_inferred": seen.trigger_inferred,
                "latency_s": seen.latency(),
                "latency_kind": seen.latency_kind,
                "latency_of": seen.latency_words,
                "rows_per_source_row": seen.rows_per_source_row,
                "fixed_s": durations.fixed,
                "per_row_s": durations.per_row,
                "below_knee_s": durations.below_knee,
                "knee_rows": durations.knee,
                "errors_s": durations.errors,
                "identified": durations.identified,
                "ratio_scv": durations.scv,
                "ratio_correlation": durations.correlation,
                "pauses": durations.outliers,
                "phases_s": {name: float(np.median(values)) for name, values in phases.items()},
                "service_us": dict(seen.service_us),
            }
        )
    return queries


def _arrivals(calibration: Calibration) -> dict[str, Any]:
    arrivals = calibration.arrivals
    return {
        "rate": arrivals.rate,
        "error": arrivals.error,
        "kind": arrivals.kind,
        "dispersion": {f"{width:.3g} s": value for width, value in arrivals.dispersion.items()},
    }


def _shown(observation: Observation, found: dict[str, Any]) -> str:
    lines = []
    for query in found["queries"]:
        lines.append(f"{query['name']}: {query['batches']} warm micro-batches")
        if query["latency_s"]:
            lines.append(
                "  latency   "
                + ", ".join(f"{n} {v:.2f} s" for n, v in query["latency_s"].items())
                + f" ({query['latency_of']})"
            )
        trigger = query["setting"].get("trigger")
        interval = "unclear" if trigger is None else f"{trigger:g} s"
        lines.append(f"  trigger   {interval} ({'inferred from the starts' if query['trigger_inferred'] else 'recorded'})")
        lines.append(
            f"  duration  {query['fixed_s']:.3f} s and {query['per_row_s'] * 1e6:.1f} us per row (fitted; standard errors "
            f"{query['errors_s']['fixed']:.3f} s and {query['errors_s']['per_row'] * 1e6:.1f} us)"
            + ("" if query["identified"] else "; the two cannot be told apart by this recording")
        )
        lines.append("  phases    " + ", ".join(f"{n} {v * 1e3:.0f} ms" for n, v in query["phases_s"].items()) + " (medians)")
        lines += [f"  element   {name}: {value:.0f} us an event (measured)" for name, value in query["service_us"].items()]
    if found["arrivals"]:
        arrivals = found["arrivals"]
        spread = ", ".join(f"{value:.1f} over {width}" for width, value in arrivals["dispersion"].items())
        lines.append(
            f"arrivals: {rounded(arrivals['rate'])} ± {rounded(arrivals['error'])} rows/s, {arrivals['kind']}; "
            f"dispersion {spread}"
        )
    lines += [
        f"{verdict['kind']}: {verdict['text']}{'' if verdict['confident'] else ' (not sure)'}" for verdict in found["verdicts"]
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in found["notes"])])
