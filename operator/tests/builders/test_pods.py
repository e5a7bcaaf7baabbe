"""Pods of a job: what they need is there whatever the user's template says, and they fit the restricted Pod Security Standard."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.config.kubernetes.pods import MANIFEST_FILE
from statefulspark.config.manifest import parse_manifest
from statefulspark_operator.builders import children
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.pods import STOP_GRACE_S, driver_pod, executor_template, storage_pod
from statefulspark_operator.reconcile.job.observe import pod_status
from statefulspark_operator.reconcile.tenancy import Tenancy
from tests.manifests import manifest

JOB = JobIdentity(name="counts", namespace="shop", uid="u-1", generation=3)


def spec(**changes: Any) -> StatefulSparkJobSpec:
    return StatefulSparkJobSpec.model_validate(manifest(**changes))


def pods(given: StatefulSparkJobSpec) -> list[dict[str, Any]]:
    return [
        driver_pod(JOB, given, image="shop/counts:1", account="counts-driver", key_id="k-1"),
        executor_template(JOB, given),
        asking(given),
    ]


def asking(given: StatefulSparkJobSpec) -> dict[str, Any]:
    """A storage pod."""
    owner = {"kind": "StateSnapshot", "name": "friday", "uid": "u-9"}
    command = ("describe", "s3://bucket/s/x")
    return storage_pod(JOB, given, name="friday-describe", owner=owner, command=command, image="shop/counts:1", account="counts-driver")


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in pod["spec"]["containers"] if isinstance(each, dict) and each.get("name") == name)
    return found


@pytest.mark.parametrize("index", [0, 1, 2])
def test_pods_fit_the_restricted_standard(index: int) -> None:
    """Kubernetes, "Pod Security Standards", restricted."""
    pod = pods(spec())[index]
    security = pod["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in pod["spec"]["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert all("hostPath" not in volume for volume in pod["spec"]["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys()


def test_a_driver_holds_up_the_deletion_of_its_namespace_no_longer_than_any_other_pod() -> None:
    """The namespace controller waits for half of the longest grace period among the specs; the operator's own deletions name theirs."""
    driver = driver_pod(JOB, spec(), image="shop/counts:1", account="counts-driver", key_id="k-1")
    assert driver["spec"]["terminationGracePeriodSeconds"] <= 30
    assert f"--stop-timeout={STOP_GRACE_S - 10}" in container(driver, "driver")["args"]


@pytest.mark.parametrize(("template_s", "stop_s"), [(None, 60), (5, 60), (30, 60), (300, 300), ("long", 60)])
def test_a_template_can_give_the_driver_more_time_for_its_last_checkpoint(template_s: object, stop_s: int) -> None:
    """The operator names the period when it stops the driver, which would otherwise replace that of the template."""
    template = {} if template_s is None else {"spec": {"terminationGracePeriodSeconds": template_s}}
    pod = driver_pod(JOB, spec(driver={"podTemplate": template}), image="shop/counts:1", account="counts-driver", key_id="k-1")
    assert f"--stop-timeout={stop_s - 10}" in container(pod, "driver")["args"]
    seen = pod_status.driver_pod(pod_status.relevant_part(pod | {"metadata": {**pod["metadata"], "uid": "u"}}))
    assert seen is not None
    assert seen.stop_grace_s == stop_s


def test_executors_have_no_way_to_the_api_server() -> None:
    assert executor_template(JOB, spec())["spec"]["automountServiceAccountToken"] is False


