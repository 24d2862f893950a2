"""The command line as a user meets it: what it says, and how it complains."""

import pytest

from penstock.cli import main


def said(capsys, *arguments):
    main(list(arguments))
    return capsys.readouterr().out


def complaint(capsys, *arguments):
    """One sentence on standard error, exit code 2."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert caught.value.code == 2
    text = capsys.readouterr().err.strip()
    assert text.startswith("penstock: ")
    assert "\n" not in text
    return text
