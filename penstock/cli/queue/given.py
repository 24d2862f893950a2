"""Reads the server and the costs of a command from its flags and its file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.app.duration import seconds_of
from penstock.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from penstock.queueing.model import Model

DEFAULT = "server"
"""The name of the model that the flags describe, unless a file has another model's table."""

Costs = dict[str, float]


class _NumberOrInfinity(click.ParamType):  # type: ignore[type-arg]
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number; give one, or inf.", param, ctx)
        return int(number) if math.isfinite(number) and number == int(number) else number


class _Rate(_NumberOrInfinity):
    """A rate per second, or the mean time in its place: 10ms is 100 per second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, str) and value.strip()[-1:].isalpha() and value.strip().lower() not in ("inf", "nan"):
            time = seconds_of(param.opts[0] if param else "A rate", value)
            return 1 / time if time else math.inf
        return super().convert(value, param, ctx)


_FLAGS = {
    "arrival_rate": "lambda, jobs per second.",
    "service_rate": "mu, jobs per second.",
    "batch_size": "K, jobs that make a transfer; inf for no limit.",
    "timer_rate": "tau, per second, or the flush timer's mean, as 10ms; 0 for no timer, inf for no waiting.",
    "transfer_rate": "gamma, per second, or a transfer's mean time; inf (the default) if it takes no time.",
}


def flag(name: str) -> str:
    """The flag of a parameter."""
    return "--" + name.replace("_", "-")


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that `read` needs, and ``--json``, to a command."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON; null stands for infinity.")(command)
    command = click.option("--transfer-cost", type=float, help="c2, per transfer.")(command)
    command = click.option("--holding-cost", type=float, help="c1, per job and second.")(command)
    command = click.option("--timer", type=click.Choice(["idle", "always"]), help="When the timer runs.")(command)
    for name, text in reversed(_FLAGS.items()):
        command = click.option(flag(name), type=_Rate() if name.endswith("_rate") else _NumberOrInfinity(), help=text)(command)
    return click.option("--file", "-f", type=click.Path(path_type=Path), help="A TOML file with the server.")(command)


def read(given: Mapping[str, Any], defaults: Mapping[str, float] | None = None) -> tuple[Model, Costs]:
    """Read the server and the costs from the flags and the file.

    Args:
        given: the values of all flags by name.
        defaults: of parameters that neither flags nor the file set.

    Raises:
        SourceError, ConfigurationError: the file cannot be read, or a parameter is missing.
    """
    from penstock.queueing.model import MODELS, model_of
    from penstock.queueing.parameter import rate

    path: Path | None = given["file"]
    tables = {} if path is None else _tables(path)
    name = next((name for name in MODELS if name in tables), DEFAULT)
    model = model_of(name)
    flags = {name: given[name] for name in (*_FLAGS, "timer") if given[name] is not None}
    costs = {name: given[f"{name}_cost"] for name in ("holding", "transfer") if given[f"{name}_cost"] is not None}
    assumed = {parameter: value for parameter, value in (defaults or {}).items() if parameter in model.NEEDED}
    table = {**assumed, **_table(path, tables, name, model.PARAMETERS), **flags}
    missing = [parameter for parameter in model.NEEDED if parameter not in table]
    if missing:
        ways = ", ".join(map(flag, missing))
        raise ConfigurationError(f"The server lacks {', '.join(missing)}; give {ways}, or a file that has them.")
    unknown = [parameter for parameter in table if parameter not in model.PARAMETERS]
    if unknown:
        raise ConfigurationError(f"{flag(unknown[0])} is no parameter of a [{name}]; it has {', '.join(model.PARAMETERS)}.")
    prices = {**_table(path, tables, "cost", ("holding", "transfer")), **costs}
    return model.from_table(table), {name: rate(f"{name} cost", price, zero=True) for name, price in prices.items()}


def _tables(path: Path) -> dict[str, Any]:
    from penstock.queueing.model import MODELS

    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}); give a TOML file with a [{DEFAULT}] table.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {str(error)[:1].lower()}{str(error)[1:]}.") from error
    if set(tables) - {*MODELS, "cost"} or sum(name in tables for name in MODELS) > 1:
        known = " and ".join(f"[{name}]" for name in MODELS)
        raise ConfigurationError(f"{path}: give one of the tables {known}, and [cost] if wanted.")
    return tables


def _table(path: Path | None, tables: Mapping[str, Any], name: str, known: Any) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigurationError(f"{path}: {name} is {table!r}; write a table, as [{name}].")
    if set(table) - set(known):
        raise ConfigurationError(f"{path}: [{name}] may have {', '.join(known)}; got {', '.join(map(str, table))}.")
    return dict(table)
