"""Lines of a file that grows, and is replaced, while it is read."""

from pathlib import Path

from penstock.runs.tail import FileTail


class Replaced(type(Path())):
    """A path whose file is replaced just after it was opened."""

    by = b""

    def open(self, *given, **named):
        file = super().open(*given, **named)
        if self.by:
            other = self.with_name("other")
            other.write_bytes(self.by)
            other.rename(self)
            self.by = b""
        return file


def test_a_file_that_is_replaced_while_it_is_opened_is_read_anew_the_next_time(tmp_path):
    path = Replaced(tmp_path / "lines")
    path.write_bytes(b"1\n2\n3\n")
    tail, anew = FileTail(path), []
    assert list(tail.lines()) == [b"1", b"2", b"3"]
    path.by = b"6=1+2+3\n4\n"
    assert list(tail.lines(lambda: anew.append(1))) == []
    assert list(tail.lines(lambda: anew.append(1))) == [b"6=1+2+3", b"4"]
    assert anew == [1]
