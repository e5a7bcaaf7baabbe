"""Jars of connectors: fetched once from a repository of Maven's layout, checked by SHA-256, and put on the class path of Spark."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statefulspark.cli.main import app
from statefulspark.connectors import connector_jars, installed, jars
from statefulspark.connectors.installed import connector_remedy, connectors_folder, with_connectors
from statefulspark.connectors.jars import ChecksumError, FetchError, Jar, fetch_jars, read_lock
from statefulspark.errors import InvalidInputError

from .http_server import http_server

CONTENTS = {"org/a/a-1.jar": b"one", "org/b/b-2.jar": b"two"}
LOCKED = [Jar(path, hashlib.sha256(content).hexdigest()) for path, content in CONTENTS.items()]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with Maven's layout."""
    for path, content in CONTENTS.items():
        file = tmp_path / "maven" / path
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    return tmp_path / "maven"


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Connectors' folder, in which the test may put jars."""
    monkeypatch.setenv("STATEFULSPARK_CONNECTORS", str(tmp_path / "connectors"))
    return tmp_path / "connectors"


def put_jars(folder: Path) -> list[str]:
    """Files with the names of the jars of the Kafka connector."""
    folder.mkdir()
    names = [jar.name for jar in read_lock(Path(installed.__file__).with_name("kafka.lock"))]
    for name in names:
        (folder / name).touch()
    return [str(folder / name) for name in names]


def test_jars_are_fetched_once_from_a_folder(repository: Path, tmp_path: Path) -> None:
    told: list[str] = []
    fetch_jars(LOCKED, tmp_path / "jars", told.append, source=jars.repository_url(str(repository)))
    assert {path.name: path.read_bytes() for path in (tmp_path / "jars").iterdir()} == {"a-1.jar": b"one", "b-2.jar": b"two"}
    assert [line.split("(", maxsplit=1)[0] for line in told] == ["[1/2] a-1.jar ", "[2/2] b-2.jar "]
    fetch_jars(LOCKED, tmp_path / "jars", told.append, source="file:///absent")
    assert len(told) == 2


def test_another_file_is_refused_and_leaves_nothing(repository: Path, tmp_path: Path) -> None:
    (repository / "org/b/b-2.jar").write_bytes(b"other")
    with pytest.raises(ChecksumError, match=r"b-2\.jar is not the locked file"):
        fetch_jars(LOCKED, tmp_path / "jars", lambda _: None, source=repository.as_uri())
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["a-1.jar"]


@contextmanager
def served(statuses: list[int]) -> Iterator[str]:
    """A repository over HTTP that answers with these statuses first."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        status = statuses.pop(0) if statuses else 200
        content = CONTENTS[request.path[1:]] if status == 200 else b""
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    with http_server(answer) as url:
        yield url


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_repository_that_fails_is_asked_again(tmp_path: Path) -> None:
    with served([503, 500]) as url:
        fetch_jars(LOCKED, tmp_path / "jars", lambda _: None, source=url, pause_s=0.01)
    assert (tmp_path / "jars/a-1.jar").read_bytes() == b"one"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_absent_jar_is_named(tmp_path: Path) -> None:
    with served([404]) as url, pytest.raises(FetchError, match=r"/org/a/a-1\.jar cannot be read: HTTP Error 404"):
        fetch_jars(LOCKED, tmp_path / "jars", lambda _: None, source=url, pause_s=0.01)


def test_the_script_of_the_image_build_needs_no_package(repository: Path, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("# comment\n" + "".join(f"{jar.sha256}  {jar.path}\n" for jar in LOCKED))
    command = [sys.executable, "-I", "-S", jars.__file__, str(lock), str(tmp_path / "jars")]
    done = subprocess.run(command, env={"STATEFULSPARK_MAVEN": str(repository)}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "jars").iterdir())) == 2
    (repository / "org/a/a-1.jar").write_bytes(b"")
    (tmp_path / "jars/a-1.jar").unlink()
    done = subprocess.run(command, env={"STATEFULSPARK_MAVEN": str(repository)}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "Set STATEFULSPARK_MAVEN to the URL of another repository" in done.stderr


def test_added_connectors_are_on_the_class_path(added: Path) -> None:
    """Beside jars of the user's own; a user's own version of a connector comes instead of ours."""
    assert with_connectors({}, same_image=False) == {}
    assert connector_jars("kafka") == []
    paths = put_jars(added)
    assert list(map(str, connector_jars("kafka"))) == paths
    assert len(paths) == 4
    assert with_connectors({}, same_image=False) == {"spark.jars": ",".join(paths)}
    assert with_connectors({"spark.jars": "/mine.jar"}, same_image=False) == {"spark.jars": ",".join(["/mine.jar", *paths])}
    for own in ("spark.jars.packages", "spark.jars", "spark.driver.extraClassPath"):
        assert with_connectors({own: "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"}, same_image=False) == {}
    Path(paths[0]).unlink()
    assert with_connectors({}, same_image=False) == {}


def test_executors_of_the_same_image_copy_no_jars(added: Path) -> None:
    """On Kubernetes their working directory is read-only."""
    paths = put_jars(added)
    found = with_connectors({"spark.executor.extraClassPath": "/mine.jar"}, same_image=True)
    assert found == {
        "spark.driver.extraClassPath": ":".join(paths),
        "spark.executor.extraClassPath": ":".join(["/mine.jar", *paths]),
    }


def test_the_folder_is_in_the_users_cache() -> None:
    assert connectors_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/statefulspark/connectors")
    assert connectors_folder({"STATEFULSPARK_CONNECTORS": "/jars", "XDG_CACHE_HOME": "/cache"}) == Path("/jars")
    assert connectors_folder({}) == Path.home() / ".cache/statefulspark/connectors"


def test_the_command_fetches_from_a_folder_and_tells_what_is_missing(added: Path, repository: Path) -> None:
    runner = CliRunner()
    refused = runner.invoke(app, ["connectors", "add", "pulsar"])
    assert refused.exit_code == 2
    assert "NAME: there is no connector 'pulsar'. Choose one of: kafka" in refused.output
    absent = runner.invoke(app, ["connectors", "add", "kafka", "--repository", str(repository)])
    assert absent.exit_code == 1
    assert "commons-pool2" in absent.output
    assert "pass --repository with the URL of another repository or a folder" in absent.output
    for jar in read_lock(Path(installed.__file__).with_name("kafka.lock")):
        (added / jar.name).touch()
    present = runner.invoke(app, ["connectors", "add", "kafka", "--repository", str(repository)])
    assert present.exit_code == 0, present.output
    assert f"kafka: {added}" in present.output


def test_an_unknown_connector_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="there is no connector 'x'"):
        connector_jars("x")


def test_a_missing_format_is_told_with_its_remedy() -> None:
    assert connector_remedy("Kafka").startswith("Run `statefulspark connectors add kafka` once")
    assert "spec.job.jars" in connector_remedy("pulsar")
