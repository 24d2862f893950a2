"""The shared suite: the same topologies, the same input, the same output, in memory and on Spark."""

import sys
from datetime import UTC, datetime

from support import load


def module():
    load("fans")
    return sys.modules["topologies"]


def by_text(events):
    return sorted(events, key=repr)


def latest(events):
    return {event.key: event.seen for event in events}


def test_streams_fan_out_and_in_and_sources_have_sinks(outcome_of):
    t = module()
    outcome = outcome_of("fans", [{"Words": [t.Word("a"), t.Word("gate")]}, {"Words": [t.Word("bc")]}])
    assert by_text(outcome.outputs["Everything"]) == by_text([t.Word("a"), t.Word("gate"), t.Word("bc")])
    expected = [t.Tagged("short", "a"), t.Tagged("short", "bc")]
    expected += [t.Tagged("both", text) for word in ("a", "gate", "bc") for text in (word, word.upper())]
    assert by_text(outcome.outputs["Tags"]) == by_text(expected)
    assert outcome.events == {"divide": 3, "tag_short": 2, "tag_both": 3}


def test_instances_keep_state_from_batch_to_batch(outcome_of):
    t = module()
    words = [[f"w{n % 7}" for n in range(50)], [f"w{n % 11}" for n in range(50)]]
    outcome = outcome_of("counting", [{"Words": list(map(t.Word, batch))} for batch in words])
    every = words[0] + words[1]
    assert latest(outcome.outputs["Out"]) == {word: every.count(word) for word in every}
    assert len(outcome.outputs["Out"]) == 7 + 11


def test_keyed_hops_follow_each_other_and_let_other_rows_pass(outcome_of):
    t = module()
    words = [["a", "bb", "a"], ["a", "cc", "bb", "ddd"]]
    outcome = outcome_of("hops", [{"Words": list(map(t.Word, batch))} for batch in words])
    assert {event.text for event in outcome.outputs["Firsts"]} == {"a", "bb", "cc", "ddd"}
    assert len(outcome.outputs["Firsts"]) == 4
    last = {}
    for event in outcome.outputs["Out"]:
        last[event.key] = max(event.seen, last.get(event.key, 0))
    assert last == {"1": 3 + 1, "2": 3 + 2, "3": 1 + 1}


def test_events_of_a_key_come_in_the_order_of_their_source(outcome_of):
    t = module()
    batches = [[(n * 7919) % 97 / 10 for n in range(start, start + 300)] for start in (0, 300)]
    outcome = outcome_of(
        "tracks", [{"Readings": [t.Reading("s", n % 3, value) for n, value in enumerate(batch)]} for batch in batches]
    )
    final = {track.key: track for track in outcome.outputs["Out"] if len(track.values) == 200}
    for sensor in range(3):
        expected = batches[0][sensor::3] + batches[1][sensor::3]
        assert final[f"s/{sensor}"].values == expected
        assert final[f"s/{sensor}"].kinds["high"] == sum(value > 5 for value in expected)


def test_one_prototype_hears_two_types_of_event_from_two_sources(outcome_of):
    t = module()
    outcome = outcome_of(
        "joins",
        [
            {"Left": [t.Count("x", 1), t.Count("y", 2)], "Right": [t.Reading("x", 1, 4.5)]},
            {"Left": [t.Count("x", 10)], "Right": [t.Reading("x", 2, 1.5), t.Reading("z", 1, 0.5)]},
        ],
    )
    last = {track.key: (track.values, track.kinds["total"]) for track in outcome.outputs["Out"]}
    assert last == {"x": ([1.5, 4.5], 11), "y": ([], 2), "z": ([0.5], 0)}


def test_what_fails_is_kept_with_its_error_and_leaves_no_trace(outcome_of):
    t = module()
    words = ["fine", "raise", "undeclared", "mistyped", "third", "third", "third", "third", "batch"]
    lines = [*map(t.Word, words), b"{bad json", b'{"text": 5}', b"[]"]
    outcome = outcome_of("failing", [{"Words": lines}, {"Words": [t.Word("third"), t.Word("batch")]}])
    assert sorted(event.text for event in outcome.outputs["Passed"]) == sorted(["fine", *["third"] * 5, "batch", "batch"])
    # The third event was undone and became a dead letter; the fourth finds seen == 2, fails alike, and so does the fifth.
    assert latest(outcome.outputs["Out"]) == {"fine": 1, "third": 2}
    letters = [(letter["element"], letter["error"].split(":")[0]) for letter in outcome.dead_letters]
    assert sorted(letters, key=repr) == sorted(
        [
            (None, "DecodeError"),
            (None, "ValidationError"),
            (None, "ValidationError"),
            ("keyless", "ValueError"),
            ("keyless", "EmissionError"),
            ("keyless", "ValidationError"),
            *[("Keyed", "RuntimeError")] * 5,
        ],
        key=repr,
    )
    raised = next(letter for letter in outcome.dead_letters if letter["error"] == "ValueError: told to")
    assert raised["event"] == {"text": "raise"}
    assert raised["stream"] == "Words"
    assert any(letter.get("raw") == "{bad json" for letter in outcome.dead_letters)


