"""CEL rules hold for what the models accept and refuse what they are about, without a cluster."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.kubernetes.manifest import validate_on_kubernetes, validate_snapshot
from statefulspark.config.values.durations import parse_duration
from statefulspark.errors import InvalidInputError
from statefulspark_operator.crds.definitions import definitions
from statefulspark_operator.handlers.admission import review
from tests.crds.refusals import BAD_FORMATS, BAD_JOBS, BAD_SNAPSHOTS, BAD_VALUES, CHANGES, GOOD, OWN_WORDS, SNAPSHOT, with_spec

ROOT = Path(__file__).resolve().parents[3]


def said(new: dict[str, Any], old: dict[str, Any] | None = None) -> str:
    """What the webhook answers; empty when it lets the object pass."""
    request = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
    response = review({"request": request})["response"]
    return "" if response["allowed"] else str(response["status"]["message"])


@pytest.mark.parametrize(("spec", "message"), BAD_JOBS, ids=[message[:40] for _, message in BAD_JOBS])
def test_bad_jobs_are_refused_by_rule_and_by_the_operator(jobs: Any, spec: dict[str, Any], message: str) -> None:
    """Exactly one rule speaks, and where no rule is evaluated, the model says the same."""
    bad = with_spec(GOOD, **spec)
    _, problems = jobs.admit(bad)
    assert [message in each for each in problems] == [True]
    with pytest.raises(InvalidInputError) as caught:
        validate_on_kubernetes(bad)
    assert OWN_WORDS.get(message, message) in str(caught.value)
    assert said(bad) == str(caught.value)


def test_every_rule_is_seen_to_refuse() -> None:
    """No rule is without a test that breaks it."""

    def rules(schema: dict[str, Any]) -> list[str]:
        inner = [rule for each in schema.get("properties", {}).values() for rule in rules(each)]
        return [each["message"] for each in schema.get("x-kubernetes-validations", ())] + inner

    tested = [str(case[-1]) for case in (*BAD_JOBS, *BAD_FORMATS, *CHANGES, *BAD_SNAPSHOTS)]
    for definition in definitions():
        for message in rules(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
            assert any(each and each in message for each in tested), message


@pytest.mark.parametrize(("spec", "message"), BAD_SNAPSHOTS)
def test_bad_snapshots_are_refused_by_rule_and_by_the_operator(snapshots: Any, spec: dict[str, Any], message: str) -> None:
    """The same for StateSnapshot."""
    bad = with_spec(SNAPSHOT, **spec)
    _, problems = snapshots.admit(bad)
    assert [message in each for each in problems] == [True]
    with pytest.raises(InvalidInputError) as caught:
        validate_snapshot(bad)
    assert message in str(caught.value)
    assert message in said(bad)


@pytest.mark.parametrize(("document", "first", "then", "message"), CHANGES)
def test_what_can_be_changed(
    jobs: Any, snapshots: Any, document: dict[str, Any], first: dict[str, Any], then: dict[str, Any], message: str
) -> None:
    """Key groups are fixed, but the number that the status shows may be written down; a snapshot stays what it was asked for."""
    server = jobs if document is GOOD else snapshots
    before, problems = server.admit(with_spec(document, **first))
    assert problems == []
    after = with_spec(with_spec(document, **first), **then)
    if document is GOOD:
        before["status"] = after["status"] = {"maxParallelism": first.get("maxParallelism", 128)}
    _, problems = server.admit(after, before)
    assert [message in each for each in problems] == ([True] if message else [])
    assert message in said(after, before)
    assert bool(said(after, before)) == bool(message)


def test_key_groups_cannot_be_given_before_the_operator_has_looked(jobs: Any) -> None:
    """It may have taken the default already; the status is how it says which."""
    before, _ = jobs.admit(GOOD)
    _, problems = jobs.admit(with_spec(GOOD, maxParallelism=128), before)
    assert ["only the value of status.maxParallelism" in each for each in problems] == [True]


@pytest.mark.parametrize(("spec", "field"), BAD_VALUES)
def test_bad_values_are_refused_by_the_schema_and_by_the_operator(jobs: Any, spec: dict[str, Any], field: str) -> None:
    """The same table as on a cluster; the text names the field."""
    bad = {**copy.deepcopy(GOOD), "spec": {**GOOD["spec"], **spec}}
    _, problems = jobs.admit(bad)
    assert any(field in f"{each}." for each in problems)
    assert field in said(bad)


@pytest.mark.parametrize(("spec", "field", "sentence"), BAD_FORMATS, ids=[field for _, field, _ in BAD_FORMATS])
def test_text_in_another_format_is_told_what_is_expected(jobs: Any, spec: dict[str, Any], field: str, sentence: str) -> None:
    """One sentence for people, without a regular expression; the operator refuses it too, and names the field."""
    bad = {**copy.deepcopy(GOOD), "spec": {**GOOD["spec"], **spec}}
    assert jobs.admit(bad)[1] == [f".{field}: {sentence}"]
    assert field in said(bad)


def test_no_pattern_of_a_spec_is_quoted_to_its_author(jobs: Any, snapshots: Any) -> None:
    """An API server quotes patterns of the schema as they are; a job's name is the only one that cannot have a rule of its own."""
    for server in (jobs, snapshots):
        assert "'pattern'" not in str(server.schema["properties"]["spec"])


