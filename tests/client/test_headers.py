"""What the client sends in headers: never a token in a message, and nothing that is tried again in vain."""

import pytest

from penstock.client import Client
from penstock.client.protocol import Post, headers_of
from penstock.errors import ConfigurationError
from penstock.planner.doors import Doors

BAD = ["secret-token\n", "two words", "é", "a\nb"]


@pytest.mark.parametrize("token", BAD)
@pytest.mark.parametrize(
    "use",
    [headers_of, lambda token: Client("http://127.0.0.1:1", token=token), lambda token: Doors("http://127.0.0.1:1", [], token)],
    ids=["headers", "client", "doors"],
)
def test_a_token_that_no_header_carries_is_refused_and_not_shown(token, use):
    with pytest.raises(ConfigurationError, match="The token has a blank") as caught:
        use(token)
    assert "secret" not in str(caught.value)


def test_an_empty_token_is_none():
    assert headers_of("") == headers_of(None) == {}


@pytest.mark.parametrize("key", ["", " a", "a\nb", "é", "a ", "x" * 201])
def test_a_key_that_no_header_carries_is_refused(key):
    with pytest.raises(ConfigurationError, match="key="):
        Post("Words", [], key, None)


def test_keys_that_headers_carry_are_sent_as_they_are():
    assert Post("Words", [], "order 5/a", None).headers["Idempotency-Key"] == "order 5/a"
    assert len(Post("Words", [], None, None).headers["Idempotency-Key"]) == 32
    with pytest.raises(ConfigurationError, match="give one of the two"):
        Post("Words", [], "a", "id")