def test_the_batch_dialect_mixes_and_loses_only_the_rows_at_fault(outcome_of):
    t = module()
    words = ["a", "bb", "skip", "poison", "cc"]
    outcome = outcome_of("vectors", [{"Words": list(map(t.Word, words))}, {"Words": [t.Word("dd")]}])
    assert sorted((event.text, event.length) for event in outcome.outputs["Lengths"]) == [
        ("a", 1),
        ("bb", 2),
        ("cc", 2),
        ("dd", 2),
    ]
    assert latest(outcome.outputs["Out"]) == {"1": 1, "2": 3}
    assert [letter["event"] for letter in outcome.dead_letters] == [{"text": "poison"}]


def at(second):
    return datetime.fromtimestamp(1_780_000_020 + second, UTC)  # begins a minute


def windows(outcome_of, name):
    t = module()
    first = [t.Timed("a", at(1)), t.Timed("b", at(30)), t.Timed("a", at(59))]
    second = [t.Timed("c", at(75))]  # watermark 65 s from the third batch on
    third = [t.Timed("a", at(20)), t.Timed("a", at(66))]  # the first of them is late
    return outcome_of(name, [{"Timed": first}, {"Timed": second}, {"Timed": third}])


def test_event_time_timers_fire_when_the_watermark_passes(outcome_of):
    outcome = windows(outcome_of, "windows_dead")
    closed = sorted((event.key, event.seen) for event in outcome.outputs["Out"])
    assert closed == [("a", 2), ("b", 1)] or closed == [("a", 3), ("b", 1)]
    assert all(event.at >= at(60) for event in outcome.outputs["Out"])
    assert outcome.late == 1
    assert [letter["error"].split(":")[0] for letter in outcome.dead_letters] == ["LateEventError"]


def test_late_events_may_be_dropped(outcome_of):
    outcome = windows(outcome_of, "windows_drop")
    assert (outcome.late, outcome.dead_letters) == (1, [])


def test_late_events_may_be_processed(outcome_of):
    outcome = windows(outcome_of, "windows_process")
    assert (outcome.late, outcome.dead_letters) == (1, [])


def test_fields_of_every_kind_travel(outcome_of):
    t = module()
    event = t.Everything(
        flag=True,
        number=2**53 + 1,
        ratio=0.1,
        text="zwölf",
        raw=b"\x00\xff",
        at=at(0),
        colour=t.Colour.BLUE,
        place=t.Place("dam", 12.5),
        tags=["x", "y"],
        scores={"a": 0.5},
    )
    outcome = outcome_of("kinds", [{"Everything": [event]}, {"Everything": [event]}])
    assert outcome.outputs["Out"] == [event, event]


def test_windows_close_with_the_watermark_and_those_behind_them_too(outcome_of):
    t = module()
    times = {"a": [0, 5, 31, 32, 50, 70, 95], "b": [3, 12, 64, 130]}
    events = sorted((t.Timed(key, at(time)) for key, own in times.items() for time in own), key=lambda event: event.at)
    batches = [events[:4], events[4:9], events[9:12], events[12:]]
    outcome = outcome_of("spans", [{"Timed": batch} for batch in batches], ends=True)
    assert outcome.dead_letters == []

    def found(sink):
        return sorted((s.key, (s.start - at(0)).total_seconds(), s.seen) for s in outcome.outputs[sink] if s.key != "end")

    def within(start, size):
        return {key: sum(start <= time < start + size for time in own) for key, own in times.items()}

    def aligned(size, every):
        starts = range(-size, 200, every)
        return sorted((key, s, seen) for s in starts for key, seen in within(s, size).items() if seen)

    assert found("Tumbling") == aligned(60, 60)
    assert found("Sliding") == aligned(60, 20)
    assert found("Sessions") == [
        ("a", 0, 2),
        ("a", 31, 2),
        ("a", 50, 1),
        ("a", 70, 1),
        ("a", 95, 1),
        ("b", 3, 2),
        ("b", 64, 1),
        ("b", 130, 1),
    ]
    assert sorted(found("Most"), key=lambda row: row[1]) == [("a", 0, 5), ("a", 60, 2), ("b", 120, 1)]


def test_two_streams_are_joined_by_time(outcome_of):
    t = module()
    batches = [
        {"Timed": [t.Timed("a", at(0)), t.Timed("b", at(1))], "Others": [t.Other("a", 1, at(10)), t.Other("b", 2, at(30))]},
        {"Timed": [t.Timed("a", at(22))], "Others": [t.Other("a", 3, at(20))]},
    ]
    outcome = outcome_of("meets", batches, ends=True)
    met = sorted((m.key, (m.at - at(0)).total_seconds(), m.number) for m in outcome.outputs["Out"])
    assert met == [("a", 0, 1), ("a", 0, 3), ("a", 22, 3), ("b", 1, None)]
