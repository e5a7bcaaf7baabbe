"""Spark's positional offsets follow their sources through every change of the pipeline, or the change is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.formats.pipeline import TICKS, SourceId
from statefulspark.checkpoint.spark.source_offsets import realign
from statefulspark.errors import CorruptDataError, NotRestorableError

Plan = list[tuple[str, str]]
"""For each place the step that it feeds and what it reads; places that read the same share one relation."""
_STEPS = ("a", "b", "c", "d")
_READ = ("one", "two", "three")


def sources(plan: Plan) -> tuple[SourceId, ...]:
    """What a plan's sources are stored as; each step has its tick source behind its own source."""
    numbers: dict[tuple[str, str], int] = {}
    found = []
    for step, read in plan:
        for provider, identity in (("json", read), (TICKS, step)):
            number = numbers.setdefault((provider, identity), len(numbers))
            found.append(SourceId(provider=provider, identity=identity, label=f"{provider} {identity}", feeds=step, number=number))
    return tuple(found)


def location(of: Sequence[SourceId]) -> dict[str, bytes]:
    """A checkpoint location in which every source's offset and folder name the source."""
    files = {"metadata": b"{}", "commits/3": b"c", "commits/4": b"c"}
    for batch in (3, 4, 5):
        lines = ["v1", '{"batchWatermarkMs":0}', *(_offset(source, batch) for source in of)]
        files[f"offsets/{batch}"] = "\n".join(lines).encode()
    for source in of:
        if source.provider != TICKS:
            files |= {f"sources/{source.number}/{batch}": f"{source.identity} {batch}".encode() for batch in (3, 4, 5)}
    return files


def _offset(source: SourceId, batch: int) -> str:
    return f'{{"tick": {batch}{ord(source.identity)}}}' if source.provider == TICKS else f'{{"{source.identity}": {batch}}}'


plans = st.lists(st.sampled_from(_STEPS), min_size=1, max_size=4, unique=True).flatmap(
    lambda steps: st.tuples(*(st.tuples(st.just(step), st.sampled_from(_READ)) for step in steps)).map(list)
)


@given(before=plans, now=plans)
def test_offsets_and_folders_follow_what_they_are_of(before: Plan, now: Plan) -> None:
    """Whatever steps come, go, and change places: a source that was read before goes on where it was, and a new one from its beginning."""
    old, new = sources(before), sources(now)
    known, wanted = {read for _, read in before}, {read for _, read in now}
    if len(known - wanted) > 1 and wanted - known:
        return  # which one moved is not certain; a test of its own
    moved = dict(zip(wanted - known, known - wanted, strict=False)) if len(wanted - known) == 1 else {}
    if len(wanted - known) > 1 and known - wanted:
        return
    now_fed, then_fed = ({read: {step for step, other in plan if other == read} for read in _READ} for plan in (now, before))
    elsewhere = set().union(*(now_fed[read] ^ then_fed[read] for read in known & wanted))
    shared = [now_fed[to] & then_fed[origin] for to, origin in moved.items()]
    if any(elsewhere & steps if steps else elsewhere for steps in shared):
        with pytest.raises(NotRestorableError, match="feeds other steps"):
            realign(location(old), old, new, may_drop=True)
        return
    result = realign(location(old), old, new, may_drop=True)
    stored_steps = {step for step, _ in before}
    for batch in (3, 4, 5):
        lines = result[f"offsets/{batch}"].decode().split("\n")[2:]
        assert len(lines) == len(new)
        for source, line in zip(new, lines, strict=True):
            origin = moved.get(source.identity, source.identity)
            if source.provider == TICKS:
                expected = _offset(source, batch) if source.identity in stored_steps else '{"tick": 0}'
            else:
                expected = f'{{"{origin}": {batch}}}' if origin in known else "-"
            assert line == expected
    folders = {path: content for path, content in result.items() if path.startswith("sources/")}
    assert folders == {
        f"sources/{source.number}/{batch}": f"{moved.get(source.identity, source.identity)} {batch}".encode()
        for source in new
        for batch in (3, 4, 5)
        if source.provider != TICKS and moved.get(source.identity, source.identity) in known
    }
    assert {path: result[path] for path in ("metadata", "commits/3", "commits/4")} == {
        "metadata": b"{}",
        "commits/3": b"c",
        "commits/4": b"c",
    }


@given(plan=plans)
def test_there_and_back_again(plan: Plan) -> None:
    """Places that change and change back leave the files as they were."""
    old, new = sources(plan), sources(plan[::-1])
    files = location(old)
    assert realign(realign(files, old, new), new, old) == files


