"""What watching has brought counts as present only when it holds what this replica has written last."""

from __future__ import annotations

from typing import Any

from statefulspark_operator.reconcile.mirror import Mirror


def job(version: int, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "counts", "namespace": "shop", "uid": "u", "generation": 1, "resourceVersion": str(version)},
        "spec": {},
        **changes,
    }


def child(version: int, **changes: Any) -> dict[str, Any]:
    metadata = {"name": "counts-config", "namespace": "shop", "uid": "c", "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "metadata": {**metadata, "labels": {"statefulspark.io/job": "counts"}}, **changes}


def test_nothing_is_present_before_this_replica_has_read_or_written_it() -> None:
    """Another replica may have written what watching has not brought yet."""
    mirror = Mirror()
    mirror.saw_job(job(1), gone=False)
    assert mirror.job("shop", "counts") is not None
    assert mirror.present_job("shop", "counts") is None


def test_an_object_is_present_from_the_event_of_the_last_write_on() -> None:
    mirror = Mirror()
    mirror.saw_job(job(1), gone=False)
    mirror.wrote(job(1))
    assert mirror.present_job("shop", "counts") is not None
    for version in (2, 3):
        mirror.wrote(job(version, status={"batch": version}))
    for version in (2, 3):
        mirror.saw_job(job(version, status={"batch": version}), gone=False)
        found = mirror.present_job("shop", "counts")
        assert found is not None
        assert found["status"] == {"batch": 3}, "what was written last, also while watching is behind"
    mirror.saw_job(job(4, spec={"parallelism": 2}), gone=False)
    found = mirror.present_job("shop", "counts")
    assert found is not None
    assert found["spec"] == {"parallelism": 2}, "what others change afterwards is later than the write"


def test_somebody_elses_version_while_one_of_ours_is_on_its_way_must_be_read() -> None:
    """It may be older than ours, and lack it, or later, and hold more."""
    mirror = Mirror()
    mirror.saw_job(job(1), gone=False)
    mirror.wrote(job(1))
    mirror.wrote(job(3))
    mirror.saw_job(job(2), gone=False)
    assert mirror.present_job("shop", "counts") is None
    mirror.saw_job(job(3), gone=False)
    assert mirror.present_job("shop", "counts") is None, "it may be the reading that shows it"
    mirror.wrote(job(3))
    assert mirror.present_job("shop", "counts") is not None


def test_an_event_that_was_left_out_is_made_up_for_by_reading() -> None:
    """Kopf hands on the last of several events in a row."""
    mirror = Mirror()
    mirror.wrote(job(2))
    mirror.saw_job(job(3), gone=False)
    assert mirror.present_job("shop", "counts") is None
    mirror.wrote(job(3))
    assert mirror.present_job("shop", "counts") is not None


def test_when_the_lead_changes_and_when_it_is_gone_nothing_is_present() -> None:
    mirror = Mirror()
    mirror.saw_job(job(1), gone=False)
    mirror.wrote(job(1))
    mirror.doubt_all()
    assert mirror.present_job("shop", "counts") is None
    mirror.wrote(job(1))
    mirror.saw_job(job(1), gone=True)
    assert mirror.present_job("shop", "counts") is None
    mirror.saw_job(job(1), gone=False)
    assert mirror.present_job("shop", "counts") is None


def test_a_child_is_as_it_was_made_until_somebody_touches_it() -> None:
    mirror, document = Mirror(), child(1, data={"a": "1"})
    assert not mirror.made(document)
    mirror.applied(document, child(1))
    mirror.saw_child(child(1), gone=False)
    assert mirror.made(document)
    assert not mirror.made(child(1, data={"a": "2"}))
    mirror.saw_child(child(2), gone=False)
    assert not mirror.made(document)
    mirror.applied(document, child(3))
    mirror.saw_child(child(3), gone=True)
    assert not mirror.made(document)