def test_every_duration_that_the_operator_reads_passes_its_rule(jobs: Any) -> None:
    """All units in all their spellings."""
    for text in ("1 day 2 h", "3days", "1 HOUR", "5min", "10 m", "1h30m", "90 Seconds", "500ms", "3 millis", "0", " 7s "):
        assert jobs.admit(with_spec(GOOD, upgradeTimeout=text))[1] == [], text
        assert parse_duration(text) >= 0


def test_defaults_hold_the_rules_as_they_are_written(jobs: Any, snapshots: Any) -> None:
    """The API server refuses the whole definition otherwise."""
    assert jobs.refused_defaults() == []
    assert snapshots.refused_defaults() == []
    memory = copy.deepcopy(jobs.schema["properties"]["spec"]["properties"]["stateBackend"]["properties"]["rocksdb"]["properties"]["memory"])
    assert jobs.judged_default(memory) == []
    assert jobs.judged_default({**memory, "default": {}}) != []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_examples_hold_all_rules(jobs: Any, snapshots: Any, path: Path) -> None:
    """What is shown works: schema, rules and the operator accept it, and it has no field that would be pruned."""
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] == "StatefulSparkJob":
            assert jobs.admit(document)[1] == []
            validate_on_kubernetes(document)
        elif document["kind"] == "StateSnapshot":
            assert snapshots.admit(document)[1] == []
            validate_snapshot(document)


def test_defaults_are_those_of_the_models(jobs: Any, snapshots: Any) -> None:
    """An object with the server's defaults means the same as without: whether Kubernetes or the model fills a gap makes no difference."""
    stored, problems = jobs.admit(GOOD)
    assert problems == []
    assert stored["spec"]["executor"]["slots"] == 1
    assert "memory" not in stored["spec"]["executor"], "the heap may be given instead"
    assert "maxParallelism" not in stored["spec"]
    assert "restartStrategy" not in stored["spec"]
    assert validate_on_kubernetes(stored) == validate_on_kubernetes(GOOD)
    assert validate_on_kubernetes(stored).spec.max_parallelism_given is False
    stored, problems = snapshots.admit(SNAPSHOT)
    assert problems == []
    assert validate_snapshot(stored) == validate_snapshot(SNAPSHOT)


def test_unknown_fields_are_pruned_but_not_in_pod_templates(jobs: Any) -> None:
    """Secrets written into a manifest never reach etcd."""
    spec: dict[str, Any] = {
        "driver": {"podTemplate": {"spec": {"priorityClassName": "x"}}},
        "checkpointing": {"storage": {"secretAccessKey": "hunter2"}},
    }
    stored, problems = jobs.admit(with_spec(GOOD, typo=1, **spec))
    assert problems == []
    assert "typo" not in stored["spec"]
    assert "secretAccessKey" not in stored["spec"]["checkpointing"]["storage"]
    assert "hunter2" not in str(stored)
    assert stored["spec"]["driver"]["podTemplate"] == spec["driver"]["podTemplate"]


