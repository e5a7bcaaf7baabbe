"""A counting job under the operator: its manifest, what its status says, what it gave out."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from e2e.harness.images import Images
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.oracle import Output, Written, check, pause_s
from e2e.harness.store import BUCKET, KEYS, SECRET, Store
from e2e.harness.timeouts import CHECKPOINT_S, GONE_S, JOB_RUNS_S, RECOVERY_S, TRANSITION_S

KIND: Final = "statefulsparkjobs.statefulspark.io"
SNAPSHOTS: Final = "statesnapshots.statefulspark.io"
JOB_LABEL: Final = "statefulspark.io/job"
COMPONENT_LABEL: Final = "statefulspark.io/component"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What flows through the job."""

    keys: int = 40
    rows: int = 20
    """Of each batch; there is one a second."""
    pad_bytes: int = 64
    """State of each key."""

    @property
    def full_batches(self) -> int:
        """Number of batches after which all keys have their state."""
        return -(-self.keys // self.rows)


SMALL: Final = Load()
HUNDRED_MB: Final = Load(keys=25_000, rows=2_500, pad_bytes=4_000)


class CountingJob:
    """One StatefulSparkJob with the counting program."""

    def __init__(self, kubectl: Kubectl, store: Store, images: Images, name: str = "counts", load: Load = SMALL) -> None:
        self.kubectl = kubectl
        self.store = store
        self.images = images
        self.name = name
        self.load = load
        self.prefix = f"output/{kubectl.namespace}/{name}"
        self.driver = f"{name}-driver"

    # -- the object ----------------------------------------------------------------------------------------------------

    def manifest(self, **changes: Any) -> dict[str, Any]:
        """The object; ``changes`` are fields of the spec that are merged in."""
        spec: dict[str, Any] = {
            "image": self.images.job,
            "job": {"script": "counts.py", "args": self.arguments()},
            "parallelism": 2,
            "maxParallelism": 12,
            "driver": {"cores": "0.2", "memory": "1500Mi"},
            "executor": {"cores": "0.2", "memory": "1600Mi", "managedMemory": {"size": "64Mi"}},
            "checkpointing": {
                "interval": "5s",
                "dir": f"s3://{BUCKET}/checkpoints",
                "savepointDir": f"s3://{BUCKET}/savepoints",
                "retention": {"count": 2},
                "storage": {"endpoint": self.store.endpoint, "region": "us-east-1", "credentialsSecret": SECRET},
            },
            "upgradeTimeout": "7m",
        }
        if self.load == SMALL:  # its drivers live for a minute or two, of whose CPU the JVM's second compiler takes about a fifth
            spec["sparkConf"] = {f"spark.{part}.extraJavaOptions": "-XX:TieredStopAtLevel=1" for part in ("driver", "executor")}
        metadata = {"name": self.name, "namespace": self.kubectl.namespace}
        return {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": metadata,
            "spec": merged(spec, changes),
        }

    def arguments(self, *more: str) -> list[str]:
        """Arguments of the program."""
        load = self.load
        return [
            f"--endpoint={self.store.endpoint}",
            f"--bucket={BUCKET}",
            f"--prefix={self.prefix}",
            f"--keys={load.keys}",
            f"--rows={load.rows}",
            f"--pad-bytes={load.pad_bytes}",
            *more,
        ]

    def create(self, **changes: Any) -> None:
        """Make the object, and the Secret with the store's keys."""
        keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": KEYS}
        self.kubectl.apply(keys)
        self.kubectl.apply(self.manifest(**changes))

    def run_until_full(self, **changes: Any) -> dict[str, Any]:
        """Make the object, wait until it is STABLE and a checkpoint holds all keys; returns the status then."""
        self.create(**changes)
        status = self.wait_stable()
        self.wait_batch(self.load.full_batches)
        self.wait_stored_checkpoints(2)  # the first may have begun before that batch
        return status

    def beside(self, name: str) -> CountingJob:
        """Another job in the same namespace, with the same load."""
        return CountingJob(self.kubectl, self.store, self.images, name, self.load)

    def other_code(self) -> tuple[str, int]:
        """The image with the version of the program that does not run now, and that version."""
        image = self.kubectl.get(KIND, self.name)["spec"]["image"]
        return (self.images.job_next, 2) if image == self.images.job else (self.images.job, 1)

    def change(self, **changes: Any) -> None:
        """Merge fields into the spec of the object that is there."""
        self.kubectl.ok("patch", KIND, self.name, "--type=merge", "--patch-file=/dev/stdin", given={"spec": changes})

    def delete(self) -> None:
        """Delete the object and wait until it is gone, with all its pods."""
        self.kubectl.ok("delete", KIND, self.name, "--ignore-not-found", f"--timeout={GONE_S}s")
        wait_for("no pods are left", GONE_S, lambda: not self.pods(), lambda: [each["metadata"]["name"] for each in self.pods()])

    # -- what is seen of it --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The status, empty while there is none."""
        found = self.kubectl.find(KIND, self.name) or {}
        return dict(found.get("status") or {})

    def generation(self) -> int:
        """Generation of the object."""
        return int(self.kubectl.get(KIND, self.name)["metadata"]["generation"])

    def said(self) -> str:
        """What the status says, for errors."""
        status = self.status()
        names = ("lifecycleState", "lifecycleHistory", "jobState", "parallelism", "batch", "attempt", "transition", "error", "conditions")
        return f"Status: { {name: status[name] for name in names if name in status} }"

    def pods(self, component: str | None = None) -> list[dict[str, Any]]:
        """Pods of the job: of drivers, executors or both."""
        selector = f"{JOB_LABEL}={self.name}" + (f",{COMPONENT_LABEL}={component}" if component else "")
        return self.kubectl.items("pods", selector)

    def condition(self, kind: str) -> dict[str, Any]:
        """One condition of the status, empty while there is none."""
        return next((dict(each) for each in self.status().get("conditions", ()) if each["type"] == kind), {})

    def written(self) -> list[Written]:
        """All output so far, read from the store."""
        return [written(key, self.store.json(key)) for key in self.store.keys(f"{self.prefix}/")]

    def last_batch(self) -> int:
        """Highest batch that went out, -1 before the first."""
        return max((int(key.rsplit("/", 1)[1].split("-")[0]) for key in self.store.keys(f"{self.prefix}/")), default=-1)

    def snapshots(self) -> list[dict[str, Any]]:
        """StateSnapshots of the job."""
        return self.kubectl.items(SNAPSHOTS, f"{JOB_LABEL}={self.name}")

    # -- waits ---------------------------------------------------------------------------------------------------------

    def wait(self, what: str, seconds: float, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until the status is as wanted, and return it."""

        def look() -> dict[str, Any] | None:
            status = self.status()
            return status if status and holds(status) else None

        return wait_for(what, seconds, look, self.said)

    def wait_state(self, state: str, seconds: float = TRANSITION_S) -> dict[str, Any]:
        """Wait until the operator says, of this generation, that the job is in a state."""
        generation = self.generation()
        return self.wait(
            f"{self.name} is {state}",
            seconds,
            lambda status: (
                status.get("lifecycleState") == state and status.get("observedGeneration", 0) >= generation and not status.get("transition")
            ),
        )

    def wait_stable(self, seconds: float = JOB_RUNS_S) -> dict[str, Any]:
        """Wait until it runs and has a checkpoint."""
        return self.wait_state("STABLE", seconds)

    def wait_batch(self, batch: int, seconds: float = JOB_RUNS_S) -> None:
        """Wait until a batch has gone out."""
        wait_for(f"batch {batch} of {self.name} went out", seconds, lambda: self.last_batch() >= batch, self.said)

    def wait_more(self, batches: int = 5, seconds: float = RECOVERY_S) -> None:
        """Wait until so many more batches have gone out."""
        self.wait_batch(self.last_batch() + batches, seconds)

    def wait_image(self, image: str) -> None:
        """Wait until every pod runs an image: the executors of a driver that is gone are garbage-collected after it."""

        def images() -> dict[str, str]:
            return {each["metadata"]["name"]: each["spec"]["containers"][0]["image"] for each in self.pods()}

        wait_for(f"every pod runs {image}", GONE_S, lambda: set(images().values()) == {image}, images)

    def wait_checkpoint(self, seconds: float = CHECKPOINT_S) -> dict[str, Any]:
        """Wait for a checkpoint that is newer than what the status names now."""
        before = self.status().get("lastCheckpoint", {}).get("id", 0)
        return self.wait("a new checkpoint", seconds, lambda status: status.get("lastCheckpoint", {}).get("id", 0) > before)

    def wait_stored_checkpoints(self, more: int = 1, seconds: float = CHECKPOINT_S) -> None:
        """Wait until so many more checkpoints are complete in the store. The status names them up to half a minute later."""
        folder = f"checkpoints/{self.status()['jobId']}/chk-"

        def newest() -> int:
            keys = (key.removeprefix(folder) for key in self.store.keys(folder))
            return max((int(key.split("/")[0]) for key in keys if key.endswith("/_metadata")), default=0)

        wanted = newest() + more
        wait_for(f"checkpoint {wanted} is in the store", seconds, lambda: newest() >= wanted, self.said)

    def ask_for_savepoint(self) -> int:
        """Change the spec so that a savepoint is taken; returns the id of the last one before."""
        job = self.kubectl.get(KIND, self.name)
        self.change(savepointNonce=job["spec"].get("savepointNonce", 0) + 1)
        return int(job["status"].get("lastSavepoint", {}).get("id", 0))

    def wait_savepoint(self, after: int, seconds: float = CHECKPOINT_S) -> dict[str, Any]:
        """Wait until the status names a savepoint with a higher id, and return what it says of it."""
        status = self.wait("a savepoint", seconds, lambda status: status.get("lastSavepoint", {}).get("id", 0) > after)
        return dict(status["lastSavepoint"])

    # -- judgement -----------------------------------------------------------------------------------------------------

    def check(self) -> Output:
        """Compare all output with the oracle."""
        return check(self.written(), keys=self.load.keys, pad_bytes=self.load.pad_bytes)

    def pause_s(self, since_ms: int) -> float:
        """Longest pause in output since then."""
        return pause_s(self.written(), since_ms)


def written(key: str, body: dict[str, Any]) -> Written:
    """An object of the sink, by its name and contents."""
    return Written(batch=body["batch"], at_ms=int(key.rsplit("/", 1)[1].split("-")[1]), rows=tuple(map(tuple, body["rows"])))


def merged(ground: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Lay one tree over another; None takes a field away."""
    result = copy.deepcopy(ground)
    for name, value in over.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result


def now_ms() -> int:
    """This machine's clock; that of the node, or kept with it by NTP."""
    return time.time_ns() // 1_000_000


def end_jobs(kubectl: Kubectl, *but: str) -> None:
    """Delete all jobs of a namespace but some, and do not wait. Drivers get no time for a last checkpoint that nobody asks for."""
    for name in kubectl.run("get", KIND, "-o", "name").stdout.split():
        job = name.rsplit("/", 1)[1]
        if job not in but:
            kubectl.run("delete", KIND, job, "--wait=false")
            kubectl.run("delete", "pods", f"--selector={JOB_LABEL}={job}", "--grace-period=1", "--wait=false")