def test_a_source_that_is_no_longer_read_must_be_left_behind_on_purpose() -> None:
    """Its position would be lost."""
    old, new = sources([("a", "one"), ("b", "two")]), sources([("a", "one")])
    with pytest.raises(NotRestorableError, match=r"no longer reads json two.*allowNonRestoredState"):
        realign(location(old), old, new)
    assert set(realign(location(old), old, new, may_drop=True)) >= {"sources/0/5"}


def test_two_sources_that_moved_at_once_for_one_step_are_refused() -> None:
    """Taking one for the other would skip rows of one and repeat rows of the other."""
    old = [source.model_copy(update={"feeds": "a"}) for source in sources([("a", "one"), ("b", "two")])]
    new = [source.model_copy(update={"feeds": "a"}) for source in sources([("a", "three"), ("b", "four")])]
    with pytest.raises(NotRestorableError, match=r"json one, json two.*is now json three.*Change one source at a time"):
        realign(location(old), old, new)


def test_two_sources_that_moved_at_once_for_two_steps_go_by_their_steps() -> None:
    """Each step had one."""
    old, new = sources([("a", "one"), ("b", "two")]), sources([("b", "four"), ("a", "three")])
    lines = realign(location(old), old, new)["offsets/5"].decode().split("\n")
    assert (lines[2], lines[4]) == ('{"two": 5}', '{"one": 5}')


def fed(*read: str) -> tuple[SourceId, ...]:
    """Sources such as ``json one > a``: what a source reads, and the step that it feeds."""
    numbers: dict[str, int] = {}
    found = []
    for text in read:
        label, _, feeds = text.partition(" > ")
        provider, _, identity = label.partition(" ")
        found.append(
            SourceId(provider=provider, identity=identity, label=label, feeds=feeds, number=numbers.setdefault(label, len(numbers)))
        )
    return tuple(found)


@pytest.mark.parametrize(
    ("before", "now", "doubt"),
    [
        (["json A > s"], ["kafka B > s", "json C > s"], "kafka B is new"),
        (["json A > s"], ["kafka B > s", "json C > t"], "kafka B is new"),
        (["json A > s"], ["kafka B > t", "json C > t"], "kafka B is new"),
        (["json A > s"], ["kafka B > u", "json C > t"], "kafka B is new"),
        (["json A > s"], ["kafka B > s", "kafka B > t", "json C > s"], "kafka B is new"),
        (["json A > r", "kafka B > s"], ["json C > s"], "kafka B is no longer read"),
        (["json A > s", "kafka B > t"], ["json C > t", "kafka D > s"], "kafka D is new and kafka B is no longer read"),
        (["json A > s"], ["json C > s", "json D > s", "json D > t"], "json D is new"),
        (["json A > s", "json B > t"], ["json C > t", "json B > s"], "json B feeds other steps"),
        (["json A > s", "kafka B > t"], ["json C > t", "kafka B > s"], "kafka B feeds other steps"),
        (["json A > s", "json B > t"], ["json C > u", "json B > s", "json B > t"], "json B feeds other steps"),
        (["json A > s", "json B > t", "json B > u"], ["json C > t", "json B > u"], "json B feeds other steps"),
        (["json A > s", "json B > t"], ["json C > s", "json B > s", "json B > t"], "json B feeds other steps"),
        (["json A > s", "json B > s", "json B > t"], ["json C > s", "json B > t"], "json B feeds other steps"),
    ],
)
def test_a_position_is_not_taken_over_while_another_source_may_have_replaced_the_one_that_is_gone(
    before: list[str], now: list[str], doubt: str
) -> None:
    """A was perhaps replaced by B, so C may be new: at A's position it would skip rows. Changing one source at a time tells which it is."""
    old, new = fed(*before), fed(*now)
    said = rf"ambiguous whether (json C|kafka D) continues from the position of (json A|kafka B) or is new, because .*{doubt}"
    with pytest.raises(NotRestorableError, match=said + r".*Change one source at a time") as refused:
        realign(location(old), old, new, may_drop=True)
    assert refused.value.field == "spec.job"
    files, plan = location(old), before
    for origin, to in (("json A", "json C"), ("kafka B", "kafka D")):
        if any(text.startswith(to) for text in now):
            moved = [text.replace(origin, to) for text in plan]
            files, plan = realign(files, fed(*plan), fed(*moved)), moved
    lines = realign(files, fed(*plan), new, may_drop=True)["offsets/5"].decode().split("\n")[2:]
    assert lines[[each.identity for each in new].index("C")] == '{"A": 5}', "the remedy: first move A, then B, then change the others"


