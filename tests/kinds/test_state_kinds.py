"""What state can hold: what comes back as it was stored; the rest is refused as the element is declared."""

from collections import deque
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from penstock import App, Event, ProcessingElement
from penstock.errors import StateError


class Word(Event):
    text: str


def declare(annotation):
    app = App("states")
    body = {"__annotations__": {"held": annotation}, "held": None, "on_event": lambda self, event: None, "__module__": __name__}
    app.element(app.source("Words", Word), key="text")(type(ProcessingElement)("Holder", (ProcessingElement,), body))
    return app.topology()


@pytest.mark.parametrize(
    "annotation",
    [list, list[Any], dict, dict[str, Any], Any, tuple, set, deque, deque[int], np.ndarray, complex, object, dict[str, list]],
)
def test_what_would_come_back_as_something_else_is_refused(annotation):
    with pytest.raises(StateError, match=r"Element Holder: state 'held' holds .*, which would not come back as it was"):
        declare(annotation if annotation is Any else annotation | None)


@pytest.mark.parametrize(
    "annotation",
    [list[int], set[str], frozenset[int], tuple[int, ...], tuple[int, str], dict[int, Word], Word, dict[str, list[Decimal]]],
)
def test_what_says_what_it_holds_is_kept(annotation):
    declare(annotation | None)
