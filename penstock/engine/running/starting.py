"""The call that starts a run from Python, with the words of the command line."""

from dataclasses import fields
from typing import Any

from penstock.app.application import App
from penstock.app.spelling import did_you_mean
from penstock.engine.session.versions import installed
from penstock.errors import ConfigurationError

installed()  # before what other versions of Spark do not have is imported

from penstock.engine.running.execution import RunResult  # noqa: E402
from penstock.engine.running.execution import run as run_with  # noqa: E402
from penstock.engine.running.options import RunOptions  # noqa: E402


def run(app: App, **options: Any) -> RunResult:
    """Run an application on Spark until it is idle, its time is up, or it is interrupted.

    Parameters
    ----------
    app: a variable of a module that can be imported: Spark's workers import it, too.
    options: those of `penstock.engine.RunOptions`, which are those of ``penstock run``: ``sources``, ``sinks``, ``trigger``,
        ``partitions``, ``groups``, ``conf``, ``fresh`` and the others; ``spark``, a session to run in, which is left as it was;
        and ``until_idle``, which is true unless a ``duration`` is given.

    Raises
    ------
    PenstockError: one of its kinds, with a sentence that says what was wrong and how to mend it.
    """
    known = [field.name for field in fields(RunOptions)]
    for name in options:
        if name not in known:
            raise ConfigurationError(
                f"penstock.run has no option {name}{did_you_mean(name, known) or '; there are ' + ', '.join(known) + '.'}"
            )
    if not isinstance(app, App):
        raise ConfigurationError(f"penstock.run is given {app!r}; give an application, as app = penstock.App('name').")
    return run_with(app, RunOptions(**{"until_idle": options.get("duration") is None, **options}))
