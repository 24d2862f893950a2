"""Arguments that several commands take: pairs of a name and a value, and an application's own parameters."""

from penstock.errors import ConfigurationError


def pairs(flag: str, given: tuple[str, ...]) -> dict[str, str]:
    """Values by name, from options such as ``--source NAME=URI``."""
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ConfigurationError(f"{flag} {text}: write NAME=VALUE.")
        values[name] = value
    return values


def parameters(arguments: list[str]) -> dict[str, str]:
    """The application's parameters, from what the command itself did not know: ``--keys 4`` or ``--keys=4``."""
    found: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            raise ConfigurationError(f"{argument!r} is not understood here; options begin with --, as in --until-idle.")
        name, equals, value = argument[2:].partition("=")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                raise ConfigurationError(f"--{name} is no option of this command, and as a parameter it needs a value.")
        found[name] = value
    return found