@pytest.mark.parametrize(
    ("before", "now", "origins"),
    [
        (["json A > s"], ["json C > s"], "A"),
        (["json A > s"], ["json C > t"], "A"),
        (["json A > s"], ["json C > s", "json C > t"], "AA"),
        (["json A > s"], ["kafka B > t", "json C > s"], "-A"),
        (["json A > s"], ["json D > t", "json C > s"], "-A"),
        (["json A > s", "kafka B > s"], ["kafka D > s", "json C > s"], "BA"),
        (["json A > s", "kafka B > t"], ["kafka D > t", "json C > s"], "BA"),
        (["json A > s", "kafka B > s"], ["kafka B > s", "json C > s"], "BA"),
        (["json A > s"], ["json A > s", "json C > s", "kafka B > s"], "A--"),
        (["json A > s", "json B > t"], ["json B > t", "json C > u"], "BA"),
        (["json A > s", "json B > t"], ["json B > u", "json C > s"], "BA"),
    ],
)
def test_a_position_is_taken_over_if_nothing_else_can_have_replaced_the_source(before: list[str], now: list[str], origins: str) -> None:
    """It is the only change of its step, or as many of each kind came as went; a source of another step is new."""
    old, new = fed(*before), fed(*now)
    for order in (list(range(len(new))), list(range(len(new)))[::-1]):
        lines = realign(location(old), old, _renumbered(new, order))["offsets/5"].decode().split("\n")[2:]
        assert lines == ["-" if origins[place] == "-" else f'{{"{origins[place]}": 5}}' for place in order]


def _renumbered(of: Sequence[SourceId], order: Sequence[int]) -> tuple[SourceId, ...]:
    numbers: dict[str, int] = {}
    return tuple(of[place].model_copy(update={"number": numbers.setdefault(of[place].label, len(numbers))}) for place in order)


def test_a_change_that_was_accepted_is_repeated() -> None:
    """Older releases took over more positions, and a source that was dropped stays dropped."""
    old, new = fed("json A > s", "kafka D > s"), fed("kafka B > s", "json C > t")
    assert realign(location(old), old, new, accepted=True)["offsets/5"].decode().split("\n")[2:] == ['{"D": 5}', '{"A": 5}']
    assert realign(location(old), old, old[:1], accepted=True)["offsets/5"].decode().split("\n")[2:] == ['{"A": 5}']


def _twice(numbers: tuple[int, int], feeds: tuple[str, str]) -> tuple[SourceId, ...]:
    """Two readers of one file source that are relations of their own."""
    return tuple(
        SourceId(provider="json", identity="one", label="json one", feeds=step, number=number)
        for number, step in zip(numbers, feeds, strict=True)
    )


def test_readers_of_the_same_that_are_at_different_positions() -> None:
    """Each goes on for its own step; where a step that had no reader of its own would take one of them, the start is refused."""
    old = _twice((0, 1), ("a", "b"))
    files = {"offsets/0": b'v1\n{}\n{"logOffset":1}\n{"logOffset":2}', "sources/0/0": b"x", "sources/1/0": b"x"}
    assert realign(files, old, _twice((0, 1), ("b", "a")))["offsets/0"] == b'v1\n{}\n{"logOffset":2}\n{"logOffset":1}'
    dropped = realign(files, old, _twice((0, 1), ("b", "b"))[:1])
    assert dropped == {"offsets/0": b'v1\n{}\n{"logOffset":2}', "sources/0/0": b"x"}
    with pytest.raises(NotRestorableError, match=r"json one was read 2 times, each at a different position"):
        realign(files, old, _twice((0, 1), ("c", "c"))[:1])


def test_of_a_release_that_did_not_store_sources() -> None:
    """What was one source beside ticks is that source still; sources at the same places are taken by place; anything else is refused."""
    old, new = sources([("a", "one")]), sources([("b", "one"), ("a", "one")])
    lines = realign(location(old), None, new)["offsets/5"].decode().split("\n")
    assert lines[2:] == ['{"one": 5}', '{"tick": 0}', '{"one": 5}', '{"tick": 0}']
    assert realign(location(old), None, old) == location(old)
    back = realign(location(new), None, old)
    assert back["offsets/5"].decode().split("\n")[2:] == ['{"one": 5}', '{"tick": 0}']
    two = sources([("a", "one"), ("b", "two")])
    with pytest.raises(NotRestorableError, match=r"did not record their sources.*Run the job with its old pipeline and this release"):
        realign(location(two), None, sources([("a", "one"), ("b", "two"), ("c", "one")]))


def test_a_log_that_does_not_fit_is_damage() -> None:
    """Named, and not rewritten."""
    old = sources([("a", "one")])
    files = location(old) | {"offsets/4": b'v1\n{}\n{"one": 4}'}
    with pytest.raises(CorruptDataError, match=r"^offsets/4: the log has 1 offsets of 2 sources"):
        realign(files, old, sources([("b", "one"), ("a", "one")]))