def test_secrets_are_references() -> None:
    given = spec(checkpointing={"dir": "s3://bucket/c", "storage": {"credentialsSecret": "keys"}})
    for pod, name in zip(pods(given), ("driver", "spark-kubernetes-executor", "driver"), strict=True):
        env = {each["name"]: each for each in container(pod, name)["env"]}
        assert env["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "keys", "key": "AWS_SECRET_ACCESS_KEY"}
        assert env["AWS_SESSION_TOKEN"]["valueFrom"]["secretKeyRef"]["optional"] is True
        assert all("value" not in env[variable] for variable in env if variable.startswith("AWS_"))


@pytest.mark.parametrize(
    ("place", "key"),
    [("gs://bucket/c", "GOOGLE_CREDENTIALS"), ("abfss://states@myaccount.dfs.core.windows.net/c", "AZURE_STORAGE_KEY")],
)
def test_each_store_has_its_own_keys(place: str, key: str) -> None:
    given = spec(checkpointing={"dir": place, "savepointDir": "file:///savepoints", "storage": {"credentialsSecret": "keys"}})
    env = {each["name"]: each for each in container(pods(given)[0], "driver")["env"]}
    assert env[key]["valueFrom"]["secretKeyRef"] == {"name": "keys", "key": key}
    assert not any(name.startswith("AWS_") for name in env)


def test_credentials_are_files_as_well_which_follow_the_secret() -> None:
    """Variables keep their values; a volume that is mounted whole follows within the kubelet's minute."""
    given = spec(checkpointing={"dir": "s3://bucket/c", "storage": {"credentialsSecret": "keys"}})
    for pod, name in zip(pods(given), ("driver", "spark-kubernetes-executor", "driver"), strict=True):
        env = {each["name"]: each for each in container(pod, name)["env"]}
        folder = env["STATEFULSPARK_CREDENTIALS_FOLDER"]["value"]
        (mount,) = (each for each in container(pod, name)["volumeMounts"] if each["mountPath"] == folder)
        assert mount["readOnly"] is True
        assert "subPath" not in mount
        (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
        assert volume["secret"]["secretName"] == "keys"
    for pod, name in zip(pods(spec()), ("driver", "spark-kubernetes-executor", "driver"), strict=True):
        assert "STATEFULSPARK_CREDENTIALS_FOLDER" not in {each["name"] for each in container(pod, name)["env"]}


def test_a_template_adds_and_cannot_take_away() -> None:
    template = {
        "metadata": {"name": "mine", "labels": {"team": "blue", "statefulspark.io/job": "other"}},
        "spec": {
            "nodeSelector": {"disk": "nvme"},
            "serviceAccountName": "root",
            "securityContext": {"runAsNonRoot": False, "supplementalGroups": [5]},
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "hostPath": {"path": "/"}}],
            "containers": [
                {"name": "driver", "env": [{"name": "EXTRA", "value": "1"}], "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
                {"name": "sidecar", "image": "log:1"},
            ],
        },
    }
    before = copy.deepcopy(template)
    pod = driver_pod(JOB, spec(driver={"podTemplate": template}), image="shop/counts:1", account="counts-driver", key_id="k-1")
    assert template == before, "the user's tree is not changed"
    assert pod["metadata"]["name"] == "counts-driver"
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["metadata"]["labels"]["statefulspark.io/job"] == "counts"
    assert pod["spec"]["nodeSelector"] == {"disk": "nvme"}
    assert pod["spec"]["serviceAccountName"] == "counts-driver"
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["supplementalGroups"] == [5]
    driver = container(pod, "driver")
    assert {each["name"] for each in driver["env"]} >= {"EXTRA", "STATEFULSPARK_POD_IP"}
    assert {each["mountPath"] for each in driver["volumeMounts"]} >= {"/data", "/tmp"}
    assert container(pod, "sidecar") == {"name": "sidecar", "image": "log:1"}
    assert sum(volume["name"] == "tmp" for volume in pod["spec"]["volumes"]) == 1


def test_a_storage_pod_takes_volumes_and_variables_of_the_template_and_no_other_container() -> None:
    """A container beside it would never end; one before it would do the job's work."""
    own = {
        "name": "driver",
        "env": [{"name": "EXTRA", "value": "1"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "command": ["sh"],
        "resources": {"limits": {"memory": "64Gi"}},
        "ports": [{"containerPort": 1}],
    }
    template = {
        "spec": {
            "nodeSelector": {"disk": "nvme"},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "state"}}],
            "containers": [{"name": "sidecar", "image": "log:1"}, own],
            "initContainers": [{"name": "prepare", "image": "x"}],
        }
    }
    pod = asking(spec(driver={"podTemplate": template}))
    assert [each["name"] for each in pod["spec"]["containers"]] == ["driver"]
    assert "initContainers" not in pod["spec"]
    assert pod["spec"]["nodeSelector"] == {"disk": "nvme"}
    driver = container(pod, "driver")
    assert {"/data", "/tmp"} <= {each["mountPath"] for each in driver["volumeMounts"]}
    assert "EXTRA" in {each["name"] for each in driver["env"]}
    assert not {"command", "ports"} & driver.keys()
    assert driver["resources"]["limits"]["memory"] == "512Mi"


