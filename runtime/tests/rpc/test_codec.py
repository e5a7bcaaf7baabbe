"""Messages arrive as they were sent; what does not fit is refused by the name of its member, and never quoted."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.rpc.codec import Message, answer_type, decode, encode
from statefulspark.rpc.messages.batches import Acknowledge, BatchRun, Begin, BeginAnswer, Planned, RunMetrics, Wait
from statefulspark.rpc.messages.slots import Changelogs, Heartbeat, Ready, RestoreFailed

ACKNOWLEDGE = Acknowledge(
    uid="ü",
    slot=1,
    epoch=2,
    batch=3,
    changelog=ChangelogRef(uid="ü", slot=1, first=4, last=7, batch=3, epoch=2, key="k", size_bytes=9, checksum="sha256:" + "0" * 64),
    max_event_time_ms=None,
    event_timer_ms=-(1 << 63) + 1,
    processing_timer_ms=(1 << 63) - 1,
    rows_in=5,
    rows_out=6,
    metrics=RunMetrics(timers_fired=0, timers_registered=1, seconds={"process": 0.1}, exchange_seconds={"send": math.inf}),
)


@pytest.mark.parametrize("message", [ACKNOWLEDGE, Changelogs(uid="u", key_groups=KeyGroupRange(3, 9), after=-1, until=4), Planned()])
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert decode(encode(message), type(message)) == message


@pytest.mark.parametrize(
    "answer",
    [
        Wait(reason="paused"),
        BeginAnswer(
            location="grpc+unix:///s",
            unix="/s",
            epoch=1,
            run=BatchRun(attempt=1, watermark_ms=None, processing_time_ms=1 << 42, expected=-1),
        ),
    ],
)
def test_one_of_several_answers_keeps_its_class(answer: Wait | BeginAnswer) -> None:
    kind = answer_type(Begin)
    assert decode(encode(answer, kind), kind) == answer


def test_no_answer_is_an_answer() -> None:
    kind = answer_type(Planned)
    assert decode(encode(None, kind), kind) is None


@pytest.mark.parametrize(
    ("change", "member", "problem"),
    [
        ({"uid": None}, "Begin.uid", "does not fit"),
        ({"slot": "secret"}, "Begin.slot", "does not fit"),
        ({"slot": "1"}, "Begin.slot", "does not fit"),
        ({"batch": ...}, "Begin.batch", "is missing"),
        ({"later": "secret"}, "Begin.later", "is unknown to this release"),
    ],
)
def test_a_member_that_does_not_fit_is_named_and_not_quoted(change: dict[str, Any], member: str, problem: str) -> None:
    body = {"uid": "u", "slot": 1, "batch": 2} | change
    with pytest.raises(InvalidInputError) as refused:
        decode(json.dumps({name: value for name, value in body.items() if value is not ...}).encode(), Begin)
    assert refused.value.field == member
    assert problem in str(refused.value)
    assert refused.value.remedy is not None
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b'{"uid": "secret"', b'["secret"]'])
def test_what_is_no_message_is_refused_without_a_word_of_it(body: bytes) -> None:
    with pytest.raises(InvalidInputError, match="Begin") as refused:
        decode(body, Begin)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_the_key_of_a_mapping_is_not_named_when_it_is_no_identifier() -> None:
    body = json.dumps({"slot": 0, "epoch": 1, "location": "", "unix": "", "timers": {"a secret": 1}}).encode()
    with pytest.raises(InvalidInputError) as refused:
        decode(body, Ready)
    assert refused.value.field == "Ready.timers"


def test_numbers_that_json_does_not_have_arrive() -> None:
    """A user's gauge may return them."""
    sent = Heartbeat(slot=0, epoch=1, report={"user": {"a": math.nan, "b": -math.inf}})
    report = decode(encode(sent), Heartbeat).report
    assert math.isnan(report["user"]["a"])
    assert report["user"]["b"] == -math.inf


def test_an_error_arrives_with_its_class_and_fields_even_if_its_text_is_not_unicode() -> None:
    error = CorruptDataError("damaged \udcff", path="shared/x", expected="a", found="b")
    again = decode(encode(RestoreFailed(slot=0, epoch=1, base=None, error=error)), RestoreFailed).error
    assert type(again) is CorruptDataError
    assert vars(again) == vars(error)


def test_a_text_that_is_not_unicode_is_refused_by_the_sender() -> None:
    with pytest.raises(InvalidInputError, match="Begin: a text is not Unicode"):
        encode(Begin(uid="\udcff", slot=0, batch=0))
