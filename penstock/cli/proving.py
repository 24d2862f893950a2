"""``penstock prove --query``: prove a Structured Streaming query on Spark."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from penstock.cli.arguments import pairs
from penstock.cli.bar import Bar
from penstock.cli.echo import echo
from penstock.cli.page import write_page
from penstock.errors import ConfigurationError, SourceError


def prove_query(reference: str, given: Mapping[str, Any]) -> None:
    """Prove a Structured Streaming query of the user's own; exits with 1 unless it is exactly once."""
    from penstock.engine.proving.prover import SECONDS, QueryProver
    from penstock.engine.proving.query import UserQuery
    from penstock.engine.proving.session import plain_session

    samples = given["samples"]
    if len(samples) != 1:
        raise ConfigurationError("Give the recorded input of the query, as --sample input.jsonl.")
    sample = Path(samples[0])
    if not sample.is_file():
        raise SourceError(f"{sample} is no file: give the recorded input of the query as JSON Lines.")
    with redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(prefix="penstock-prove-") as directory:
        place, query, settings = Path(directory), UserQuery(reference), pairs("--conf", given["settings"])
        with plain_session(given["packages"], settings, place / "spark.log") as spark, Bar("Proving") as advance:
            prover = QueryProver(spark, query, sample, place / "worlds", seconds=given["seconds"] or SECONDS, advance=advance)
            verdict = prover.prove()
    if given["html"] is not None:
        write_page(given["html"], verdict.to_html())
    echo(json.dumps(verdict.to_json(), indent=2) if given["as_json"] else verdict.to_text())
    if verdict.guarantee != "exactly once":
        sys.exit(1)
