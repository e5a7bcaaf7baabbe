"""What watching has brought counts as present only when it holds what this replica has written last."""

from __future__ import annotations

from typing import Any

from statefulspark_operator.reconcile.object_cache import ObjectCache


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
    cache = ObjectCache()
    cache.on_job_event(job(1), gone=False)
    assert cache.job("shop", "counts") is not None
    assert cache.current_job("shop", "counts") is None


def test_an_object_is_present_from_the_event_of_the_last_write_on() -> None:
    cache = ObjectCache()
    cache.on_job_event(job(1), gone=False)
    cache.record_write(job(1))
    assert cache.current_job("shop", "counts") is not None
    for version in (2, 3):
        cache.record_write(job(version, status={"batch": version}))
    for version in (2, 3):
        cache.on_job_event(job(version, status={"batch": version}), gone=False)
        found = cache.current_job("shop", "counts")
        assert found is not None
        assert found["status"] == {"batch": 3}, "what was written last, also while watching is behind"
    cache.on_job_event(job(4, spec={"parallelism": 2}), gone=False)
    found = cache.current_job("shop", "counts")
    assert found is not None
    assert found["spec"] == {"parallelism": 2}, "what others change afterwards is later than the write"


def test_somebody_elses_version_while_one_of_ours_is_on_its_way_must_be_read() -> None:
    """It may be older than ours, and lack it, or later, and hold more."""
    cache = ObjectCache()
    cache.on_job_event(job(1), gone=False)
    cache.record_write(job(1))
    cache.record_write(job(3))
    cache.on_job_event(job(2), gone=False)
    assert cache.current_job("shop", "counts") is None
    cache.on_job_event(job(3), gone=False)
    assert cache.current_job("shop", "counts") is None, "it may be the reading that shows it"
    cache.record_write(job(3))
    assert cache.current_job("shop", "counts") is not None


def test_an_event_that_was_left_out_is_made_up_for_by_reading() -> None:
    """Kopf hands on the last of several events in a row."""
    cache = ObjectCache()
    cache.record_write(job(2))
    cache.on_job_event(job(3), gone=False)
    assert cache.current_job("shop", "counts") is None
    cache.record_write(job(3))
    assert cache.current_job("shop", "counts") is not None


def test_when_the_lead_changes_and_when_it_is_gone_nothing_is_present() -> None:
    cache = ObjectCache()
    cache.on_job_event(job(1), gone=False)
    cache.record_write(job(1))
    cache.invalidate_writes()
    assert cache.current_job("shop", "counts") is None
    cache.record_write(job(1))
    cache.on_job_event(job(1), gone=True)
    assert cache.current_job("shop", "counts") is None
    cache.on_job_event(job(1), gone=False)
    assert cache.current_job("shop", "counts") is None


def test_a_child_is_as_it_was_made_until_somebody_touches_it() -> None:
    cache, document = ObjectCache(), child(1, data={"a": "1"})
    assert not cache.is_up_to_date(document)
    cache.record_apply(document, child(1), None)
    cache.on_child_event(child(1), gone=False)
    assert cache.is_up_to_date(document)
    assert not cache.is_up_to_date(child(1, data={"a": "2"}))
    cache.on_child_event(child(2), gone=False)
    assert not cache.is_up_to_date(document)
    cache.record_apply(document, child(3), "c/2")
    cache.on_child_event(child(3), gone=True)
    assert not cache.is_up_to_date(document)


def test_only_what_was_applied_before_and_changed_since_was_repaired() -> None:
    """Whether watching brings the answer of an apply before or after the request returns."""
    cache, document = ObjectCache(), child(1, data={"a": "1"})
    cache.on_child_event(child(1), gone=False)
    assert not cache.record_apply(document, child(1), cache.child_version(document)), "after a restart: as it was"
    assert not cache.record_apply(document, child(1), cache.child_version(document))
    cache.on_child_event(child(2), gone=False)
    assert not cache.record_apply(document, child(2), cache.child_version(document)), "somebody changed what is not ours"
    cache.on_child_event(child(3), gone=False)
    before = cache.child_version(document)
    cache.on_child_event(child(4), gone=False)
    assert cache.record_apply(document, child(4), before), "the repair itself was seen before its answer came"
    cache.on_child_event(child(4), gone=True)
    assert cache.record_apply(document, child(5), cache.child_version(document)), "deleted, and made again"
    changed = child(5, data={"a": "2"})
    assert not cache.record_apply(changed, child(6), cache.child_version(changed)), "the operator's own change"


def test_a_job_that_is_gone_leaves_nothing_behind() -> None:
    """A process that is up for months sees many jobs go."""
    cache, document = ObjectCache(), child(1)
    cache.on_job_event(job(1), gone=False)
    cache.record_apply(document, child(1), None)
    cache.on_job_event(job(1), gone=True)
    assert cache.child_version(document) is None
    assert not cache.is_up_to_date(document)


def test_the_size_of_the_cache_does_not_depend_on_how_many_jobs_have_been_deleted() -> None:
    """Neither after their pods and snapshots are gone too, nor after a late read of them."""
    cache = ObjectCache()
    before = {name: len(held) for name, held in vars(cache).items()}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "counts-driver", "namespace": "shop", "uid": "p", "labels": {"statefulspark.io/job": "counts"}},
    }
    snapshot = {"metadata": {"name": "friday", "namespace": "shop", "uid": "s"}, "spec": {"jobReference": {"name": "counts"}}}
    for gone in (False, True):
        cache.on_job_event(job(1), gone=gone)
        cache.on_pod_event(pod, gone=gone)
        cache.on_snapshot_event(snapshot, gone=gone)
        cache.driver_pod("shop", "counts")
        cache.executor_pods("shop", "counts")
        cache.storage_pod("shop", "counts", "asks")
        cache.snapshots("shop", "counts")
    assert {name: len(held) for name, held in vars(cache).items()} == before


def test_what_nobody_reads_is_not_held() -> None:
    """Neither the API server's record of who set which field nor the copy of the manifest that kubectl adds."""
    cache, seen = ObjectCache(), job(1)
    seen["metadata"] |= {
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"team": "blue", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    cache.on_job_event(seen, gone=False)
    held = cache.job("shop", "counts")
    assert held is not None
    assert held["metadata"] == {**job(1)["metadata"], "annotations": {"team": "blue"}}


def test_the_owner_of_a_secret_concerns_its_job_only_when_it_takes_a_secret_along() -> None:
    """While a name is taken the operator makes and removes it again and again; each of these events would have the job looked at anew."""
    cache = ObjectCache()
    owner = child(1)
    owner["metadata"]["labels"]["statefulspark.io/owns"] = "secret"
    assert cache.on_child_event(owner, gone=False) is None
    assert cache.on_child_event(owner, gone=True) is None
    assert cache.on_child_event(owner | {"data": {"keyId": "k"}}, gone=False) is None
    assert cache.on_child_event(owner | {"data": {"keyId": "k"}}, gone=True) == ("shop", "counts")
