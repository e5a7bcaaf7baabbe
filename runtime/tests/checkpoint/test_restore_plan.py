"""A restore plan is data: what arrives is what was sent, and nothing else is taken for a plan, least of all a pickle."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef, SlotState
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.plan_message import SlotRestore
from statefulspark.checkpoint.restore.slot import RestorePlan
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.rpc.codec import decode, encode
from statefulspark.rpc.messages.slots import RegisterAnswer
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.store import LocalStore

CHECKSUM = "sha256:" + "0" * 64
JOB = LocalStore(Path("/storage/job"))
ELSEWHERE = LocalStore(Path("/storage/elsewhere"))


def checkpoint(store: ObjectStore) -> StoredCheckpoint:
    file = FileRef(name="000007.sst", path="../shared/0000000001-x", size_bytes=7, checksum=CHECKSUM)
    metadata = CheckpointMetadata(
        job_id="job",
        job_name="job",
        checkpoint_id=1,
        kind="checkpoint",
        attempt=1,
        batch=2,
        max_parallelism=8,
        parallelism=1,
        created_ms=1,
        duration_ms=1,
        states=({"state_id": 1, "uid": "ü", "ttl_ms": None},),
        slots=(SlotState(slot=0, first=0, last=7, backend="rocksdb", shared=(file,), operator_batches={"ü": 2}),),
        watermarks={"ü": None},
    )
    return StoredCheckpoint(store, "chk-1", metadata)


CHANGELOGS = st.builds(
    ChangelogRef,
    uid=st.text(min_size=1, max_size=5),
    slot=st.integers(0, 7),
    first=st.just(0),
    last=st.integers(0, 7),
    batch=st.integers(0, 1 << 40),
    epoch=st.integers(0, 9),
    key=st.text(min_size=1, max_size=20),
    size_bytes=st.integers(0, 1 << 50),
    checksum=st.just(CHECKSUM),
)
NOTHING = RestorePlan(store=JOB, base=None, changelogs=(), batch=-1, key_groups=KeyGroupRange(0, 7), max_parallelism=8, backend="memory")
PLANS = st.builds(
    RestorePlan,
    store=st.just(JOB),
    base=st.sampled_from([None, checkpoint(JOB), checkpoint(ELSEWHERE)]),
    changelogs=st.lists(CHANGELOGS, max_size=3).map(tuple),
    batch=st.integers(-1, 1 << 40),
    key_groups=st.tuples(st.integers(0, 32767), st.integers(0, 32767)).map(lambda ends: KeyGroupRange(min(ends), max(ends))),
    max_parallelism=st.integers(1, 32768),
    backend=st.sampled_from(["memory", "rocksdb"]),
)


def opened(url: str) -> ObjectStore:
    assert url == ELSEWHERE.url, "only what is not in the job's folder is opened"
    return ELSEWHERE


@given(plan=PLANS)
def test_what_arrives_is_what_was_sent(plan: RestorePlan) -> None:
    arrived = decode(encode(answer(plan)), RegisterAnswer)
    assert arrived.restore.plan(JOB, opened) == plan


def answer(plan: RestorePlan) -> RegisterAnswer:
    return RegisterAnswer(
        epoch=1,
        attempt=0,
        base=None,
        restore=SlotRestore.of(plan),
        expected={},
        memory=None,
        processing_time_ms=None,
        operator_state=None,
    )


def plain() -> dict[str, Any]:
    """The members of a plan as they are sent."""
    base = checkpoint(ELSEWHERE)
    plan = RestorePlan(store=JOB, base=base, changelogs=(), batch=3, key_groups=KeyGroupRange(0, 7), max_parallelism=8, backend="rocksdb")
    members: dict[str, Any] = json.loads(encode(answer(plan)))["restore"]
    return members


def receive(data: object) -> None:
    body = json.loads(encode(answer(NOTHING))) | {"restore": data}
    decode(json.dumps(body).encode(), RegisterAnswer)


class Attack:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a restore plan was unpickled",)


@pytest.mark.parametrize(
    "data",
    [
        base64.b64encode(pickle.dumps(Attack())).decode(),
        None,
        [],
        {},
        plain() | {"batch": "one"},
        plain() | {"batch": -2},
        plain() | {"max_parallelism": 1 << 20},
        plain() | {"factory": "x"},
        plain() | {"first": 7, "last": 0},
        plain() | {"base": {**plain()["base"], "folder": ""}},
        {name: value for name, value in plain().items() if name != "batch"},
    ],
)
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(InvalidInputError, match=r"RegisterAnswer\.restore"):
        receive(data)


def test_a_refusal_does_not_quote_the_plan() -> None:
    with pytest.raises(InvalidInputError) as raised:
        receive(plain() | {"backend": "s3cret" * 100})
    assert "s3cret" not in str(raised.value)
    assert "backend" in str(raised.value)