small = st.integers(1, 6)
flag = st.booleans()
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "parallelism": st.integers(1, 9),
        "maxParallelism": small,
        "state": st.sampled_from(["running", "suspended", "stopped"]),
        "executor": st.fixed_dictionaries(
            {},
            optional={
                "instances": small,
                "slots": small,
                "memory": st.sampled_from(["4Gi", "8 GiB", "0", "4096"]),
                "cores": st.sampled_from([1, "500m", "1.5", "x"]),
                "managedMemory": st.sampled_from([{}, {"size": "16Mi"}, {"fraction": 0.3}, {"size": "16Mi", "fraction": 0.3}]),
            },
        ),
        "checkpointing": st.fixed_dictionaries(
            {},
            optional={
                "savepointDir": st.just("s3://bucket/savepoints"),
                "minPause": st.sampled_from([0, "0", "0s", "00 s 0ms", "1ms", "0s1ms", "10 s"]),
                "maxConcurrent": st.integers(0, 2),
                "retention": st.fixed_dictionaries(
                    {}, optional={"count": st.integers(0, 3), "maxAge": st.sampled_from(["1h", "1ms", "0"])}
                ),
                "interval": st.sampled_from(["10s", "1h 30m", 0, 10]),
            },
        ),
        "savepoints": st.fixed_dictionaries(
            {"schedule": st.sampled_from([{}, {"interval": "1h"}, {"cron": "0 3 * * *"}, {"interval": "1h", "cron": "0 3 * * *"}])}
        ),
        "upgradeMode": st.sampled_from(["savepoint", "last-state", "stateless"]),
        "savepointOnDeletion": flag,
        "savepointNonce": st.integers(-1, 3),
        "initialSavepointPath": st.just("s3://bucket/savepoint"),
        "initialSnapshot": st.just({"name": "x"}),
        "claimMode": st.sampled_from(["CLAIM", "NO_CLAIM"]),
        "sparkConf": st.dictionaries(st.sampled_from(["spark.x", "spark.executor.memory", "spark. x", "x.spark.y"]), small, max_size=2),
        "stateBackend": st.fixed_dictionaries(
            {
                "rocksdb": st.fixed_dictionaries(
                    {},
                    optional={
                        "memory": st.fixed_dictionaries(
                            {"writeBufferRatio": st.floats(0.05, 0.95), "highPrioPoolRatio": st.floats(0, 0.95)}
                        ),
                        "options": st.dictionaries(st.sampled_from(["thread.num", "compaction.style", "other"]), st.just("4"), max_size=2),
                        "metrics": st.lists(st.sampled_from(["bytes-read", "other"]), max_size=2),
                    },
                )
            }
        ),
    },
)


@given(SPECS)
def test_a_rule_never_refuses_what_the_operator_accepts(jobs: Any, spec: dict[str, Any]) -> None:
    """Model, schema and rules are three readings of one contract; here they are compared on random specs."""
    document = with_spec(GOOD, **spec)
    try:
        validate_on_kubernetes(document)
    except InvalidInputError:
        return
    assert jobs.admit(document)[1] == []


@given(SPECS)
def test_what_passes_all_rules_is_mostly_accepted(jobs: Any, spec: dict[str, Any]) -> None:
    """The other way round only what CEL cannot say is left: bounds of sizes and durations, values of RocksDB options, memory that does not add up."""
    document = with_spec(GOOD, **spec)
    if jobs.admit(document)[1]:
        return
    with contextlib.suppress(InvalidInputError):
        validate_on_kubernetes(document)
        return
    with pytest.raises(InvalidInputError) as caught:
        validate_on_kubernetes(document)
    assert any(word in str(caught.value) for word in ("memory", "interval", "maxAge", "managedMemory", "rocksdb.options"))
