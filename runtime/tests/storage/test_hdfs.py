"""hdfs:// on a real HDFS: the contract, and NameNodes that refuse, fall silent, or lose their replies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from runtime.tests.checkpoint.one_life import life, resumes
from runtime.tests.storage.hdfs_cluster import HdfsCluster, TcpProxy, hdfs_cluster
from runtime.tests.storage.test_contract import PLAN, QUICK
from typer.testing import CliRunner

from statefulspark.cli import main
from statefulspark.errors import ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from statefulspark.faults.storage import FaultyStore
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.hdfs.store import HdfsStore
from statefulspark.storage.keys import TEMPORARY_PREFIX
from statefulspark.storage.limits import StoreLimits
from statefulspark.storage.open import check_reachable, open_store
from statefulspark.storage.retrying import RetryingStore
from statefulspark.testing.object_store import ObjectStoreContract

LIMITS = StoreLimits(part_bytes=1 << 20, read_timeout_s=60)
IMPATIENT = replace(LIMITS, read_timeout_s=3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """One cluster; every test has its own directory."""
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture
def proxy(cluster: HdfsCluster) -> TcpProxy:
    cluster.proxy.reset()
    return cluster.proxy


@pytest.fixture
def folder() -> str:
    return f"tests/{uuid.uuid4().hex}"


@pytest.fixture
def store(proxy: TcpProxy, folder: str) -> ObjectStore:
    return HdfsStore(proxy.authority, folder, limits=LIMITS)


@pytest.fixture
def impatient(proxy: TcpProxy, folder: str) -> ObjectStore:
    return HdfsStore(proxy.authority, folder, limits=IMPATIENT)


class TestHdfs(ObjectStoreContract):
    """On a real cluster."""

    @pytest.fixture
    def store(self, proxy: TcpProxy, folder: str) -> ObjectStore:
        """In a directory of its own."""
        return HdfsStore(proxy.authority, folder, limits=LIMITS)

    @pytest.mark.parametrize(
        "key", ["a b/c", "100%/%41", "q?x=1&y#z", "plus+and=&;,@!$'()*", "\u00e9/\U0001f600", "~tilde/..x", "a/" * 80 + "deep"]
    )
    def test_names_are_kept(self, store: ObjectStore, key: str) -> None:
        """Names that URLs need percent-encoded are the same in every operation, and never decoded."""
        store.put_if_absent(key, b"x")
        store.copy(key, f"{key}-copy")
        assert store.get(f"{key}-copy") == b"x"
        assert {info.key for info in store.list("")} == {key, f"{key}-copy"}
        store.delete([key, f"{key}-copy"])
        assert store.list("") == []


@pytest.mark.exhaustive
class TestHdfsUnderFaults(ObjectStoreContract):
    """30 % of all attempts fail; nobody above notices."""

    @pytest.fixture
    def store(self, proxy: TcpProxy, folder: str) -> RetryingStore:
        """Cluster, faults, retries."""
        return RetryingStore(FaultyStore(HdfsStore(proxy.authority, folder, limits=LIMITS), PLAN), QUICK)


def test_a_colon_is_refused(store: ObjectStore) -> None:
    """HDFS would refuse it after the data was sent."""
    for call in (lambda: store.put("a:b", b""), lambda: store.get("a:b"), lambda: store.put_if_absent("x/a:b", b"")):
        with pytest.raises(InvalidInputError, match="colon"):
            call()


def test_a_lost_reply_of_a_conditional_write(store: ObjectStore, proxy: TcpProxy) -> None:
    """The rename was made and its reply lost: success, without a repetition, which would find nothing to rename; others conflict."""
    store.put("warm", b"")
    proxy.matches, proxy.faults = b"rename", ["lost"]
    store.put_if_absent("claim", b"mine")
    assert not proxy.faults
    with pytest.raises(ConflictError):
        store.put_if_absent("claim", b"yours")
    assert store.get("claim") == b"mine"


@pytest.mark.parametrize("method", [b"create", b"addBlock", b"complete", b"rename"])
@pytest.mark.parametrize("fault", ["lost", "never"])
def test_a_call_that_fails_once(store: ObjectStore, proxy: TcpProxy, method: bytes, fault: str) -> None:
    """Whichever call of a write fails, its repetition writes the object once and whole."""
    store.put("x", b"old")
    proxy.matches, proxy.faults = method, [fault]
    RetryingStore(store, QUICK).put("x", b"new")
    assert not proxy.faults
    proxy.faults = [fault]
    RetryingStore(store, QUICK).put_if_absent("y", b"created")
    assert not proxy.faults
    assert (store.get("x"), store.get("y")) == (b"new", b"created")
    assert [info.key for info in store.list("")] == ["x", "y"]


def test_two_creators_while_replies_are_lost(store: ObjectStore, proxy: TcpProxy) -> None:
    """One of them wins, and each knows."""
    store.put("warm", b"")
    proxy.matches, proxy.faults = b"rename", ["lost", "never", "lost"]
    outcomes: dict[bytes, bool] = {}

    def create(data: bytes) -> None:
        try:
            RetryingStore(store, QUICK).put_if_absent("claim", data)
        except ConflictError:
            outcomes[data] = False
        else:
            outcomes[data] = True

    threads = [threading.Thread(target=create, args=(b"writer %d" % number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(outcomes.values()) == [False, False, False, True]
    assert outcomes[store.get("claim")]


@pytest.mark.parametrize(
    "operation", ["put", "put_if_absent", "put_file", "get", "get_file", "head", "list", "list_folders", "copy", "delete"]
)
@pytest.mark.parametrize("how", ["refuse", "silent"])
def test_every_call_fails_within_bounds(impatient: ObjectStore, proxy: TcpProxy, how: str, operation: str, tmp_path: Path) -> None:
    """A NameNode that is gone, or does not answer, is UnavailableError in time, and the call can be repeated."""
    store = impatient
    RetryingStore(store, QUICK).put("source", b"x")
    (tmp_path / "file").write_bytes(b"x")
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("target", b"x"),
        "put_if_absent": lambda: store.put_if_absent("target", b"x"),
        "put_file": lambda: store.put_file("target", tmp_path / "file"),
        "get": lambda: store.get("source"),
        "get_file": lambda: store.get_file("source", tmp_path / "down"),
        "head": lambda: store.head("source"),
        "list": lambda: store.list(""),
        "list_folders": lambda: store.list_folders(""),
        "copy": lambda: store.copy("source", "target"),
        "delete": lambda: store.delete(["source"]),
    }
    setattr(proxy, how, True)
    with pytest.raises(UnavailableError, match=r"Check that the NameNode in checkpointing\.dir"):
        calls[operation]()
    proxy.reset()
    assert not (tmp_path / "down").exists()
    RetryingStore(store, QUICK)._call("test", "x", calls[operation])


def test_what_a_dead_writer_left_is_no_object(store: ObjectStore, proxy: TcpProxy, folder: str) -> None:
    """It is not listed, keeps nothing from being deleted, and goes with its directory once it is old."""
    store.put("a/x", b"1")
    client = store._client  # type: ignore[attr-defined]  # the store hides these files
    left = f"/{folder}/a/{TEMPORARY_PREFIX}dead"
    client.write(left, [b"2"])
    assert [info.key for info in store.list("")] == ["a/x"]
    assert store.list_folders("") == ["a"]
    store.delete(["a/x"])
    assert store.list_folders("") == []
    assert client.status(left).length == 1
    client._client.set_times(left, 1_000, 1_000)
    store.delete(["a/x"])
    with pytest.raises(FileNotFoundError):
        client.status(f"/{folder}/a")


def test_a_damaged_block_is_not_read(store: ObjectStore, cluster: HdfsCluster) -> None:
    """HDFS's checksums are checked by this client too; with one copy there is nothing else to read."""
    content = uuid.uuid4().bytes * 4096
    store.put("x", content)
    blocks = [path for path in cluster.data.rglob("blk_*") if path.suffix != ".meta" and path.read_bytes() == content]
    assert len(blocks) == 1
    blocks[0].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises((CorruptDataError, UnavailableError)):
        store.get("x")


