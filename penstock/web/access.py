"""Access control by tokens, for the roles of producers, consumers and operators."""

import hmac
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from penstock.errors import ConfigurationError

Role = Literal["produce", "consume", "operate"]
ROLES: tuple[Role, ...] = ("produce", "consume", "operate")


VISIBLE = re.compile(r"[!-~]{8,}")
"""Matches a token that a header can carry as it is."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON whose names differ."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a role is named twice")
    return dict(pairs)


class Access:
    """The tokens of each role; without any tokens, everybody may act in every role.

    Args:
        tokens: the tokens of each role; a role that is left out is closed to everybody. None opens all roles.
    """

    def __init__(self, tokens: Mapping[str, list[str]] | None = None) -> None:
        self.open = tokens is None
        self._tokens = {role: [token.encode() for token in (tokens or {}).get(role, [])] for role in ROLES}

    @classmethod
    def read(cls, path: Path) -> "Access":
        """Read the tokens from a JSON file such as ``{"produce": ["a-secret"], "consume": ["another"]}``.

        Raises:
            ConfigurationError: the file is not of that form.
        """
        shape = 'write {"produce": ["SECRET"], "consume": ["SECRET"], "operate": ["SECRET"]}'
        try:
            tokens = json.loads(path.read_text(), object_pairs_hook=_once)
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigurationError(f"The tokens in {path} cannot be read ({error}); {shape}.") from error
        fits = isinstance(tokens, dict) and all(
            role in ROLES
            and isinstance(held, list)
            and all(isinstance(token, str) and VISIBLE.fullmatch(token) for token in held)
            for role, held in tokens.items()
        )
        if not fits:
            raise ConfigurationError(
                f"The tokens in {path} are not understood; {shape}, of at least 8 letters, digits and signs of ASCII."
            )
        if not any(tokens.values()):
            raise ConfigurationError(f"The tokens in {path} are none, so nobody could do anything; {shape}.")
        return cls(tokens)

    def allows(self, role: Role, token: str | None) -> bool:
        """Whether a token may act in a role; takes equally long for every wrong token."""
        if self.open:
            return True
        encoded = (token or "").encode()
        return sum(hmac.compare_digest(encoded, held) for held in self._tokens[role]) > 0

    def knows(self, token: str | None) -> bool:
        """Whether a token may act in any role."""
        return self.open or any(self.allows(role, token) for role in ROLES)
