"""Loading of an application from a Python file, on the driver and again on each worker."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.app.application import App
from penstock.app.parameter import given
from penstock.app.spelling import did_you_mean
from penstock.errors import ApplicationNotFoundError, ConfigurationError, PenstockError

_LOADED: dict[str, str] = {}
"""The version of each application module that this process has loaded."""


class AppReference(msgspec.Struct, frozen=True):
    """A reference by which another process, such as a Spark worker, loads the application."""

    module: str
    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    """The module's directory on the driver's machine; Spark does not give this path to helper processes there."""
    version: str = ""
    """Changes with the module's file and the parameters; a process that has loaded another version reloads the module."""

    def load(self) -> App:
        """Import the module (once per process and version) and return its application."""
        if self.version and _LOADED.setdefault(self.module, self.version) != self.version:
            sys.modules.pop(self.module, None)
            importlib.invalidate_caches()
            _LOADED[self.module] = self.version
        self._put_own_directory_first()
        with given(dict(self.parameters)):
            try:
                module = importlib.import_module(self.module)
            except ModuleNotFoundError:
                sys.path.append(self.directory)
                module = importlib.import_module(self.module)
            return find_app(module, self.name)

    def _put_own_directory_first(self) -> None:
        """Put the module's directory first on the import path, if this process sees the same file as the driver.

        A Python process of Spark looks first in the directory that it was started in, where another module may have the name.
        """
        source = Path(self.directory) / f"{self.module}.py"
        if source.is_file() and _version(source, dict(self.parameters)) == self.version:
            _put_first(self.directory)


def load_app(
    path: str | Path, parameters: Mapping[str, str] | None = None, options: Iterable[str] = ()
) -> tuple[App, AppReference]:
    """Load the application that a Python file defines.

    The file's directory is put on the import path, so that it may import its neighbours.

    Args:
        options: the command's options, to suggest one for a misspelt parameter.

    Raises:
        ApplicationNotFoundError: there is no such file, it cannot be loaded, or it does not hold exactly one `App`.
        ConfigurationError: the application lacks a given parameter, or another module has the file's name.
    """
    file, _, wanted = str(path).partition(":")
    source = Path(file).resolve()
    if not source.exists():
        raise ApplicationNotFoundError(f"There is no file {file}; name the Python file that defines the application.")
    if not source.is_file() or source.suffix != ".py":
        raise ApplicationNotFoundError(f"{file} is not a Python file; name the file that defines the application.")
    module = source.stem
    if not module.isidentifier():  # an identifier does not begin with a digit
        raise ConfigurationError(
            f"{file}: rename it to a Python name, such as {re.sub(r'[^0-9a-zA-Z_]|^(?=[0-9])', '_', module)}.py."
        )
    _put_first(str(source.parent))
    given_parameters = dict(parameters or {})
    version = _version(source, given_parameters)
    if module in _LOADED and _LOADED[module] != version:
        sys.modules.pop(module, None)
    importlib.invalidate_caches()
    # A module of the same name elsewhere, such as one of the standard library, would be imported in place of the file.
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None) or getattr(importlib.util.find_spec(module), "origin", None)
    if origin is None or Path(origin).resolve() != source:
        raise ConfigurationError(f"{file} has the name of another module ({module}); rename the file.")
    _LOADED[module] = version
    try:
        with given(given_parameters):
            app = find_app(importlib.import_module(module), wanted)
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split())
        raise ApplicationNotFoundError(f"{file} cannot be loaded: {type(error).__name__}: {why}.") from error
    for name in given_parameters:
        if name not in app.parameters:
            known = ", ".join(f"--{known}" for known in app.parameters) or "none"
            raise ConfigurationError(
                f"--{name} is neither an option nor a parameter of {app.name} (which has: {known})"
                f"{did_you_mean(f'--{name}', [*(f'--{known}' for known in app.parameters), *options]) or '.'}"
            )
    name = wanted or _name_in(sys.modules[module], app)
    return app, AppReference(module, name, tuple(given_parameters.items()), str(source.parent), version)


def find_app(module: Any, name: str = "") -> App:
    """Return the `App` of a name in a module, or the only one if no name is given."""
    if name:
        app = getattr(module, name, None)
        if isinstance(app, App):
            return app
        raise ApplicationNotFoundError(f"{module.__name__} holds no application named {name}.")
    apps = list({id(value): value for value in vars(module).values() if isinstance(value, App)}.values())
    if not apps:
        raise ApplicationNotFoundError(f"{module.__name__}.py defines no application: write `app = App('name')`.")
    if len(apps) > 1:
        raise ApplicationNotFoundError(
            f"{module.__name__}.py defines {len(apps)} applications: name one, as {module.__name__}.py:app."
        )
    return apps[0]


def reference(app: App) -> AppReference:
    """Return a reference to an application that was imported rather than loaded from a file.

    Raises:
        ApplicationNotFoundError: the application is not a variable of an importable module.
    """
    for module in list(sys.modules.values()):
        if module is not None and getattr(module, "__name__", "__main__") != "__main__":
            name = _name_in(module, app)
            if name:
                return AppReference(module.__name__, name)
    raise ApplicationNotFoundError(
        f"Application {app.name} is not a variable of an importable module, so Spark's workers could not find it: "
        "move it to a file."
    )


def _version(source: Path, parameters: dict[str, str]) -> str:
    return f"{source} {source.stat().st_mtime_ns} {parameters}"


def _put_first(directory: str) -> None:
    sys.path[:] = [directory, *(entry for entry in sys.path if entry != directory)]


def _name_in(module: Any, app: App) -> str:
    return next((name for name, value in vars(module).items() if value is app), "")
