"""Parameters of an application: values that a run may set, and that are known while the application is loaded."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from penstock.errors import ConfigurationError
from penstock.masked import is_secret
from penstock.secret import parameter_of

_GIVEN: ContextVar[Mapping[str, str]] = ContextVar("penstock_parameters", default={})  # noqa: B039 - never mutated

TRUE, FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


@dataclass(frozen=True)
class Parameter:
    """A named value with a default, which determines its type."""

    name: str
    default: Any
    help: str
    choices: tuple[Any, ...]

    def read(self, text: str | None) -> Any:
        """Return the value for the text that the run gives, or the default for None.

        Raises:
            ConfigurationError: the text is not of the default's type, or not among the choices.
        """
        value = self.default if text is None else self._convert(parameter_of(self.name, text))
        if self.choices and value not in self.choices:
            allowed = ", ".join(map(str, self.choices))
            raise ConfigurationError(f"--{self.name} {self._shown(value)}: choose one of {allowed}.")
        return value

    def _convert(self, text: str) -> Any:
        kind = type(self.default)
        try:
            if kind is bool:
                return {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}[text.lower()]
            return kind(text)
        except (ValueError, KeyError):
            raise ConfigurationError(f"--{self.name} {self._shown(text)}: a value of type {kind.__name__} is needed.") from None

    def _shown(self, value: Any) -> str:
        return "***" if is_secret(self.name) else str(value)


def given_value(name: str) -> str | None:
    """Return the text that the run being prepared gives for a parameter, or None."""
    return _GIVEN.get().get(name)


@contextmanager
def given(values: Mapping[str, str]) -> Iterator[None]:
    """Within the block, applications are loaded with these parameter values."""
    token = _GIVEN.set(values)
    try:
        yield
    finally:
        _GIVEN.reset(token)
