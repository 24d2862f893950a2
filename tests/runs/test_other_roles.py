"""A start that would read the input of a run again, or for which Spark has no state, is refused before anything is changed."""

import msgspec
import pytest
from planner.queries import manifest

from penstock import App, Event, ProcessingElement
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_source
from penstock.engine.query.group import group_elements
from penstock.engine.query.stateful import time_mode_of
from penstock.engine.running.discarding import clear_workshops
from penstock.engine.running.resuming import refuse_other
from penstock.errors import IncompatibleStateError, PenstockError
from penstock.runs.manifest import Reads


class Word(Event):
    text: str


def topology(*names, timers=False):
    """Elements in this order, each in a group of its own name."""
    app = App("roles")
    words, out = app.source("Words", Word), app.stream("Out", Word)
    for name in names:

        class Seen(ProcessingElement):
            def on_event(self, word):
                yield out(word.text)

        if timers:
            Seen.on_timer = lambda self: None
        app.element(words, key="text", emits=out, name=name, timers="processing")(Seen)
    app.sink("Rows", out)
    return app.topology()


def described(topology, **groups):
    """The manifest's fields on the division into groups."""
    parts = {
        group.name: (group, topology.subset(group.elements, group.hops, group.sources))
        for group in group_elements(topology, groups)
    }
    return msgspec.structs.replace(
        manifest(groups={name: group.name for group, _ in parts.values() for name in group.elements}.items()),
        hops={name: part.hops for name, (_, part) in parts.items()},
        clocks={name: [time_mode_of(part, hop + 1) for hop in range(part.hops)] for name, (_, part) in parts.items()},
        reads={
            name: Reads(list(group.sources), [source.name for source in part.sources if source.name not in group.sources])
            for name, (group, part) in parts.items()
        },
    )


def test_groups_that_exchange_who_reads_a_source_are_refused(tmp_path):
    stored = described(topology("A", "B"), A="a", B="b")
    stored.place = str(tmp_path)
    refuse_other(tmp_path, stored, described(topology("A", "B"), A="a", B="b"))
    with pytest.raises(IncompatibleStateError, match="Source Words was read by group a .* by group b, all of it again"):
        refuse_other(tmp_path, stored, described(topology("B", "A"), A="a", B="b"))


def test_another_group_is_refused_by_its_name(tmp_path):
    stored = described(topology("A", "B"))
    stored.place = str(tmp_path)
    with pytest.raises(IncompatibleStateError, match="group b has a query and a checkpoint of its own"):
        refuse_other(tmp_path, stored, described(topology("A", "C"), C="b"))


def test_a_first_timer_is_refused_where_sparks_checkpoint_has_none(tmp_path):
    stored = described(topology("A"))
    stored.place = str(tmp_path)
    with pytest.raises(IncompatibleStateError, match="had no timers and no event time when .* timers on processing time"):
        refuse_other(tmp_path, stored, described(topology("A", timers=True)))
    stored.clocks = {}  # of a run of an earlier version
    refuse_other(tmp_path, stored, described(topology("A")))


def test_a_run_with_files_between_its_groups_goes_on_by_its_own_path_only(tmp_path):
    stored = described(topology("A", "B"), A="a", B="b")
    stored.place = str(tmp_path / "run")
    (tmp_path / "run" / "hops" / "Words").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    refuse_other(tmp_path / "run", stored, stored)
    with pytest.raises(IncompatibleStateError, match="names the files between its groups by that"):
        refuse_other(tmp_path / "link", stored, stored)
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(IncompatibleStateError, match="names the files between its groups by that"):
        refuse_other(tmp_path / "moved", stored, stored)


@pytest.mark.parametrize("given", ["in", "./in", "{}/in"])
def test_a_source_is_told_by_its_whole_path(tmp_path, monkeypatch, given):
    uris = []
    for directory in ("one", "two"):
        (tmp_path / directory / "in").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / directory)
        [source] = topology("A").sources
        uris.append(bind_source(source, f"jsonl:{given.format(tmp_path / directory)}?max_files=1", SourceContext()).uri)
    assert uris == [f"jsonl:{tmp_path}/{directory}/in?max_files=1" for directory in ("one", "two")]
    stored = msgspec.structs.replace(described(topology("A")), sources={"Words": uris[0]}, place=str(tmp_path))
    with pytest.raises(PenstockError, match="Source Words was read from"):
        refuse_other(tmp_path, stored, msgspec.structs.replace(stored, sources={"Words": uris[1]}))


def test_of_what_is_called_moving_only_a_moves_own_directories_are_removed(tmp_path):
    for name in ("moving/0123abcd-1", "moving/mine", "moving/0123abcd-x"):
        (tmp_path / name).mkdir(parents=True)
    clear_workshops(tmp_path)
    assert sorted(path.name for path in (tmp_path / "moving").iterdir()) == ["0123abcd-x", "mine"]
    (tmp_path / "empty" / "moving" / "0123abcd-12").mkdir(parents=True)
    clear_workshops(tmp_path / "empty")
    assert not (tmp_path / "empty" / "moving").exists()
