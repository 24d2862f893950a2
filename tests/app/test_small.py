"""Durations, parameters, and the public names."""

import contextlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.app.duration import seconds
from penstock.app.parameter import Parameter
from penstock.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250 ms", 0.25),
        ("10s", 10),
        ("1.5 hours", 5400),
        ("2 minutes", 120),
        ("7", 7),
        (3, 3),
        ("1 day", 86400),
        (timedelta(minutes=1), 60),
    ],
)
def test_durations_are_read(text, expected):
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "soon", "5 mss", "5 ss", True, None, [], "10 parsecs", "-3 s", "1.2.3 s", -1, float("nan"), float("inf")]
)
def test_other_durations_are_refused(text):
    with pytest.raises(ConfigurationError, match="uration"):
        seconds(text)


@given(st.text())
def test_no_text_breaks_the_reader_of_durations(text):
    with contextlib.suppress(ConfigurationError):
        assert seconds(text) >= 0


def test_parameters_have_the_type_of_their_default():
    assert Parameter("keys", 4, "", (1, 2, 4)).read("2") == 2
    assert Parameter("fast", False, "", ()).read("yes") is True
    with pytest.raises(ConfigurationError, match="choose one of 1, 2, 4"):
        Parameter("keys", 4, "", (1, 2, 4)).read("3")
    with pytest.raises(ConfigurationError, match="type int"):
        Parameter("keys", 4, "", ()).read("four")


def test_the_public_names_are_these():
    assert set(penstock.__all__) == {
        "App",
        "Count",
        "Emission",
        "Event",
        "Global",
        "PenstockError",
        "ProcessingElement",
        "Session",
        "Sink",
        "Sliding",
        "Source",
        "States",
        "Stream",
        "Topology",
        "Tumbling",
        "Window",
        "__version__",
        "reducers",
        "run",
        "shared",
        "watch",
    }
