"""Pod templates and the operator's own pod: of two things with one name one is taken whole, and every pod is one that the API server takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.errors import InvalidInputError
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.pods import driver_pod, executor_template, storage_pod
from tests.builders.pod_validation import pod_problems
from tests.manifests import manifest

JOB = JobIdentity(name="counts", namespace="shop", uid="u-1", generation=3)
STORAGE = {"dir": "s3://bucket/c", "storage": {"credentialsSecret": "keys"}}
OURS = ("driver", "spark-kubernetes-executor")


def built(template: dict[str, Any]) -> list[dict[str, Any]]:
    """All pods of a job with this template for driver and executors. Raises if admission refuses it."""
    parts = {"driver": {"podTemplate": template}, "executor": {"podTemplate": template}}
    document = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": {"name": "counts"}}
    spec = validate_on_kubernetes(document | {"spec": manifest(checkpointing=STORAGE, **parts)}).spec
    owner = {"kind": "StateSnapshot", "name": "friday", "uid": "u-9"}
    return [
        driver_pod(JOB, spec, image="i", account="a", key_id="k"),
        executor_template(JOB, spec),
        storage_pod(JOB, spec, name="s", owner=owner, command=("describe", "s3://b/x"), image="i", account="a"),
    ]


def template(name: str = "driver", *, volumes: tuple[dict[str, Any], ...] = (), **fields: Any) -> dict[str, Any]:
    return {"spec": {"volumes": list(volumes), "containers": [{"name": name, **fields}]}}


def named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (each for each in items if each["name"] == name)
    return found


CONFLICTS = [
    template(volumes=({"name": "tmp", "hostPath": {"path": "/mnt/nvme"}},)),
    template(volumes=({"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},)),
    template(env=[{"name": "HOME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    template(env=[{"name": "AWS_ACCESS_KEY_ID", "value": "x"}]),
    template(env=[{"name": "AWS_SESSION_TOKEN", "valueFrom": {"configMapKeyRef": {"name": "o", "key": "t"}}}]),
    template(readinessProbe={"exec": {"command": ["true"]}}),
    template(securityContext={"privileged": True}),
    template(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    {"spec": {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}}},
    template(volumes=({"name": "scratch", "emptyDir": {}},), volumeMounts=[{"name": "scratch", "mountPath": "/tmp/"}]),
    template(ports=[{"name": "api", "containerPort": 1}]),
]


@pytest.mark.parametrize("container", OURS)
@pytest.mark.parametrize("conflict", CONFLICTS)
def test_a_template_that_names_a_thing_of_ours_makes_pods_that_can_exist(conflict: dict[str, Any], container: str) -> None:
    renamed = {"spec": {**conflict["spec"], "containers": [{**each, "name": container} for each in conflict["spec"].get("containers", [])]}}
    for pod in built(renamed):
        assert pod_problems(pod) == []


def test_scratch_space_of_the_template_replaces_ours() -> None:
    pod = built(template(volumes=({"name": "tmp", "hostPath": {"path": "/mnt/nvme"}},)))[0]
    assert named(pod["spec"]["volumes"], "tmp") == {"name": "tmp", "hostPath": {"path": "/mnt/nvme"}}
    own = {"name": "scratch", "mountPath": "/tmp", "subPath": "job"}
    pod = built(template(volumes=({"name": "scratch", "emptyDir": {}},), volumeMounts=[own]))[0]
    assert [each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["mountPath"] == "/tmp"] == [own]


def test_variables_probe_and_security_of_our_container_are_ours() -> None:
    """The driver's container loses root, capabilities, an unconfined profile and an unmasked /proc."""
    security = {
        "runAsUser": 0,
        "capabilities": {"add": ["NET_ADMIN"]},
        "seccompProfile": {"type": "Unconfined"},
        "procMount": "Unmasked",
        "readOnlyRootFilesystem": False,
    }
    theirs = template(
        securityContext=security,
        env=[{"name": "HOME", "value": "/root"}],
        readinessProbe={"exec": {"command": ["true"]}, "initialDelaySeconds": 300},
    )
    driver, executor, storage = (pod["spec"]["containers"] for pod in built(theirs))
    ours = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert driver[0]["securityContext"] == storage[0]["securityContext"] == ours
    assert named(executor, "spark-kubernetes-executor")["securityContext"] == ours
    assert named(driver[0]["env"], "HOME") == {"name": "HOME", "value": "/tmp"}
    assert "exec" not in driver[0]["readinessProbe"]
    assert "initialDelaySeconds" not in driver[0]["readinessProbe"]


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (template(volumes=({"name": "config", "configMap": {"name": "app"}},)), "spec.driver.podTemplate.spec.volumes[config]"),
        (template(resources={"limits": {"cpu": "500m"}}), "containers[driver].resources.limits.cpu: is below spec.driver.cores"),
        (template("spark-kubernetes-executor", resources={"limits": {"cpu": 0.5}}), "is below spec.executor.cores"),
        ({"spec": {"initContainers": [{"name": "driver"}]}}, "spec.driver.podTemplate.spec.initContainers[driver]"),
    ],
)
def test_conflicts_that_no_side_can_win_are_refused_by_name(refused: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=r".*") as caught:
        built(refused)
    assert words in str(caught.value)


