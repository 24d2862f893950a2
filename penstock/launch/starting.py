"""The call that starts a run, with all that goes beside it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.app.application import App
from penstock.app.loader import AppReference, reference
from penstock.engine.session.versions import installed
from penstock.errors import ConfigurationError
from penstock.extras import needs
from penstock.launch.words import Companions, divided
from penstock.storage.place import path_of

installed()  # before what other versions of Spark do not have is imported

from penstock.engine.running.execution import RunResult  # noqa: E402
from penstock.engine.running.execution import run as run_in_micro_batches  # noqa: E402
from penstock.engine.running.options import RunOptions  # noqa: E402

Say = Callable[[str], None]


def run(app: App, **words: Any) -> RunResult:
    """Run an application on Spark until it is idle, its time is up, or it is interrupted.

    Args:
        app: a variable of a module that can be imported: Spark's workers import it, too.
        words: those of ``penstock run``, with ``_`` for ``-``. The run's own are those of `penstock.engine.RunOptions`:
            ``sources``, ``sinks``, ``trigger``, ``partitions``, ``groups``, ``conf``, ``fresh`` and the others; ``spark``, a
            session to run in, which is left as it was; and ``until_idle``, which is true unless a ``duration``, ``adapter`` or
            ``real_time`` is given. What goes beside it is told by ``plan``, ``adapt`` with a bound such as ``p95="5 s"``,
            ``adapter`` with ``port`` and ``spool``, ``ui``, ``otlp`` and ``real_time``.

    Raises:
        PenstockError: one of its kinds, with a sentence that says what was wrong and how to mend it.
    """
    if not isinstance(app, App):
        raise ConfigurationError(f"penstock.run is given {app!r}; give an application, as app = penstock.App('name').")
    ends = words.get("duration") is None and not words.get("adapter") and not words.get("real_time")
    options, companions = divided({"until_idle": ends, **words})
    say: Say = _silent if options.quiet else _say
    return launch(app, reference(app), options, companions, say)


def launch(app: App, reference: AppReference, options: RunOptions, companions: Companions, say: Say) -> RunResult:
    """Run an application with what goes beside it.

    Args:
        reference: where Spark's workers, and an adapter, find the application.
        say: told where the page and the adapter listen.

    Raises:
        PenstockError: one of its kinds, with a sentence that says what was wrong and how to mend it.
    """
    topology = app.topology()
    if companions.plan is not None:
        from penstock.planner.plan import read_plan

        options = read_plan(companions.plan).applied(topology, options)
    steering = None
    if companions.adapt:
        from penstock.launch.steering import steered

        options, steering = steered(app, options, companions)
    with shown(options, companions.ui, say), exported(options.directory(app.name), companions.otlp):
        if companions.real_time:
            from penstock.engine.running.realtime import run_real_time  # needs the extra for Kafka

            return run_real_time(app, options, application=reference)
        if not companions.adapter:
            return run_in_micro_batches(app, options, application=reference, steering=steering)
        from penstock.launch.adapter import adapter, with_spool

        options = with_spool(topology, options, companions.spool)
        with adapter(topology, reference, options, companions, say):
            return run_in_micro_batches(app, options, application=reference, steering=steering)


@contextmanager
def shown(options: RunOptions, port: int | None, say: Say) -> Iterator[None]:
    """Within the block the runs are shown on a page, if it has a port."""
    if port is None:
        yield
        return
    with needs():
        from penstock.ui.server import Page, beside
        from penstock.web.access import Access
    with beside(Page(path_of(options.runs), Access()), "127.0.0.1", port) as url:
        say(f"The runs are shown at {url}.")
        yield


@contextmanager
def exported(run: Path, endpoint: str | None) -> Iterator[None]:
    """Within the block each micro-batch is sent to a collector as a span, if it has an address."""
    if endpoint is None:
        yield
        return
    with needs():
        from penstock.ui.spans import exporting
    url = (endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://127.0.0.1:4318").rstrip("/")
    try:
        is_http = urlsplit(url).scheme in ("http", "https")
    except ValueError:  # brackets that hold no address
        is_http = False
    if not is_http:
        given = "--otlp" if endpoint else "OTEL_EXPORTER_OTLP_ENDPOINT"
        raise ConfigurationError(f"{given} {url}: give the address of a collector's HTTP port, as http://127.0.0.1:4318.")
    with exporting(run, url):
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _silent(text: str) -> None:
    """Say nothing: the run is quiet."""
