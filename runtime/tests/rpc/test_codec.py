"""Messages arrive as they were sent; what does not fit is refused by the name of its member, and never quoted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.write.progress import UploadedBytes
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.process.api.metrics import UserMetric
from statefulspark.process.rows.key_group_rows import RowSpread
from statefulspark.rpc.codec import Message, answer_type, decode, encode
from statefulspark.rpc.messages.batches import Acknowledge, BatchRun, Begin, BeginAnswer, Planned, RunMetrics, Wait
from statefulspark.rpc.messages.heartbeat import ContainerMemory, Heartbeat, NativeMemory, NativeMetric, SlotReport, StepReport
from statefulspark.rpc.messages.slots import Changelogs, Ready, RestoreFailed
from statefulspark.state.store.state_sizes import StateSize

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

SIZES = UserMetric(kind="distribution", value=7, sum=8, min=None, max=9)
HEARTBEAT = Heartbeat(
    slot=0,
    epoch=1,
    report=SlotReport(
        restore_ms=1,
        rss_bytes=2,
        pss_bytes=3,
        baseline_bytes=4,
        state_bytes=5,
        coverage=0.5,
        states={7: StateSize(8, 9), 65535: StateSize(0, 0)},
        steps={"ü": StepReport(caches={"count": (1, 2)}, key_groups=RowSpread(3, 4, ((5, 6),)), user={"rows": SIZES})},
        container=ContainerMemory(limit_bytes=1 << 40, peak_bytes=None, oom_kills=0),
        memory=NativeMemory(
            tuning=MemoryTuning(revision=1, managed_bytes=2, write_buffer_ratio=0.5, high_prio_pool_ratio=0.1),
            cache_bytes=3,
            cache_used_bytes=4,
            write_buffer_bytes=None,
            write_buffer_used_bytes=None,
        ),
        native=(NativeMetric(name="num-files-at-level", level="0", value=2),),
        uploading=UploadedBytes(checkpoint_id=3, uploaded_bytes=1, total_bytes=1 << 40),
    ),
)


@pytest.mark.parametrize(
    "message", [ACKNOWLEDGE, HEARTBEAT, Changelogs(uid="u", key_groups=KeyGroupRange(3, 9), after=-1, until=4), Planned()]
)
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
            run=BatchRun(attempt=1, watermark_ms=None, processing_time_ms=1 << 42, expected=-1, operator_state="all"),
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


def gauge(value: float) -> UserMetric:
    return UserMetric(kind="gauge", value=value)


def test_numbers_that_json_does_not_have_arrive() -> None:
    """A user's gauge may return them."""
    step = StepReport(caches={}, key_groups=RowSpread(0, 4, ()), user={"a": gauge(math.nan), "b": gauge(-math.inf)})
    sent = replace(HEARTBEAT, report=replace(HEARTBEAT.report, steps={"u": step}))
    user = decode(encode(sent), Heartbeat).report.steps["u"].user
    assert math.isnan(user["a"].value)
    assert user["b"].value == -math.inf


@pytest.mark.parametrize(
    ("report", "member"),
    [
        (None, "Heartbeat.report"),
        ([], "Heartbeat.report"),
        ({"a secret": 1}, "Heartbeat.report.restore_ms"),
        ({"rss_bytes": "secret"}, "Heartbeat.report.rss_bytes"),
        ({"states": {"1": ["secret", 1]}}, "Heartbeat.report.states"),
        ({"states": {"a secret": {"entries": 1, "size_bytes": 1}}}, "Heartbeat.report.states"),
        ({"steps": {"u": {"user": {"a secret": "secret"}}}}, "Heartbeat.report.steps"),
        ({"memory": {"revision": 0}}, "Heartbeat.report.memory"),
    ],
)
def test_a_report_that_does_not_fit_is_refused_by_the_name_of_its_member(report: object, member: str) -> None:
    body = json.loads(encode(HEARTBEAT))
    body["report"] = body["report"] | report if isinstance(report, dict) and "a secret" not in report else report
    with pytest.raises(InvalidInputError) as refused:
        decode(json.dumps(body).encode(), Heartbeat)
    assert refused.value.field is not None
    assert refused.value.field.startswith(member)
    assert "secret" not in str(refused.value)


def test_an_error_arrives_with_its_class_and_fields_even_if_its_text_is_not_unicode() -> None:
    error = CorruptDataError("damaged \udcff", path="shared/x", expected="a", found="b")
    again = decode(encode(RestoreFailed(slot=0, epoch=1, base=None, error=error)), RestoreFailed).error
    assert type(again) is CorruptDataError
    assert vars(again) == vars(error)


def test_a_text_that_is_not_unicode_is_refused_by_the_sender() -> None:
    with pytest.raises(InvalidInputError, match="Begin: a text is not Unicode"):
        encode(Begin(uid="\udcff", slot=0, batch=0))