VOLUMES = st.sampled_from(["tmp", "data", "scratch", "config", "tls", "storage-ca"])
TYPES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"emptyDir": {}}, {"hostPath": {"path": "/x"}}, {"configMap": {"name": "c", "items": []}}, {"secret": {"secretName": "s"}}]
)
VALUES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"value": "x"},
        {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
)
VARIABLES = ["HOME", "SPARK_LOCAL_DIRS", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "STATEFULSPARK_POD_IP", "OTHER"]
PROBES = st.sampled_from(
    [{"exec": {"command": ["true"]}}, {"tcpSocket": {"port": 1}}, {"httpGet": {"path": "/", "port": 1}}, {"grpc": {"port": 1}}]
)
SECURITY: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"privileged": True},
        {"runAsUser": 0},
        {"capabilities": {"add": ["SYS_ADMIN"]}},
        {"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}},
        {"seccompProfile": {"type": "Unconfined"}},
    ]
)
PATHS = ["/tmp", "/tmp/", "/data", "/etc/statefulspark/tls", "/etc/statefulspark/config"]


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """Valid pods of any author's."""
    volumes = draw(st.dictionaries(VOLUMES, TYPES, max_size=4))

    def container(name: str) -> dict[str, Any]:
        mounts = draw(st.dictionaries(st.sampled_from(PATHS), st.sampled_from(sorted(volumes)), max_size=3)) if volumes else {}
        mounts = {
            path: volume for path, volume in mounts.items() if path == "/tmp" or path.rstrip("/") not in mounts or path.rstrip("/") == path
        }
        fields = {
            "env": [
                {"name": each, **value} for each, value in draw(st.dictionaries(st.sampled_from(VARIABLES), VALUES, max_size=4)).items()
            ],
            "volumeMounts": [{"name": volume, "mountPath": path} for path, volume in mounts.items()],
            "readinessProbe": draw(PROBES),
            "livenessProbe": draw(PROBES),
            "securityContext": draw(SECURITY),
            "resources": {"limits": {"cpu": draw(st.sampled_from(["500m", "1", 2, "2.5"]))}},
            "ports": [{"name": draw(st.sampled_from(["api", "driver", "mine"])), "containerPort": 1}],
        }
        wanted = draw(st.sets(st.sampled_from(sorted(fields))))
        return {"name": name, **{field: value for field, value in fields.items() if field in wanted}}

    names = draw(st.lists(st.sampled_from([*OURS, "sidecar", "fetch"]), unique=True, min_size=1))
    init = draw(st.integers(0, len(names) - 1))
    return {
        "metadata": {"labels": {"team": "blue"}, "name": "mine"},
        "spec": {
            "volumes": [{"name": name, **type_} for name, type_ in volumes.items()],
            "initContainers": [container(name) for name in names[:init]],
            "containers": [container(name) for name in names[init:]],
            "securityContext": draw(SECURITY.filter(lambda each: "privileged" not in each and "capabilities" not in each)),
        },
    }


@settings(max_examples=examples(60, 1000), deadline=None)
@given(template=templates())
def test_every_valid_template_is_refused_by_name_or_makes_pods_that_can_exist(template: dict[str, Any]) -> None:
    assert pod_problems(template) == [], "the generator makes valid pods"
    try:
        pods = built(template)
    except InvalidInputError as refusal:
        told = str(refusal)
        assert "podTemplate.spec." in told
        return
    for pod in pods:
        assert pod_problems(pod) == []
        mounts = {each["name"] for container in pod["spec"]["containers"] for each in container.get("volumeMounts", [])}
        assert mounts <= {volume["name"] for volume in pod["spec"]["volumes"]}