def test_authorities_are_mounted_wherever_storage_is_opened() -> None:
    storage = {"caBundleFrom": {"configMapKeyRef": {"name": "trust", "key": "root.pem"}}}
    given = spec(checkpointing={"dir": "s3://bucket/c", "storage": storage})
    for pod, name in zip(pods(given), ("driver", "spark-kubernetes-executor", "driver"), strict=True):
        mount = next(each for each in container(pod, name)["volumeMounts"] if each["name"] == "storage-ca")
        assert (mount["mountPath"], mount["readOnly"]) == ("/etc/statefulspark/storage-ca", True)
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "storage-ca")
        assert volume["configMap"] == {"name": "trust", "items": [{"key": "root.pem", "path": "ca.crt"}]}
    manifest_ = yaml.safe_load(children.config_map(JOB, given, image="i", job_id="u", parallelism=1)["data"][MANIFEST_FILE])
    assert manifest_["spec"]["checkpointing"]["storage"] == {"caBundle": "/etc/statefulspark/storage-ca/ca.crt"}
    parse_manifest(yaml.safe_dump(manifest_))


TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "env", "containers", "volumes", "labels", "securityContext", "x"]), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(template=st.fixed_dictionaries({}, optional={"metadata": TREES, "spec": TREES}))
def test_no_template_breaks_the_builder(template: dict[str, Any]) -> None:
    """The API server judges templates; the builder must give it something to judge."""
    pod = driver_pod(JOB, spec(driver={"podTemplate": template}), image="shop/counts:1", account="counts-driver", key_id="k-1")
    assert pod["metadata"]["name"] == "counts-driver"
    assert container(pod, "driver")["image"] == "shop/counts:1"
    pod = asking(spec(driver={"podTemplate": template}))
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u-9"
    assert container(pod, "driver")["args"][:2] == ["snapshot", "describe"]


def test_the_config_map_holds_a_manifest_that_the_driver_can_run() -> None:
    document = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": {"name": "counts"}}
    program = {"script": "jobs/counts.py", "pyFiles": ["lib", "/abs/x.zip"]}
    given = validate_on_kubernetes(document | {"spec": manifest(job=program, state="suspended")}).spec
    data = children.config_map(JOB, given, image="shop/counts:1", job_id="u-1-7", parallelism=5)["data"]
    job = parse_manifest(data["job.yaml"])
    assert job.metadata.uid == "u-1-7"
    assert job.spec.parallelism == 5
    assert job.spec.job.script == "/opt/job/jobs/counts.py"
    assert job.spec.job.py_files == ("/opt/job/lib", "/abs/x.zip")
    assert job.spec.state == "running"
    assert yaml.safe_load(data["executor-pod.yaml"])["spec"]["containers"][0]["name"] == "spark-kubernetes-executor"


def test_children_go_with_the_job() -> None:
    documents = [
        children.service(JOB),
        children.service_account(JOB),
        children.role(JOB),
        children.role_binding(JOB),
        children.disruption_budget(JOB),
        children.secret(JOB, token="t" * 20, spark_secret="s" * 20),
        driver_pod(JOB, spec(), image="i", account="a", key_id="k-1"),
    ]
    for document in documents:
        assert document["metadata"]["ownerReferences"][0]["uid"] == "u-1", document["kind"]
        assert document["metadata"]["labels"]["statefulspark.io/job"] == "counts"


def test_the_drivers_budget_never_blocks_a_drain() -> None:
    """With maxUnavailable Kubernetes takes the job's slots for the number of pods and lets the driver of two or more never be evicted."""
    budget = children.disruption_budget(JOB)["spec"]
    assert budget["minAvailable"] == 0
    assert "maxUnavailable" not in budget


def test_the_drivers_role_has_no_wildcard_and_no_secrets() -> None:
    for rule in children.role(JOB)["rules"]:
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
        assert set(rule["resources"]) <= {"pods", "configmaps"}, "Spark looks for no services and volume claims of its own"


def test_what_nobody_gave_is_not_in_the_drivers_manifest() -> None:
    """A restart strategy that is given restarts after errors of the job's own code too; its default does not."""
    spec = StatefulSparkJobSpec.model_validate({"image": "x:1", "job": {"script": "a.py"}, "checkpointing": {"dir": "s3://bucket/c"}})
    data = children.config_map(JOB, spec, image="x:1", job_id="u-1", parallelism=1)["data"]
    assert "restartStrategy" not in yaml.safe_load(data[MANIFEST_FILE])["spec"]


def test_a_driver_knows_the_places_to_which_the_operator_limits_its_tenant() -> None:
    def variable(places: tuple[str, ...] | None) -> str | None:
        pod = driver_pod(JOB, spec(), image="shop/counts:1", account="counts-driver", key_id="k-1", locations=places)
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        return env.get("STATEFULSPARK_STORAGE_LOCATIONS")

    assert variable(Tenancy().savepoint_places("shop")) is None
    assert variable(Tenancy(locations=("s3://team/{namespace}",)).savepoint_places("shop")) == '["s3://team/shop"]'