def test_another_user(store: ObjectStore, proxy: TcpProxy, folder: str) -> None:
    """Who may not write is told so at once, and what to do."""
    store.put("x", b"1")
    program = (
        "import sys\nfrom statefulspark.storage.hdfs.store import HdfsStore\nfrom statefulspark.errors import InvalidInputError\n"
        "store = HdfsStore(*sys.argv[1:])\nassert store.get('x') == b'1'\n"
        "try:\n    store.put('x', b'2')\nexcept InvalidInputError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, proxy.authority, folder],
        env=os.environ | {"HADOOP_USER_NAME": "somebody"}, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip().endswith("Give this user write access to the directory, or choose another one")
    assert "org.apache" not in done.stdout
    assert store.get("x") == b"1"


def test_the_probe(proxy: TcpProxy, folder: str) -> None:
    """A job asks this before it starts; nothing is left behind."""
    store = open_store(f"hdfs://{proxy.authority}/{folder}")
    check_reachable(store)
    assert store.list("") == []


@pytest.mark.parametrize("url", ["hdfs:///folder", "hdfs://user@host/x", "hdfs:x", "hdfs://host:port/x", "hdfs://a/b:c"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"checkpointing\.dir"):
        open_store(url)


def test_a_job(proxy: TcpProxy, folder: str, tmp_path: Path) -> None:
    """One life: batches, checkpoints, retention, another number of slots, a savepoint copied inside the storage, and looking at it all."""
    root = f"hdfs://{proxy.authority}/{folder}"
    lived = life(root, open_store, tmp_path)
    resumes(lived)
    answer = CliRunner().invoke(main.app, ["checkpoints", lived.url, "-o", "json"])
    assert answer.exit_code == 0, answer.output
    assert [each["url"] for each in json.loads(answer.stdout)["checkpoints"]] == [lived.url]
