"""What a notebook shows of things."""

from penstock import App, Event
from penstock.app.display import framed, table


class Word(Event):
    text: str


def test_an_application_draws_itself_once_it_fits_together():
    app = App("shown")
    words = app.source("Words", Word)
    assert app._repr_svg_() is None  # nobody listens yet
    app.sink("Out", words)
    assert app._repr_svg_().startswith("<svg")


def test_nothing_escapes_a_table_or_a_frame():
    assert "<b>" not in table("<b>", [("<b>", "<b>")], "<b>")
    assert 'srcdoc="&lt;p title=&quot;' in framed('<p title="x">')
